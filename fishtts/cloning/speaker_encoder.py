"""Who speaks: samples to a direction in space that is near for one speaker, far for another.

Owns the speaker encoder, its front end and ``SAME_SPEAKER``, the likeness from which on two
recordings are taken for one speaker's. Always runs on the CPU in float32: an embedding that was
stored must still fit one that is made elsewhere. Knows nothing of files or voices.

Source: Resemblyzer 0.1.4 (Apache-2.0), a network trained as in "Generalized end-to-end loss for
speaker verification"; ``recipes/speaker/convert.py`` packs its weights, and
``recipes/speaker/measure.py`` measures its error.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from fishtts.cloning.speech_detector import FRAME_S, SpeechDetector
from fishtts.types import Samples
from fishtts.weights import identity as weights_identity
from fishtts.weights import load_into

Embedding = npt.NDArray[np.float32]
"""float32 [256], of length 1, no value below 0."""

SAMPLE_RATE = 16000
SIZE = 256
SAME_SPEAKER = 0.75
"""Equal error rate 2.3 % at 0.752: 198 recordings of 73 people, 19,503 pairs (docs/cloning.md)."""

_HOP, _WINDOW, _NUM_MELS = 160, 400, 40
_PART_FRAMES = 160
"""The network was trained on stretches of 1.6 s; longer speech is the mean of such."""

_STEP_FRAMES = 77
_MIN_COVERAGE = 0.75
_LOUDNESS_DB = -26.0
_SPEECH = 0.5
_MARGIN_FRAMES = 3
_WEIGHTS = Path(__file__).parent / "weights" / "speaker_encoder.safetensors"


class _Net(nn.Module):
    filters: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(_NUM_MELS, SIZE, num_layers=3, batch_first=True)
        self.linear = nn.Linear(SIZE, SIZE)
        self.register_buffer("filters", torch.empty(_NUM_MELS, _WINDOW // 2 + 1))

    def mels(self, samples: Tensor) -> Tensor:
        """Samples [N] -> power in mel bands [T, mels]; not their logarithm, as trained."""
        spectrum = torch.stft(
            samples,
            _WINDOW,
            _HOP,
            window=torch.hann_window(_WINDOW),
            center=True,
            pad_mode="constant",
            return_complex=True,
        )
        power = spectrum.real**2 + spectrum.imag**2
        return (self.filters @ power).T

    def forward(self, mels: Tensor) -> Tensor:
        """Parts [B, T, mels] -> directions [B, size]."""
        _, (hidden, _) = self.lstm(mels)
        return functional.normalize(functional.relu(self.linear(hidden[-1])), dim=1)


@cache
def _net() -> _Net:
    with torch.device("meta"):
        net = _Net()
    load_into(net, [_WEIGHTS], device="cpu", dtype=torch.float32)
    return net.requires_grad_(False).eval()


@cache
def identity() -> str:
    """Name the encoder by its weights: only embeddings of one encoder can be compared."""
    return weights_identity([_WEIGHTS])


def embed(samples: Samples, sample_rate: int) -> Embedding:
    """Describe the speaker of a recording, silences left out.

    Raises: ``ValueError`` where there is no sound at all.
    """
    if not len(samples) or not samples.any():
        raise ValueError("There is no sound to know a speaker by.")
    return mean(embed_parts(speech_only(_at_rate(samples, sample_rate))))


def embed_parts(speech: Samples) -> npt.NDArray[np.float32]:
    """Describe the speaker of every 1.6 s of speech (16 kHz), begun every 0.77 s; [parts, 256]."""
    num_frames = len(speech) // _HOP + 1
    starts = list(range(0, max(1, num_frames - _PART_FRAMES + _STEP_FRAMES), _STEP_FRAMES))
    if len(starts) > 1 and num_frames - starts[-1] < _MIN_COVERAGE * _PART_FRAMES:
        starts.pop()
    padded = np.zeros(max(len(speech), (starts[-1] + _PART_FRAMES) * _HOP), np.float32)
    padded[: len(speech)] = _levelled(speech)
    with torch.no_grad():
        mels = _net().mels(torch.from_numpy(padded))
        parts = torch.stack([mels[start : start + _PART_FRAMES] for start in starts])
        return np.asarray(_net()(parts).numpy())


def mean(embeddings: npt.NDArray[np.float32]) -> Embedding:
    """Average directions to one of length 1."""
    total = embeddings.mean(axis=0)
    return np.asarray(total / np.linalg.norm(total), np.float32)


def speech_only(samples: Samples) -> Samples:
    """Take the silences out of a recording (16 kHz); all of it where no speech is found."""
    detector = SpeechDetector()
    probabilities = np.concatenate([detector.push(_levelled(samples)), detector.finish()])
    is_speech = probabilities >= _SPEECH
    if not is_speech.any():
        return samples
    near = np.convolve(is_speech, np.ones(2 * _MARGIN_FRAMES + 1), "same") > 0
    return samples[np.repeat(near, round(FRAME_S * SAMPLE_RATE))[: len(samples)]]


def _levelled(samples: Samples) -> Samples:
    """Bring speech to one loudness, which the network would take for the speaker's otherwise."""
    rms = float(np.sqrt(np.mean(np.square(samples, dtype=np.float64))))
    gain = 10 ** (_LOUDNESS_DB / 20) / rms if rms else 1.0
    return samples * np.float32(gain)


def _at_rate(samples: Samples, sample_rate: int) -> Samples:
    if sample_rate == SAMPLE_RATE:
        return np.ascontiguousarray(samples, dtype=np.float32)
    import soxr

    return np.asarray(soxr.resample(samples, sample_rate, SAMPLE_RATE), np.float32)

"""Where in a recording somebody speaks: a small network that answers a probability every 32 ms.

Owns the detector and the rule that makes stretches of speech from its answers. Knows nothing of
files, and nothing of who speaks.

Source: Silero VAD 6 (MIT), its branch for 16 kHz; ``recipes/speaker/convert.py`` packs its weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from fishtts.types import Samples
from fishtts.weights import load_into

SAMPLE_RATE = 16000
FRAME_SAMPLES = 512
FRAME_S = FRAME_SAMPLES / SAMPLE_RATE

_CONTEXT = 64
_NUM_BINS = 129
_WARM_UP_FRAMES = 31
_ON, _OFF = 0.5, 0.35
_MIN_SPEECH_S = 0.25
_MIN_SILENCE_S = 0.1
_WEIGHTS = Path(__file__).parent / "weights" / "speech_detector.safetensors"


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of a recording, in seconds of it."""

    start_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end_s - self.start_s


class _Net(nn.Module):
    """Spectrum, four convolutions, a recurrent layer over time, one probability a frame."""

    def __init__(self) -> None:
        super().__init__()
        self.stft_conv = nn.Conv1d(1, 2 * _NUM_BINS, 256, stride=128, bias=False)
        self.conv1 = nn.Conv1d(_NUM_BINS, 128, 3, padding=1)
        self.conv2 = nn.Conv1d(128, 64, 3, stride=2, padding=1)
        self.conv3 = nn.Conv1d(64, 64, 3, stride=2, padding=1)
        self.conv4 = nn.Conv1d(64, 128, 3, padding=1)
        self.lstm = nn.LSTM(128, 128)
        self.final_conv = nn.Conv1d(128, 1, 1)

    def forward(
        self, frames: Tensor, state: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """float32 [F, context + frame] -> probabilities [F], and the state for what follows."""
        x = functional.pad(frames[:, None], (0, 64), mode="reflect")
        real, imaginary = self.stft_conv(x).split(_NUM_BINS, dim=1)
        x = torch.sqrt(real * real + imaginary * imaginary)
        for layer in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = functional.relu(layer(x))
        hidden, state = self.lstm(x.squeeze(-1), state)
        logits: Tensor = self.final_conv(functional.relu(hidden)[..., None])
        assert state is not None
        return torch.sigmoid(logits).flatten(), state


@cache
def _net() -> _Net:
    with torch.device("meta"):
        net = _Net()
    load_into(net, [_WEIGHTS], device="cpu", dtype=torch.float32)
    return net.requires_grad_(False).eval()


class SpeechDetector:
    """One recording, listened to from its beginning to its end, in pieces of any length."""

    def __init__(self) -> None:
        self._rest = np.zeros(0, np.float32)
        self._context = np.zeros(_CONTEXT, np.float32)
        self._state: tuple[Tensor, Tensor] | None = None

    def push(self, samples: Samples) -> npt.NDArray[np.float32]:
        """Listen to further samples (16 kHz); answers the frames that are whole by now."""
        samples = np.concatenate([self._rest, samples])
        num_frames = len(samples) // FRAME_SAMPLES
        whole, self._rest = np.split(samples, [num_frames * FRAME_SAMPLES])
        if not num_frames:
            return np.zeros(0, np.float32)
        if self._state is None:
            self._warm_up(whole)
        with_context = torch.from_numpy(np.concatenate([self._context, whole]))
        self._context = whole[-_CONTEXT:]
        with torch.no_grad():
            frames = with_context.unfold(0, _CONTEXT + FRAME_SAMPLES, FRAME_SAMPLES)
            probabilities, self._state = _net()(frames, self._state)
        return np.asarray(probabilities.numpy())

    def _warm_up(self, samples: Samples) -> None:
        """Hear the first second twice: the net takes half a second to believe in a voice that is
        there from the first moment, as in recordings that were cut."""
        num_frames = min(_WARM_UP_FRAMES, len(samples) // FRAME_SAMPLES)
        first = torch.from_numpy(samples[: num_frames * FRAME_SAMPLES])
        frames = functional.pad(first, (_CONTEXT, 0)).unfold(
            0, _CONTEXT + FRAME_SAMPLES, FRAME_SAMPLES
        )
        with torch.no_grad():
            _, self._state = _net()(frames, None)

    def finish(self) -> npt.NDArray[np.float32]:
        """End the recording; answers its last frame, filled up with silence."""
        if not len(self._rest):
            return np.zeros(0, np.float32)
        return self.push(np.zeros(FRAME_SAMPLES - len(self._rest), np.float32))


def stretches(probabilities: npt.NDArray[np.float32]) -> list[Stretch]:
    """Join frames to stretches of speech: begun above one threshold, ended below a lower one, with
    short silences inside them, and none that is too short to be a word."""
    found: list[list[int]] = []
    speaking = False
    for frame, probability in enumerate(probabilities):
        if not speaking and probability >= _ON:
            speaking = True
            gap_s = (frame - found[-1][1]) * FRAME_S if found else np.inf
            if gap_s < _MIN_SILENCE_S:
                found[-1][1] = frame
            else:
                found.append([frame, frame])
        elif speaking and probability < _OFF:
            speaking = False
        if speaking:
            found[-1][1] = frame + 1
    spans = (Stretch(start * FRAME_S, end * FRAME_S) for start, end in found)
    return [span for span in spans if span.seconds >= _MIN_SPEECH_S]

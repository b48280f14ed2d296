"""A whole recording, heard once from beginning to end: where speech is, and how loud each moment.

Keeps one number a frame and never the samples, so that an hour and a half takes no more memory than
a minute. Knows nothing of which part is good.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import soxr

from fishtts.audio.blocks import Recording
from fishtts.cloning.speech_detector import (
    FRAME_S,
    FRAME_SAMPLES,
    SAMPLE_RATE,
    SpeechDetector,
    Stretch,
    stretches,
)
from fishtts.types import Samples

_SILENT_PEAK = 1e-4
"""Nobody speaks below -80 dB: such blocks are not listened to."""

_FULL = 0.3
_MAX_GAIN = 30.0
"""The detector wants speech of ordinary loudness: quiet blocks are raised to this peak for it, by
30 dB at the most."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What was heard: seconds, peak, and for every frame of ``FRAME_S`` the mean square and the
    probability of speech; ``speech`` are the stretches that follow from it."""

    seconds: float
    peak: float
    powers: npt.NDArray[np.float32]
    probabilities: npt.NDArray[np.float32]
    speech: tuple[Stretch, ...]

    @property
    def speech_s(self) -> float:
        """Seconds of speech in all."""
        return sum(stretch.seconds for stretch in self.speech)


def listen(recording: Recording) -> Heard:
    """Hear a recording from its beginning to its end.

    Raises: ``AudioError`` for a file that proves damaged on the way.
    """
    ear = _Ear(recording.sample_rate)
    num_samples, peak = 0, 0.0
    for block in recording.blocks():
        num_samples += len(block)
        peak = max(peak, float(np.abs(block).max()))
        ear.push(block)
    powers, probabilities = ear.finish()
    seconds = num_samples / recording.sample_rate
    speech = tuple(
        Stretch(stretch.start_s, min(stretch.end_s, seconds))
        for stretch in stretches(probabilities)
    )
    return Heard(seconds, peak, powers, probabilities, speech)


class _Ear:
    def __init__(self, sample_rate: int) -> None:
        same = sample_rate == SAMPLE_RATE
        self._resampler = None if same else soxr.ResampleStream(sample_rate, SAMPLE_RATE, 1)
        self._detector = SpeechDetector()
        self._rest = np.zeros(0, np.float32)
        self._powers: list[npt.NDArray[np.float32]] = []
        self._probabilities: list[npt.NDArray[np.float32]] = []

    def push(self, block: Samples) -> None:
        self._hear(block if self._resampler is None else self._resampler.resample_chunk(block))

    def _hear(self, samples: Samples) -> None:
        """Take in samples at the detector's rate; what does not fill a frame waits."""
        samples = np.concatenate([self._rest, samples])
        whole = len(samples) // FRAME_SAMPLES * FRAME_SAMPLES
        samples, self._rest = samples[:whole], samples[whole:]
        if whole:
            frames = samples.reshape(-1, FRAME_SAMPLES)
            self._powers.append(np.mean(frames * frames, axis=1))
            self._probabilities.append(self._heed(samples))

    def _heed(self, samples: Samples) -> npt.NDArray[np.float32]:
        peak = float(np.abs(samples).max())
        if peak < _SILENT_PEAK:
            return np.zeros(len(samples) // FRAME_SAMPLES, np.float32)
        gain = np.clip(_FULL / peak, 1.0, _MAX_GAIN)
        return self._detector.push(samples * np.float32(gain))

    def finish(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        none = np.zeros(0, np.float32)
        if self._resampler is not None:
            self._hear(self._resampler.resample_chunk(none, last=True))
        if len(self._rest):
            self._hear(np.zeros(FRAME_SAMPLES - len(self._rest), np.float32))
        return np.concatenate([none, *self._powers]), np.concatenate([none, *self._probabilities])


def frame_range(stretch: Stretch) -> slice:
    """Say which frames lie in a stretch."""
    return slice(round(stretch.start_s / FRAME_S), max(1, round(stretch.end_s / FRAME_S)))

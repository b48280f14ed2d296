"""Units of speech to one stream: pauses in whole samples, short fades so that joins do not click.

Knows nothing of where samples come from or go to.
"""

from __future__ import annotations

import numpy as np

from fishtts.types import Samples

FADE_S = 0.01
"""Length of the fade at both edges of a unit: shorter than any sound that carries meaning."""


def pause_samples(seconds: float, sample_rate: int) -> int:
    """Count a pause in whole samples: nearest, halves to the even number (0.125 s at 44,100 Hz
    are 5,512)."""
    return round(seconds * sample_rate)


class Joiner:
    """Join streamed units: ``push`` the chunks of one, then ``end_unit`` with the pause after it.

    All samples pushed come out again, the last few of them late: the fade-out must know the end.
    """

    def __init__(self, sample_rate: int, fade_s: float = FADE_S) -> None:
        self._sample_rate = sample_rate
        length = max(1, round(fade_s * sample_rate))
        phase = (np.arange(length, dtype=np.float32) + 0.5) / length
        self._rise = np.square(np.sin(0.5 * np.pi * phase)).astype(np.float32)
        self._held = np.zeros(0, np.float32)
        self._num_risen = 0

    def push(self, samples: Samples) -> Samples:
        """Take a chunk of the present unit; answer what can go out now."""
        samples = np.array(samples, dtype=np.float32)
        rise = self._rise[self._num_risen : self._num_risen + len(samples)]
        samples[: len(rise)] *= rise
        self._num_risen += len(rise)
        joined = np.concatenate([self._held, samples])
        ready = max(0, len(joined) - len(self._rise))
        self._held = joined[ready:]
        return joined[:ready]

    def end_unit(self, pause_s: float = 0.0) -> Samples:
        """End the present unit; answer its faded tail and the pause."""
        tail = self._held.copy()
        tail *= self._rise[: len(tail)][::-1]
        self._held = np.zeros(0, np.float32)
        self._num_risen = 0
        silence = np.zeros(pause_samples(pause_s, self._sample_rate), np.float32)
        return np.concatenate([tail, silence])

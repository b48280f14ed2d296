"""Faster or slower speech at the same pitch, by Signalsmith Stretch (the package python-stretch).

A spectral stretcher that keeps the phases of neighbouring bands together; the answer's length is
exact. Knows nothing of text or voices.
"""

from __future__ import annotations

import numpy as np

from fishtts.config import MAX_SPEED, MIN_SPEED
from fishtts.errors import UsageError
from fishtts.types import Samples


def check_speed(speed: float) -> None:
    """Raise ``UsageError`` for a speed outside the limits."""
    if not MIN_SPEED <= speed <= MAX_SPEED:
        raise UsageError(
            f"The speed is {speed:g}; it must lie between {MIN_SPEED:g} and {MAX_SPEED:g}."
        )


def change_tempo(samples: Samples, sample_rate: int, speed: float) -> Samples:
    """Speak faster (above 1) or slower (below 1) without a change of pitch.

    Shapes: ``[N]`` to ``[round(N / speed)]``.
    """
    check_speed(speed)
    if speed == 1.0 or len(samples) == 0:
        return samples
    try:
        from python_stretch.Signalsmith import Stretch
    except ImportError:
        raise UsageError(
            "Changing the speed needs the package python-stretch, which is not installed.",
            hint="Install it with: pip install python-stretch (on Linux for ARM it is compiled).",
        ) from None

    stretch = Stretch()
    stretch.preset(1, sample_rate)
    stretch.setTimeFactor(speed)
    length = round(len(samples) / speed)
    stretched = np.asarray(stretch.process(np.ascontiguousarray(samples[np.newaxis])))[0]
    result = np.zeros(length, np.float32)
    result[: len(stretched)] = stretched[:length]
    return result

"""Tempo changes, pitch stays."""

from __future__ import annotations

import numpy as np
import pytest

from fishtts.audio.tempo import change_tempo
from fishtts.errors import UsageError
from fishtts.types import Samples

RATE = 24000


def voice(pitch_hz: float) -> Samples:
    """A buzz with the harmonics of a voice."""
    time = np.arange(2 * RATE) / RATE
    harmonics = sum(np.sin(2 * np.pi * pitch_hz * k * time) / k for k in range(1, 9))
    return (0.2 * np.asarray(harmonics)).astype(np.float32)


def pitch(samples: Samples) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(spectrum.argmax() * RATE / len(samples))


@pytest.mark.parametrize("speed", [0.5, 0.8, 1.3, 2.0])
def test_length_is_exact_and_pitch_stays(speed: float) -> None:
    stretched = change_tempo(voice(150.0), RATE, speed)
    assert len(stretched) == round(2 * RATE / speed)
    assert stretched.dtype == np.float32
    assert pitch(stretched) == pytest.approx(150.0, abs=3.0)


def test_the_answer_is_the_same_each_time() -> None:
    samples = voice(120.0)
    assert np.array_equal(change_tempo(samples, RATE, 1.25), change_tempo(samples, RATE, 1.25))


def test_no_change_is_no_change() -> None:
    samples = voice(120.0)
    assert change_tempo(samples, RATE, 1.0) is samples
    assert len(change_tempo(samples[:0], RATE, 1.5)) == 0
    assert len(change_tempo(samples[:7], RATE, 2.0)) == round(3.5)


@pytest.mark.parametrize("speed", [0.0, 0.49, 2.01, float("nan")])
def test_speeds_beyond_the_limits_are_refused(speed: float) -> None:
    with pytest.raises(UsageError, match=r"between 0\.5 and 2"):
        change_tempo(voice(120.0), RATE, speed)

"""Each fault is found where it is, and none where speech is as it should be."""

from __future__ import annotations

import numpy as np
import pytest

from fishtts.engine.checks import Fault, code_faults, longest_s, shortest_s, sound_faults
from fishtts.types import StopReason

SAMPLE_RATE = 8000
FRAME_RATE = 20
RNG = np.random.default_rng(7)


def speech(seconds: float) -> np.ndarray:
    """Make noise whose loudness goes up and down four times a second, as syllables do."""
    time = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    loudness = 0.1 * (1.05 + np.sin(2 * np.pi * 4 * time))
    return (RNG.standard_normal(len(time)) * loudness).astype(np.float32)


def codes(seconds: float) -> np.ndarray:
    return RNG.integers(0, 1000, (8, round(seconds * FRAME_RATE)))


def faults(
    samples: np.ndarray,
    rows: np.ndarray,
    expected_s: float = 4.0,
    stop_reason: StopReason | None = "eos",
) -> tuple[Fault, ...]:
    return (
        *code_faults(rows, frame_rate=FRAME_RATE, expected_s=expected_s, stop_reason=stop_reason),
        *sound_faults(samples, sample_rate=SAMPLE_RATE),
    )


@pytest.mark.parametrize("seconds", [2.0, 4.0, 8.0])
def test_speech_of_a_likely_length_has_no_fault(seconds: float) -> None:
    assert faults(speech(seconds), codes(seconds)) == ()


def test_a_pause_inside_is_no_fault() -> None:
    samples = np.concatenate([speech(2), np.zeros(2 * SAMPLE_RATE, np.float32), speech(2)])
    assert faults(samples, codes(6)) == ()


def test_a_limit_that_was_hit() -> None:
    assert faults(speech(4), codes(4), stop_reason="limit") == ("limit",)


def test_an_end_that_came_too_soon() -> None:
    assert faults(speech(1.5), codes(1.5)) == ("short",)
    assert faults(speech(1.5), codes(1.5), stop_reason=None) == ()  # it is not at its end yet


def test_nothing_at_all() -> None:
    assert faults(np.zeros(0, np.float32), codes(0)) == ("short", "silent")


@pytest.mark.parametrize("level", [0.0, 1e-4])
def test_silence(level: float) -> None:
    hiss = (level * RNG.standard_normal(4 * SAMPLE_RATE)).astype(np.float32)
    assert faults(hiss, codes(4)) == ("silent",)
    tail = np.concatenate([speech(2), hiss])
    assert faults(tail, codes(6)) == ("silent",)
    assert faults(tail, codes(6), stop_reason=None) == ("silent",)


def test_a_quiet_voice_is_not_silence() -> None:
    assert faults(0.05 * speech(4), codes(4)) == ()


@pytest.mark.parametrize("period", [1, 2, 8])
def test_the_same_frames_again_and_again(period: int) -> None:
    rows = codes(4)
    cycle = rows[:, :period]
    rows[:, 20:60] = np.tile(cycle, 40 // period)
    assert faults(speech(4), rows) == ("repeats",)
    rows[:, 38:] = codes(4)[:, 38:]  # for 0.9 s only
    assert faults(speech(4), rows) == ()


def test_the_same_word_twice_is_no_fault() -> None:
    rows = codes(4)
    rows[:, 40:60] = rows[:, 20:40]
    assert faults(speech(4), rows) == ()


@pytest.mark.parametrize("expected_s", [0.4, 1.0, 10.0, 30.0])
def test_the_bounds_leave_room_for_every_voice(expected_s: float) -> None:
    assert shortest_s(expected_s) <= expected_s / 2
    assert longest_s(expected_s) >= 2.5 * expected_s

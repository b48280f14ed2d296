"""Speech is found where it is, whatever the pieces that a recording comes in."""

from __future__ import annotations

import numpy as np
import pytest

from fishtts.cloning.reference_audio import resample
from fishtts.cloning.speech_detector import (
    FRAME_S,
    FRAME_SAMPLES,
    SAMPLE_RATE,
    SpeechDetector,
    stretches,
)
from fishtts.types import Audio


def probabilities(samples: np.ndarray, piece: int = 10**9) -> np.ndarray:
    detector = SpeechDetector()
    pieces = [samples[start : start + piece] for start in range(0, len(samples), piece)]
    return np.concatenate([*map(detector.push, pieces), detector.finish()])


@pytest.fixture(scope="module")
def speech(ada: Audio) -> np.ndarray:
    return resample(ada, SAMPLE_RATE)


def test_speech_between_silences_is_found(speech: np.ndarray) -> None:
    silence = np.zeros(2 * SAMPLE_RATE, np.float32)
    found = stretches(probabilities(np.concatenate([silence, speech, silence])))
    assert found
    assert 1.8 < found[0].start_s < 2.6
    assert found[-1].end_s < 2.1 + len(speech) / SAMPLE_RATE
    assert sum(stretch.seconds for stretch in found) > 0.6 * len(speech) / SAMPLE_RATE


def test_a_voice_that_is_there_from_the_first_moment_is_not_cut(speech: np.ndarray) -> None:
    begin = stretches(probabilities(speech))[0].start_s
    middle = round((begin + 0.4) * SAMPLE_RATE)
    assert stretches(probabilities(speech[middle:]))[0].start_s < 0.2


@pytest.mark.parametrize(
    "sound",
    [
        np.random.default_rng(0).normal(0, 0.1, 5 * SAMPLE_RATE),
        0.3 * np.sin(2 * np.pi * 440 * np.arange(5 * SAMPLE_RATE) / SAMPLE_RATE),
        np.zeros(5 * SAMPLE_RATE),
    ],
    ids=["noise", "tone", "silence"],
)
def test_what_is_no_speech_is_not_found(sound: np.ndarray) -> None:
    assert stretches(probabilities(sound.astype(np.float32))) == []


@pytest.mark.parametrize("piece", [33, 512, 5000, 16000])
def test_the_size_of_the_pieces_changes_nothing(speech: np.ndarray, piece: int) -> None:
    first_second = SAMPLE_RATE  # whoever is given less at first, warms up on less
    whole, pieces = SpeechDetector(), SpeechDetector()
    rest = speech[first_second:]
    cut = [rest[start : start + piece] for start in range(0, len(rest), piece)]
    a = np.concatenate([whole.push(speech[:first_second]), whole.push(rest), whole.finish()])
    b = np.concatenate(
        [pieces.push(speech[:first_second]), *map(pieces.push, cut), pieces.finish()]
    )
    assert len(a) == len(b) == -(-len(speech) // FRAME_SAMPLES)
    assert np.abs(a - b).max() < 1e-3


def test_short_gaps_join_and_short_bursts_are_dropped() -> None:
    frames = np.zeros(100, np.float32)
    frames[10:30] = 0.9
    frames[32:50] = 0.9  # two frames of silence: 64 ms
    frames[80:84] = 0.9  # 128 ms: no word
    (found,) = stretches(frames)
    assert found.start_s == pytest.approx(10 * FRAME_S)
    assert found.end_s == pytest.approx(50 * FRAME_S)

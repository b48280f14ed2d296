"""Lines that sound like somebody else: told, and made anew where somebody listens."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fishtts.jobs.drift import Drift
from fishtts.types import Voice

RATE = 16000


def speaker(pitch: float, seed: int, seconds: float = 4.0) -> np.ndarray:
    """A hum of a pitch with harmonics and a syllable rhythm: enough to be told from another."""
    rng = np.random.default_rng(seed)
    time = np.arange(round(seconds * RATE)) / RATE
    hum = sum(np.sin(2 * np.pi * pitch * k * time + rng.uniform(0, 6)) / k for k in range(1, 12))
    rhythm = 0.55 + 0.45 * np.sin(2 * np.pi * (3 + rng.uniform(-0.3, 0.3)) * time)
    return (0.1 * hum * rhythm + 0.001 * rng.normal(size=len(time))).astype(np.float32)


def job(voice: str = "v", voices: tuple[str, ...] = ()) -> Any:
    return SimpleNamespace(
        voice=SimpleNamespace(identity=voice), plan=SimpleNamespace(voices=voices)
    )


@pytest.fixture
def drift() -> Drift:
    from fishtts.cloning.speaker_encoder import embed, identity

    known = Drift()
    voice = Voice("v", (), embedding=embed(speaker(120, 0), RATE), encoder=identity())
    known.learn("v", voice, None)  # type: ignore[arg-type]
    known.learn("none", None, None)  # type: ignore[arg-type]
    return known


def test_another_speaker_among_many_lines_is_told(drift: Drift) -> None:
    own = [drift.likeness(job(), speaker(120, seed), RATE) for seed in range(1, 13)]
    assert [drift.alarm(job(), each) for each in own] == [""] * 12
    other = drift.likeness(job(), speaker(260, 99), RATE)
    assert other is not None
    assert min(each for each in own if each is not None) > other + 0.15
    assert f"{other:.2f} like the voice" in drift.alarm(job(), other)
    assert drift.alarm(job(), own[0]) == "", "one stranger does not move the measure"


def test_a_voice_that_changes_at_the_end_of_a_line_is_told(drift: Drift) -> None:
    for seed in range(1, 10):
        drift.alarm(job(), drift.likeness(job(), speaker(120, seed), RATE))
    turned = np.concatenate([speaker(120, 20, 20.0), speaker(260, 21, 7.0)])
    assert drift.alarm(job(), drift.likeness(job(), turned, RATE))


def test_nothing_is_said_of_what_cannot_be_known(drift: Drift) -> None:
    assert drift.likeness(job(), speaker(120, 1, 1.9), RATE) is None, "too short"
    assert drift.likeness(job("none"), speaker(120, 1), RATE) is None, "no voice to compare with"
    assert drift.likeness(job(voices=("a", "b")), speaker(120, 1), RATE) is None, "a dialogue"
    assert drift.alarm(job(), None) == ""
    assert drift.alarm(job(), 0.1) == "", "too few lines to know what is usual"

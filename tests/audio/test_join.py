"""Joins: exact pauses, no clicks, no sample lost."""

from __future__ import annotations

import numpy as np
import pytest

from fishtts.audio.join import Joiner, pause_samples
from fishtts.types import Samples


@pytest.mark.parametrize(
    ("seconds", "rate", "count"),
    [(0.125, 44100, 5512), (0.7, 44100, 30870), (0.0, 24000, 0), (0.25, 24000, 6000)],
)
def test_pauses_are_whole_samples(seconds: float, rate: int, count: int) -> None:
    assert pause_samples(seconds, rate) == count


def joined(units: list[Samples], pause_s: float, rate: int, chunk: int) -> Samples:
    joiner = Joiner(rate)
    out: list[Samples] = []
    for unit in units:
        out += [joiner.push(unit[at : at + chunk]) for at in range(0, len(unit), chunk)]
        out.append(joiner.end_unit(pause_s))
    return np.concatenate(out)


@pytest.mark.parametrize("chunk", [1, 100, 5000])
def test_units_keep_their_length_and_their_middle_however_they_arrive(chunk: int) -> None:
    units = [np.full(2000, 0.5, np.float32), np.full(300, 0.5, np.float32)]
    out = joined(units, 0.01, 24000, chunk)
    assert len(out) == 2000 + 240 + 300 + 240
    assert np.all(out[240:1760] == 0.5)
    assert np.all(out[2000:2240] == 0.0)
    assert np.array_equal(out, joined(units, 0.01, 24000, 777))


@pytest.mark.parametrize("pause_s", [0.0, 0.125])
def test_joins_do_not_click(pause_s: float) -> None:
    rate = 44100
    unit = (0.9 * np.cos(2 * np.pi * 150 * np.arange(rate // 2) / rate)).astype(np.float32)
    out = joined([unit, unit], pause_s, rate, 1024)
    near = round(0.005 * rate)
    for join in (0, len(unit), len(unit) + pause_samples(pause_s, rate), len(out)):
        steps = np.abs(np.diff(out[max(0, join - near) : join + near], prepend=out[:1] * 0))
        assert steps[1:].max(initial=0) < 0.05


def test_an_empty_unit_is_only_a_pause() -> None:
    assert np.array_equal(Joiner(1000).end_unit(0.5), np.zeros(500, np.float32))

"""Frozen speeds: their files, the clocks they go by, and what the gate makes of both."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fishtts import baselines
from fishtts.baselines import Clocks, Machine
from fishtts.engine.streams import StreamRow
from fishtts.errors import FishTTSError
from fishtts.models.random_model import random_model
from fishtts.verify import speed
from fishtts.verify.speed import STREAMS, compare, gpu_of, judge_speed, measure, why_not
from tests.models.test_quantized import fitting_values

GPU = "NVIDIA GeForce Made Up 1"
VERSIONS = {"torch": "2.11.0", "triton": "3.6.0", "driver": "1"}
HERE = Machine(GPU, Clocks(1980, 3201), VERSIONS)


def row(streams: int, frames_per_s: float) -> StreamRow:
    return StreamRow(streams, 512, "bfloat16", frames_per_s, frames_per_s / 21, 50.0, 5.0, 1.0)


def rows(each: float) -> list[StreamRow]:
    return [row(count, count * each) for count in STREAMS]


def frozen(folder: Path, each: float = 100.0) -> baselines.Baseline:
    listed = [
        {"model": "s2-pro", "format": "bsfp8", "streams": r.streams, "frames_per_s": r.frames_per_s}
        for r in rows(each)
    ]
    baselines.write(HERE, listed, {"rows": []}, folder)
    found = baselines.find(GPU, folder)
    assert found is not None
    return found


def test_a_baseline_comes_back_as_it_was_written(tmp_path: Path) -> None:
    found = frozen(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["made-up-1.json"]
    assert found.machine == HERE
    assert found.row("s2-pro", "bsfp8", 16)["frames_per_s"] == 1600  # type: ignore[index]
    assert found.row("s2-pro", "bf16", 16) is None
    assert baselines.find("NVIDIA Another", tmp_path) is None


def test_new_streams_keep_the_kernels_that_were_measured_before(tmp_path: Path) -> None:
    baselines.write(HERE, [], {"rows": [{"name": "mlp"}]}, tmp_path)
    baselines.write(HERE, [{"streams": 1}], None, tmp_path)
    [found] = baselines.read(tmp_path)
    assert found.kernels == {"rows": [{"name": "mlp"}]}
    assert found.streams == [{"streams": 1}]


def test_a_baseline_without_clocks_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nvidia-smi"):
        baselines.write(replace(HERE, clocks=None), [], None, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damage", ["{", "[]", '{"gpu": "x"}', "clocks"])
def test_a_file_that_is_no_baseline_is_named(tmp_path: Path, damage: str) -> None:
    frozen(tmp_path)
    path = tmp_path / "made-up-1.json"
    if damage == "clocks":
        damage = json.dumps({**json.loads(path.read_bytes()), "clocks": {"sm_mhz": 1}})
    path.write_text(damage)
    with pytest.raises(FishTTSError, match="made-up-1"):
        baselines.read(tmp_path)


def test_the_baselines_that_are_shipped_can_be_read_and_compared_with() -> None:
    for found in baselines.read():
        for form in {line["format"] for line in found.streams}:
            assert why_not([found], found.machine.gpu, "s2-pro", form) == ""


def test_clocks_are_alike_within_three_percent() -> None:
    clocks = Clocks(1980, 3201)
    assert clocks.are_like(Clocks(1935, 3201))
    assert not clocks.are_like(Clocks(1905, 3201))
    assert not clocks.are_like(Clocks(1980, 2619))


def test_what_is_slower_than_five_percent_fails(tmp_path: Path) -> None:
    baseline = frozen(tmp_path)
    assert compare(baseline, "s2-pro", "bsfp8", rows(96.0), HERE).passed
    assert compare(baseline, "s2-pro", "bsfp8", rows(150.0), HERE).passed
    measured = [*rows(100.0)[:2], row(64, 64 * 94.0)]
    verdict = compare(baseline, "s2-pro", "bsfp8", measured, HERE)
    assert not verdict.passed
    assert [each.holds for each in verdict.rows] == [True, True, False]
    assert verdict.rows[2].frames_per_s == 94
    assert verdict.rows[2].baseline == 100


def test_other_clocks_are_not_compared_and_other_versions_are_told(tmp_path: Path) -> None:
    baseline = frozen(tmp_path)
    slow = replace(HERE, clocks=Clocks(1200, 3201))
    verdict = compare(baseline, "s2-pro", "bsfp8", rows(50.0), slow)
    assert verdict.passed
    assert not verdict.rows
    assert "1200 MHz" in verdict.reason
    assert "1980 MHz" in verdict.reason
    unknown = compare(baseline, "s2-pro", "bsfp8", rows(50.0), replace(HERE, clocks=None))
    assert "nvidia-smi" in unknown.reason
    newer = replace(HERE, versions={**VERSIONS, "torch": "2.12.0"})
    assert compare(baseline, "s2-pro", "bsfp8", rows(100.0), newer).notes == (
        "torch is 2.12.0 here, and was 2.11.0",
    )


def test_why_nothing_is_compared_is_said(tmp_path: Path) -> None:
    baseline = frozen(tmp_path)
    assert why_not([baseline], GPU, "s2-pro", "bsfp8") == ""
    assert "NVIDIA Another; there is one for " + GPU in why_not(
        [baseline], "NVIDIA Another", "s2-pro", "bsfp8"
    )
    assert "no GPU so far" in why_not([], GPU, "s2-pro", "bsfp8")
    assert "another" in why_not([baseline], GPU, "", "bsfp8")
    assert "mxfp8" in why_not([baseline], GPU, "s2-pro", "mxfp8")
    model = random_model(fitting_values(), device="cpu", dtype=torch.bfloat16)
    verdict = judge_speed(model, "bsfp8", tmp_path)
    assert verdict.passed
    assert "none" in verdict.reason


def test_the_clocks_are_read_while_the_streams_speak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's tool, a script here, answers when it has seen work done."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        f"#!/bin/sh\necho $* > {tmp_path}/asked\n"
        f"while [ ! -e {tmp_path}/worked ]; do :; done\necho 1755, 2619, 580.65\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        if (tmp_path / "asked").exists():
            (tmp_path / "worked").touch()

    machine = baselines.machine(GPU, "GPU-1", work)
    assert machine.clocks == Clocks(1755, 2619)
    assert machine.versions["driver"] == "580.65"
    assert machine.versions["torch"] == torch.__version__
    assert "--id=GPU-1" in (tmp_path / "asked").read_text()
    assert calls


def test_without_the_tool_the_clocks_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    machine = baselines.machine(GPU, "GPU-1", lambda: None)
    assert machine.clocks is None
    assert machine.versions["driver"] == "unknown"


def test_what_is_measured_here_can_be_frozen_and_holds_against_itself(tmp_path: Path) -> None:
    model = random_model(fitting_values(), device="cpu", dtype=torch.bfloat16)
    measured, here = measure(model, GPU, "GPU-1", steps=3, context=20)
    assert [each.streams for each in measured] == list(STREAMS)
    listed: list[dict[str, Any]] = [
        {"model": "s2-pro", "format": "bf16", "streams": r.streams, "frames_per_s": r.frames_per_s}
        for r in measured
    ]
    here = replace(here, clocks=HERE.clocks)
    baselines.write(here, listed, None, tmp_path)
    [baseline] = baselines.read(tmp_path)
    assert compare(baseline, "s2-pro", "bf16", measured, here).passed


@pytest.mark.gpu
def test_a_gpu_is_compared_with_its_own_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small model under S2 Pro's name, against what was just measured of it."""
    model = random_model(fitting_values(), device="cuda", dtype=torch.bfloat16)
    monkeypatch.setattr(speed, "name_of_size", lambda config: "s2-pro")
    assert "no baseline" in judge_speed(model, "bf16", tmp_path).reason
    measured, here = measure(model, *gpu_of(model.device))
    assert here.clocks is not None
    listed = [{"model": "s2-pro", "format": "bf16", **asdict(each)} for each in measured]
    for slower in (0.1, 10.0):
        rows_ = [{**r, "frames_per_s": r["frames_per_s"] * slower} for r in listed]
        baselines.write(here, rows_, None, tmp_path)
        verdict = judge_speed(model, "bf16", tmp_path)
        # A small model may leave the clocks where they are when the machine is idle.
        assert verdict.passed == (slower < 1) or "unlike" in verdict.reason

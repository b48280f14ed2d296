"""The speed gate: no slower than what was frozen for this GPU.

Owns what is compared, with which tolerance, and why something is not compared. How a speed is
measured is ``engine/streams.py``'s; where the frozen ones lie is ``baselines``'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from fishtts import baselines
from fishtts.baselines import Baseline, Machine
from fishtts.config import EngineConfig
from fishtts.engine.streams import (
    CONTEXT,
    NUM_STEPS,
    StreamRow,
    engine_for,
    measure_streams,
    speaking,
)
from fishtts.models import LoadedModel
from fishtts.models.random_model import name_of_size

TOLERANCE = 0.05
STREAMS = (1, 16, 64)


@dataclass(frozen=True, slots=True)
class SpeedRow:
    """Frames a second of each of so many streams, here and in the baseline."""

    streams: int
    frames_per_s: float
    baseline: float

    @property
    def holds(self) -> bool:
        """Whether it is no slower than the baseline, within the tolerance."""
        return self.frames_per_s >= (1 - TOLERANCE) * self.baseline


@dataclass(frozen=True, slots=True)
class SpeedVerdict:
    """The speed of one format. ``reason`` says why nothing was compared, where nothing was;
    ``notes`` what else differs from the baseline's machine."""

    format: str
    rows: tuple[SpeedRow, ...] = ()
    reason: str = ""
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether all that was compared holds."""
        return bool(self.reason) or all(row.holds for row in self.rows)


def judge_speed(model: LoadedModel, form: str, folder: Path = baselines.FOLDER) -> SpeedVerdict:
    """Measure a model in a format where it runs, if there is something to compare it with."""
    if model.device.type != "cuda":
        return SpeedVerdict(form, reason="a baseline is of a GPU, and this ran on none")
    gpu, uuid = gpu_of(model.device)
    reason = why_not(baselines.read(folder), gpu, name_of_size(model.config), form)
    if reason:
        return SpeedVerdict(form, reason=reason)
    rows, here = measure(model, gpu, uuid)
    baseline = baselines.find(gpu, folder)
    assert baseline is not None, "why_not says so otherwise"
    return compare(baseline, name_of_size(model.config), form, rows, here)


def gpu_of(device: torch.device) -> tuple[str, str]:
    """The name of a CUDA device, and by what the driver's tool knows it."""
    properties = torch.cuda.get_device_properties(device)
    return properties.name, f"GPU-{properties.uuid}"


def why_not(found: Sequence[Baseline], gpu: str, model: str, form: str) -> str:
    """Say why there is nothing to compare a model (of the size of one that has a name) with."""
    baseline = next((each for each in found if each.machine.gpu == gpu), None)
    if baseline is None:
        known = ", ".join(each.machine.gpu for each in found) or "no GPU so far"
        return f"there is no baseline for {gpu}; there is one for {known}"
    if not model:
        return "baselines are of S2 Pro's size, and this model has another"
    if not all(baseline.row(model, form, count) for count in STREAMS):
        return f"the baseline of {gpu} has no figures for {model} in {form}"
    return ""


def measure(
    model: LoadedModel,
    gpu: str,
    uuid: str,
    config: EngineConfig | None = None,
    *,
    streams: Sequence[int] = STREAMS,
    steps: int = NUM_STEPS,
    context: int = CONTEXT,
) -> tuple[list[StreamRow], Machine]:
    """Measure so many streams each, then describe the machine while the most of them speak.

    Without ``config``, what a user gets: an engine with the defaults.
    """
    if config is None:
        name = str(model.dtype).removeprefix("torch.")
        config = EngineConfig(str(model.device), name, max_batch=max(streams))
    engine = engine_for(model, config)
    rows = [
        measure_streams(engine, model, count, steps=steps, context=context) for count in streams
    ]
    with speaking(engine, model, max(streams), context):
        here = baselines.machine(gpu, uuid, engine.step)
    return rows, here


def compare(
    baseline: Baseline, model: str, form: str, rows: Sequence[StreamRow], here: Machine
) -> SpeedVerdict:
    """Compare what was measured with the baseline's rows, where the clocks allow it."""
    frozen, now = baseline.machine.clocks, here.clocks
    assert frozen is not None, "a baseline has clocks"
    if now is None:
        return SpeedVerdict(form, reason="the clocks are not known: is nvidia-smi there?")
    if not now.are_like(frozen):
        reason = f"the clocks are unlike: {now} here, {frozen} in the baseline"
        return SpeedVerdict(form, reason=reason)
    compared = []
    for row in rows:
        frozen_row = baseline.row(model, form, row.streams)
        assert frozen_row is not None, "why_not says so otherwise"
        each, wanted = row.frames_per_s, float(frozen_row["frames_per_s"])
        compared.append(SpeedRow(row.streams, each / row.streams, wanted / row.streams))
    others = baseline.machine.versions
    notes = [
        f"{name} is {value} here, and was {others[name]}"
        for name, value in here.versions.items()
        if name in others and value != others[name]
    ]
    return SpeedVerdict(form, tuple(compared), notes=tuple(notes))

"""How fast an engine speaks many streams at once: the one measurement that benches and gates share.

Owns the prompts, the settings and the order of a measurement. Knows nothing of where the model came
from, of audio, and of what its figures are compared with.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch

from fishtts.config import EngineConfig
from fishtts.engine.engine import Engine
from fishtts.engine.request import Batch, FrameMade, StepResult
from fishtts.engine.runner import Runner
from fishtts.models import LoadedModel
from fishtts.types import Prompt, SamplingParams

CONTEXT = 512
"""Positions of a stream's prompt: a voice of some twenty seconds, and a sentence."""

NUM_STEPS = 100
FRAMES_PER_AUDIO_S = 44100 / 2048
"""Frames of S2's codec in a second of audio."""

_BUDGET = 4096
_TEXT_IDS = 1000
"""Prompts are of ids below this: text, to every tokenizer of the family."""
_WARM_UPS = 5


@dataclass(frozen=True, slots=True)
class StreamRow:
    """How fast so many streams are made together, each behind a prompt of ``context`` positions.

    ``frames_per_s`` and ``audio_s_per_s`` are of all streams; ``kv`` is the type of keys and
    values. ``ttfb_ms`` is from asking for all streams at once until each of them has its first
    frame, the codec not counted. ``occupancy`` is the share of rows that a stream was in.
    """

    streams: int
    context: int
    kv: str
    frames_per_s: float
    audio_s_per_s: float
    ttfb_ms: float
    step_ms: float
    occupancy: float


class _Endless:
    """A runner whose streams never end: what leaves the batch would make the others faster."""

    def __init__(self, runner: Runner, model: LoadedModel) -> None:
        self.capacity, self.depth = runner.capacity, runner.depth
        self._runner = runner
        self._row = np.zeros(1 + model.config.num_codebooks, np.int64)
        self._row[0] = model.config.semantic_begin

    def execute(self, batch: Batch) -> Iterable[StepResult]:
        """Begin a batch; where the model comes to its end, there is a frame all the same."""
        made = self._runner.execute(batch)
        return (r if r.row is not None else replace(r, row=self._row) for r in made)


def engine_for(model: LoadedModel, config: EngineConfig) -> Engine:
    """Make the engine of a measurement."""
    return Engine(_Endless(Runner(model, config), model), budget=_BUDGET)


@contextmanager
def speaking(
    engine: Engine, model: LoadedModel, count: int, context: int = CONTEXT
) -> Iterator[float]:
    """Have so many streams speak, all begun at once; gives the milliseconds until each of them had
    its first frame. They go on until the end of the context."""
    start = time.perf_counter()
    ids = _begin(engine, model, count, context)
    missing = set(ids)
    while missing:
        missing -= {e.request_id for e in engine.step() if isinstance(e, FrameMade)}
    yield 1000 * (time.perf_counter() - start)
    for number in ids:
        engine.abort(number)
    # What is still in hand is no part of what is measured next.
    while engine.has_work:
        engine.step()


def measure_streams(
    engine: Engine,
    model: LoadedModel,
    count: int,
    *,
    steps: int = NUM_STEPS,
    context: int = CONTEXT,
) -> StreamRow:
    """Time a number of steps in which so many streams speak."""
    # The first time, programs are captured and compiled: no part of anybody's first frame.
    with speaking(engine, model, count, context):
        _step(engine, _WARM_UPS)
    with speaking(engine, model, count, context) as ttfb_ms:
        _step(engine, _WARM_UPS)
        _wait(model)
        made, rows = 0, engine.metrics.num_rows
        start = time.perf_counter()
        for _ in range(steps):
            made += sum(isinstance(event, FrameMade) for event in engine.step())
        _wait(model)
        took = time.perf_counter() - start
        rows = engine.metrics.num_rows - rows
    return StreamRow(
        streams=count,
        context=context,
        kv=str(model.dtype).removeprefix("torch."),
        frames_per_s=made / took,
        audio_s_per_s=made / took / FRAMES_PER_AUDIO_S,
        ttfb_ms=ttfb_ms,
        step_ms=1000 * took / steps,
        occupancy=rows / steps / count,
    )


def _begin(engine: Engine, model: LoadedModel, count: int, context: int) -> Sequence[int]:
    """Ask for streams that go on until they are aborted."""
    rng = np.random.default_rng(7)
    params = SamplingParams(temperature=1.0, top_p=0.9, top_k=30)
    ids = []
    for number in range(count):
        matrix = np.zeros((1 + model.config.num_codebooks, context), np.int64)
        matrix[0] = rng.integers(0, min(_TEXT_IDS, model.config.semantic_begin), context)
        ids.append(engine.add(Prompt(matrix), replace(params, seed=number)))
    return ids


def _step(engine: Engine, times: int) -> None:
    for _ in range(times):
        engine.step()


def _wait(model: LoadedModel) -> None:
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)

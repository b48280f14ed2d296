"""Requests run together, for the tests of the engine: by the tiny model, or without any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from fishtts.engine.engine import Engine
from fishtts.engine.request import Batch, Capacity, Finished, FrameMade, Request, StepResult
from fishtts.types import Codes, Prompt, SamplingParams, StopReason

Asked = tuple[Prompt, SamplingParams]
Made = tuple[Codes, StopReason]


def collect(engine: Engine, ids: Sequence[int]) -> dict[int, Made]:
    """Run an engine until it has nothing to do; answers codes [C, F] and the reason of the end."""
    frames: dict[int, list[np.ndarray]] = {number: [] for number in ids}
    reasons: dict[int, StopReason] = {}
    while engine.has_work:
        for event in engine.step():
            assert event.request_id not in reasons, "nothing comes after the end"
            if isinstance(event, FrameMade):
                frames[event.request_id].append(event.codes)
            elif isinstance(event, Finished):
                reasons[event.request_id] = event.stop_reason
    assert set(reasons) == set(ids), "everybody comes to an end"
    return {
        number: (np.stack(made, axis=1) if made else np.zeros((0, 0), np.int64), reasons[number])
        for number, made in frames.items()
    }


def run_all(engine: Engine, asked: Sequence[Asked]) -> list[Made]:
    """Ask for all at once."""
    ids = [engine.add(*each) for each in asked]
    made = collect(engine, ids)
    return [made[number] for number in ids]


def same(ours: Sequence[Made], theirs: Sequence[Made]) -> bool:
    return len(ours) == len(theirs) and all(
        a[1] == b[1] and np.array_equal(a[0], b[0]) for a, b in zip(ours, theirs, strict=True)
    )


class ScriptedExecutor:
    """No model: a request's frames are its seed and their number, its end is where its seed says.

    It keeps what pages hold, so that it notices a page with another's content. With a depth it is
    as a GPU is: what it is asked for is done in that order, and looked at later.
    """

    def __init__(self, capacity: Capacity, depth: int = 0) -> None:
        self.capacity, self.depth = capacity, depth
        self.content: dict[int, dict[int, bytes]] = {}
        self.num_prefilled = 0
        self.num_wasted: Counter[int] = Counter()
        self._ended: set[int] = set()
        self._num_begun = self._num_asked = 0

    def execute(self, batch: Batch) -> Iterator[StepResult]:
        """Work a batch out at once; the results are for later."""
        assert self._num_begun - self._num_asked <= self.depth, "too many in hand"
        results = self._work_out(batch)
        self._num_begun += 1
        return self._handed_over(self._num_begun, results)

    def _handed_over(self, number: int, results: list[StepResult]) -> Iterator[StepResult]:
        self._num_asked += 1
        assert self._num_asked == number, "asked in order, each once"
        yield from results

    def _work_out(self, batch: Batch) -> list[StepResult]:
        assert batch.chunks or batch.decode, "nothing to do"
        assert len(batch.drawn) <= self.capacity.max_batch
        slots = [request.slot for request in batch.drawn]
        assert len(set(slots)) == len(slots), "two share a slot"
        for chunk in batch.chunks:
            self.num_prefilled += chunk.stop - chunk.start
            for at in range(chunk.start, chunk.stop):
                self._write(chunk.request, at, chunk.request.prompt.matrix[:, at].tobytes())
            self._check(chunk.request, chunk.stop)
        for request in batch.decode:
            at = request.num_computed - 1
            self._write(request, at, self._row(request, at - request.num_prompt).tobytes())
            self._check(request, request.num_computed)
        return [StepResult(r, r.next_frame, self._draw(r)) for r in batch.drawn]

    def _draw(self, request: Request) -> np.ndarray | None:
        number = request.num_computed - request.num_prompt
        assert number < request.max_frames, "more than it may have"
        if request.id in self._ended:
            self.num_wasted[request.id] += 1
            assert self.num_wasted[request.id] <= self.depth, f"{request.id} goes on and on"
        is_end = number == ends_at(request.params.seed)
        if is_end or number + 1 == request.max_frames:
            self._ended.add(request.id)
        return None if is_end else self._row(request, number)

    def _row(self, request: Request, number: int) -> np.ndarray:
        return np.array([7, request.params.seed, number])

    def _write(self, request: Request, at: int, value: bytes) -> None:
        page = request.pages[at // self.capacity.page_size]
        self.content.setdefault(page, {})[at % self.capacity.page_size] = value

    def _check(self, request: Request, stop: int) -> None:
        """Look through all that a request attends to."""
        size = self.capacity.page_size
        for at in range(stop):
            if at < request.num_prompt:
                wanted = request.prompt.matrix[:, at].tobytes()
            else:
                wanted = self._row(request, at - request.num_prompt).tobytes()
            found = self.content[request.pages[at // size]][at % size]
            assert found == wanted, f"position {at} of {request.id} was overwritten"


def ends_at(seed: int) -> int:
    """Frame at which the scripted executor's request comes to its end."""
    return seed % 41

"""The loop of steps: requests in, frames out.

Owns which requests there are and when one ends. Knows no tensors, no text and no audio.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fishtts.engine.pages import page_keys
from fishtts.engine.request import (
    Batch,
    Event,
    Executor,
    Finished,
    FrameMade,
    Request,
    StepResult,
)
from fishtts.engine.scheduler import CHUNK, Scheduler
from fishtts.errors import UsageError
from fishtts.types import Prompt, SamplingParams, StopReason


@dataclass(slots=True)
class Metrics:
    """What an engine has done: steps, frames, rows that decoded, preemptions."""

    num_steps: int = 0
    num_frames: int = 0
    num_rows: int = 0
    num_decode_steps: int = 0
    num_preempted: int = 0
    num_prefilled: int = 0

    @property
    def rows_a_step(self) -> float:
        """Requests that decoded together, on average."""
        return self.num_rows / self.num_decode_steps if self.num_decode_steps else 0.0


class Engine:
    """Continues many prompts together. Requests join and leave between two steps.

    ``checked`` looks over the books after every step, and not only when there is nothing to do.
    """

    def __init__(self, executor: Executor, *, budget: int = CHUNK, checked: bool = False) -> None:
        self.capacity = executor.capacity
        self.metrics = Metrics()
        self.scheduler = Scheduler(self.capacity, budget=budget)
        self._executor = executor
        self._checked = checked
        self._requests: dict[int, Request] = {}
        self._in_hand: deque[Iterable[StepResult]] = deque()
        self._next_id = 0

    @property
    def has_work(self) -> bool:
        """Tell whether any request is not finished, or any step's results were not looked at."""
        return bool(self._requests or self._in_hand)

    @property
    def num_requests(self) -> int:
        """Requests that are not finished."""
        return len(self._requests)

    def add(self, prompt: Prompt, params: SamplingParams) -> int:
        """Take on a prompt; answers the number by which its events go.

        Raises: ``UsageError`` for a prompt that leaves no room for speech.
        """
        size = self.capacity.page_size
        length = prompt.matrix.shape[1]
        room = self.capacity.room - length
        if room < 1:
            raise UsageError(
                f"The text and the voice take {length:,} positions, and the model has"
                f" {self.capacity.room:,}, of which the speech needs some too.",
                hint="Speak a shorter text at a time, or give a shorter recording.",
            )
        cut = min(prompt.num_shared, length - 1) // size * size
        request = Request(
            id=self._next_id,
            prompt=prompt,
            params=params,
            max_frames=min(params.max_frames or room, room),
            cut=cut,
            keys=page_keys(prompt.matrix, size, cut),
        )
        self._next_id += 1
        self._requests[request.id] = request
        self.scheduler.add(request)
        return request.id

    def abort(self, request_id: int) -> None:
        """Drop a request; no event of it comes any more. One that has finished is left alone."""
        request = self._requests.pop(request_id, None)
        if request is not None:
            self.scheduler.remove(request)

    def step(self) -> list[Event]:
        """Begin one step; answers what came of the last one that is not in hand any more, in the
        order of the requests' results.

        With a step in hand nobody knows yet who has ended. One more row is worked out for those,
        and comes to nothing. It may still be written to pages and slots that others get then, but
        before them: a device works in the order in which it was asked.
        """
        if not self.has_work:
            return []
        batch = self.scheduler.schedule()
        depth = 0
        if batch.chunks or batch.decode:
            self._in_hand.append(self._executor.execute(batch))
            self.scheduler.publish(batch)
            self._count(batch)
            depth = self._executor.depth
        assert self._in_hand, "there is work, and nobody runs"
        events: list[Event] = []
        while len(self._in_hand) > depth:
            for result in self._in_hand.popleft():
                events += self._take(result)
        if self._checked or not self.has_work:
            self.scheduler.check()
        return events

    def _count(self, batch: Batch) -> None:
        metrics = self.metrics
        metrics.num_steps += 1
        metrics.num_rows += len(batch.decode)
        metrics.num_decode_steps += bool(batch.decode)
        metrics.num_prefilled += sum(chunk.stop - chunk.start for chunk in batch.chunks)

    def _take(self, result: StepResult) -> Iterator[Event]:
        request = result.request
        if request.id not in self._requests:
            return  # it had ended, or nobody wants it any more
        known = len(request.frames)
        if result.number <= known:
            return  # it was known, and is fed in again after a preemption
        assert result.number == known + 1, f"{request.id} has lost a frame"
        if result.row is None:
            yield self._finish(request, "eos")
            return
        request.frames.append(result.row)
        self.metrics.num_frames += 1
        yield FrameMade(request.id, result.row[1:])
        if len(request.frames) == request.max_frames:
            yield self._finish(request, "limit")

    def _finish(self, request: Request, reason: StopReason) -> Finished:
        self.metrics.num_preempted += request.num_preempted
        del self._requests[request.id]
        self.scheduler.remove(request)
        return Finished(request.id, reason)

"""What the scheduler and the executor speak of: requests, the batch of one step, its results.

Knows no tensors, no text, and nothing of what a frame's numbers mean.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fishtts.types import Prompt, SamplingParams, StopReason

Row = npt.NDArray[np.int64]
"""One position: the token's id, then one code a codebook. Shape [1 + C]."""


@dataclass(slots=True, eq=False)
class Request:
    """One prompt being continued. Only the scheduler and the engine change it.

    ``cut`` is how much of the prompt others may share, a whole number of pages. ``num_computed``
    counts the positions whose keys and values lie in ``pages``; ``slot`` is its place among those
    that run, -1 while it waits. ``frames`` are the rows made; after a preemption they are fed in
    again, as they are.
    """

    id: int
    prompt: Prompt
    params: SamplingParams
    max_frames: int
    cut: int
    keys: tuple[bytes, ...]
    frames: list[Row] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    num_computed: int = 0
    slot: int = -1
    num_preempted: int = 0

    @property
    def num_prompt(self) -> int:
        """Positions of the prompt."""
        return int(self.prompt.matrix.shape[1])

    @property
    def is_prefilled(self) -> bool:
        """Tell whether the prompt is worked out, so that a step gives a frame."""
        return self.num_computed >= self.num_prompt

    @property
    def next_frame(self) -> int:
        """Number of the frame that comes out when the next position is worked out."""
        return self.num_computed + 1 - self.num_prompt

    @property
    def has_drawn_all(self) -> bool:
        """Tell whether its last frame is drawn, though it may not be known yet."""
        return self.is_prefilled and self.next_frame >= self.max_frames

    @property
    def num_replayed(self) -> int:
        """Frames that are known already and still have to be fed in again."""
        return max(0, len(self.frames) - self.next_frame) if self.is_prefilled else 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """Positions ``start`` to ``stop`` of a request's prompt."""

    request: Request
    start: int
    stop: int

    @property
    def is_last(self) -> bool:
        """Tell whether the prompt ends with it."""
        return self.stop == self.request.num_prompt


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step works out: parts of prompts, and one position each of those past theirs."""

    chunks: tuple[Chunk, ...]
    decode: tuple[Request, ...]

    @property
    def drawn(self) -> tuple[Request, ...]:
        """Requests that get a frame, in the order of the results."""
        return (*(chunk.request for chunk in self.chunks if chunk.is_last), *self.decode)


@dataclass(frozen=True, slots=True)
class StepResult:
    """Frame ``number`` (from 1) of one request; no row where the model has come to its end."""

    request: Request
    number: int
    row: Row | None


@dataclass(frozen=True, slots=True)
class Capacity:
    """What an executor has room for."""

    num_pages: int
    page_size: int
    max_batch: int
    max_positions: int

    @property
    def room(self) -> int:
        """Positions that one request may have at most."""
        return min(self.max_positions, self.num_pages * self.page_size)


class Executor(Protocol):
    """Works out a batch. The real one is the runner; tests have one that needs no torch.

    ``depth`` is how many batches it should have in hand beside the one whose results are looked at:
    with one, a GPU works while the host prepares.
    """

    @property
    def capacity(self) -> Capacity: ...
    @property
    def depth(self) -> int: ...
    def execute(self, batch: Batch) -> Iterable[StepResult]:
        """Begin a batch; answer one result for each of ``batch.drawn``, in that order. Whoever goes
        through them waits until they are there."""
        ...


@dataclass(frozen=True, slots=True)
class FrameMade:
    """A new frame of a request, in order, each once."""

    request_id: int
    codes: Row


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a request; nothing comes after it."""

    request_id: int
    stop_reason: StopReason


Event = FrameMade | Finished

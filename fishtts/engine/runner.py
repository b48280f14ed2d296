"""The executor: a batch to tensors, to the model, to frames. Owns the pages' memory and the slots.

Policy is the scheduler's: who runs, what is cut where, who gives way. Knows no text and no audio.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fishtts import kernels
from fishtts.config import EngineConfig
from fishtts.engine.draws import Draws, Noise
from fishtts.engine.graphs import CapturedSteps, Steps, captured_steps
from fishtts.engine.request import Batch, Capacity, Chunk, Request, StepResult
from fishtts.errors import DeviceError
from fishtts.kernels.small_reference import Places
from fishtts.models import FrameNet, LoadedModel
from fishtts.models.transfer import Array, to_device, to_host

PAGE_SIZE = 16

_ROWS = 16
"""Rows of a group in deterministic mode: every product then has one shape, however many run, and a
row's sums are made in one order. Below 16, matrix products go other ways by the number of rows."""

_BATCH = {"cpu": 16}
_BATCH_ELSEWHERE = 64
"""Requests that run together unless told otherwise. A CPU of two cores gains little beyond."""

_POSITIONS_A_REQUEST = 1024
"""What a request's voice, text and speech take together at the usual most; whoever needs more takes
it from others' share, and if that is not enough, the youngest wait."""

_LEAST_ROWS = 32
_LEAST_PAGES = 64
"""Sizes below which parts of prompts are filled up."""

_MEMORY_SHARE = {"cpu": 0.25}
_MEMORY_SHARE_ELSEWHERE = 0.8
"""Share of the memory that is free (of a CPU: of all there is) that pages may take."""


class Runner:
    """Runs a model for the requests of a scheduler.

    On a CPU each row attends by itself. Elsewhere a step is one program over tensors of fixed
    shapes, filled up with rows that are nobody's: ``steps`` runs it, on a CUDA device as a graph
    that was captured once, by our own ops where the GPU has them. In deterministic mode it is
    several programs of one number of rows each; that takes our ops, or each row by itself.

    On a CUDA device all this goes on a stream of its own, which comes before what others ask for on
    theirs, and nothing that begins a step waits for the device.
    """

    def __init__(
        self,
        model: LoadedModel,
        config: EngineConfig,
        *,
        num_pages: int = 0,
        noise: Noise | None = None,
        steps: Steps | None = None,
        depth: int | None = None,
    ) -> None:
        """``depth`` is as in ``Executor``, one on a GPU unless it is given."""
        self._model, self._net = model, model.net
        self._deterministic = config.deterministic
        device = model.device
        self._stream = _stream_of(device) if device.type == "cuda" else None
        if self._stream is not None:
            # The weights came by the current stream.
            self._stream.wait_stream(torch.cuda.current_stream(device))
        # Memory that is made on a stream is given to that stream only when it is free again. So
        # that of requests cannot be another's already while their last step still writes to it.
        with self._own_stream():
            self._set_up(config, num_pages, noise, steps)
        if self._stream is not None:
            # What the net has kept for itself meanwhile is for everybody.
            torch.cuda.current_stream(device).wait_stream(self._stream)
        is_captured = isinstance(self._steps, CapturedSteps)
        self.depth = int(is_captured) if depth is None else depth

    def _set_up(
        self, config: EngineConfig, num_pages: int, noise: Noise | None, steps: Steps | None
    ) -> None:
        """Make the memory of requests, and the programs over it."""
        model, device = self._model, self._model.device
        max_batch = config.max_batch or _BATCH.get(device.type, _BATCH_ELSEWHERE)
        num_pages = num_pages or _num_pages(model, max_batch)
        # One page and one slot more than the scheduler knows of: for rows that only fill a group.
        self._pool = model.net.new_pages(num_pages + 1, PAGE_SIZE)
        self._scratch_page, self._scratch_slot = num_pages, max_batch
        self.capacity = Capacity(num_pages, PAGE_SIZE, max_batch, model.config.max_positions)
        self._draws = Draws(max_batch + 1, model.config, device, noise)
        size = (max_batch + 1, 1 + model.config.num_codebooks)
        self._rows = torch.zeros(size, dtype=torch.int64, device=device)
        if steps is None and device.type != "cpu":
            steps = captured_steps(device)
        self._fused = None
        is_wanted = kernels.has_triton(device) if config.kernels is None else config.kernels
        if steps is not None and is_wanted:
            size = max(_ROWS, _bucket(max_batch))
            self._fused = model.net.fused(self._pool, size, deterministic=config.deterministic)
        # One by one each row reads its own pages only, which on a CPU is the faster way anyway.
        self._steps = None if config.deterministic and self._fused is None else steps

    def _own_stream(self) -> AbstractContextManager[object]:
        return torch.cuda.stream(self._stream) if self._stream is not None else nullcontext()

    @torch.inference_mode()
    def execute(self, batch: Batch) -> Iterable[StepResult]:
        """Begin a batch; see ``Executor``."""
        with self._own_stream():
            made = self._begin(batch)
            if not made:
                return []
            places = {r.id: at for at, r in enumerate(r for group, _ in made for r in group)}
            drawn = [(r, r.next_frame, places[r.id]) for r in batch.drawn]
            return self._results(drawn, to_host(torch.cat([rows for _, rows in made])))

    def _results(
        self, drawn: Sequence[tuple[Request, int, int]], rows: Callable[[], Array]
    ) -> Iterator[StepResult]:
        """Wait for rows int64 [B, 1 + C], and go through requests, frames' numbers and rows'."""
        end, made = self._model.config.end_id, rows()
        for request, number, at in drawn:
            yield StepResult(request, number, None if made[at, 0] == end else made[at])

    def _begin(self, batch: Batch) -> list[_Made]:
        """Let the device work out a batch; answers the rows of those that draw."""
        newcomers = [chunk.request for chunk in batch.chunks if chunk.is_last]
        is_together = self._fused is not None and not self._deterministic
        if self._steps is not None and is_together and batch.chunks:
            hidden = self._prefill_together(self._steps, batch.chunks)
        else:
            hidden = [state for chunk in batch.chunks for state in self._prefill(chunk)]
        for request in newcomers:
            self._draws.join(request.slot, request)
        for request in batch.decode:
            # Rows that are not known yet lie on the device: it has drawn them since.
            if request.num_preempted and len(request.frames) >= request.next_frame - 1:
                self._restore(request)
        if self._steps is not None:
            return self._step_together(self._steps, hidden, newcomers, batch.decode)
        return self._step_apart(hidden, newcomers, batch.decode)

    def _prefill(self, chunk: Chunk) -> list[Tensor]:
        """Work out a part of a prompt; answers its last hidden state [1, E] if the prompt ends."""
        request = chunk.request
        matrix = request.prompt.matrix[:, chunk.start : chunk.stop]
        rows = to_device(matrix, self._model.device)[None]
        hidden = self._net.backbone(rows, self._pool.chunk(request.pages, chunk.start))
        return [hidden] if chunk.is_last else []

    def _prefill_together(self, steps: Steps, chunks: Sequence[Chunk]) -> list[Tensor]:
        """Work out parts of many prompts as one program; answers the last hidden state [1, E] of
        each prompt that ends, in their order."""
        fused = self._fused
        assert fused is not None, "it is the fused ops' way"
        spans: dict[int, Chunk] = {}
        for chunk in chunks:
            # What follows on from each other is one part: these rows see what is before them.
            known = spans.get(chunk.request.id)
            start = chunk.start if known is None else known.start
            spans[chunk.request.id] = Chunk(chunk.request, start, chunk.stop)
        parts = list(spans.values())
        num_rows = _coarse(sum(part.stop - part.start for part in parts), _LEAST_ROWS, 2)
        num_requests = _coarse(len(parts), 1, 4)
        num_pages = _coarse(max(len(part.request.pages) for part in parts), _LEAST_PAGES, 4)
        sizes = (num_rows, num_requests, num_pages)

        def program(rows: Tensor, tables: Tensor, bounds: Tensor) -> Tensor:
            places = Places(rows[:, 0].contiguous(), tables, rows[:, 1].contiguous())
            lengths, starts, lasts = (bounds[k].contiguous() for k in range(3))
            codes = rows[:, 2:].long()
            return fused.prefill(codes, places, lengths[:-1], starts, lasts[:-1].long())

        hidden = steps.run("prefill", program, self._parts(parts, *sizes), self._parts([], *sizes))
        return [hidden[k, None] for k, part in enumerate(parts) if part.is_last]

    def _parts(
        self, parts: Sequence[Chunk], num_rows: int, num_requests: int, num_pages: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Parts of prompts on the host, all int32, filled up with what is nobody's.

        Rows [N, 2 + 1 + C] are position, request and the prompt's; tables [B, W] are pages; bounds
        [3, B + 1] are lengths, first rows (and the end of all), last rows.
        """
        rows = np.zeros((num_rows, 3 + self._model.config.num_codebooks), np.int32)
        rows[:, 0] = -1
        tables = np.full((num_requests, num_pages), self._scratch_page, np.int32)
        bounds = np.zeros((3, num_requests + 1), np.int32)
        at = 0
        for number, part in enumerate(parts):
            end = at + part.stop - part.start
            rows[at:end, 0] = np.arange(part.start, part.stop)
            rows[at:end, 1] = number
            rows[at:end, 2:] = part.request.prompt.matrix[:, part.start : part.stop].T
            tables[number, : len(part.request.pages)] = part.request.pages
            bounds[:, number] = (part.stop, at, end - 1)
            at = end
        bounds[1, len(parts) :] = at
        return torch.from_numpy(rows), torch.from_numpy(tables), torch.from_numpy(bounds)

    def _restore(self, request: Request) -> None:
        """Feed a request that had given way with what it has drawn, and not with what it draws now:
        in another crowd that may differ, in the last bit of a sum."""
        known = to_device(np.stack(request.frames[: request.next_frame - 1]), self._model.device)
        self._rows[request.slot] = known[-1]
        self._draws.restore(request.slot, known)

    def _step_apart(
        self, hidden: list[Tensor], newcomers: list[Request], decode: Sequence[Request]
    ) -> list[_Made]:
        """Work out all rows, each reading its own pages; in deterministic mode in groups of one
        size."""
        drawn = [*newcomers, *decode]
        size = _ROWS if self._deterministic else max(1, len(drawn))
        states = list(hidden)
        for group in _groups(decode, size):
            filled = self._filled(group, self._padded(group))
            store = self._pool.apart(filled.tables, filled.positions)
            rows = self._rows[filled.slots]
            states.append(self._net.backbone(rows[:, :, None], store)[: len(group)])
        made = []
        for group, state in zip(
            _groups(drawn, size), torch.cat(states).split(size) if states else (), strict=True
        ):
            filled = self._filled(group, self._padded(group))
            state = F.pad(state, (0, 0, 0, len(filled.places) - len(group)))
            width = self._draws.width(filled.places)
            rows = self._frames(self._net, state, filled.slots, filled.numbers, width)
            made.append((group, rows[: len(group)]))
        return made

    def _padded(self, group: Sequence[Request]) -> int:
        """Rows that a group is filled up to."""
        return _ROWS if self._deterministic else len(group)

    def _step_together(
        self,
        steps: Steps,
        hidden: list[Tensor],
        newcomers: list[Request],
        decode: Sequence[Request],
    ) -> list[_Made]:
        """Work out the newcomers' first frames, then all others, as programs of fixed shapes."""
        made: list[_Made] = []
        states = {r.id: state for r, state in zip(newcomers, hidden, strict=True)}
        for group, width in self._alike(newcomers):
            size = self._size(group)
            state = torch.cat([states[request.id] for request in group])
            state = F.pad(state, (0, 0, 0, size - len(group)))
            rows = steps.run(
                ("first", width),
                partial(self._first, width=width),
                (state, self._packed(group, size, 0)),
                (state, self._packed([], size, 0)),
            )
            made.append((group, rows[: len(group)]))
        for group, width in self._alike(decode):
            size, pages = self._size(group), _bucket(max(len(r.pages) for r in group))
            rows = steps.run(
                ("decode", width),
                partial(self._decode, width=width),
                (self._packed(group, size, pages),),
                (self._packed([], size, pages),),
            )
            made.append((group, rows[: len(group)]))
        return made

    def _alike(self, requests: Sequence[Request]) -> Iterator[tuple[Sequence[Request], int]]:
        """Requests that are worked out together, and how many of the best ids they draw from at
        most: all, or in deterministic mode groups that nobody's neighbours decide that for."""
        if not requests:
            return
        if not self._deterministic:
            yield requests, _bucket(self._draws.width([request.slot for request in requests]))
            return
        widths: dict[int, list[Request]] = {}
        for request in requests:
            widths.setdefault(_bucket(self._draws.width([request.slot])), []).append(request)
        for width, own in widths.items():
            yield from ((group, width) for group in _groups(own, _ROWS))

    def _size(self, group: Sequence[Request]) -> int:
        """Rows that a program has for a group."""
        return _ROWS if self._deterministic else _bucket(len(group))

    def _packed(self, requests: Sequence[Request], size: int, pages: int) -> Tensor:
        """Slots, frames' numbers, positions and pages of ``size`` rows: int32 [B, 3 + pages] on the
        host, so that one transfer brings all."""
        packed = np.empty((size, 3 + pages), np.int32)
        packed[:, :3] = (self._scratch_slot, 0, 0)
        packed[:, 3:] = self._scratch_page
        for row, request in zip(packed, requests, strict=False):
            row[:3] = (request.slot, request.next_frame - 1, request.num_computed - 1)
            if pages:
                row[3 : 3 + len(request.pages)] = request.pages
        return torch.from_numpy(packed)

    def _first(self, hidden: Tensor, packed: Tensor, width: int) -> Tensor:
        """The first frames of newcomers, by their hidden states [B, E]."""
        slots, numbers = packed[:, 0].long(), packed[:, 1].long()
        return self._frames(self._fused or self._net, hidden, slots, numbers, width)

    def _decode(self, packed: Tensor, width: int) -> Tensor:
        """A whole frame on the device: position, draws, next input. -> rows int64 [B, 1 + C]."""
        slots, numbers, positions = packed[:, :3].long().unbind(1)
        rows = self._rows[slots]
        if self._fused is not None:
            tables = packed[:, 3:].contiguous()
            hidden = self._fused.backbone(rows, tables, packed[:, 2].contiguous())
            return self._frames(self._fused, hidden, slots, numbers, width)
        tables = packed[:, 3:].long()
        store = self._pool.together(tables, positions, self.capacity.max_positions)
        hidden = self._net.backbone(rows[:, :, None], store)
        return self._frames(self._net, hidden, slots, numbers, width)

    def _frames(
        self, net: FrameNet, hidden: Tensor, slots: Tensor, numbers: Tensor, width: int
    ) -> Tensor:
        """Make the frames ``numbers`` [B] of hidden states [B, E] -> rows int64 [B, 1 + C]."""
        config = self._model.config
        draw = self._draws.frame(slots, numbers, width, by_op=net is self._fused)
        chosen = draw.semantic(net.slow_logits(hidden))
        # The end has no code. Its frame is made all the same: looking first would make a GPU wait.
        last = config.codebook_size - 1
        codes = net.frame(hidden, chosen.clamp(max=last), draw.code)
        token = torch.where(chosen > last, config.end_id, chosen + config.semantic_begin)
        rows = torch.cat((token[:, None], codes), dim=1)
        # Rows that fill a group share one slot: whichever of them is kept there, nobody reads it.
        self._rows[slots] = rows
        self._draws.keep(slots, numbers, rows)
        return rows

    def _filled(self, requests: Sequence[Request], size: int) -> _Filled:
        """Line up requests for a pass over ``size`` rows."""
        spare = size - len(requests)
        places = [request.slot for request in requests] + [self._scratch_slot] * spare
        numbers = [request.next_frame - 1 for request in requests] + [0] * spare
        device = self._model.device
        return _Filled(
            places=places,
            tables=[request.pages for request in requests] + [[self._scratch_page]] * spare,
            positions=[request.num_computed - 1 for request in requests] + [0] * spare,
            slots=torch.tensor(places, device=device),
            numbers=torch.tensor(numbers, device=device),
        )


_Made = tuple[Sequence[Request], Tensor]
"""Requests and the rows int64 [B, 1 + C] that they drew."""


@dataclass(frozen=True, slots=True)
class _Filled:
    """The rows of a pass: their slots, pages, positions and frames' numbers."""

    places: list[int]
    tables: list[list[int]]
    positions: list[int]
    slots: Tensor
    numbers: Tensor


@cache
def _stream_of(device: torch.device) -> torch.cuda.Stream:
    """The stream of all runners of a CUDA device: one has the memory that another had."""
    return torch.cuda.Stream(device, priority=-1)


def _coarse(number: int, least: int, factor: int) -> int:
    """Round up to ``least`` times a power of ``factor``: each size is a program to be captured."""
    size = least
    while size < number:
        size *= factor
    return size


def _bucket(number: int) -> int:
    """Round up to one of few sizes, at most half as much again: a program is captured for each."""
    power = 1 << (number - 1).bit_length()
    return power * 3 // 4 if power >= 4 and number <= power * 3 // 4 else power


def _groups(requests: Sequence[Request], size: int) -> list[Sequence[Request]]:
    return [requests[at : at + size] for at in range(0, len(requests), size)]


def _num_pages(model: LoadedModel, max_batch: int) -> int:
    """Choose how many pages there are: enough for the batch, as far as the memory goes.

    Raises: ``DeviceError`` where not even one request fits.
    """
    page_bytes = model.net.new_pages(1, PAGE_SIZE).num_bytes
    longest = -(-model.config.max_positions // PAGE_SIZE)
    usual = min(_POSITIONS_A_REQUEST // PAGE_SIZE, longest)
    fitting = int(_memory_bytes(model.device)) // page_bytes
    if fitting < usual:
        raise DeviceError(
            f"There is not enough memory: {page_bytes * usual:,} bytes are needed for one text.",
            hint="Close other programs, or choose a smaller model.",
        )
    return min(fitting, max(longest, max_batch * usual))


def _memory_bytes(device: torch.device) -> float:
    share = _MEMORY_SHARE.get(device.type, _MEMORY_SHARE_ELSEWHERE)
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] * share
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * share
    return 2**31

"""The executor: a batch to tensors, to the model, to frames. Owns the pages' memory and the slots.

Policy is the scheduler's: who runs, what is cut where, who gives way. Knows no text and no audio.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fishtts.config import EngineConfig
from fishtts.engine.draws import CountedNoise, Draws, Noise
from fishtts.engine.request import Batch, Capacity, Chunk, Request, StepResult
from fishtts.errors import DeviceError
from fishtts.models import LoadedModel

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

_MEMORY_SHARE = {"cpu": 0.25}
_MEMORY_SHARE_ELSEWHERE = 0.8
"""Share of the memory that is free (of a CPU: of all there is) that pages may take."""


class Runner:
    """Runs a model for the requests of a scheduler."""

    def __init__(
        self,
        model: LoadedModel,
        config: EngineConfig,
        *,
        num_pages: int = 0,
        noise: Noise | None = None,
    ) -> None:
        self._model, self._net = model, model.net
        self._deterministic = config.deterministic
        kind = model.device.type
        # One by one each row reads its own pages only, which on a CPU is the faster way anyway.
        self._apart = config.deterministic or kind == "cpu"
        max_batch = config.max_batch or _BATCH.get(kind, _BATCH_ELSEWHERE)
        num_pages = num_pages or _num_pages(model, max_batch)
        # One page and one slot more than the scheduler knows of: for rows that only fill a group.
        self._pool = model.net.new_pages(num_pages + 1, PAGE_SIZE)
        self._scratch_page, self._scratch_slot = num_pages, max_batch
        self.capacity = Capacity(num_pages, PAGE_SIZE, max_batch, model.config.max_positions)
        device = model.device
        noise = noise or CountedNoise()
        self._draws = Draws(max_batch + 1, model.config, device, noise)
        size = (max_batch + 1, 1 + model.config.num_codebooks)
        self._rows = torch.zeros(size, dtype=torch.int64, device=device)

    @torch.inference_mode()
    def execute(self, batch: Batch) -> list[StepResult]:
        """Work out a batch; see ``Executor``."""
        hidden = [state for chunk in batch.chunks for state in self._prefill(chunk)]
        if batch.decode:
            hidden.append(self._decode(batch.decode))
        drawn = batch.drawn
        if not drawn:
            return []
        rows = self._draw(torch.cat(hidden), drawn).cpu().numpy()
        end = self._model.config.end_id
        return [
            StepResult(request, None if row[0] == end else row)
            for request, row in zip(drawn, rows, strict=True)
        ]

    def _prefill(self, chunk: Chunk) -> list[Tensor]:
        """Work out a part of a prompt; answers its last hidden state [1, E] if the prompt ends."""
        request = chunk.request
        matrix = request.prompt.matrix[:, chunk.start : chunk.stop]
        rows = torch.from_numpy(np.ascontiguousarray(matrix)).to(self._model.device)[None]
        hidden = self._net.backbone(rows, self._pool.chunk(request.pages, chunk.start))
        if not chunk.is_last:
            return []
        self._draws.join(request.slot, request)
        return [hidden]

    def _decode(self, requests: Sequence[Request]) -> Tensor:
        """Work out one position each; answers hidden states [B, E]."""
        for request in requests:
            if request.num_preempted:
                self._restore(request)
        if not self._deterministic:
            return self._positions(requests)
        return torch.cat([self._positions(g, _ROWS) for g in _groups(requests, _ROWS)])

    def _positions(self, requests: Sequence[Request], width: int = 0) -> Tensor:
        spare = max(0, width - len(requests))
        slots = [request.slot for request in requests] + [self._scratch_slot] * spare
        tables = [request.pages for request in requests] + [[self._scratch_page]] * spare
        places = [request.num_computed - 1 for request in requests] + [0] * spare
        rows = self._rows[torch.tensor(slots, device=self._model.device)]
        store = self._pool.rows(tables, places, apart=self._apart)
        return self._net.backbone(rows[:, :, None], store)[: len(requests)]

    def _restore(self, request: Request) -> None:
        """Feed a request that had given way with what it has drawn, and not with what it draws now:
        in another crowd that may differ, in the last bit of a sum."""
        known = torch.from_numpy(np.stack(request.frames[: request.next_frame - 1]))
        self._rows[request.slot] = known[-1].to(self._rows.device)
        self._draws.restore(request.slot, known)

    def _draw(self, hidden: Tensor, requests: Sequence[Request]) -> Tensor:
        """Make the frames of hidden states [B, E]; answers rows int64 [B, 1 + C]."""
        if not self._deterministic:
            return self._frames(hidden, requests)
        groups = zip(hidden.split(_ROWS), _groups(requests, _ROWS), strict=True)
        return torch.cat([self._frames(part, group, _ROWS) for part, group in groups])

    def _frames(self, hidden: Tensor, requests: Sequence[Request], width: int = 0) -> Tensor:
        config, device, num = self._model.config, self._model.device, len(requests)
        spare = max(0, width - num)
        hidden = torch.nn.functional.pad(hidden, (0, 0, 0, spare))
        places = [request.slot for request in requests] + [self._scratch_slot] * spare
        slots = torch.tensor(places, device=device)
        numbers = torch.tensor([r.next_frame - 1 for r in requests] + [0] * spare, device=device)
        draw = self._draws.frame(slots, numbers, places)
        chosen = draw.semantic(self._net.slow_logits(hidden))
        # The end has no code. Its frame is made all the same: looking first would make a GPU wait.
        last = config.codebook_size - 1
        codes = self._net.frame(hidden, chosen.clamp(max=last), draw.code)
        token = torch.where(chosen > last, config.end_id, chosen + config.semantic_begin)
        rows = torch.cat((token[:, None], codes), dim=1)[:num]
        self._rows[slots[:num]] = rows
        self._draws.keep(slots[:num], numbers[:num], rows)
        return rows


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

"""Keys and values of many requests in pages: one pool a layer, and views of it for one pass.

Owns where a position's keys and values lie. Does not know who owns a page, or who runs next.

Shapes: B requests, T positions, H query heads, G key/value heads, D head size, P pages, S positions
a page. A pool is [P, S, G, D]; the keys of a position lie together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fishtts.kernels.attention_reference import KVPages
from fishtts.models.attention import attend, attend_masked
from fishtts.models.transfer import to_device


class Rotations(Protocol):
    """Where rotations come from."""

    def until(self, end: int) -> Tensor: ...


class PagedKV:
    """The pools of all layers. ``like`` gives the device and the number format."""

    def __init__(self, shape: tuple[int, int, int, int], num_layers: int, like: Tensor) -> None:
        self.keys = [_zeros(shape, like) for _ in range(num_layers)]
        self.values = [_zeros(shape, like) for _ in range(num_layers)]
        self.num_pages, self.page_size = shape[:2]
        self.device, self.dtype = like.device, like.dtype

    @property
    def num_bytes(self) -> int:
        """Memory of all pools."""
        return sum(pool.nbytes for pool in (*self.keys, *self.values))

    def chunk(self, pages: Sequence[int], start: int) -> PagedChunk:
        """See one request, whose next positions begin at ``start``."""
        return PagedChunk(self, pages, start)

    def apart(self, tables: Sequence[Sequence[int]], positions: Sequence[int]) -> RowsApart:
        """See many requests at one position each; ``tables`` are their pages.

        Each is worked out by itself: what comes out of a row then does not depend, to the last bit,
        on the lengths of the others.
        """
        return RowsApart(self, tables, positions)

    def together(self, tables: Tensor, positions: Tensor, max_positions: int) -> RowsTogether:
        """See many requests at one position each, all at once, and nothing read back.

        Shapes: tables int64 [B, W] (whatever fills a row must be a page too), positions int64 [B].
        """
        return RowsTogether(self, tables, positions, max_positions)

    def layers(self) -> list[KVPages]:
        """The pools as the ops of ``fishtts.kernels`` take them."""
        return [KVPages(k, v) for k, v in zip(self.keys, self.values, strict=True)]

    def places(self, pages: Tensor, positions: Tensor) -> Tensor:
        """Number the places of positions in a pool, given the page that holds each."""
        return pages * self.page_size + positions % self.page_size

    def write(self, at: int, places: Tensor, k: Tensor, v: Tensor) -> None:
        """Store keys and values [N, G, D] at places [N] of a layer."""
        self.keys[at].flatten(0, 1).index_copy_(0, places, k)
        self.values[at].flatten(0, 1).index_copy_(0, places, v)

    def read(self, at: int, pages: Tensor) -> tuple[Tensor, Tensor]:
        """Gather whole pages, in order. pages int64 [n] -> keys and values [1, G, n * S, D]."""
        found = (pool[at].index_select(0, pages) for pool in (self.keys, self.values))
        keys, values = (part.flatten(0, 1).transpose(0, 1)[None] for part in found)
        return keys, values


def _zeros(shape: tuple[int, int, int, int], like: Tensor) -> Tensor:
    """Zeros, since what a mask hides is multiplied by nothing and must not be NaN.

    On a CPU by way of numpy, whose zeros take no memory before they are written to.
    """
    if like.device.type != "cpu":
        return like.new_zeros(shape)
    size = math.prod(shape) * like.element_size()
    return torch.from_numpy(np.zeros(size, np.uint8)).view(like.dtype).view(shape)


class PagedChunk:
    """Positions of one request that are worked out together."""

    def __init__(self, pool: PagedKV, pages: Sequence[int], start: int) -> None:
        self._pool, self._start = pool, start
        self._pages = to_device(np.array(pages, np.int64), pool.device)
        self._places: Tensor | None = None
        self._end = start

    def turns(self, table: Rotations, length: int) -> Tensor:
        """Rotations [T, D / 2]; called first in a pass."""
        pool, start = self._pool, self._start
        self._end = start + length
        positions = torch.arange(start, self._end, device=pool.device)
        self._places = pool.places(self._pages[positions // pool.page_size], positions)
        self._pages = self._pages[: -(-self._end // pool.page_size)]
        return table.until(self._end).narrow(0, start, length)

    def attend(self, at: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store k and v [1, G, T, D] of a layer; attend from q [1, H, T' <= T, D]."""
        pool = self._pool
        assert self._places is not None, "turns() comes first"
        pool.write(at, self._places, k[0].transpose(0, 1), v[0].transpose(0, 1))
        keys, values = pool.read(at, self._pages)
        return attend(q, keys[:, :, : self._end], values[:, :, : self._end])

    def advance(self, length: int) -> None:
        """Nothing to keep: whoever asked for the pass counts."""


class RowsApart:
    """One position each of many requests, one after the other."""

    def __init__(
        self, pool: PagedKV, tables: Sequence[Sequence[int]], positions: Sequence[int]
    ) -> None:
        device = pool.device
        self._pool = pool
        self._lengths = [position + 1 for position in positions]
        counts = [-(-length // pool.page_size) for length in self._lengths]
        self._own = [
            torch.tensor(table[:count], device=device)
            for table, count in zip(tables, counts, strict=True)
        ]
        self._positions = torch.tensor(positions, device=device)
        last = torch.stack([pages[-1] for pages in self._own])
        self._places = pool.places(last, self._positions)

    def turns(self, table: Rotations, length: int) -> Tensor:
        """Rotations [B, 1, 1, D / 2], each row's own."""
        assert length == 1, "one position a row"
        return table.until(max(self._lengths)).index_select(0, self._positions)[:, None, None]

    def attend(self, at: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store k and v [B, G, 1, D] of a layer; attend from q [B, H, 1, D]."""
        pool = self._pool
        pool.write(at, self._places, k[:, :, 0], v[:, :, 0])
        rows = []
        for row, (pages, length) in enumerate(zip(self._own, self._lengths, strict=True)):
            keys, values = pool.read(at, pages)
            rows.append(attend(q[row, None], keys[:, :, :length], values[:, :, :length]))
        return torch.cat(rows)

    def advance(self, length: int) -> None:
        """Nothing to keep: whoever asked for the pass counts."""


class RowsTogether:
    """One position each of many requests, in tensors of fixed shapes: fit for a CUDA graph."""

    def __init__(
        self,
        pool: PagedKV,
        tables: Tensor,
        positions: Tensor,
        max_positions: int,
    ) -> None:
        self._pool, self._tables, self._positions = pool, tables, positions
        self._max_positions = max_positions
        page = tables.gather(1, (positions // pool.page_size)[:, None])[:, 0]
        self._places = pool.places(page, positions)

    def turns(self, table: Rotations, length: int) -> Tensor:
        """Rotations [B, 1, 1, D / 2], each row's own."""
        assert length == 1, "one position a row"
        turns = table.until(self._max_positions)
        return turns.index_select(0, self._positions)[:, None, None]

    def attend(self, at: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store k and v [B, G, 1, D] of a layer; attend from q [B, H, 1, D]."""
        pool, batch = self._pool, q.shape[0]
        pool.write(at, self._places, k[:, :, 0], v[:, :, 0])
        keys, values = (
            stack[at]
            .index_select(0, self._tables.flatten())
            .unflatten(0, (batch, -1))
            .flatten(1, 2)
            for stack in (pool.keys, pool.values)
        )
        lengths = self._positions + 1
        return attend_masked(q, keys.transpose(1, 2), values.transpose(1, 2), lengths)

    def advance(self, length: int) -> None:
        """Nothing to keep: whoever asked for the pass counts."""

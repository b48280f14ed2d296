"""How attention is cut into programs: tiles of positions, and chunks of a long context.

Owns pure functions of integers, so that they can be tested without a GPU and a sweep can replace a
number. Knows no tensors; imports no torch.

Words: a chunk is what one program of a decode step reads of one request's context, for one
key/value head. A request has as many chunks as its own length needs, so that in a ragged batch no
program has more to do than another.
"""

from __future__ import annotations

from dataclasses import dataclass

from fishtts.kernels.plans import Gpu

BLOCK_T = 64
"""Positions in a tile: what a Hopper warpgroup takes as rows."""

DETERMINISTIC_CHUNK = 256
"""Positions of a chunk where nothing may depend on the batch: 1,024 positions of one request then
still feed 32 programs of S2's 8 heads, and 64 requests make no more parts than they must."""

MAX_CHUNKS = 128
"""Of one request: the last program to arrive adds up the parts one after the other."""

_RESERVED_BYTES = 3072
"""Shared memory of a program beside its stages: queries, weights of a tile, reductions."""

_LARGE_SHARED_BYTES = 200 * 1024
"""Shared memory of the GPUs whose matrix unit takes it as operand, which leaves registers free for
tiles of 128 rows."""

_START_TILES = 2.0
"""What starting a program costs, in tiles: an estimate until a sweep has measured it."""
_MERGE_TILES = 1.5
"""What meeting in memory costs, in tiles, and below what each further part does: likewise."""
_PART_TILES = 0.1
_TAIL = 0.5


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """One way to run a decode step: ``chunk`` positions to a program, at most ``num_chunks``.

    Where not ``is_split`` there is only one chunk, and a kernel that knows of no others.
    """

    chunk: int
    num_chunks: int
    num_stages: int
    is_split: bool = True
    num_warps: int = 4
    use_pdl: bool = False


@dataclass(frozen=True, slots=True)
class PrefillPlan:
    """One way to run a prefill: ``block_m`` rows to a tile, a row being a position and a head."""

    block_m: int
    num_stages: int
    num_warps: int = 8
    use_pdl: bool = False


def plan_decode(
    num_pairs: int,
    max_length: int,
    row_bytes: int,
    gpu: Gpu,
    *,
    deterministic: bool = False,
) -> DecodePlan:
    """Choose the chunk of a decode step.

    ``num_pairs`` are requests times key/value heads, ``row_bytes`` the key of one position and
    head. ``max_length`` bounds the lengths; in a graph it is what they may become. With
    ``deterministic`` the chunk ignores it and the batch.
    """
    tile_bytes = 2 * BLOCK_T * row_bytes
    ahead = _tiles_ahead(tile_bytes, gpu)
    num_tiles = max(1, -(-max_length // BLOCK_T))
    if deterministic:
        tiles = DETERMINISTIC_CHUNK // BLOCK_T
    else:
        resident = _resident((1 + ahead) * tile_bytes, gpu)
        tiles = _tiles_of_chunk(num_pairs, num_tiles, gpu.num_processors * resident)
    num_chunks = -(-num_tiles // tiles)
    return DecodePlan(
        tiles * BLOCK_T,
        num_chunks,
        # Pages are read through a table: what Triton counts as a stage is half a tile.
        num_stages=2 * ahead + 1,
        # Two kernels, if only by their compiler's choices, may round differently.
        is_split=deterministic or num_chunks > 1,
        use_pdl=gpu.has_pdl,
    )


def plan_prefill(
    max_rows: int, row_bytes: int, gpu: Gpu, *, deterministic: bool = False
) -> PrefillPlan:
    """Choose the tiles of a prefill of at most ``max_rows`` positions times heads.

    ``row_bytes`` is the key of one position and head, or the query if that is wider. With
    ``deterministic`` the answer ignores ``max_rows``: among more warps a row's sums are made in
    another order.
    """
    is_large = gpu.shared_bytes >= _LARGE_SHARED_BYTES and not deterministic
    block_m = 128 if is_large and max_rows >= 128 * gpu.num_processors else 64
    tile_bytes = (4 * BLOCK_T + block_m) * row_bytes
    num_stages = 3 if tile_bytes + _RESERVED_BYTES <= gpu.shared_bytes else 1
    return PrefillPlan(block_m, num_stages, use_pdl=gpu.has_pdl)


def _tiles_ahead(tile_bytes: int, gpu: Gpu) -> int:
    """Tiles on their way while one is worked on: with three programs of a multiprocessor."""
    room = (gpu.processor_bytes // 3 - _RESERVED_BYTES) // tile_bytes - 1
    if 2 * tile_bytes + _RESERVED_BYTES > gpu.shared_bytes:
        return 0
    return max(1, min(3, room))


def _resident(program_bytes: int, gpu: Gpu) -> int:
    return max(1, min(4, gpu.processor_bytes // (program_bytes + _RESERVED_BYTES)))


def _tiles_of_chunk(num_pairs: int, num_tiles: int, slots: int) -> int:
    """Tiles of a chunk, for the least estimated time."""

    def time(tiles: int) -> float:
        parts = -(-num_tiles // tiles)
        waves = max(1.0, num_pairs * parts / slots)
        merge = _MERGE_TILES + _PART_TILES * parts if parts > 1 else 0.0
        # Whoever starts last runs beside fewer and fewer others.
        return (waves + _TAIL) * (tiles + _START_TILES) + merge

    fewest = -(-num_tiles // MAX_CHUNKS)
    return min(range(fewest, num_tiles + 1), key=time)

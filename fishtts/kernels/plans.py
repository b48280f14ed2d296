"""How a product is cut into programs: tiles, splits, stages, by its sizes and the GPU's.

Owns pure functions of integers, so that a table can be tested without a GPU and a sweep can replace
an entry. Knows no tensors; imports no torch.

Words: a product is M tokens x N weight rows over K columns. The roles of the matrix unit's operands
are swapped: a tile has ``block_n`` weight rows (64 is what a Hopper warpgroup takes) and
``block_m`` tokens (as few as 16), so that few tokens waste nothing. A split takes part of the
columns.
"""

from __future__ import annotations

from dataclasses import dataclass

BLOCK_K = 128
MAX_SPLITS = 16

_RESERVED_BYTES = 2048
"""Shared memory for barriers and scales beside the stages."""

_START_BLOCKS = 3
"""What starting a program costs, in column blocks: an estimate until a sweep has measured it."""
_REDUCE_BLOCKS = 0.5
"""What one further partial sum costs whoever arrives last, in column blocks: an estimate too."""


_H200_PROCESSORS = 132
_MEASURED = {
    (6144, 2560): {16: (64, 2, 6, 4), 64: (64, 2, 6, 4), 128: (64, 1, 6, 4)},
    (2560, 4096): {16: (64, 5, 6, 4), 64: (128, 6, 4, 8), 128: (64, 3, 6, 4)},
    (19456, 2560): {16: (64, 1, 6, 4), 64: (128, 1, 4, 4), 128: (64, 1, 4, 4)},
    (2560, 9728): {16: (64, 8, 6, 4), 64: (64, 6, 6, 4), 128: (64, 3, 6, 4)},
}
"""S2 Pro's products of FP8 tokens by (rows, columns), then by tokens in a tile: rows of a tile,
splits, stages and warps. ``bench/kernels.py --sweep`` on an H200, within a layer, 2026-12-01: 48,
66 and 78 us a layer, where the estimates below had 50, 80 and 115."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to run a product.

    ``use_tma`` reads weights through tensor descriptors, ``use_token_tma`` tokens too: then one
    barrier a stage waits for both, and no thread copies. ``use_pdl`` starts before the kernel
    before it has ended and fetches ``prefetch_blocks`` column blocks of weights meanwhile.
    """

    block_n: int
    block_m: int
    splits: int
    num_stages: int
    num_warps: int = 4
    use_tma: bool = True
    use_token_tma: bool = True
    use_pdl: bool = False
    prefetch_blocks: int = 4


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a plan depends on: multiprocessors, shared memory of a program, whether it has TMA and
    programmatic dependent launches."""

    num_processors: int
    shared_bytes: int
    has_tma: bool
    has_pdl: bool = False

    @property
    def processor_bytes(self) -> int:
        """Shared memory of a multiprocessor, nearly: what one program may have, and 1 KB."""
        return self.shared_bytes + 1024


def plan_product(
    num_tokens: int,
    num_rows: int,
    num_columns: int,
    gpu: Gpu,
    *,
    token_bytes: int = 1,
    deterministic: bool = False,
) -> Plan:
    """Choose tiles, splits and stages. ``token_bytes`` is the size of an activation.

    With ``deterministic`` the answer ignores ``num_tokens``, so that a row's sums are made in the
    same order whoever runs beside it.
    """
    tokens = 64 if deterministic else num_tokens
    block_m = _token_tile(tokens)
    found = _MEASURED.get((num_rows, num_columns), {}).get(block_m)
    is_measured = gpu.num_processors == _H200_PROCESSORS and gpu.has_tma and tokens <= 128
    if found and is_measured and token_bytes == 1 and not deterministic:
        block_n, splits, num_stages, num_warps = found
        return Plan(block_n, block_m, splits, num_stages, num_warps, use_pdl=gpu.has_pdl)
    # Tiles of 128 x 128 sums were slower at every size.
    block_n = 64
    stage_bytes = BLOCK_K * (block_n + block_m * token_bytes)
    num_stages = stages_that_fit(block_n, block_m, token_bytes, gpu.shared_bytes)
    resident = max(1, min(4, gpu.processor_bytes // (num_stages * stage_bytes + _RESERVED_BYTES)))
    num_tiles = -(-num_rows // block_n) * (1 if deterministic else -(-tokens // block_m))
    splits = _splits(num_tiles, num_columns // BLOCK_K, gpu.num_processors * resident)
    return Plan(
        block_n,
        block_m,
        splits,
        num_stages,
        use_tma=gpu.has_tma,
        use_token_tma=gpu.has_tma,
        use_pdl=gpu.has_pdl,
    )


def stages_that_fit(
    block_n: int, block_m: int, token_bytes: int, shared_bytes: int, most: int = 6
) -> int:
    """How many column blocks may be on their way: ``most``, or as many as there is room for."""
    stage_bytes = BLOCK_K * (block_n + block_m * token_bytes)
    return min(most, (shared_bytes - _RESERVED_BYTES) // stage_bytes)


def _token_tile(num_tokens: int) -> int:
    """Tokens in a tile: Triton's FP8 product on Hopper starts at 16. Up to 128 tokens weights are
    read once."""
    for tile in (16, 32, 64):
        if num_tokens <= tile:
            return tile
    return 128


def _splits(num_tiles: int, num_blocks: int, slots: int) -> int:
    """Parts of the columns, so that every slot of the GPU has work, for the least estimated time.

    A product with more tiles than slots is not split.
    """
    if num_tiles >= slots:
        return 1

    def time(splits: int) -> float:
        waves = -(-num_tiles * splits // slots)
        blocks = -(-num_blocks // splits)
        return waves * (blocks + _START_BLOCKS) + (splits - 1) * _REDUCE_BLOCKS

    return min(range(1, min(MAX_SPLITS, num_blocks) + 1), key=time)

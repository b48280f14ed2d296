"""The end of a product whose columns are shared among programs.

Owns how partial sums meet: each program writes its own, whoever arrives last adds them in a fixed
order, so the result does not depend on who that was. Knows nothing of how a sum was made.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def prefetch_rows(start_ptr, rows, num_rows, row_bytes, COUNT: tl.constexpr):
    """Ask for ``COUNT`` cache lines (128 bytes) of each of the rows, without waiting for them."""
    lines = tl.arange(0, COUNT)
    at = tl.minimum(rows, num_rows - 1).to(tl.int64)[:, None] * row_bytes + lines[None, :] * 128
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;",
        "=r,l",
        [start_ptr + at],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def finish_tile(
    acc,
    out_ptr,
    partial_ptr,
    counter_ptr,
    num_tokens,
    num_rows,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """Write acc [BLOCK_N, BLOCK_M] to out [tokens, rows], after adding the other splits'.

    The grid is (tiles of rows, splits, tiles of tokens).
    """
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    tokens = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    at = tokens.to(tl.int64)[:, None] * num_rows + rows[None, :]
    mask = (tokens < num_tokens)[:, None] & (rows < num_rows)[None, :]
    if SPLITS == 1:
        tl.store(out_ptr + at, tl.trans(acc).to(out_ptr.dtype.element_ty), mask=mask)
    else:
        size: tl.constexpr = BLOCK_N * BLOCK_M
        tile = tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)
        inside = tl.arange(0, BLOCK_N)[:, None] * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]
        parts = partial_ptr + tile.to(tl.int64) * (SPLITS * size) + inside
        tl.store(parts + tl.program_id(1) * size, acc)
        # All threads have written before one of them says so.
        tl.debug_barrier()
        arrived = tl.atomic_add(counter_ptr + tile, 1, sem="acq_rel")
        if arrived == SPLITS - 1:
            total = tl.load(parts, cache_modifier=".cg")
            for split in range(1, SPLITS):
                total += tl.load(parts + split * size, cache_modifier=".cg")
            tl.store(out_ptr + at, tl.trans(total).to(out_ptr.dtype.element_ty), mask=mask)
            tl.store(counter_ptr + tile, 0)

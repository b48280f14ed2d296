"""The end of a product whose columns are shared among programs.

Owns how partial sums meet: each program writes its own, whoever arrives last adds them in a fixed
order, so the result does not depend on who that was. Knows nothing of how a sum was made.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fishtts.kernels.quantize import silu_mul_pairs


@triton.jit
def prefetch_rows(start_ptr, rows, num_rows, row_bytes, num_bytes):
    """Ask for the first ``num_bytes`` (a multiple of 16) of each row, without waiting for them.

    They come into the L2 cache while the kernel before still runs.
    """
    if num_bytes > 0:
        at = tl.minimum(rows, num_rows - 1).to(tl.int64) * row_bytes
        tl.inline_asm_elementwise(
            "cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0;",
            "=r,l,r",
            [start_ptr + at, tl.zeros_like(rows) + num_bytes],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.jit
def _sum_of_parts(
    parts, size: tl.constexpr, num_splits, BLOCK_N: tl.constexpr, BLOCK_M: tl.constexpr
):
    """Add the splits' parts in their order; as many are on their way as registers allow."""
    at_a_time: tl.constexpr = max(2, 8192 // (BLOCK_N * BLOCK_M))
    total = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for first in range(0, num_splits, at_a_time):
        for offset in tl.static_range(at_a_time):
            split = first + offset
            # Past the L1 cache: another multiprocessor wrote it.
            total += tl.load(
                parts + split * size,
                mask=tl.full((BLOCK_N, BLOCK_M), split, tl.int32) < num_splits,
                other=0.0,
                cache_modifier=".cg",
            )
    return total


@triton.jit
def _store_tile(
    acc,
    out_ptr,
    first_row,
    tokens,
    num_tokens,
    num_rows,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    SWIGLU: tl.constexpr,
):
    """Write acc [BLOCK_N, BLOCK_M] to out [tokens, rows]; with SWIGLU two rows become one."""
    tile = tl.trans(acc)
    if SWIGLU:
        gate, up = tl.split(tl.reshape(tile, (BLOCK_M, BLOCK_N // 2, 2)))
        tile = silu_mul_pairs(gate, up)
    width: tl.constexpr = BLOCK_N // 2 if SWIGLU else BLOCK_N
    num_columns = num_rows // 2 if SWIGLU else num_rows
    columns = (first_row // 2 if SWIGLU else first_row) + tl.arange(0, width)
    at = tokens.to(tl.int64)[:, None] * num_columns + columns[None, :]
    mask = (tokens < num_tokens)[:, None] & (columns < num_columns)[None, :]
    tl.store(out_ptr + at, tile.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def finish_tile(
    acc,
    out_ptr,
    partial_ptr,
    counter_ptr,
    first_token,
    num_tokens,
    num_rows,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    SPLIT: tl.constexpr,
    SWIGLU: tl.constexpr,
):
    """Write acc [BLOCK_N, BLOCK_M] to out [tokens, rows], after adding the other splits'.

    The grid is (tiles of rows, splits, tiles of tokens from ``first_token`` on).
    """
    first_row = tl.program_id(0) * BLOCK_N
    tokens = first_token + tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    if not SPLIT:
        _store_tile(acc, out_ptr, first_row, tokens, num_tokens, num_rows, BLOCK_N, BLOCK_M, SWIGLU)
    else:
        size: tl.constexpr = BLOCK_N * BLOCK_M
        num_splits = tl.num_programs(1)
        tile = tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)
        inside = tl.arange(0, BLOCK_N)[:, None] * BLOCK_M + tl.arange(0, BLOCK_M)[None, :]
        parts = partial_ptr + tile.to(tl.int64) * num_splits * size + inside
        tl.store(parts + tl.program_id(1) * size, acc)
        # All threads have written before one of them says so.
        tl.debug_barrier()
        arrived = tl.atomic_add(counter_ptr + tile, 1, sem="acq_rel")
        if arrived == num_splits - 1:
            total = _sum_of_parts(parts, size, num_splits, BLOCK_N, BLOCK_M)
            _store_tile(
                total, out_ptr, first_row, tokens, num_tokens, num_rows, BLOCK_N, BLOCK_M, SWIGLU
            )
            tl.store(counter_ptr + tile, 0)

"""Products with FP8 weights in 128x128 blocks: FP8 activations in 1x128 groups, or 16-bit ones.

Owns the schedule: weights are the left operand of the matrix unit and tokens the right one, sums
are promoted to float32 after each 128 columns, and the columns are shared out until every
multiprocessor has work. ``reference.py`` says what is computed, ``plans.py`` how it is cut. Knows
no model.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fishtts.kernels.launch import (
    MAX_TILES,
    counters,
    gpu_facts,
    launch_options,
)
from fishtts.kernels.plans import BLOCK_K, Plan, plan_product
from fishtts.kernels.reference import FP8, GROUP, check_columns, check_shape
from fishtts.kernels.split_k import finish_tile, prefetch_rows


@triton.jit(do_not_specialize=["first_token", "num_tokens"])
def block_scaled_kernel(
    x_ptr,
    x_desc,
    x_scale_ptr,
    weight_ptr,
    weight_desc,
    weight_scale_ptr,
    out_ptr,
    partial_ptr,
    counter_ptr,
    first_token,
    num_tokens,
    num_rows,
    num_columns,
    BLOCK_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    SPLIT: tl.constexpr,
    STAGES: tl.constexpr,
    QUANTIZED: tl.constexpr,
    SWIGLU: tl.constexpr,
    TMA: tl.constexpr,
    X_TMA: tl.constexpr,
    PDL: tl.constexpr,
    PREFETCH: tl.constexpr,
):
    """One tile of BLOCK_N weight rows and BLOCK_M tokens, one part of the columns.

    x is FP8 with a scale where ``QUANTIZED``, else 16-bit.
    """
    num_blocks = num_columns // 128
    begin = tl.program_id(1) * num_blocks // tl.num_programs(1)
    end = (tl.program_id(1) + 1) * num_blocks // tl.num_programs(1)
    first_row = tl.program_id(0) * BLOCK_N
    rows = first_row + tl.arange(0, BLOCK_N)
    tokens = first_token + tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.arange(0, 128)
    if PDL:
        # Weights do not depend on the kernel before: they may come while it ends.
        first_bytes = tl.minimum(end - begin, PREFETCH) * 128
        prefetch_rows(weight_ptr + begin * 128, rows, num_rows, num_columns, first_bytes)
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    is_token = tokens < num_tokens
    x_at = tokens.to(tl.int64)[:, None] * num_columns + columns[None, :]
    weight_at = rows.to(tl.int64)[:, None] * num_columns + columns[None, :]
    scale_at = weight_scale_ptr + (first_row // 128) * num_blocks
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for block in tl.range(begin, end, num_stages=STAGES):
        if X_TMA:
            x = x_desc.load([first_token + tl.program_id(2) * BLOCK_M, block * 128])
        else:
            x = tl.load(x_ptr + x_at + block * 128, mask=is_token[:, None], other=0.0)
        if TMA:
            weight = weight_desc.load([first_row, block * 128])
        else:
            weight = tl.load(
                weight_ptr + weight_at + block * 128, mask=(rows < num_rows)[:, None], other=0.0
            )
        scale = tl.load(scale_at + block)
        if QUANTIZED:
            x_scale = tl.load(x_scale_ptr + block * num_tokens + tokens, mask=is_token, other=0.0)
            acc += tl.dot(weight, tl.trans(x)) * (scale * x_scale)[None, :]
        else:
            acc += tl.dot(weight.to(x.dtype), tl.trans(x)) * scale
    finish_tile(
        acc,
        out_ptr,
        partial_ptr,
        counter_ptr,
        first_token,
        num_tokens,
        num_rows,
        BLOCK_N,
        BLOCK_M,
        SPLIT,
        SWIGLU,
    )


def launches(
    plan: Plan, num_tokens: int, num_rows: int, like: Tensor
) -> Iterator[tuple[tuple[int, int, int], Tensor, Tensor, int]]:
    """Grids that together make a product, each with room for its partial sums, its counters and its
    first token.

    One grid, but where a split product has so many tiles that the partial sums would take more
    memory than the weights.
    """
    row_tiles = triton.cdiv(num_rows, plan.block_n)
    token_tiles = triton.cdiv(num_tokens, plan.block_m)
    if plan.splits == 1:
        yield (row_tiles, 1, token_tiles), like, like, 0
        return
    if row_tiles > MAX_TILES:
        raise ValueError(f"A product of {num_rows} rows has too many tiles to be split.")
    at_once = min(token_tiles, MAX_TILES // row_tiles)
    size = row_tiles * at_once * plan.splits * plan.block_n * plan.block_m
    partial = torch.empty(size, dtype=torch.float32, device=like.device)
    for first in range(0, token_tiles, at_once):
        count = min(at_once, token_tiles - first)
        grid = (row_tiles, plan.splits, count)
        yield grid, partial, counters(like.device), first * plan.block_m


def descriptor(tensor: Tensor, block_rows: int, is_wanted: bool) -> Any:
    """How tiles of 128 columns are read: through a tensor descriptor, or by pointers."""
    if not is_wanted:
        return tensor
    from triton.tools.tensor_descriptor import TensorDescriptor

    shape, strides = list(tensor.shape), list(tensor.stride())
    return TensorDescriptor(
        tensor, shape, [shape[1], 1] if shape[0] == 1 else strides, [block_rows, BLOCK_K]
    )


def run_block_scaled(
    plan: Plan,
    x: Tensor,
    x_scale: Tensor | None,
    weight: Tensor,
    weight_scale: Tensor,
    out_dtype: torch.dtype,
    *,
    with_swiglu: bool = False,
) -> Tensor:
    """Run a product by a plan of one's own; without ``x_scale`` x is 16-bit."""
    check_columns("x", x)
    (num_tokens, num_columns), num_rows = x.shape, weight.shape[0]
    num_blocks = num_columns // GROUP
    check_shape("x", x, (num_tokens, num_columns), x.dtype)
    check_shape("weight", weight, (num_rows, num_columns), FP8)
    scale_shape = (-(-num_rows // GROUP), num_blocks)
    check_shape("weight_scale", weight_scale, scale_shape, torch.float32)
    if x_scale is not None:
        check_shape("x", x, (num_tokens, num_columns), FP8)
        check_shape("x_scale", x_scale, (num_blocks, num_tokens), torch.float32)
    width = num_rows // 2 if with_swiglu else num_rows
    out = torch.empty((num_tokens, width), dtype=out_dtype, device=x.device)
    x_desc = descriptor(x, plan.block_m, plan.use_token_tma)
    weight_desc = descriptor(weight, plan.block_n, plan.use_tma)
    for grid, partial, zeros, first_token in launches(plan, num_tokens, num_rows, out):
        block_scaled_kernel[grid](
            x,
            x_desc,
            weight_scale if x_scale is None else x_scale,
            weight,
            weight_desc,
            weight_scale,
            out,
            partial,
            zeros,
            first_token,
            num_tokens,
            num_rows,
            num_columns,
            BLOCK_N=plan.block_n,
            BLOCK_M=plan.block_m,
            SPLIT=plan.splits > 1,
            STAGES=plan.num_stages,
            QUANTIZED=x_scale is not None,
            SWIGLU=with_swiglu,
            TMA=plan.use_tma,
            X_TMA=plan.use_token_tma,
            PDL=plan.use_pdl,
            PREFETCH=plan.prefetch_blocks,
            num_warps=plan.num_warps,
            num_stages=plan.num_stages,
            **launch_options(plan.use_pdl),
        )
    return out


def bsgemm(
    x: Tensor,
    x_scale: Tensor,
    weight: Tensor,
    weight_scale: Tensor,
    *,
    out_dtype: torch.dtype = torch.bfloat16,
    deterministic: bool = False,
) -> Tensor:
    """See ``reference.bsgemm``."""
    check_columns("x", x)
    plan = plan_product(
        *(x.shape[0], weight.shape[0], x.shape[1]),
        gpu_facts(x.device),
        deterministic=deterministic,
    )
    return run_block_scaled(plan, x, x_scale, weight, weight_scale, out_dtype)


def w8a16_linear(
    x: Tensor, weight: Tensor, weight_scale: Tensor, *, deterministic: bool = False
) -> Tensor:
    """See ``reference.w8a16_linear``."""
    plan = _plan_16(x, weight, deterministic)
    return run_block_scaled(plan, x, None, weight, weight_scale, x.dtype)


def w8a16_swiglu(
    x: Tensor, weight: Tensor, weight_scale: Tensor, *, deterministic: bool = False
) -> Tensor:
    """See ``reference.w8a16_swiglu``. SwiGLU is what is done to a tile before it is written."""
    if weight.shape[0] % 2:
        raise ValueError(f"weight has {weight.shape[0]} rows; gate and up need an even number.")
    plan = _plan_16(x, weight, deterministic)
    return run_block_scaled(plan, x, None, weight, weight_scale, x.dtype, with_swiglu=True)


def _plan_16(x: Tensor, weight: Tensor, deterministic: bool) -> Plan:
    """The plan of a product with 16-bit activations."""
    check_columns("x", x)
    if x.dtype not in (torch.bfloat16, torch.float16):
        raise ValueError(f"x is {x.dtype}; it must be torch.bfloat16 or torch.float16.")
    return plan_product(
        *(x.shape[0], weight.shape[0], x.shape[1]),
        gpu_facts(x.device),
        token_bytes=2,
        deterministic=deterministic,
    )

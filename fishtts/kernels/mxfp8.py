"""Products of two FP8 operands in 1x32 groups (MXFP8).

Owns two schedules of one formula: Blackwell's block-scaled matrix instruction, and for GPUs without
it (Hopper) FP8 products of 32 columns, each scaled in float32. ``reference.py`` says what is
computed. Knows no model.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fishtts.kernels.block_scaled import launches
from fishtts.kernels.launch import capability, gpu_facts, launch_options
from fishtts.kernels.plans import Plan, plan_product
from fishtts.kernels.reference import FP8, GROUP, MX_GROUP, check_columns, check_shape
from fishtts.kernels.split_k import finish_tile, prefetch_rows


@triton.jit
def _group_scale(words, GROUP: tl.constexpr):
    """The float32 scale of one of the four groups in words of exponents."""
    return (((words >> (8 * GROUP)) & 255) << 23).to(tl.float32, bitcast=True)


@triton.jit
def _block_in_groups(acc, x_at, x_words, weight_at, weight_words, is_token, is_row):
    """Add 128 columns to acc, 32 at a time; x_at and weight_at point at their first 32."""
    for group in tl.static_range(4):
        x = tl.load(x_at + group * 32, mask=is_token[:, None], other=0.0)
        weight = tl.load(weight_at + group * 32, mask=is_row[:, None], other=0.0)
        product = tl.dot(weight, tl.trans(x))
        scale = _group_scale(weight_words, group)[:, None] * _group_scale(x_words, group)[None, :]
        acc += product * scale
    return acc


@triton.jit(do_not_specialize=["first_token", "num_tokens"])
def mxfp8_kernel(
    x_ptr,
    x_exponent_ptr,
    weight_ptr,
    weight_exponent_ptr,
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
    NATIVE: tl.constexpr,
    PDL: tl.constexpr,
    PREFETCH: tl.constexpr,
):
    """One tile of BLOCK_N weight rows and BLOCK_M tokens, one part of the columns.

    Exponents are bytes where ``NATIVE``, else words of four.
    """
    num_blocks = num_columns // 128
    begin = tl.program_id(1) * num_blocks // tl.num_programs(1)
    end = (tl.program_id(1) + 1) * num_blocks // tl.num_programs(1)
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    tokens = first_token + tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    if PDL:
        first_bytes = tl.minimum(end - begin, PREFETCH) * 128
        prefetch_rows(weight_ptr + begin * 128, rows, num_rows, num_columns, first_bytes)
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    is_token, is_row = tokens < num_tokens, rows < num_rows
    width: tl.constexpr = 128 if NATIVE else 32
    columns = tl.arange(0, width)[None, :]
    x_at = x_ptr + tokens.to(tl.int64)[:, None] * num_columns + columns
    weight_at = weight_ptr + rows.to(tl.int64)[:, None] * num_columns + columns
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for block in tl.range(begin, end, num_stages=STAGES):
        if NATIVE:
            four = tl.arange(0, 4)[None, :]
            x = tl.load(x_at + block * 128, mask=is_token[:, None], other=0.0)
            weight = tl.load(weight_at + block * 128, mask=is_row[:, None], other=0.0)
            x_exponent = tl.load(
                x_exponent_ptr + (block * num_tokens + tokens[:, None]) * 4 + four,
                mask=is_token[:, None],
                other=127,
            )
            weight_exponent = tl.load(
                weight_exponent_ptr + (block * num_rows + rows[:, None]) * 4 + four,
                mask=is_row[:, None],
                other=127,
            )
            acc = tl.dot_scaled(
                weight, weight_exponent, "e4m3", tl.trans(x), x_exponent, "e4m3", acc
            )
        else:
            x_words = tl.load(x_exponent_ptr + block * num_tokens + tokens, mask=is_token, other=0)
            weight_words = tl.load(
                weight_exponent_ptr + block * num_rows + rows, mask=is_row, other=0
            )
            acc = _block_in_groups(
                acc,
                x_at + block * 128,
                x_words,
                weight_at + block * 128,
                weight_words,
                is_token,
                is_row,
            )
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
        False,
    )


def has_native_product(device: torch.device) -> bool:
    """Tell whether a device multiplies scaled blocks itself."""
    return capability(device) >= (10, 0)


def run_mxfp8(
    plan: Plan,
    x: Tensor,
    x_exponents: Tensor,
    weight: Tensor,
    weight_exponents: Tensor,
    out_dtype: torch.dtype,
    *,
    native: bool,
) -> Tensor:
    """Run a product by a plan of one's own, with the block-scaled instruction or without."""
    check_columns("x", x)
    (num_tokens, num_columns), num_rows = x.shape, weight.shape[0]
    num_blocks = num_columns // GROUP
    for name, tensor, exponents, size in (
        ("x", x, x_exponents, num_tokens),
        ("weight", weight, weight_exponents, num_rows),
    ):
        check_shape(name, tensor, (size, num_columns), FP8)
        shape = (num_blocks, size, GROUP // MX_GROUP)
        check_shape(f"{name}_exponents", exponents, shape, torch.uint8)
    out = torch.empty((num_tokens, num_rows), dtype=out_dtype, device=x.device)
    if not native:
        x_exponents, weight_exponents = (
            t.view(torch.int32) for t in (x_exponents, weight_exponents)
        )
    for grid, partial, zeros, first_token in launches(plan, num_tokens, num_rows, out):
        mxfp8_kernel[grid](
            x,
            x_exponents,
            weight,
            weight_exponents,
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
            NATIVE=native,
            PDL=plan.use_pdl,
            PREFETCH=plan.prefetch_blocks,
            num_warps=plan.num_warps,
            num_stages=plan.num_stages,
            **launch_options(plan.use_pdl),
        )
    return out


def mxfp8_linear(
    x: Tensor,
    x_exponents: Tensor,
    weight: Tensor,
    weight_exponents: Tensor,
    *,
    out_dtype: torch.dtype = torch.bfloat16,
    deterministic: bool = False,
) -> Tensor:
    """See ``reference.mxfp8_linear``."""
    check_columns("x", x)
    plan = plan_product(
        *(x.shape[0], weight.shape[0], x.shape[1]),
        gpu_facts(x.device),
        deterministic=deterministic,
    )
    return run_mxfp8(
        plan,
        x,
        x_exponents,
        weight,
        weight_exponents,
        out_dtype,
        native=has_native_product(x.device),
    )

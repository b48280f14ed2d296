"""Many new positions at once: causal attention to plain tensors, or to pages.

Owns the schedule: a tile has rows of one key/value head, a row being a position and one of the
query heads that share it, so that keys and values are read once for all of them.
``attention_reference.py`` says what is computed.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fishtts.kernels.attention_plans import BLOCK_T, PrefillPlan, plan_prefill
from fishtts.kernels.attention_reference import KVPages, check_contiguous_heads, check_tables
from fishtts.kernels.attention_tiles import (
    load_keys,
    load_page_ids,
    load_scales,
    load_transposed_values,
    round_rows,
)
from fishtts.kernels.checks import check_shape
from fishtts.kernels.flash_decode import check_page_size, dot_precision, to_log2
from fishtts.kernels.launch import gpu_facts, launch_options


@triton.jit
def _load_plain(ptr, first, end, stride_t, D: tl.constexpr, BLOCK_T: tl.constexpr):
    """Keys or values [BLOCK_T, D] of the positions from ``first``, zeros at and beyond ``end``."""
    positions = first + tl.arange(0, BLOCK_T)
    at = positions.to(tl.int64)[:, None] * stride_t + tl.arange(0, D)[None, :]
    return tl.load(ptr + at, mask=(positions < end)[:, None], other=0.0)


@triton.jit
def _attend_tiles(
    q,
    q_scale,
    positions,
    begin,
    stop,
    end,
    best,
    total,
    acc,
    key_ptr,
    value_ptr,
    key_scale_ptr,
    value_scale_ptr,
    table,
    key_stride,
    value_stride,
    group,
    to_log2,
    MASKED: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_T: tl.constexpr,
    FP8: tl.constexpr,
    FP8_PRODUCTS: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Take the positions from ``begin`` to ``stop`` into the running sums.

    PAGE is 0 for plain tensors; then ``key_ptr`` and ``value_ptr`` point to the head's first.
    """
    for first in tl.range(begin, stop, BLOCK_T, num_stages=STAGES):
        if PAGE:
            pages = load_page_ids(table, first, end, PAGE, BLOCK_T // PAGE)
            keys = load_keys(key_ptr, pages, first, end, group, G, D, PAGE, FP8, BLOCK_T)
        else:
            keys = _load_plain(key_ptr, first, end, key_stride, D, BLOCK_T)
        if FP8_PRODUCTS:
            scores = tl.dot(q, tl.trans(keys)) * q_scale[:, None]
        else:
            scores = tl.dot(q, tl.trans(keys.to(q.dtype)), input_precision=PRECISION) * to_log2
        if FP8:
            scale = load_scales(key_scale_ptr, pages, first, end, group, G, PAGE, BLOCK_T)
            scores *= scale[None, :]
        if MASKED:
            is_seen = first + tl.arange(0, BLOCK_T)[None, :] <= positions[:, None]
            scores = tl.where(is_seen, scores, float("-inf"))
        higher = tl.maximum(best, tl.max(scores, axis=1))
        shrink = tl.exp2(best - higher)
        weights = tl.exp2(scores - higher[:, None])
        total = total * shrink + tl.sum(weights, axis=1)
        acc *= shrink[:, None]
        best = higher
        if FP8:
            values = tl.trans(
                load_transposed_values(value_ptr, pages, first, end, group, G, D, PAGE, BLOCK_T)
            )
            scale = load_scales(value_scale_ptr, pages, first, end, group, G, PAGE, BLOCK_T)
            weights *= scale[None, :]
        elif PAGE:
            values = load_keys(value_ptr, pages, first, end, group, G, D, PAGE, FP8, BLOCK_T)
        else:
            values = _load_plain(value_ptr, first, end, value_stride, D, BLOCK_T)
        if FP8_PRODUCTS:
            codes, w_scale = round_rows(weights, 1)
            acc += tl.dot(codes, values) * w_scale[:, None]
        else:
            acc = tl.dot(weights.to(q.dtype), values.to(q.dtype), acc, input_precision=PRECISION)
    return best, total, acc


@triton.jit(do_not_specialize=["max_pages", "num_queries", "num_positions"])
def prefill_kernel(
    q_ptr,
    key_ptr,
    value_ptr,
    key_scale_ptr,
    value_scale_ptr,
    table_ptr,
    length_ptr,
    start_ptr,
    out_ptr,
    to_log2,
    max_pages,
    num_queries,
    num_positions,
    q_stride_b,
    q_stride_t,
    q_stride_h,
    key_stride_b,
    key_stride_t,
    key_stride_g,
    value_stride_b,
    value_stride_t,
    value_stride_g,
    G: tl.constexpr,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_T: tl.constexpr,
    FP8: tl.constexpr,
    FP8_PRODUCTS: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
    PDL: tl.constexpr,
):
    """BLOCK_M rows of one request and key/value head. The grid is (tiles, G, B).

    Row i is position i // GROUP of the new ones, query head i % GROUP of the group.
    """
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    group, row = tl.program_id(1), tl.program_id(2)
    # The last tile sees most: it starts first.
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    if PAGE:
        start = tl.load(start_ptr + row)
        count = tl.load(start_ptr + row + 1) - start
        length = tl.load(length_ptr + row)
        q_start = q_ptr + start.to(tl.int64) * q_stride_t
        out_row = start.to(tl.int64)
        table = table_ptr + row.to(tl.int64) * max_pages
    else:
        count, length = num_queries, num_positions
        q_start = q_ptr + row.to(tl.int64) * q_stride_b
        out_row = row.to(tl.int64) * count
        key_ptr += row.to(tl.int64) * key_stride_b + group * key_stride_g
        value_ptr += row.to(tl.int64) * value_stride_b + group * value_stride_g
        table = table_ptr
    if tile * BLOCK_M < count * GROUP:
        rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
        new = rows // GROUP
        heads = group * GROUP + rows % GROUP
        columns = tl.arange(0, D)[None, :]
        is_row = (new < count)[:, None]
        q_at = new.to(tl.int64) * q_stride_t + heads * q_stride_h
        q = tl.load(q_start + q_at[:, None] + columns, mask=is_row, other=0.0)
        q_scale = tl.full((BLOCK_M,), 1.0, tl.float32)
        if FP8_PRODUCTS:
            q, q_scale = round_rows(q.to(tl.float32), 1)
            q_scale *= to_log2
        positions = length - count + new
        first_position = length - count + tile * BLOCK_M // GROUP
        end = tl.minimum(length, length - count + ((tile + 1) * BLOCK_M - 1) // GROUP + 1)
        seen_by_all = (first_position + 1) // BLOCK_T * BLOCK_T
        best = tl.full((BLOCK_M,), float("-inf"), tl.float32)
        total = tl.zeros((BLOCK_M,), tl.float32)
        acc = tl.zeros((BLOCK_M, D), tl.float32)
        for phase in tl.static_range(2):
            best, total, acc = _attend_tiles(
                q,
                q_scale,
                positions,
                seen_by_all if phase else 0,
                end if phase else seen_by_all,
                end,
                best,
                total,
                acc,
                key_ptr,
                value_ptr,
                key_scale_ptr,
                value_scale_ptr,
                table,
                key_stride_t,
                value_stride_t,
                group,
                to_log2,
                phase == 1,
                G,
                D,
                PAGE,
                BLOCK_T,
                FP8,
                FP8_PRODUCTS,
                PRECISION,
                STAGES,
            )
        out_at = (out_row + new) * (G * GROUP * D) + heads * D
        out = acc / total[:, None]
        tl.store(out_ptr + out_at[:, None] + columns, out.to(out_ptr.dtype.element_ty), mask=is_row)


def run_prefill(
    plan: PrefillPlan,
    q: Tensor,
    pages: KVPages,
    tables: Tensor,
    lengths: Tensor,
    query_starts: Tensor,
    *,
    max_queries: int,
    fp8_products: bool = False,
) -> Tensor:
    """Run a paged prefill by a plan of one's own."""
    check_tables(q, pages, tables, lengths)
    check_page_size(pages)
    check_shape("query_starts", query_starts, (lengths.shape[0] + 1,), torch.int32)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    group = q.shape[1] // pages.num_groups
    grid = (triton.cdiv(max_queries * group, plan.block_m), pages.num_groups, lengths.shape[0])
    if out.numel() == 0 or 0 in grid:
        return out
    prefill_kernel[grid](
        q,
        pages.keys,
        pages.values,
        pages.key_scale,
        pages.value_scale,
        tables,
        lengths,
        query_starts,
        out,
        to_log2(q.shape[2]),
        tables.shape[1],
        *(0, 0),
        *(0, q.stride(0), q.stride(1)),
        *(0, 0, 0),
        *(0, 0, 0),
        G=pages.num_groups,
        GROUP=group,
        D=q.shape[2],
        PAGE=pages.page_size,
        BLOCK_M=plan.block_m,
        BLOCK_T=BLOCK_T,
        FP8=pages.is_fp8,
        FP8_PRODUCTS=pages.is_fp8 and fp8_products,
        PRECISION=dot_precision(q),
        STAGES=plan.num_stages,
        PDL=plan.use_pdl,
        num_warps=plan.num_warps,
        num_stages=plan.num_stages,
        **launch_options(plan.use_pdl),
    )
    return out


def run_causal_attention(plan: PrefillPlan, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Attend to plain tensors by a plan of one's own."""
    check_contiguous_heads(q, keys, values)
    size = q.shape[3]
    if size < 16 or size & (size - 1):
        raise ValueError(f"The head size is {size}; it must be a power of two, at least 16.")
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    num_requests, num_queries, num_heads, _ = q.shape
    num_groups = keys.shape[2]
    group = num_heads // num_groups
    grid = (triton.cdiv(num_queries * group, plan.block_m), num_groups, num_requests)
    if out.numel() == 0:
        return out
    prefill_kernel[grid](
        q,
        keys,
        values,
        *(None, None, None, None, None),
        out,
        to_log2(size),
        0,
        num_queries,
        keys.shape[1],
        *q.stride()[:3],
        *keys.stride()[:3],
        *values.stride()[:3],
        G=num_groups,
        GROUP=group,
        D=size,
        PAGE=0,
        BLOCK_M=plan.block_m,
        BLOCK_T=BLOCK_T,
        FP8=False,
        FP8_PRODUCTS=False,
        PRECISION=dot_precision(q),
        STAGES=plan.num_stages,
        PDL=plan.use_pdl,
        num_warps=plan.num_warps,
        num_stages=plan.num_stages,
        **launch_options(plan.use_pdl),
    )
    return out


def causal_attention(
    q: Tensor, keys: Tensor, values: Tensor, *, deterministic: bool = False
) -> Tensor:
    """See ``attention_reference.causal_attention``."""
    check_contiguous_heads(q, keys, values)
    row_bytes = q.shape[3] * q.element_size()
    rows = q.shape[0] * q.shape[1] * q.shape[2]
    plan = plan_prefill(rows, row_bytes, gpu_facts(q.device), deterministic=deterministic)
    return run_causal_attention(plan, q, keys, values)


def paged_prefill(
    q: Tensor,
    pages: KVPages,
    tables: Tensor,
    lengths: Tensor,
    query_starts: Tensor,
    *,
    max_queries: int,
    fp8_products: bool = False,
    deterministic: bool = False,
) -> Tensor:
    """See ``attention_reference.paged_prefill``."""
    pages.check()
    rows = max_queries * q.shape[1] * lengths.shape[0]
    # The tile of queries is in their own type, mostly twice as wide.
    row_bytes = pages.head_dim * max(pages.keys.element_size(), q.element_size())
    plan = plan_prefill(rows, row_bytes, gpu_facts(q.device), deterministic=deterministic)
    return run_prefill(
        plan,
        q,
        pages,
        tables,
        lengths,
        query_starts,
        max_queries=max_queries,
        fp8_products=fp8_products,
    )

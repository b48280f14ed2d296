"""One new position a request against its pages, a long context shared out among programs.

Owns the schedule: the keys are the left operand of the matrix unit and the query heads of a group
its few columns, so that Hopper's FP8 instructions apply; each program reads one chunk of one
request and one key/value head, and the last of a request to arrive adds the chunks in their order.
``attention_reference.py`` says what is computed, ``attention_plans.py`` how it is cut.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from fishtts.kernels.attention_plans import BLOCK_T, DecodePlan, plan_decode
from fishtts.kernels.attention_reference import KVPages, check_tables
from fishtts.kernels.attention_tiles import (
    load_keys,
    load_page_ids,
    load_scales,
    load_transposed_values,
    round_rows,
)
from fishtts.kernels.launch import MAX_TILES, counters, gpu_facts, launch_options


@triton.jit
def load_group(q_ptr, row, group, GROUP: tl.constexpr, BLOCK_R: tl.constexpr, D: tl.constexpr):
    """The query heads of a group, [BLOCK_R, D]; zeros beyond its last."""
    heads = tl.arange(0, BLOCK_R)
    start = q_ptr + (row.to(tl.int64) * tl.num_programs(1) + group) * (GROUP * D)
    at = heads[:, None] * D + tl.arange(0, D)[None, :]
    return tl.load(start + at, mask=(heads < GROUP)[:, None], other=0.0)


@triton.jit(do_not_specialize=["max_pages", "chunk"])
def decode_kernel(
    q_ptr,
    key_ptr,
    value_ptr,
    key_scale_ptr,
    value_scale_ptr,
    table_ptr,
    length_ptr,
    out_ptr,
    partial_ptr,
    total_ptr,
    counter_ptr,
    to_log2,
    max_pages,
    chunk,
    G: tl.constexpr,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_R: tl.constexpr,
    FP8: tl.constexpr,
    FP8_PRODUCTS: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
    IS_SPLIT: tl.constexpr,
    PDL: tl.constexpr,
):
    """One chunk of one request and key/value head. The grid is (chunks, G, B).

    Scores [BLOCK_T, BLOCK_R] have positions as rows and query heads as columns.
    """
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    part, group, row = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(length_ptr + row)
    begin = part * chunk
    if (begin < length) | (part == 0):
        end = tl.minimum(begin + chunk, length)
        table = table_ptr + row.to(tl.int64) * max_pages
        q = load_group(q_ptr, row, group, GROUP, BLOCK_R, D)
        if FP8_PRODUCTS:
            q, q_scale = round_rows(q.to(tl.float32), 1)
            q_scale *= to_log2
        best = tl.full((BLOCK_R,), float("-inf"), tl.float32)
        total = tl.zeros((BLOCK_R,), tl.float32)
        acc = tl.zeros((D, BLOCK_R), tl.float32)
        for first in tl.range(begin, end, BLOCK_T, num_stages=STAGES):
            pages = load_page_ids(table, first, end, PAGE, BLOCK_T // PAGE)
            keys = load_keys(key_ptr, pages, first, end, group, G, D, PAGE, FP8, BLOCK_T)
            if FP8_PRODUCTS:
                scores = tl.dot(keys, tl.trans(q)) * q_scale[None, :]
            else:
                scores = tl.dot(keys.to(q.dtype), tl.trans(q), input_precision=PRECISION) * to_log2
            if FP8:
                scale = load_scales(key_scale_ptr, pages, first, end, group, G, PAGE, BLOCK_T)
                scores *= scale[:, None]
            is_live = first + tl.arange(0, BLOCK_T) < end
            scores = tl.where(is_live[:, None], scores, float("-inf"))
            higher = tl.maximum(best, tl.max(scores, axis=0))
            shrink = tl.exp2(best - higher)
            weights = tl.exp2(scores - higher[None, :])
            total = total * shrink + tl.sum(weights, axis=0)
            acc *= shrink[None, :]
            best = higher
            if FP8:
                values = load_transposed_values(
                    value_ptr, pages, first, end, group, G, D, PAGE, BLOCK_T
                )
                scale = load_scales(value_scale_ptr, pages, first, end, group, G, PAGE, BLOCK_T)
                weights *= scale[:, None]
            else:
                values = tl.trans(
                    load_keys(value_ptr, pages, first, end, group, G, D, PAGE, FP8, BLOCK_T)
                )
            if FP8_PRODUCTS:
                codes, w_scale = round_rows(weights, 0)
                acc += tl.dot(values, codes) * w_scale[None, :]
            else:
                acc += tl.dot(values.to(q.dtype), weights.to(q.dtype), input_precision=PRECISION)
        _finish(
            acc,
            best,
            total,
            length,
            chunk,
            out_ptr,
            partial_ptr,
            total_ptr,
            counter_ptr,
            GROUP,
            D,
            BLOCK_R,
            IS_SPLIT,
        )


@triton.jit
def _finish(
    acc,
    best,
    total,
    length,
    chunk,
    out_ptr,
    partial_ptr,
    total_ptr,
    counter_ptr,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    BLOCK_R: tl.constexpr,
    IS_SPLIT: tl.constexpr,
):
    """Write a request's only chunk; or leave it, and if it is the last to come, add up all."""
    part, num_parts = tl.program_id(0), tl.cdiv(length, chunk)
    pair = tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)
    heads = tl.arange(0, BLOCK_R)
    at = heads[None, :] * D + tl.arange(0, D)[:, None]
    is_head = (heads < GROUP)[None, :]
    out = out_ptr + pair.to(tl.int64) * (GROUP * D)
    if not IS_SPLIT or num_parts <= 1:
        tl.store(out + at, _ratio(acc, total).to(out_ptr.dtype.element_ty), mask=is_head)
    else:
        size: tl.constexpr = BLOCK_R * D
        place = pair.to(tl.int64) * tl.num_programs(0)
        parts = partial_ptr + place * size + at
        totals = total_ptr + place * (2 * BLOCK_R) + heads
        tl.store(parts + part * size, acc)
        tl.store(totals + part * (2 * BLOCK_R), best)
        tl.store(totals + part * (2 * BLOCK_R) + BLOCK_R, total)
        # All threads have written before one of them says so.
        tl.debug_barrier()
        arrived = tl.atomic_add(counter_ptr + pair, 1, sem="acq_rel")
        if arrived == num_parts - 1:
            best = tl.full((BLOCK_R,), float("-inf"), tl.float32)
            total = tl.zeros((BLOCK_R,), tl.float32)
            acc = tl.zeros((D, BLOCK_R), tl.float32)
            for other in range(0, num_parts):
                of_part = tl.load(totals + other * (2 * BLOCK_R), cache_modifier=".cg")
                sum_of_part = tl.load(
                    totals + other * (2 * BLOCK_R) + BLOCK_R, cache_modifier=".cg"
                )
                higher = tl.maximum(best, of_part)
                old, new = tl.exp2(best - higher), tl.exp2(of_part - higher)
                total = total * old + sum_of_part * new
                partial = tl.load(parts + other * size, cache_modifier=".cg")
                acc = acc * old[None, :] + partial * new[None, :]
                best = higher
            tl.store(out + at, _ratio(acc, total).to(out_ptr.dtype.element_ty), mask=is_head)
            tl.store(counter_ptr + pair, 0)


@triton.jit
def _ratio(acc, total):
    """The weighted mean; zeros where there was nothing to attend to."""
    return acc / tl.where(total == 0.0, 1.0, total)[None, :]


def run_decode(
    plan: DecodePlan,
    q: Tensor,
    pages: KVPages,
    tables: Tensor,
    lengths: Tensor,
    *,
    fp8_products: bool = False,
) -> Tensor:
    """Run a decode step by a plan of one's own; it must have chunks enough for every length."""
    check_tables(q, pages, tables, lengths)
    check_page_size(pages)
    q = q.contiguous()
    num_requests, num_heads, size = q.shape
    num_groups = pages.num_groups
    num_pairs = num_requests * num_groups
    block_r = max(16, triton.next_power_of_2(num_heads // num_groups))
    out = torch.empty_like(q)
    if not num_requests:
        return out
    partial = total = zeros = out
    if plan.is_split:
        if num_pairs > MAX_TILES:
            raise ValueError(f"{num_pairs} requests x heads are more than {MAX_TILES}.")
        shape = (num_pairs, plan.num_chunks, block_r)
        partial = torch.empty((*shape, size), dtype=torch.float32, device=q.device)
        total = torch.empty((*shape, 2), dtype=torch.float32, device=q.device)
        zeros = counters(q.device)
    decode_kernel[(plan.num_chunks, num_groups, num_requests)](
        q,
        pages.keys,
        pages.values,
        pages.key_scale,
        pages.value_scale,
        tables,
        lengths,
        out,
        partial,
        total,
        zeros,
        to_log2(size),
        tables.shape[1],
        plan.chunk,
        G=num_groups,
        GROUP=num_heads // num_groups,
        D=size,
        PAGE=pages.page_size,
        BLOCK_T=BLOCK_T,
        BLOCK_R=block_r,
        FP8=pages.is_fp8,
        FP8_PRODUCTS=pages.is_fp8 and fp8_products,
        PRECISION=dot_precision(q),
        STAGES=plan.num_stages,
        IS_SPLIT=plan.is_split,
        PDL=plan.use_pdl,
        num_warps=plan.num_warps,
        num_stages=plan.num_stages,
        **launch_options(plan.use_pdl),
    )
    return out


def to_log2(head_dim: int) -> float:
    """The factor of a score: exp2 is what the hardware has."""
    return math.log2(math.e) / math.sqrt(head_dim)


def dot_precision(q: Tensor) -> str:
    """How float32 products round: never as TF32. For other types it means nothing."""
    return "ieee" if q.dtype == torch.float32 else "tf32"


def check_page_size(pages: KVPages) -> None:
    """Refuse pages that do not cut into tiles.

    Raises: ``ValueError`` naming the sizes.
    """
    page, size = pages.page_size, pages.head_dim
    if page > BLOCK_T or page & (page - 1) or size < 16 or size & (size - 1):
        raise ValueError(
            f"The page size is {page} and the head size {size}; both must be powers of two, the"
            f" first at most {BLOCK_T}, the second at least 16."
        )


def paged_decode(
    q: Tensor,
    pages: KVPages,
    tables: Tensor,
    lengths: Tensor,
    *,
    max_length: int | None = None,
    fp8_products: bool = False,
    deterministic: bool = False,
) -> Tensor:
    """See ``attention_reference.paged_decode``."""
    pages.check()
    capacity = tables.shape[-1] * pages.page_size
    plan = plan_decode(
        lengths.shape[0] * pages.num_groups,
        capacity if max_length is None else min(max_length, capacity),
        pages.head_dim * pages.keys.element_size(),
        gpu_facts(q.device),
        deterministic=deterministic,
    )
    return run_decode(plan, q, pages, tables, lengths, fp8_products=fp8_products)

"""From a projection's output to queries, and to keys and values in their pages, in one launch.

Owns the schedule: a program has a few heads of one row, of whatever kind they are.
``small_reference.py`` says what is computed, ``attention_reference.py`` how pages lie.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fishtts.kernels.attention_reference import KVPages
from fishtts.kernels.launch import launch_options, starts_early
from fishtts.kernels.quantize import encode
from fishtts.kernels.small_reference import HeadNorms, Places, Rotations, check_store

_HEADS = 4
"""Heads of a program: at one row, S2's 48 still feed twelve programs."""


@triton.jit
def _quantized(x):
    """Codes and scale of x [heads, D]; zeros and NaN for a head that is not finite."""
    amax = tl.max(tl.where(tl.abs(x) < float("inf"), tl.abs(x), float("inf")), axis=1)
    is_finite = amax < float("inf")
    amax = tl.where(is_finite, tl.maximum(amax, 1.262177448353619e-29), 448.0)
    scale = tl.div_rn(amax, tl.full(amax.shape, 448.0, tl.float32))
    x = tl.where(is_finite[:, None], x, 0.0)
    codes = encode(tl.div_rn(x, tl.broadcast_to(scale[:, None], x.shape)), x == x)
    return codes, tl.where(is_finite, scale, float("nan"))


@triton.jit(do_not_specialize=["max_pages"])
def norm_rope_store_kernel(
    qkv_ptr,
    position_ptr,
    request_ptr,
    table_ptr,
    cos_ptr,
    sin_ptr,
    q_weight_ptr,
    k_weight_ptr,
    q_ptr,
    key_ptr,
    value_ptr,
    key_scale_ptr,
    value_scale_ptr,
    eps,
    max_pages,
    H: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    HEADS: tl.constexpr,
    NORM: tl.constexpr,
    FP8: tl.constexpr,
    PDL: tl.constexpr,
):
    """``HEADS`` heads of one row. The grid is (rows, blocks of heads)."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    row = tl.program_id(0)
    heads = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    columns = tl.arange(0, D)
    position = tl.load(position_ptr + row)
    is_live = position + heads * 0 >= 0
    position = tl.maximum(position, 0)
    at = (row.to(tl.int64) * (H + 2 * G) + heads)[:, None] * D + columns[None, :]
    given = tl.load(qkv_ptr + at, mask=(heads < H + 2 * G)[:, None], other=0.0)
    x = given.to(tl.float32)
    if NORM:
        root = tl.rsqrt(tl.sum(x * x, axis=1) / D + eps)
        q_weight = tl.load(q_weight_ptr + columns).to(tl.float32)
        k_weight = tl.load(k_weight_ptr + columns).to(tl.float32)
        weight = tl.where((heads < H)[:, None], q_weight[None, :], k_weight[None, :])
        x = (x * root[:, None] * weight).to(given.dtype).to(tl.float32)
    angles = position.to(tl.int64) * (D // 2) + tl.arange(0, D // 2)
    cos = tl.load(cos_ptr + angles)[None, :]
    sin = tl.load(sin_ptr + angles)[None, :]
    even, odd = tl.split(tl.reshape(x, (HEADS, D // 2, 2)))
    turned = tl.join(even * cos - odd * sin, even * sin + odd * cos)
    turned = tl.reshape(turned, (HEADS, D)).to(given.dtype)
    out = tl.where((heads < H + G)[:, None], turned, given)

    q_at = (row.to(tl.int64) * H + heads)[:, None] * D + columns[None, :]
    is_q = (heads < H)[:, None]
    tl.store(q_ptr + q_at, tl.where(is_live[:, None], out, 0.0).to(given.dtype), mask=is_q)

    request = row if request_ptr is None else tl.load(request_ptr + row)
    page = tl.load(table_ptr + request.to(tl.int64) * max_pages + position // PAGE).to(tl.int64)
    inside = position % PAGE
    is_key = is_live & (heads >= H) & (heads < H + G)
    is_value = is_live & (heads >= H + G) & (heads < H + 2 * G)
    group = tl.where(heads < H + G, heads - H, heads - H - G)
    if FP8:
        of_head = page * G + group
        codes, scale = _quantized(turned.to(tl.float32))
        key_at = (of_head * PAGE + inside)[:, None] * D + columns[None, :]
        tl.store(key_ptr + key_at, codes, mask=is_key[:, None])
        tl.store(key_scale_ptr + of_head * PAGE + inside, scale, mask=is_key)
        # Not the same codes stored in two ways: ptxas (12.8, 12.9) then packs four of them for the
        # keys and takes every fourth byte of the values from a register that holds something else.
        codes, scale = _quantized(given.to(tl.float32))
        value_at = (of_head[:, None] * D + columns[None, :]) * PAGE + inside
        tl.store(value_ptr + value_at, codes, mask=is_value[:, None])
        tl.store(value_scale_ptr + of_head * PAGE + inside, scale, mask=is_value)
    else:
        at = ((page * PAGE + inside) * G + group)[:, None] * D + columns[None, :]
        tl.store(key_ptr + at, out, mask=is_key[:, None])
        tl.store(value_ptr + at, out, mask=is_value[:, None])


def run_norm_rope_store(
    qkv: Tensor,
    places: Places,
    rotations: Rotations,
    norms: HeadNorms | None,
    pages: KVPages,
    *,
    use_pdl: bool | None = None,
) -> Tensor:
    """Run ``norm_rope_store``, with or without PDL."""
    num_heads = check_store(qkv, places, rotations, norms, pages)
    early = starts_early(qkv.device, use_pdl)
    num_rows, size, num_groups = qkv.shape[0], pages.head_dim, pages.num_groups
    q = torch.empty((num_rows, num_heads, size), dtype=qkv.dtype, device=qkv.device)
    if not num_rows:
        return q
    grid = (num_rows, triton.cdiv(num_heads + 2 * num_groups, _HEADS))
    norm_rope_store_kernel[grid](
        qkv,
        places.positions,
        places.requests,
        places.tables,
        rotations.cos,
        rotations.sin,
        norms and norms.q_weight,
        norms and norms.k_weight,
        q,
        pages.keys,
        pages.values,
        pages.key_scale,
        pages.value_scale,
        norms.eps if norms else 0.0,
        places.tables.shape[1],
        H=num_heads,
        G=num_groups,
        D=size,
        PAGE=pages.page_size,
        HEADS=_HEADS,
        NORM=norms is not None,
        FP8=pages.is_fp8,
        PDL=early,
        num_warps=2,
        **launch_options(early),
    )
    return q


def norm_rope_store(
    qkv: Tensor,
    places: Places,
    rotations: Rotations,
    norms: HeadNorms | None,
    pages: KVPages,
) -> Tensor:
    """See ``small_reference.norm_rope_store``."""
    return run_norm_rope_store(qkv, places, rotations, norms, pages)

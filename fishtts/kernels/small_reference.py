"""The small fused ops around attention in plain torch: the specification of their kernels.

Owns what is computed and where it rounds. Does not know how a GPU does it, and no model.

Shapes: N rows, E width, H query heads, G key/value heads, D head size, P pages, S positions a page.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fishtts.kernels.attention_reference import KVPages
from fishtts.kernels.checks import FP8, FP8_MAX, MIN_AMAX, check_shape


@dataclass(frozen=True, slots=True)
class Rotations:
    """Cosines and sines of positions, float32 [positions, D / 2] each.

    S2 was trained with entries rounded to bfloat16: whoever makes the table rounds them.
    """

    cos: Tensor
    sin: Tensor


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """Weights [D] that queries and keys are multiplied with after their norm, and its epsilon."""

    q_weight: Tensor
    k_weight: Tensor
    eps: float


@dataclass(frozen=True, slots=True)
class Places:
    """Where rows go: their ``positions`` int32 [N], and ``tables`` int32 [B, max_pages] of pages.

    ``requests`` int32 [N] is the row of ``tables`` for each; without it row i belongs to request i.
    A row with a negative position goes nowhere.
    """

    positions: Tensor
    tables: Tensor
    requests: Tensor | None = None


def check_store(
    qkv: Tensor, places: Places, rotations: Rotations, norms: HeadNorms | None, pages: KVPages
) -> int:
    """Refuse what ``norm_rope_store`` does not take; answer the number of query heads.

    Raises: ``ValueError`` naming what does not fit.
    """
    pages.check()
    size, num_groups = pages.head_dim, pages.num_groups
    heads, rest = divmod(qkv.shape[-1], size)
    num_heads = heads - 2 * num_groups
    if qkv.ndim != 2 or rest or num_heads <= 0 or not qkv.is_contiguous():
        raise ValueError(
            f"qkv has the shape {list(qkv.shape)}; it must be a contiguous matrix whose columns are"
            f" the query heads and twice {num_groups} heads of {size}."
        )
    if not pages.is_fp8 and pages.keys.dtype != qkv.dtype:
        raise ValueError(f"qkv is {qkv.dtype} and the pages are {pages.keys.dtype}.")
    num_rows = qkv.shape[0]
    check_shape("positions", places.positions, (num_rows,), torch.int32)
    num_requests = num_rows if places.requests is None else places.tables.shape[0]
    check_shape("tables", places.tables, (num_requests, places.tables.shape[-1]), torch.int32)
    if places.requests is not None:
        check_shape("requests", places.requests, (num_rows,), torch.int32)
    for name, table in (("cos", rotations.cos), ("sin", rotations.sin)):
        check_shape(name, table, (rotations.cos.shape[0], size // 2), torch.float32)
    if norms is not None:
        for name, weight in (("q_weight", norms.q_weight), ("k_weight", norms.k_weight)):
            check_shape(name, weight, (size,), weight.dtype)
    return num_heads


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
    return turned.flatten(-2).to(x.dtype)


def _normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    mean = wide.square().mean(dim=-1, keepdim=True)
    return (wide * torch.rsqrt(mean + eps) * weight.float()).to(x.dtype)


def quantize_heads(x: Tensor) -> tuple[Tensor, Tensor]:
    """Round keys or values [..., D] to FP8, each with a scale of its own [...], amax / 448.

    Where one of its numbers is not finite, the codes are zeros and the scale is NaN.
    """
    wide = x.float()
    is_finite = wide.isfinite().all(dim=-1, keepdim=True)
    wide = torch.where(is_finite, wide, 0.0)
    amax = wide.abs().amax(dim=-1, keepdim=True).clamp(min=MIN_AMAX)
    scale = amax / torch.full_like(amax, FP8_MAX)
    codes = (wide / scale).clamp(-FP8_MAX, FP8_MAX).to(FP8)
    return codes, torch.where(is_finite, scale, float("nan"))[..., 0]


def norm_rope_store(
    qkv: Tensor,
    places: Places,
    rotations: Rotations,
    norms: HeadNorms | None,
    pages: KVPages,
) -> Tensor:
    """Norm and rotate queries and keys, write keys and values to their pages, give the queries.

    Per head x rsqrt(mean(x^2) + eps) w, without ``norms`` x itself; then pairs of neighbours are
    rotated by their position.

    Shapes: qkv [N, (H + 2 G) D], a row's heads in the order Q, K, V -> queries [N, H, D], zeros
    where a position is negative. ``pages`` is written to, in its layout.
    Rounds: the norm, weight included, once to qkv's type, and the rotation once more. FP8 pages
    round the result a third time, see ``quantize_heads``.
    Tolerance: one unit of the type's last place, and in FP8 one code: a backend's square root and
    order of sums may differ.
    Source: the S2 architecture, whose heads are normed otherwise than its blocks.
    """
    num_heads = check_store(qkv, places, rotations, norms, pages)
    num_groups, page = pages.num_groups, pages.page_size
    heads = qkv.unflatten(1, (-1, pages.head_dim))
    q, k, v = heads.split((num_heads, num_groups, num_groups), dim=1)
    if norms is not None:
        q, k = _normed(q, norms.q_weight, norms.eps), _normed(k, norms.k_weight, norms.eps)
    is_live = places.positions >= 0
    at = places.positions.clamp(min=0).long()
    cos, sin = rotations.cos[at][:, None], rotations.sin[at][:, None]
    q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
    rows = torch.arange(len(at), device=at.device)
    requests = rows if places.requests is None else places.requests.long()
    numbers = places.tables[requests, at // page].long()[is_live]
    inside = (at % page)[is_live]
    k, v = k[is_live], v[is_live]
    if pages.key_scale is not None and pages.value_scale is not None:
        codes, scale = quantize_heads(k)
        pages.keys.view(torch.uint8)[numbers, :, inside] = codes.view(torch.uint8)
        pages.key_scale[numbers, :, inside] = scale
        codes, scale = quantize_heads(v)
        pages.values.view(torch.uint8)[numbers, :, :, inside] = codes.view(torch.uint8)
        pages.value_scale[numbers, :, inside] = scale
    else:
        pages.keys[numbers, inside] = k
        pages.values[numbers, inside] = v
    return torch.where(is_live[:, None, None], q, 0.0)

"""Attention in plain torch, and how keys and values lie in pages: the specification of the kernels.

Owns what is computed, where it rounds, and the layouts. Does not know how a GPU does it, who owns a
page, and no model.

Shapes: B requests, T new positions, S positions in all, N positions of all requests one after the
other, H query heads, G key/value heads, D head size, P pages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fishtts.kernels.checks import FP8, check_shape


@dataclass(frozen=True, slots=True)
class KVPages:
    """Keys and values of one layer in pages of ``page_size`` positions.

    | type | keys | values | scales (float32) |
    | --- | --- | --- | --- |
    | 16 or 32 bits | [P, page_size, G, D] | [P, page_size, G, D] | none |
    | FP8 | [P, G, page_size, D] | [P, G, D, page_size] | both [P, G, page_size] |

    In FP8 each position of each head has its own scale, what a page holds of one head is one run of
    memory, and values lie transposed: so the matrix unit reads both without turning bytes around.
    Positions beyond a request's length may hold anything, but FP8 codes are always finite: where a
    key or value is not, its codes are zeros and its scale is NaN.
    """

    keys: Tensor
    values: Tensor
    key_scale: Tensor | None = None
    value_scale: Tensor | None = None

    @classmethod
    def empty(cls, shape: tuple[int, int, int, int], like: Tensor, *, fp8: bool = False) -> KVPages:
        """Make pages for a shape (P, page_size, G, D), in ``like``'s type and on its device."""
        num_pages, page_size, num_groups, size = shape
        if not fp8:
            return cls(like.new_zeros(shape), like.new_zeros(shape))
        codes = like.new_zeros((num_pages, num_groups, page_size, size), dtype=FP8)
        scale = like.new_zeros((num_pages, num_groups, page_size), dtype=torch.float32)
        return cls(codes, codes.mT.contiguous(), scale, scale.clone())

    @property
    def is_fp8(self) -> bool:
        """Whether keys and values are FP8, and so in its layout."""
        return self.keys.dtype == FP8

    @property
    def page_size(self) -> int:
        """Positions in a page."""
        return self.keys.shape[2 if self.is_fp8 else 1]

    @property
    def num_groups(self) -> int:
        """Key/value heads."""
        return self.keys.shape[1 if self.is_fp8 else 2]

    @property
    def head_dim(self) -> int:
        """Numbers in a key."""
        return self.keys.shape[3]

    def check(self) -> None:
        """Refuse tensors that do not fit together.

        Raises: ``ValueError`` naming the one that does not.
        """
        if self.keys.ndim != 4 or not self.keys.is_contiguous():
            raise ValueError(
                f"keys has the shape {list(self.keys.shape)}; it must have four axes, contiguous."
            )
        shape = tuple(self.keys.shape)
        if not self.is_fp8:
            check_shape("values", self.values, shape, self.keys.dtype)
            return
        check_shape("values", self.values, (*shape[:2], shape[3], shape[2]), FP8)
        for name, scale in (("key_scale", self.key_scale), ("value_scale", self.value_scale)):
            if scale is None:
                raise ValueError(f"{name} is missing: keys in FP8 have one.")
            check_shape(name, scale, shape[:3], torch.float32)

    def read(self, table: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Gather one request's keys and values: [length, G, D] each, float32 if they are FP8."""
        used = table[: -(-length // self.page_size)].long()
        keys, values = self.keys[used], self.values[used]
        if self.key_scale is not None and self.value_scale is not None:
            keys = (keys.float() * self.key_scale[used][..., None]).transpose(1, 2)
            values = values.mT.float() * self.value_scale[used][..., None]
            values = values.transpose(1, 2)
        return keys.flatten(0, 1)[:length], values.flatten(0, 1)[:length]


def check_heads(q: Tensor, num_groups: int, head_dim: int) -> None:
    """Refuse queries [..., H, D] that the key/value heads do not divide.

    Raises: ``ValueError`` naming the sizes.
    """
    if q.shape[-1] != head_dim or q.shape[-2] % num_groups or q.stride(-1) != 1:
        raise ValueError(
            f"q has the shape {list(q.shape)}; its last axis must be contiguous and hold"
            f" {head_dim} numbers, and the heads before it must be a multiple of {num_groups}."
        )


def check_tables(q: Tensor, pages: KVPages, tables: Tensor, lengths: Tensor) -> None:
    """Refuse what the paged ops do not take.

    Raises: ``ValueError`` naming what.
    """
    pages.check()
    if q.ndim != 3:
        raise ValueError(f"q has the shape {list(q.shape)}; it must have three axes.")
    check_heads(q, pages.num_groups, pages.head_dim)
    if not pages.is_fp8 and pages.keys.dtype != q.dtype:
        raise ValueError(f"q is {q.dtype} and the pages are {pages.keys.dtype}.")
    num_requests = lengths.shape[0] if lengths.ndim == 1 else -1
    check_shape("lengths", lengths, (num_requests,), torch.int32)
    check_shape("tables", tables, (num_requests, tables.shape[-1]), torch.int32)


def _attend(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The last T positions to all before and to themselves: q [T, H, D], keys [S, G, D]."""
    length, num_heads, size = q.shape
    end, num_groups, _ = keys.shape
    grouped = q.float().unflatten(1, (num_groups, num_heads // num_groups))
    scores = torch.einsum("tgrd,sgd->grts", grouped, keys.float()) / math.sqrt(size)
    at = torch.arange(end, device=q.device)
    is_hidden = at > at[end - length :, None]
    weights = scores.masked_fill(is_hidden, float("-inf")).softmax(dim=-1)
    out = torch.einsum("grts,sgd->tgrd", weights, values.float())
    return out.flatten(1, 2).to(q.dtype)


def causal_attention(
    q: Tensor, keys: Tensor, values: Tensor, *, deterministic: bool = False
) -> Tensor:
    """Attend from the last T of S positions to all before and to themselves.

    softmax(q k^T / sqrt(D)) v; each run of H / G query heads shares a key/value head. With
    ``deterministic`` a position's result does not depend on which others are worked out with it.

    Shapes: q [B, T, H, D], keys and values [B, S, G, D] with T <= S, any strides but the last
    -> [B, T, H, D]. D is a power of two, at least 16.
    Rounds: once, at the end; sums and weights in float32. A kernel rounds the weights to q's type
    before the second product: by 2^-9 of the largest value in bfloat16.
    """
    check_contiguous_heads(q, keys, values)
    if q.shape[0] == 0:
        return torch.empty_like(q, memory_format=torch.contiguous_format)
    return torch.stack([_attend(*row) for row in zip(q, keys, values, strict=True)])


def check_contiguous_heads(q: Tensor, keys: Tensor, values: Tensor) -> None:
    """Refuse what ``causal_attention`` does not take.

    Raises: ``ValueError`` naming the shapes.
    """
    fits = (
        q.ndim == keys.ndim == 4
        and keys.shape == values.shape
        and q.shape[0] == keys.shape[0]
        and 0 < q.shape[1] <= keys.shape[1]
        and q.dtype == keys.dtype == values.dtype
        and keys.stride(-1) == values.stride(-1) == 1
    )
    if not fits:
        named = ", ".join(f"{t.dtype} {list(t.shape)}" for t in (q, keys, values))
        raise ValueError(
            f"q, keys and values are {named}; they must be of one type, [B, T, H, D] and twice"
            " [B, S, G, D] with T at most S, the last axis contiguous."
        )
    check_heads(q, keys.shape[2], keys.shape[3])


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
    """Attend from each request's last positions to its pages, which already hold them too.

    ``deterministic`` is as in ``causal_attention``.

    Shapes: q [N, H, D], the requests' positions one after the other, those of request b in rows
    ``query_starts[b]`` to ``query_starts[b + 1]``; tables int32 [B, max_pages]; lengths int32 [B],
    new positions included; query_starts int32 [B + 1]; none has more than ``max_queries`` new
    positions -> [N, H, D].
    Rounds: as ``causal_attention``. FP8 keys and values count as their codes times their scales;
    with ``fp8_products`` a kernel may round queries and weights to FP8 too (the reference does
    not), see tests/kernels/tolerances.py.
    """
    check_tables(q, pages, tables, lengths)
    check_shape("query_starts", query_starts, (lengths.shape[0] + 1,), torch.int32)
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    bounds = query_starts.tolist()
    for row, length in enumerate(lengths.tolist()):
        begin, end = bounds[row], bounds[row + 1]
        if end > begin:
            out[begin:end] = _attend(q[begin:end], *pages.read(tables[row], length))
    return out


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
    """Attend from one position a request to its pages, which already hold it.

    ``max_length`` bounds the lengths, so that no more programs start than they need; in a captured
    graph it must hold for every replay. With ``deterministic`` a row's result depends on its own
    request only, to the last bit. Rows may share pages: two new positions of one request are two
    rows with the same table and lengths one apart.

    Shapes: q [B, H, D], tables int32 [B, max_pages], lengths int32 [B], the new position included
    -> [B, H, D]; zeros where a length is 0.
    Rounds: as ``paged_prefill``.
    """
    check_tables(q, pages, tables, lengths)
    out = torch.zeros_like(q, memory_format=torch.contiguous_format)
    for row, length in enumerate(lengths.tolist()):
        if length:
            out[row] = _attend(q[row, None], *pages.read(tables[row], length))[0]
    return out

"""Drawing codes on the device in plain torch: the specification of the kernel.

Owns the filter, the race, the hash behind its noise and the rule against repetition. Does not know
which parameters anyone wants, or what a code means.

Shapes: B rows, V ids of a head, R draws of a row (one, or the normal and the high one), W tokens of
a window, E width of an embedding.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fishtts.kernels.checks import check_shape

MIN_TEMPERATURE = 1e-5
SALT = 0x9E3779B9
FACTORS = (0x7FEB352D, 0x846CA68B)
_MASK = 0xFFFFFFFF
_BITS = 23


@dataclass(frozen=True, slots=True)
class DrawRules:
    """Of each row and draw: ``temperature`` and ``top_p`` float32 [B, R], ``top_k`` int32 [B]."""

    temperature: Tensor
    top_p: Tensor
    top_k: Tensor


@dataclass(frozen=True, slots=True)
class Semantic:
    """What makes a draw the semantic one: it is drawn twice, and the second one replaces repeats.

    ``window`` int32 [B, W] has the tokens drawn lately, any strides. Id i of the head is the token
    ``first_id`` + i, its last id is ``end_id``, which is never replaced.
    """

    window: Tensor
    first_id: int
    end_id: int


def mix(x: Tensor) -> Tensor:
    """A bijection of the low 32 bits of x in which every bit of x touches every bit.

    Source: Wellons' 32-bit mixer ``lowbias32``.
    """
    x = x & _MASK
    x.bitwise_xor_(x >> 16).mul_(FACTORS[0]).bitwise_and_(_MASK)
    # The factor less 2^32: so the product of one with 32 bits fits into 64 with its sign, and
    # nothing rests on how integers overflow.
    x.bitwise_xor_(x >> 15).mul_(FACTORS[1] - (1 << 32)).bitwise_and_(_MASK)
    return x.bitwise_xor_(x >> 16)


def uniforms(keys: Tensor, ids: Tensor) -> Tensor:
    """Uniform float32 in (0, 1) by key and token id, the same on every device.

    Shapes: keys int64 [...] and ids int64 [..., K], both below 2^32 -> [..., K].
    """
    # Two rounds with the key before each: one alone would give keys that differ in few bits noise
    # that is the same up to the order of the ids.
    mixed = mix(mix(keys[..., None] + ids) ^ mix(keys + SALT)[..., None])
    # With one half added this is what a float32 holds exactly: neither 0 nor 1 comes out.
    return (mixed >> (32 - _BITS)).to(torch.float32).add_(0.5).mul_(0.5**_BITS)


def check_draw(
    logits: Tensor,
    keys: Tensor,
    rules: DrawRules,
    semantic: Semantic | None,
    embeddings: Tensor | None,
    max_top_k: int | None,
) -> None:
    """Refuse what ``draw_codes`` does not take.

    Raises: ``ValueError`` naming what does not fit.
    """
    if max_top_k is not None and max_top_k < 1:
        raise ValueError(f"max_top_k is {max_top_k}; it must be at least 1.")
    if logits.ndim != 2 or logits.shape[1] < 1 or logits.stride(1) != 1:
        raise ValueError(
            f"logits has the shape {list(logits.shape)}; it must be a matrix with contiguous rows."
        )
    num_rows = logits.shape[0]
    shape = (num_rows, 1 if semantic is None else 2)
    if keys.dtype != torch.int64 or keys.shape != shape or keys.stride(1) != 1:
        raise ValueError(
            f"keys is {keys.dtype} {list(keys.shape)}; it must be torch.int64 {list(shape)} with"
            " contiguous rows."
        )
    check_shape("temperature", rules.temperature, shape, torch.float32)
    check_shape("top_p", rules.top_p, shape, torch.float32)
    check_shape("top_k", rules.top_k, (num_rows,), torch.int32)
    if semantic is not None:
        window = semantic.window
        if window.ndim != 2 or window.shape[0] != num_rows or window.dtype != torch.int32:
            raise ValueError(
                f"window is {window.dtype} {list(window.shape)}; it must be torch.int32 with"
                f" {num_rows} rows."
            )
    if embeddings is not None and (embeddings.ndim != 2 or not embeddings.is_contiguous()):
        raise ValueError(
            f"embeddings has the shape {list(embeddings.shape)}; it must be a contiguous matrix."
        )


def draw_codes(
    logits: Tensor,
    keys: Tensor,
    rules: DrawRules,
    *,
    semantic: Semantic | None = None,
    embeddings: Tensor | None = None,
    max_top_k: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Filter and draw an id for each row; with ``embeddings`` look up what it is fed back as.

    Ids rank by logit, equal ones by id. Rank r > 0 falls out if r >= top_k, or if ranks 0 to r hold
    more than top_p of the probability at temperature 1. Of the others the one with the largest
    exp((logit - best) / temperature) / -ln(u) is drawn, equal ones by rank; u is the noise of the
    row's key and the token id (the id itself, unless the draw is ``semantic``). A NaN counts as
    minus infinity, and a top_k above ``max_top_k`` as that: the smaller it is, the less is sorted.

    Shapes: logits [B, V] float32 or bfloat16, keys int64 [B, R], embeddings [V', E] -> int64 [B],
    and rows [B, E] or None; the last rows are looked up for ids beyond V'.
    Rounds: probabilities, their running sum, top_p, temperature, quotient and difference each to
    the logits' type (as the model was tuned with), the rest in float32.
    Tolerance: none but for a sum that falls on top_p, or two waits that are equal to the last bit.
    """
    check_draw(logits, keys, rules, semantic, embeddings, max_top_k)
    num_ids = logits.shape[1]
    top_k = rules.top_k.clamp(max=max_top_k or num_ids)
    given = torch.where(logits.isnan(), float("-inf"), logits)
    values, ids = torch.sort(given, dim=-1, descending=True, stable=True)
    held = torch.softmax(given, dim=-1).gather(-1, ids).float().cumsum(-1).to(logits.dtype)
    rank = torch.arange(num_ids, device=logits.device)
    top_p = rules.top_p.to(logits.dtype)[..., None]
    falls = (held[:, None] > top_p) | (rank >= top_k[:, None, None])
    scaled = (
        values[:, None] / rules.temperature.to(logits.dtype).clamp(min=MIN_TEMPERATURE)[..., None]
    )
    weights = (scaled - scaled[..., :1]).float().exp().nan_to_num(0.0)
    weights = torch.where(rank == 0, 1.0, weights.masked_fill(falls, 0.0))
    tokens = ids
    if semantic is not None:
        tokens = torch.where(ids == num_ids - 1, semantic.end_id, ids + semantic.first_id)
    waits = -uniforms(keys, tokens[:, None]).log()
    winner = (weights / waits).argmax(dim=-1)
    drawn = ids.gather(1, winner)
    codes = drawn[:, 0]
    if semantic is not None:
        is_repeat = (semantic.window == (codes + semantic.first_id)[:, None]).any(dim=-1)
        codes = torch.where(is_repeat & (codes != num_ids - 1), drawn[:, 1], codes)
    if embeddings is None:
        return codes, None
    return codes, embeddings[codes.clamp(max=embeddings.shape[0] - 1)]

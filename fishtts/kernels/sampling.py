"""Filter, draw, rule against repetition and the next embedding in one launch.

Owns the schedule: one program has a row, and takes its ids one by one from the best down until
nobody may be drawn any more. That is rarely more than top-p leaves, and it adds probabilities up in
the order of the specification, ``sampling_reference.py``.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fishtts.kernels.launch import launch_options
from fishtts.kernels.plans import USE_PDL
from fishtts.kernels.sampling_reference import DrawRules, Semantic, check_draw


@triton.jit
def _mix(x):
    x = x ^ (x >> 16)
    x = x * tl.full(x.shape, 0x7FEB352D, tl.uint32)
    x = x ^ (x >> 15)
    x = x * tl.full(x.shape, 0x846CA68B, tl.uint32)
    return x ^ (x >> 16)


@triton.jit
def uniform(keys, tokens):
    """Uniform float32 in (0, 1) of keys and tokens, uint32 of one shape."""
    salted = _mix(keys + tl.full(keys.shape, 0x9E3779B9, tl.uint32))
    mixed = _mix(_mix(keys + tokens) ^ salted)
    # Below 2^23, so that it is exact as a signed integer and as a float.
    return ((mixed >> 9).to(tl.int32).to(tl.float32) + 0.5) * 1.1920928955078125e-07


@triton.jit
def _quotient(a, b, LIKE: tl.constexpr):
    """a / b in the type of the logits."""
    return tl.div_rn(a + tl.zeros_like(b), b).to(LIKE).to(tl.float32)


@triton.jit(do_not_specialize=["num_ids", "first_id", "end_id", "width", "last_row"])
def draw_kernel(
    logits_ptr,
    key_ptr,
    temperature_ptr,
    top_p_ptr,
    top_k_ptr,
    window_ptr,
    embedding_ptr,
    out_ptr,
    embedded_ptr,
    num_ids,
    row_stride,
    window_stride_b,
    window_stride_w,
    first_id,
    end_id,
    width,
    last_row,
    DRAWS: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_W: tl.constexpr,
    E: tl.constexpr,
    BLOCK_E: tl.constexpr,
    PDL: tl.constexpr,
):
    """One row. E is 0 where nothing is looked up."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    row = tl.program_id(0)
    like: tl.constexpr = logits_ptr.dtype.element_ty
    ids = tl.arange(0, BLOCK_V)
    start = logits_ptr + row.to(tl.int64) * row_stride
    left = tl.load(start + ids, mask=ids < num_ids, other=float("-inf")).to(tl.float32)
    left = tl.where(left == left, left, float("-inf"))
    draws = tl.arange(0, DRAWS)
    keys = tl.load(key_ptr + row * DRAWS + draws).to(tl.uint32)
    temperature = tl.load(temperature_ptr + row * DRAWS + draws).to(like).to(tl.float32)
    least = tl.full((DRAWS,), 1e-5, tl.float32).to(like).to(tl.float32)
    temperature = tl.maximum(temperature, least)
    top_p = tl.load(top_p_ptr + row * DRAWS + draws).to(like).to(tl.float32)
    top_k = tl.load(top_k_ptr + row)

    best = tl.max(left, axis=0)
    total = tl.sum(tl.exp(left - best), axis=0)
    scaled_best = _quotient(best, temperature, like)
    held = best * 0.0
    rank = 0
    drawn = tl.zeros((DRAWS,), tl.int32)
    highest = tl.full((DRAWS,), -1.0, tl.float32)
    goes_on = 1
    while goes_on > 0:
        value, at = tl.max(left, axis=0, return_indices=True)
        ranks = draws * 0 + rank
        held += (tl.exp(value - best) / total).to(like).to(tl.float32)
        inside = (top_p * 0.0 + held).to(like).to(tl.float32) <= top_p
        inside = inside & (ranks < top_k) & (top_p * 0.0 + value > float("-inf"))
        inside = inside | (ranks == 0)
        token = at
        if DRAWS == 2:
            token = tl.where(at == num_ids - 1, end_id, at + first_id)
        noise = uniform(keys, (token + draws * 0).to(tl.uint32))
        difference = (_quotient(value, temperature, like) - scaled_best).to(like).to(tl.float32)
        weight = tl.where(ranks == 0, 1.0, tl.exp(difference))
        ratio = weight / -tl.log(noise)
        is_higher = inside & (ratio > highest)
        drawn = tl.where(is_higher, at, drawn)
        highest = tl.where(is_higher, ratio, highest)
        left = tl.where(ids == at, float("-inf"), left)
        rank += 1
        goes_on = tl.max(inside.to(tl.int32), axis=0)
    drawn = tl.minimum(drawn, num_ids - 1)
    code = tl.sum(tl.where(draws == 0, drawn, 0), axis=0)
    if DRAWS == 2:
        high = tl.sum(tl.where(draws == 1, drawn, 0), axis=0)
        lately = tl.arange(0, BLOCK_W)
        seen = tl.load(
            window_ptr + row.to(tl.int64) * window_stride_b + lately * window_stride_w,
            mask=lately < width,
            other=-1,
        )
        is_same = (seen == code + first_id) & (lately < width)
        is_same = is_same & (code + lately * 0 != num_ids - 1)
        code = tl.where(tl.max(is_same.to(tl.int32), axis=0) > 0, high, code)
    tl.store(out_ptr + row, code.to(tl.int64))
    if E > 0:
        columns = tl.arange(0, BLOCK_E)
        source = tl.minimum(code, last_row).to(tl.int64) * E
        looked_up = tl.load(embedding_ptr + source + columns, mask=columns < E)
        tl.store(embedded_ptr + row.to(tl.int64) * E + columns, looked_up, mask=columns < E)


def run_draw(
    logits: Tensor,
    keys: Tensor,
    rules: DrawRules,
    *,
    semantic: Semantic | None = None,
    embeddings: Tensor | None = None,
    use_pdl: bool = USE_PDL,
) -> tuple[Tensor, Tensor | None]:
    """Run ``draw_codes``, with or without PDL."""
    check_draw(logits, keys, rules, semantic, embeddings)
    num_rows, num_ids = logits.shape
    codes = torch.empty(num_rows, dtype=torch.int64, device=logits.device)
    embedded, width, last_row = None, 0, 0
    if embeddings is not None:
        last_row, width = embeddings.shape[0] - 1, embeddings.shape[1]
        embedded = embeddings.new_empty((num_rows, width))
    if not num_rows:
        return codes, embedded
    window = codes if semantic is None else semantic.window
    block_v = triton.next_power_of_2(num_ids)
    draw_kernel[(num_rows,)](
        logits,
        keys,
        rules.temperature,
        rules.top_p,
        rules.top_k,
        window,
        embeddings,
        codes,
        embedded,
        num_ids,
        logits.stride(0),
        *(window.stride() if semantic else (0, 0)),
        *((semantic.first_id, semantic.end_id) if semantic else (0, 0)),
        window.shape[1] if semantic else 0,
        last_row,
        DRAWS=2 if semantic else 1,
        BLOCK_V=block_v,
        BLOCK_W=triton.next_power_of_2(max(1, window.shape[-1] if semantic else 1)),
        E=width,
        BLOCK_E=triton.next_power_of_2(max(1, width)),
        PDL=use_pdl,
        num_warps=max(1, min(16, block_v // 512)),
        **launch_options(use_pdl),
    )
    return codes, embedded


def draw_codes(
    logits: Tensor,
    keys: Tensor,
    rules: DrawRules,
    *,
    semantic: Semantic | None = None,
    embeddings: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """See ``sampling_reference.draw_codes``."""
    return run_draw(logits, keys, rules, semantic=semantic, embeddings=embeddings)

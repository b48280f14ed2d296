"""Filter, draw, rule against repetition and the next embedding in one launch.

Owns the schedule: one program has a row. Logit and id become one integer, so that the best ids come
out of a partial sort in their order, and nothing needs a second look at the rest.
``sampling_reference.py`` says what is computed.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fishtts.kernels.launch import launch_options, starts_early
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
    return tl.div_rn(a, b).to(LIKE).to(tl.float32)


@triton.jit
def _ranked(logits, ids, K: tl.constexpr, BLOCK_V: tl.constexpr, IS_WIDE: tl.constexpr):
    """The K best of logits [BLOCK_V] (float32, no NaN), best first, equal ones by id: values, ids.

    A float's bits, with those below the sign turned over where it is negative, order like it. What
    was bfloat16 leaves room for the id in the same 32.
    """
    bits = tl.where(logits == 0.0, 0.0, logits).to(tl.int32, bitcast=True)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    if IS_WIDE:
        keys = (ordered.to(tl.int64) << 32) | (BLOCK_V - 1 - ids).to(tl.int64)
        best = tl.topk(keys, K)
        ordered = (best >> 32).to(tl.int32)
        found = BLOCK_V - 1 - (best & 0xFFFFFFFF).to(tl.int32)
    else:
        best = tl.topk((ordered & -65536) | (BLOCK_V - 1 - ids), K)
        # A negative one has ones where the id was: they are no part of its value.
        found = BLOCK_V - 1 - (best & 0xFFFF)
        ordered = best & -65536
        ordered = tl.where(ordered < 0, ordered | 0xFFFF, ordered)
    return (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True), found


@triton.jit(do_not_specialize=["num_ids", "first_id", "end_id", "max_top_k", "width", "last_row"])
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
    key_stride,
    window_stride_b,
    window_stride_w,
    first_id,
    end_id,
    max_top_k,
    width,
    last_row,
    DRAWS: tl.constexpr,
    K: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_W: tl.constexpr,
    E: tl.constexpr,
    BLOCK_E: tl.constexpr,
    PDL: tl.constexpr,
):
    """One row, of which the K best may be drawn. E is 0 where nothing is looked up."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    row = tl.program_id(0)
    like: tl.constexpr = logits_ptr.dtype.element_ty
    ids = tl.arange(0, BLOCK_V)
    start = logits_ptr + row.to(tl.int64) * row_stride
    logits = tl.load(start + ids, mask=ids < num_ids, other=float("-inf")).to(tl.float32)
    logits = tl.where(logits == logits, logits, float("-inf"))
    values, found = _ranked(logits, ids, K, BLOCK_V, like != tl.bfloat16)
    best = tl.max(logits, axis=0)
    total = tl.sum(tl.exp(logits - best), axis=0)
    held = tl.cumsum((tl.exp(values - best) / total).to(like).to(tl.float32), axis=0)
    held = held.to(like).to(tl.float32)

    draws = tl.arange(0, DRAWS)[:, None]
    ranks = tl.arange(0, K)[None, :]
    nothing = tl.zeros((DRAWS, K), tl.float32)
    keys = tl.load(key_ptr + row * key_stride + draws).to(tl.uint32)
    temperature = tl.load(temperature_ptr + row * DRAWS + draws).to(like).to(tl.float32)
    least = tl.full((DRAWS, 1), 1e-5, tl.float32).to(like).to(tl.float32)
    temperature = tl.maximum(temperature, least) + nothing
    top_p = tl.load(top_p_ptr + row * DRAWS + draws).to(like).to(tl.float32)
    inside = (held[None, :] <= top_p) & (ranks < tl.minimum(tl.load(top_k_ptr + row), max_top_k))
    inside = inside & (values[None, :] > float("-inf")) | (ranks + draws * 0 == 0)
    tokens = found
    if DRAWS == 2:
        tokens = tl.where(found == num_ids - 1, end_id, found + first_id)
    noise = uniform(keys + nothing.to(tl.uint32), (tokens[None, :] + draws * 0).to(tl.uint32))
    difference = _quotient(values[None, :] + nothing, temperature, like)
    difference -= _quotient(best + nothing, temperature, like)
    weight = tl.where(ranks == 0, 1.0, tl.exp(difference.to(like).to(tl.float32)))
    ratio = tl.where(inside, weight / -tl.log(noise), -1.0)
    winner = tl.argmax(ratio, axis=1)
    drawn = tl.sum(tl.where(ranks == winner[:, None], found[None, :], 0), axis=1)
    drawn = tl.minimum(drawn, num_ids - 1)
    which = tl.arange(0, DRAWS)
    code = tl.sum(tl.where(which == 0, drawn, 0), axis=0)
    if DRAWS == 2:
        high = tl.sum(tl.where(which == 1, drawn, 0), axis=0)
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
    max_top_k: int | None = None,
    use_pdl: bool | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Run ``draw_codes``, with or without PDL; None: with it where there is one."""
    check_draw(logits, keys, rules, semantic, embeddings, max_top_k)
    early = starts_early(logits.device, use_pdl)
    num_rows, num_ids = logits.shape
    codes = torch.empty(num_rows, dtype=torch.int64, device=logits.device)
    embedded, width, last_row = None, 0, 0
    if embeddings is not None:
        last_row, width = embeddings.shape[0] - 1, embeddings.shape[1]
        embedded = embeddings.new_empty((num_rows, width))
    if not num_rows:
        return codes, embedded
    window = codes if semantic is None else semantic.window
    # Not below 2, for which older compilers have no sort.
    block_v = max(2, triton.next_power_of_2(num_ids))
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
        keys.stride(0),
        *(window.stride() if semantic else (0, 0)),
        *((semantic.first_id, semantic.end_id) if semantic else (0, 0)),
        max_top_k or num_ids,
        window.shape[1] if semantic else 0,
        last_row,
        DRAWS=2 if semantic else 1,
        K=min(block_v, max(2, triton.next_power_of_2(max_top_k or num_ids))),
        BLOCK_V=block_v,
        BLOCK_W=triton.next_power_of_2(max(1, window.shape[-1] if semantic else 1)),
        E=width,
        BLOCK_E=triton.next_power_of_2(max(1, width)),
        PDL=early,
        num_warps=max(1, min(16, block_v // 512)),
        **launch_options(early),
    )
    return codes, embedded


def draw_codes(
    logits: Tensor,
    keys: Tensor,
    rules: DrawRules,
    *,
    semantic: Semantic | None = None,
    embeddings: Tensor | None = None,
    max_top_k: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """See ``sampling_reference.draw_codes``."""
    return run_draw(
        logits, keys, rules, semantic=semantic, embeddings=embeddings, max_top_k=max_top_k
    )

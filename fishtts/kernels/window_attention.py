"""Attention of steps over a window in a ring: turning, keeping and attending in one launch.

Owns the schedule: a program has one head of one row, so that no row's sums depend on another's.
``window_reference.py`` says what is computed. Knows no model.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from fishtts.kernels.window_reference import check_window


@triton.jit
def _attend(
    even, odd, keys_even, keys_odd, values, mask, to_log2, most, total, acc, PRECISION: tl.constexpr
):
    """Take further keys and values into a softmax in the making."""
    scores = tl.dot(even, tl.trans(keys_even), input_precision=PRECISION)
    scores = tl.dot(odd, tl.trans(keys_odd), scores, input_precision=PRECISION)
    scores = tl.where(mask, scores * to_log2, float("-inf"))
    new_most = tl.maximum(most, tl.max(scores, axis=1))
    # A query that sees nothing yet: its weights are zeros, not NaN.
    base = tl.where(new_most == float("-inf"), 0.0, new_most)
    weights = tl.exp2(scores - base[:, None])
    shrink = tl.exp2(most - base)
    total = total * shrink + tl.sum(weights, axis=1)
    acc = tl.dot(weights.to(values.dtype), values, acc * shrink[:, None], input_precision=PRECISION)
    return new_most, total, acc


@triton.jit
def window_attention_kernel(
    qkv_ptr,
    key_ptr,
    value_ptr,
    slot_ptr,
    position_ptr,
    cosine_ptr,
    sine_ptr,
    out_ptr,
    to_log2,
    LENGTH: tl.constexpr,
    HEADS: tl.constexpr,
    SIZE: tl.constexpr,
    RING: tl.constexpr,
    WINDOW: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_S: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One head of one row.

    What the step itself adds never comes back from the ring. It lies where keys were that no query
    of this step sees any more.
    """
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    half: tl.constexpr = SIZE // 2
    start = tl.load(position_ptr + row)
    ring = (tl.load(slot_ptr + row) * HEADS + head) * (RING * SIZE)
    t, c, d = tl.arange(0, BLOCK_T), tl.arange(0, half), tl.arange(0, SIZE)
    fresh = (t < LENGTH)[:, None]
    kind: tl.constexpr = qkv_ptr.dtype.element_ty
    at = (start + t)[:, None] * half + c[None, :]
    cosine = tl.load(cosine_ptr + at, mask=fresh, other=0.0)
    sine = tl.load(sine_ptr + at, mask=fresh, other=0.0)
    base = qkv_ptr + row * (LENGTH * 3 * HEADS * SIZE) + head * SIZE
    from_query = base + t[:, None] * (3 * HEADS * SIZE) + 2 * c[None, :]
    x = tl.load(from_query, mask=fresh, other=0.0).to(tl.float32)
    y = tl.load(from_query + 1, mask=fresh, other=0.0).to(tl.float32)
    even, odd = (x * cosine - y * sine).to(kind), (x * sine + y * cosine).to(kind)
    from_key = from_query + HEADS * SIZE
    x = tl.load(from_key, mask=fresh, other=0.0).to(tl.float32)
    y = tl.load(from_key + 1, mask=fresh, other=0.0).to(tl.float32)
    key_even, key_odd = (x * cosine - y * sine).to(kind), (x * sine + y * cosine).to(kind)
    from_value = base + 2 * HEADS * SIZE + t[:, None] * (3 * HEADS * SIZE) + d[None, :]
    value = tl.load(from_value, mask=fresh, other=0.0)
    most = tl.full((BLOCK_T,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_T,), tl.float32)
    acc = tl.zeros((BLOCK_T, SIZE), tl.float32)
    seer = t[:, None]
    for first in range(0, RING, BLOCK_S):
        s = first + tl.arange(0, BLOCK_S)
        # How long before this step's start the latest earlier position at each place is.
        age = 1 + (start + RING - 1 - s) % RING
        inside = ((s < RING) & (age <= start) & (age < WINDOW))[:, None]
        from_ring = ring + s[:, None] * SIZE
        keys_even = tl.load(key_ptr + from_ring + c[None, :], mask=inside, other=0.0)
        keys_odd = tl.load(key_ptr + from_ring + half + c[None, :], mask=inside, other=0.0)
        values = tl.load(value_ptr + from_ring + d[None, :], mask=inside, other=0.0)
        is_seen = (s < RING) & (age <= start)
        mask = is_seen[None, :] & (seer + age[None, :] < WINDOW)
        most, total, acc = _attend(
            even,
            odd,
            keys_even,
            keys_odd,
            values,
            mask,
            to_log2,
            most,
            total,
            acc,
            PRECISION,
        )
    u = tl.arange(0, BLOCK_T)[None, :]
    mask = (u <= seer) & (seer - u < WINDOW)
    most, total, acc = _attend(
        even, odd, key_even, key_odd, value, mask, to_log2, most, total, acc, PRECISION
    )
    to = out_ptr + ((row * LENGTH + t[:, None]) * HEADS + head) * SIZE + d[None, :]
    tl.store(to, (acc / total[:, None]).to(kind), mask=fresh)
    place = ring + ((start + t) % RING)[:, None] * SIZE
    tl.store(key_ptr + place + c[None, :], key_even, mask=fresh)
    tl.store(key_ptr + place + half + c[None, :], key_odd, mask=fresh)
    tl.store(value_ptr + place + d[None, :], value, mask=fresh)


def window_attention_(
    qkv: Tensor, rings: Tensor, slots: Tensor, positions: Tensor, turns: Tensor, window: int
) -> Tensor:
    """See ``reference.window_attention_``; a head has 32 columns or more, a power of two."""
    check_window(qkv, rings, slots, positions, turns, window)
    num_rows, length, _, heads, size = qkv.shape
    out = qkv.new_empty((num_rows, length, heads, size))
    if num_rows:
        window_attention_kernel[(num_rows, heads)](
            qkv,
            rings[0],
            rings[1],
            slots,
            positions,
            turns[0],
            turns[1],
            out,
            size**-0.5 * 1.4426950408889634,
            LENGTH=length,
            HEADS=heads,
            SIZE=size,
            RING=rings.shape[3],
            WINDOW=window,
            BLOCK_T=max(16, triton.next_power_of_2(length)),
            BLOCK_S=64,
            PRECISION="ieee",
            num_warps=4,
        )
    return out

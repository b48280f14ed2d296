"""What lies beside the products of a convolutional decoder: activation, past, norm; one pass each.

Owns the schedule. ``convolution_reference.py`` says what is computed. Knows no codec.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from fishtts.kernels.convolution_reference import (
    check_carry,
    check_depthwise,
    check_signal,
    new_signal,
)


@triton.jit
def sine_squared(half_turns):
    """sin(pi z)^2: a polynomial in the square of what is left of z after whole half turns.

    Its relative error is 3e-7. The matrix unit waits for this in a convolution, where the sine of
    the special function unit is eight times as slow; so is rounding to a whole number, which adding
    1.5 * 2^23 does too, up to four million half turns.
    """
    rest = half_turns - ((half_turns + 12582912.0) - 12582912.0)
    q = rest * rest
    p = q * -3.3561086469174675 + 13.04979618900203
    p = p * q - 30.10139954927278
    p = p * q + 42.72719040928521
    p = p * q - 32.469670986129806
    p = p * q + 9.869604310777046
    return p * q


@triton.jit
def snake_of(x, alpha):
    """x + sin(alpha x)^2 / (alpha + 1e-9), in float32."""
    return x + sine_squared(x * (alpha * 0.3183098861837907)) * (1.0 / (alpha + 1e-9))


@triton.jit
def rounded(x, kind: tl.constexpr):
    """Round float32 to a type, saturating in float16."""
    if kind == tl.float16:
        x = tl.minimum(tl.maximum(x, -65504.0), 65504.0)
    return x.to(kind)


@triton.jit
def store_rounded(ptr, x, mask):
    """Round float32 to what a pointer points to, and write it."""
    tl.store(ptr, rounded(x, ptr.dtype.element_ty), mask=mask)


@triton.jit
def snake_kernel(
    x_ptr,
    residual_ptr,
    alpha_ptr,
    total_ptr,
    signal_ptr,
    length,
    num_channels,
    x_stride_b,
    x_stride_t,
    x_stride_c,
    signal_stride_b,
    signal_stride_t,
    signal_stride_c,
    BLOCK_T: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """One tile of positions and channels of one row; sum and residual lie in memory like x."""
    row = tl.program_id(2).to(tl.int64)
    t = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    mask = (t < length)[:, None] & (c < num_channels)[None, :]
    at = row * x_stride_b + t[:, None] * x_stride_t + c[None, :] * x_stride_c
    x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    if residual_ptr is not None:
        x += tl.load(residual_ptr + at, mask=mask, other=0.0).to(tl.float32)
        store_rounded(total_ptr + at, x, mask)
        x = x.to(total_ptr.dtype.element_ty).to(tl.float32)
    alpha = tl.load(alpha_ptr + c, mask=c < num_channels, other=1.0)[None, :]
    to = row * signal_stride_b + t[:, None] * signal_stride_t + c[None, :] * signal_stride_c
    store_rounded(signal_ptr + to, snake_of(x, alpha), mask)


def snake(
    x: Tensor, alpha: Tensor, *, residual: Tensor | None = None, context: int = 0
) -> tuple[Tensor, Tensor]:
    """See ``reference.snake``."""
    check_signal(x)
    num_rows, length, channels = x.shape
    # The stride of a single row means nothing.
    same = slice(0 if num_rows > 1 else 1, None)
    if residual is not None and residual.stride()[same] != x.stride()[same]:
        raise ValueError(f"The residual {list(residual.shape)} does not lie in memory as x does.")
    total = x if residual is None else new_signal(x, num_rows, length, channels)
    signal = new_signal(x, num_rows, context + length, channels)
    fresh = signal[:, context:]
    is_by_channel = x.stride(2) == 1
    block_t, block_c = (16, 128) if is_by_channel else (512, 4)
    grid = (triton.cdiv(length, block_t), triton.cdiv(channels, block_c), num_rows)
    if num_rows and length:
        snake_kernel[grid](
            x,
            residual,
            alpha,
            total,
            fresh,
            length,
            channels,
            *x.stride(),
            *fresh.stride(),
            BLOCK_T=block_t,
            BLOCK_C=block_c,
            num_warps=4,
        )
    return total, signal


@triton.jit
def carry_kernel(
    signal_ptr,
    state_ptr,
    slot_ptr,
    new_ptr,
    num_channels,
    state_size,
    end,
    signal_stride_b,
    signal_stride_t,
    signal_stride_c,
    BLOCK: tl.constexpr,
):
    """A block of one row's past. Whoever takes a value out puts its follower in: no race."""
    row = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < state_size
    kept = state_ptr + tl.load(slot_ptr + row) * state_size + at
    t, c = at // num_channels, at % num_channels
    place = signal_ptr + row * signal_stride_b + t * signal_stride_t + c * signal_stride_c
    is_new = tl.load(new_ptr + row).to(tl.int32) != 0
    past = tl.where(is_new, 0.0, tl.load(kept, mask=mask, other=0.0))
    last = tl.load(place + end * signal_stride_t, mask=mask)
    tl.store(place, past, mask=mask)
    tl.store(kept, last, mask=mask)


def carry_context_(signal: Tensor, state: Tensor, slots: Tensor, is_new: Tensor) -> None:
    """See ``reference.carry_context_``."""
    check_carry(signal, state)
    num_rows, length, channels = signal.shape
    context = state.shape[1]
    size, block = context * channels, 1024
    if num_rows and context:
        carry_kernel[(triton.cdiv(size, block), num_rows)](
            signal,
            state,
            slots,
            is_new,
            channels,
            size,
            length - context,
            *signal.stride(),
            BLOCK=block,
            num_warps=4,
        )


@triton.jit(do_not_specialize=["signal_length", "length"])
def depthwise_norm_kernel(
    signal_ptr,
    weight_ptr,
    bias_ptr,
    norm_weight_ptr,
    norm_bias_ptr,
    out_ptr,
    eps,
    signal_length,
    length,
    CHANNELS: tl.constexpr,
    TAPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """All channels of one position of one row."""
    row, t = tl.program_id(1).to(tl.int64), tl.program_id(0)
    c = tl.arange(0, BLOCK)
    mask = c < CHANNELS
    y = tl.load(bias_ptr + c, mask=mask, other=0.0)
    first = signal_ptr + (row * signal_length + t) * CHANNELS + c
    for tap in tl.static_range(TAPS):
        x = tl.load(first + tap * CHANNELS, mask=mask, other=0.0).to(tl.float32)
        y += x * tl.load(weight_ptr + tap * CHANNELS + c, mask=mask, other=0.0)
    mean = tl.sum(y, axis=0) / CHANNELS
    y = tl.where(mask, y - mean, 0.0)
    y *= tl.rsqrt(tl.sum(y * y, axis=0) / CHANNELS + eps)
    y = y * tl.load(norm_weight_ptr + c, mask=mask, other=0.0)
    y += tl.load(norm_bias_ptr + c, mask=mask, other=0.0)
    store_rounded(out_ptr + (row * length + t) * CHANNELS + c, y, mask)


def depthwise_norm(
    signal: Tensor,
    weight: Tensor,
    bias: Tensor,
    norm_weight: Tensor,
    norm_bias: Tensor,
    eps: float,
) -> Tensor:
    """See ``reference.depthwise_norm``."""
    length = check_depthwise(signal, weight, (bias, norm_weight, norm_bias))
    num_rows, signal_length, channels = signal.shape
    out = signal.new_empty((num_rows, length, channels))
    block = triton.next_power_of_2(channels)
    if num_rows:
        depthwise_norm_kernel[(length, num_rows)](
            signal,
            weight,
            bias,
            norm_weight,
            norm_bias,
            out,
            eps,
            signal_length,
            length,
            CHANNELS=channels,
            TAPS=len(weight),
            BLOCK=block,
            num_warps=max(1, min(8, block // 256)),
        )
    return out

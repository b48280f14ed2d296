"""Causal convolutions on the matrix unit, with all that lies between two of them in their ends.

Owns the schedule: channels are neighbours, so a tap is a product with the same tile of the signal
a few positions on, and a convolution is one product over taps times channels.
``convolution_reference.py`` says what is computed, ``convolution_plans.py`` how it is cut. Knows no
codec.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fishtts.kernels import convolution_reference
from fishtts.kernels.convolution_plans import ConvPlan, plan_conv, plan_unit
from fishtts.kernels.convolution_reference import check_conv, new_signal
from fishtts.kernels.launch import shared_limit
from fishtts.kernels.signals import rounded, snake_of, store_rounded


@triton.jit
def _finish(
    acc,
    at,
    n,
    bias_ptr,
    residual_ptr,
    alpha_ptr,
    total_ptr,
    wave_ptr,
    num_rows,
    signal_length,
    length,
    wave_stride,
    OUT: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """Add bias and residual to sums of positions ``at`` and channels ``n``, activate, and write."""
    row, t = at // signal_length, at % signal_length
    mask = ((t < length) & (row < num_rows))[:, None] & (n < OUT)[None, :]
    acc += tl.load(bias_ptr + n, mask=n < OUT, other=0.0)[None, :]
    row = row.to(tl.int64)
    place = (row * length + t)[:, None] * OUT + n[None, :]
    if residual_ptr is not None:
        acc += tl.load(residual_ptr + place, mask=mask, other=0.0).to(tl.float32)
    if total_ptr is not None:
        store_rounded(total_ptr + place, acc, mask)
    if alpha_ptr is not None:
        alpha = tl.load(alpha_ptr + n % CHANNELS)[None, :]
        to = (row * wave_stride + t * OUT)[:, None] + n[None, :]
        store_rounded(wave_ptr + to, snake_of(acc, alpha), mask)


@triton.jit(do_not_specialize=["num_rows", "signal_length", "length", "dilation"])
def causal_conv_kernel(
    signal_desc,
    weight_desc,
    extra_desc,
    bias_ptr,
    residual_ptr,
    alpha_ptr,
    total_ptr,
    wave_ptr,
    num_rows,
    signal_length,
    length,
    wave_stride,
    dilation,
    COLUMNS: tl.constexpr,
    OUT: tl.constexpr,
    CHANNELS: tl.constexpr,
    TAPS: tl.constexpr,
    WHOLE_TILES: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    EXTRA_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,
):
    """One tile of positions and channels out.

    A tile of 96 or 192 channels is made of two, whose sizes must be powers of two: the signal is
    then read once for both.

    Rows of signals lie behind each other. Where ``length`` is whole tiles, none crosses from one
    row into the next; else all positions are gone through, contexts included, and what they give is
    not written.
    """
    n_tiles: tl.constexpr = (OUT + BLOCK_N + EXTRA_N - 1) // (BLOCK_N + EXTRA_N)
    tile = tl.program_id(0) // n_tiles
    first_n = tl.program_id(0) % n_tiles * (BLOCK_N + EXTRA_N)
    if WHOLE_TILES:
        tiles = length // BLOCK_M
        first = tile // tiles * signal_length + tile % tiles * BLOCK_M
    else:
        first = tile * BLOCK_M
    k_tiles: tl.constexpr = (COLUMNS + BLOCK_K - 1) // BLOCK_K
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    if EXTRA_N:
        extra = tl.zeros((BLOCK_M, EXTRA_N), tl.float32)
    for step in tl.range(0, TAPS * k_tiles, num_stages=STAGES):
        tap = step // k_tiles
        k = step % k_tiles * BLOCK_K
        # Columns beyond the signal's are zeros, whatever weights they meet.
        x = signal_desc.load([first + tap * dilation, k])
        weight = weight_desc.load([first_n, tap * COLUMNS + k])
        acc = tl.dot(x, tl.trans(weight), acc)
        if EXTRA_N:
            weight = extra_desc.load([first_n + BLOCK_N, tap * COLUMNS + k])
            extra = tl.dot(x, tl.trans(weight), extra)
    at = first + tl.arange(0, BLOCK_M)
    _finish(
        acc,
        at,
        first_n + tl.arange(0, BLOCK_N),
        bias_ptr,
        residual_ptr,
        alpha_ptr,
        total_ptr,
        wave_ptr,
        num_rows,
        signal_length,
        length,
        wave_stride,
        OUT,
        CHANNELS,
    )
    if EXTRA_N:
        _finish(
            extra,
            at,
            first_n + BLOCK_N + tl.arange(0, EXTRA_N),
            bias_ptr,
            residual_ptr,
            alpha_ptr,
            total_ptr,
            wave_ptr,
            num_rows,
            signal_length,
            length,
            wave_stride,
            OUT,
            CHANNELS,
        )


@triton.jit
def _activated(acc, first_n, bias_ptr, alpha_ptr, SIZE: tl.constexpr, N: tl.constexpr):
    """Sums of channels from ``first_n`` on, with bias, activated; zero beyond the channels."""
    n = first_n + tl.arange(0, N)
    acc += tl.load(bias_ptr + n, mask=n < SIZE, other=0.0)[None, :]
    return snake_of(acc, tl.load(alpha_ptr + n, mask=n < SIZE, other=1.0)[None, :])


@triton.jit(do_not_specialize=["num_rows", "signal_length", "length", "dilation"])
def residual_unit_kernel(
    signal_desc,
    weight_desc,
    extra_desc,
    bias_ptr,
    inner_alpha_ptr,
    pointwise_desc,
    to_extra_desc,
    from_extra_desc,
    within_extra_desc,
    pointwise_bias_ptr,
    residual_ptr,
    alpha_ptr,
    total_ptr,
    wave_ptr,
    num_rows,
    signal_length,
    length,
    wave_stride,
    dilation,
    CHANNELS: tl.constexpr,
    TAPS: tl.constexpr,
    WHOLE_TILES: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    EXTRA_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,
):
    """One tile of positions, all channels: what lies between the two convolutions never leaves.

    Like ``causal_conv_kernel``, whose tiles are cut the same way.
    """
    tile = tl.program_id(0)
    if WHOLE_TILES:
        tiles = length // BLOCK_M
        first = tile // tiles * signal_length + tile % tiles * BLOCK_M
    else:
        first = tile * BLOCK_M
    k_tiles: tl.constexpr = (CHANNELS + BLOCK_K - 1) // BLOCK_K
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    if EXTRA_N:
        extra = tl.zeros((BLOCK_M, EXTRA_N), tl.float32)
    for step in tl.range(0, TAPS * k_tiles, num_stages=STAGES):
        tap = step // k_tiles
        k = step % k_tiles * BLOCK_K
        x = signal_desc.load([first + tap * dilation, k])
        weight = weight_desc.load([0, tap * CHANNELS + k])
        acc = tl.dot(x, tl.trans(weight), acc)
        if EXTRA_N:
            weight = extra_desc.load([BLOCK_N, tap * CHANNELS + k])
            extra = tl.dot(x, tl.trans(weight), extra)
    kind = wave_ptr.dtype.element_ty
    hidden = rounded(_activated(acc, 0, bias_ptr, inner_alpha_ptr, CHANNELS, BLOCK_N), kind)
    out = tl.dot(hidden, tl.trans(pointwise_desc.load([0, 0])))
    if EXTRA_N:
        rest = rounded(
            _activated(extra, BLOCK_N, bias_ptr, inner_alpha_ptr, CHANNELS, EXTRA_N), kind
        )
        out_rest = tl.dot(hidden, tl.trans(to_extra_desc.load([BLOCK_N, 0])))
        out = tl.dot(rest, tl.trans(from_extra_desc.load([0, BLOCK_N])), out)
        out_rest = tl.dot(rest, tl.trans(within_extra_desc.load([BLOCK_N, BLOCK_N])), out_rest)
    at = first + tl.arange(0, BLOCK_M)
    _finish(
        out,
        at,
        tl.arange(0, BLOCK_N),
        pointwise_bias_ptr,
        residual_ptr,
        alpha_ptr,
        total_ptr,
        wave_ptr,
        num_rows,
        signal_length,
        length,
        wave_stride,
        CHANNELS,
        CHANNELS,
    )
    if EXTRA_N:
        _finish(
            out_rest,
            at,
            BLOCK_N + tl.arange(0, EXTRA_N),
            pointwise_bias_ptr,
            residual_ptr,
            alpha_ptr,
            total_ptr,
            wave_ptr,
            num_rows,
            signal_length,
            length,
            wave_stride,
            CHANNELS,
            CHANNELS,
        )


def _descriptor(matrix: Tensor, block: list[int]) -> Any:
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor(matrix, list(matrix.shape), [matrix.shape[1], 1], block)


def _parts_of(pointwise: Tensor, plan: ConvPlan) -> list[Any]:
    """Descriptors of the four parts of square weights: between the tile's two halves."""
    n, extra = plan.block_n, plan.extra_n
    blocks = [[n, n], [extra, n], [n, extra], [extra, extra]]
    return [_descriptor(pointwise, block) if min(block) else None for block in blocks]


def run_causal_conv(
    plan: ConvPlan,
    signal: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    dilation: int = 1,
    stride: int = 1,
    residual: Tensor | None = None,
    alpha: Tensor | None = None,
    context: int = 0,
    keep: bool = True,
    out_dtype: torch.dtype | None = None,
) -> tuple[Tensor | None, Tensor | None]:
    """Run ``causal_conv`` by a plan of one's own."""
    out_length, channels = check_conv(signal, weight, bias, dilation, stride)
    num_rows, signal_length, columns = signal.shape
    num_out, taps, _ = weight.shape
    length = out_length // stride
    total = wave = fresh = None
    if keep:
        dtype = out_dtype or signal.dtype
        total = torch.empty((num_rows, out_length, channels), dtype=dtype, device=signal.device)
    if alpha is not None:
        wave = new_signal(signal, num_rows, context + out_length, channels)
        fresh = wave[:, context:]
    whole_tiles = length % plan.block_m == 0
    positions = num_rows * (length if whole_tiles else signal_length)
    tiles = triton.cdiv(positions, plan.block_m) * triton.cdiv(num_out, plan.block_n + plan.extra_n)
    causal_conv_kernel[(tiles,)](
        _descriptor(signal.view(-1, columns), [plan.block_m, plan.block_k]),
        _descriptor(weight.view(num_out, -1), [plan.block_n, plan.block_k]),
        _descriptor(weight.view(num_out, -1), [plan.extra_n, plan.block_k])
        if plan.extra_n
        else None,
        bias,
        residual,
        alpha,
        total,
        fresh,
        num_rows,
        signal_length,
        length,
        0 if wave is None else wave.stride(0),
        dilation,
        COLUMNS=columns,
        OUT=num_out,
        CHANNELS=channels,
        TAPS=taps,
        WHOLE_TILES=whole_tiles,
        BLOCK_M=plan.block_m,
        BLOCK_N=plan.block_n,
        EXTRA_N=plan.extra_n,
        BLOCK_K=plan.block_k,
        STAGES=plan.num_stages,
        num_warps=plan.num_warps,
        num_stages=plan.num_stages,
    )
    return total, wave


def causal_conv(
    signal: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    dilation: int = 1,
    stride: int = 1,
    residual: Tensor | None = None,
    alpha: Tensor | None = None,
    context: int = 0,
    keep: bool = True,
    out_dtype: torch.dtype | None = None,
) -> tuple[Tensor | None, Tensor | None]:
    """See ``reference.causal_conv``. That one does what TMA cannot read: few, odd channels."""
    num_out, taps, num_in = weight.shape
    run = convolution_reference.causal_conv
    if num_in * weight.itemsize % 16 == 0:
        run = partial(
            run_causal_conv, plan_conv(num_out, num_in, taps, shared_limit(signal.device))
        )
    return run(
        signal,
        weight,
        bias,
        dilation=dilation,
        stride=stride,
        residual=residual,
        alpha=alpha,
        context=context,
        keep=keep,
        out_dtype=out_dtype,
    )


def run_residual_unit(
    plan: ConvPlan,
    signal: Tensor,
    weight: Tensor,
    bias: Tensor,
    inner_alpha: Tensor,
    pointwise: Tensor,
    pointwise_bias: Tensor,
    residual: Tensor,
    alpha: Tensor,
    *,
    dilation: int = 1,
    context: int = 0,
    keep: bool = True,
) -> tuple[Tensor | None, Tensor]:
    """Run ``residual_unit`` by a plan of one's own, whose tile holds all channels."""
    length, channels = check_conv(signal, weight, bias, dilation, 1)
    if plan.block_n + plan.extra_n < channels:
        raise ValueError(f"A tile of {plan.block_n + plan.extra_n} does not hold {channels}.")
    num_rows, signal_length, _ = signal.shape
    total = torch.empty_like(residual) if keep else None
    wave = new_signal(signal, num_rows, context + length, channels)
    whole_tiles = length % plan.block_m == 0
    positions = num_rows * (length if whole_tiles else signal_length)
    matrix = weight.view(channels, -1)
    residual_unit_kernel[(triton.cdiv(positions, plan.block_m),)](
        _descriptor(signal.view(-1, channels), [plan.block_m, plan.block_k]),
        _descriptor(matrix, [plan.block_n, plan.block_k]),
        _descriptor(matrix, [plan.extra_n, plan.block_k]) if plan.extra_n else None,
        bias,
        inner_alpha,
        *_parts_of(pointwise, plan),
        pointwise_bias,
        residual,
        alpha,
        total,
        wave[:, context:],
        num_rows,
        signal_length,
        length,
        wave.stride(0),
        dilation,
        CHANNELS=channels,
        TAPS=weight.shape[1],
        WHOLE_TILES=whole_tiles,
        BLOCK_M=plan.block_m,
        BLOCK_N=plan.block_n,
        EXTRA_N=plan.extra_n,
        BLOCK_K=plan.block_k,
        STAGES=plan.num_stages,
        num_warps=plan.num_warps,
        num_stages=plan.num_stages,
    )
    return total, wave


def residual_unit(
    signal: Tensor,
    weight: Tensor,
    bias: Tensor,
    inner_alpha: Tensor,
    pointwise: Tensor,
    pointwise_bias: Tensor,
    residual: Tensor,
    alpha: Tensor,
    *,
    dilation: int = 1,
    context: int = 0,
    keep: bool = True,
) -> tuple[Tensor | None, Tensor]:
    """See ``reference.residual_unit``: one launch where a tile holds all channels, else two."""
    plan = plan_unit(len(weight), shared_limit(signal.device))
    if plan is not None:
        return run_residual_unit(
            plan,
            *(signal, weight, bias, inner_alpha, pointwise, pointwise_bias, residual, alpha),
            dilation=dilation,
            context=context,
            keep=keep,
        )
    _, hidden = causal_conv(signal, weight, bias, dilation=dilation, alpha=inner_alpha, keep=False)
    assert hidden is not None
    total, wave = causal_conv(
        hidden,
        pointwise[:, None],
        pointwise_bias,
        residual=residual,
        alpha=alpha,
        context=context,
        keep=keep,
    )
    assert wave is not None
    return total, wave

"""What a convolutional decoder is made of, in plain torch: the specification of its kernels.

Owns the arithmetic and the layout of causal convolutions over signals that carry their left context
in front of them. Knows no codec, and not how a GPU does it.

Shapes: B rows of signals, T positions, C channels in, N channels out. A *signal* is
[B, context + T, C]: the positions that a convolution looks back to, then the new ones. Channels are
neighbours in memory; ``snake`` and ``carry_context_`` also take signals whose positions are
(strides tell).
Sums and the activation are in float32. What is too large for float16 becomes its largest value.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_HALF_MAX = 65504.0


def rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Round float32 to a type, saturating in float16: an infinity would become NaN further on."""
    return (x.clamp(-_HALF_MAX, _HALF_MAX) if dtype == torch.float16 else x).to(dtype)


def new_signal(like: Tensor, num_rows: int, length: int, channels: int) -> Tensor:
    """Room for a signal [B, length, C] of the type and the memory order of another."""
    if like.stride(2) == 1 or like.shape[2] == 1:
        return like.new_empty((num_rows, length, channels))
    return like.new_empty((num_rows, channels, length)).transpose(1, 2)


def check_signal(signal: Tensor) -> None:
    """Refuse what is no signal.

    Raises: ``ValueError`` naming the shape.
    """
    if signal.ndim != 3 or not (signal.is_contiguous() or signal.transpose(1, 2).is_contiguous()):
        raise ValueError(
            f"The signal has the shape {list(signal.shape)} and the strides"
            f" {list(signal.stride())}; it must be [rows, positions, channels], packed."
        )


def snake_of(x: Tensor, alpha: Tensor) -> Tensor:
    """x + sin(alpha x)^2 / (alpha + 1e-9) in float32; alpha [C] for the last axis of x."""
    return x + torch.sin(x * alpha).square() / (alpha + 1e-9)


def snake(
    x: Tensor, alpha: Tensor, *, residual: Tensor | None = None, context: int = 0
) -> tuple[Tensor, Tensor]:
    """Add, then x + sin(alpha x)^2 / (alpha + 1e-9), leaving room for a context in front.

    Shapes: x [B, T, C], alpha [C] float32, residual like x -> the sum [B, T, C] (x itself without
    ``residual``) and the signal [B, context + T, C], whose first ``context`` positions are not
    written. Rounds: the sum once; the activation, made from the rounded sum, once.
    Tolerance: one unit of the last place.
    Source: the activation of the Descript audio codec (MIT).
    """
    check_signal(x)
    total = x if residual is None else rounded(x.float() + residual.float(), x.dtype)
    signal = new_signal(x, x.shape[0], context + x.shape[1], x.shape[2])
    signal[:, context:] = rounded(snake_of(total.float(), alpha), x.dtype)
    return total, signal


def carry_context_(signal: Tensor, state: Tensor, slots: Tensor, is_new: Tensor) -> None:
    """Put what each row's past left in front of a signal, and keep its end for the next one.

    Shapes: signal [B, context + T, C] with T >= context; state [S, context, C]; slots int64 [B]
    says where in ``state`` a row's past lies, is_new bool [B] that it has none, which counts as
    zeros. Both are written to. Rows with the same slot leave either's end behind.
    """
    check_carry(signal, state)
    context = state.shape[1]
    past = state[slots]
    state[slots] = signal[:, signal.shape[1] - context :]
    signal[:, :context] = past.masked_fill_(is_new[:, None, None], 0)


def check_carry(signal: Tensor, state: Tensor) -> None:
    """Refuse a state of another shape than the signal's, or a step that is shorter than the past.

    Raises: ``ValueError`` naming both shapes.
    """
    check_signal(signal)
    fits = state.ndim == 3 and state.shape[2] == signal.shape[2] and state.dtype == signal.dtype
    if not fits or not state.is_contiguous() or signal.shape[1] < 2 * state.shape[1]:
        raise ValueError(
            f"The state {list(state.shape)} {state.dtype} does not go with the signal"
            f" {list(signal.shape)} {signal.dtype}, which must be at least twice as long."
        )


def check_conv(
    signal: Tensor, weight: Tensor, bias: Tensor, dilation: int, stride: int
) -> tuple[int, int]:
    """Refuse operands that do not fit; gives the positions and the channels of the result.

    Raises: ``ValueError`` naming the shapes.
    """
    fits = (
        signal.ndim == weight.ndim == 3
        and signal.is_contiguous()
        and weight.is_contiguous()
        and signal.shape[2] == weight.shape[2]
        and signal.dtype == weight.dtype
        and bias.shape == weight.shape[:1]
        and weight.shape[0] % stride == 0
        and signal.shape[1] > (weight.shape[1] - 1) * dilation
    )
    if not fits:
        raise ValueError(
            f"A signal {list(signal.shape)} {signal.dtype} does not go with weights"
            f" {list(weight.shape)} {weight.dtype} and biases {list(bias.shape)}."
        )
    length = signal.shape[1] - (weight.shape[1] - 1) * dilation
    return length * stride, weight.shape[0] // stride


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
    """Convolve a signal, add, and activate: all that lies between two convolutions, in one.

    ``stride`` outputs a position are neighbours in N: so a transposed convolution whose kernel is
    twice its stride is one with two taps. ``keep`` asks for the sum itself, ``alpha`` for ``snake``
    of it, in a signal with room for ``context``.

    Shapes: signal [B, (taps - 1) dilation + T, C], weight [N, taps, C], bias [N] float32, residual
    [B, T stride, N / stride], alpha [N / stride] float32 -> the sum [B, T stride, N / stride] in
    ``out_dtype`` (the signal's), or None, and the signal [B, context + T stride, N / stride], or
    None.
    Rounds: sum and activation once each, both from float32.
    Tolerance: the order of the sums.
    """
    length, channels = check_conv(signal, weight, bias, dilation, stride)
    y = F.conv1d(signal.float().transpose(1, 2), weight.float().transpose(1, 2), dilation=dilation)
    y = (y.transpose(1, 2) + bias).reshape(signal.shape[0], length, channels)
    if residual is not None:
        y = y + residual.float()
    total = rounded(y, out_dtype or signal.dtype) if keep else None
    if alpha is None:
        return total, None
    made = new_signal(signal, signal.shape[0], context + length, channels)
    made[:, context:] = rounded(snake_of(y, alpha), signal.dtype)
    return total, made


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
    """Convolve, activate, convolve pointwise, add, activate: two ``causal_conv`` in one.

    Shapes: signal [B, (taps - 1) dilation + T, C], weight [C, taps, C], pointwise [C, C], biases
    and alphas [C] float32, residual [B, T, C] -> the sum [B, T, C], or None, and the signal
    [B, context + T, C].
    Rounds: what lies between the convolutions once, as ``causal_conv`` does.
    """
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


def check_depthwise(signal: Tensor, weight: Tensor, others: tuple[Tensor, ...]) -> int:
    """Refuse operands that do not fit; gives the positions of the result.

    Raises: ``ValueError`` naming the shapes.
    """
    fits = (
        signal.ndim == 3
        and weight.ndim == 2
        and signal.is_contiguous()
        and weight.is_contiguous()
        and weight.dtype == torch.float32
        and signal.shape[2] == weight.shape[1]
        and signal.shape[1] >= len(weight)
        and all(other.shape == weight.shape[1:] for other in others)
    )
    if not fits:
        raise ValueError(
            f"A signal {list(signal.shape)} does not go with depthwise weights"
            f" {list(weight.shape)} {weight.dtype}, or these not with their biases and norms."
        )
    return signal.shape[1] - len(weight) + 1


def depthwise_norm(
    signal: Tensor,
    weight: Tensor,
    bias: Tensor,
    norm_weight: Tensor,
    norm_bias: Tensor,
    eps: float,
) -> Tensor:
    """Convolve every channel by itself, then norm each position over its channels.

    Shapes: signal [B, taps - 1 + T, C], weight float32 [taps, C], the others float32 [C] ->
    [B, T, C] in the signal's type.
    Rounds: once, at the end. Tolerance: the order of the sums.
    """
    length = check_depthwise(signal, weight, (bias, norm_weight, norm_bias))
    y = bias.expand(signal.shape[0], length, -1)
    for tap, factor in enumerate(weight):
        y = torch.addcmul(y, signal[:, tap : tap + length].float(), factor)
    return rounded(F.layer_norm(y, y.shape[2:], norm_weight, norm_bias, eps), signal.dtype)

"""Every op in plain torch: the specification of the kernels, and the path of a CPU.

Owns what is computed, where it rounds, and how tensors lie in memory. Does not know how a GPU does
it, and no model.

Shapes: M rows of activations, N rows of a weight, K columns of both, F columns of a gated half.
FP8 is E4M3 (largest 448, no infinity, NaN 0x7F). A scale times a code is the value. Every tensor is
contiguous, and its layout shows in its shape, so that a file cannot lose it:

| scale | type and shape | neighbours in memory |
| --- | --- | --- |
| of 1x128 groups | float32 [K / 128, M] | the rows of one column block |
| of 1x32 groups | uint8 [K / 128, M, 4] | the four exponents of 128 columns, then the rows |
| of 128x128 blocks | float32 [ceil(N / 128), K / 128] | the column blocks of one row block |

An exponent byte e (UE8M0) means 2^(e - 127). The quantiser writes 1 to 247, so that e << 23 are the
bits of the scale as a float32; 255 would be NaN and is never written.

What the quantisers make of odd values, in all forms: a NaN or an infinity becomes NaN (0x7F) itself
and does not count for the scale of its group; a group without a finite value other than zero gets
the smallest scale and zeros; a value too small for its group's scale becomes a subnormal or zero,
rounding to nearest even like all others, and keeps its sign.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fishtts.kernels.attention_reference import causal_attention as causal_attention
from fishtts.kernels.attention_reference import paged_decode as paged_decode
from fishtts.kernels.attention_reference import paged_prefill as paged_prefill
from fishtts.kernels.checks import FP8, FP8_MAX, GROUP, MIN_AMAX, check_columns, check_shape
from fishtts.kernels.convolution_reference import carry_context_ as carry_context_
from fishtts.kernels.convolution_reference import causal_conv as causal_conv
from fishtts.kernels.convolution_reference import depthwise_norm as depthwise_norm
from fishtts.kernels.convolution_reference import residual_unit as residual_unit
from fishtts.kernels.convolution_reference import snake as snake
from fishtts.kernels.sampling_reference import draw_codes as draw_codes
from fishtts.kernels.small_reference import norm_rope_store as norm_rope_store
from fishtts.kernels.window_reference import window_attention_ as window_attention_

MX_GROUP = 32


def _encode(values: Tensor, is_finite: Tensor) -> Tensor:
    """Round scaled values to FP8: to nearest even, saturating; what is not finite becomes NaN."""
    codes = values.clamp(-FP8_MAX, FP8_MAX)
    return torch.where(is_finite, codes, float("nan")).to(FP8)


def _amax(values: Tensor, is_finite: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Largest finite magnitude over ``dims``, which stay with size 1."""
    return torch.where(is_finite, values.abs(), 0.0).amax(dims, keepdim=True)


def _next_power_of_two(scale: Tensor) -> Tensor:
    """Round normal positive float32 up to a power of two."""
    bits = scale.view(torch.int32)
    return ((bits + 0x7FFFFF) & 0x7F800000).view(torch.float32)


def _float_scale(amax: Tensor, power_of_two: bool) -> Tensor:
    # Divided by a tensor: torch would multiply with the reciprocal of a number, which rounds twice.
    scale = amax.clamp(min=MIN_AMAX) / torch.full_like(amax, FP8_MAX)
    return _next_power_of_two(scale) if power_of_two else scale


def _exponent(amax: Tensor, rounding: str) -> Tensor:
    """The exponent byte of a group of 32, as int32."""
    amax = amax.clamp(min=MIN_AMAX)
    if rounding == "up":
        bits = _float_scale(amax, True).view(torch.int32)
        return bits >> 23
    if rounding == "down":
        # floor(log2(amax)) less the exponent of the largest code, 256 = 2^8.
        return (amax.view(torch.int32) >> 23) - 8
    raise ValueError(f'The rounding is "{rounding}"; it must be "up" or "down".')


def exponent_to_scale(exponent: Tensor) -> Tensor:
    """Exponent bytes to float32 scales; 0 is 2^-127 and 255 is NaN, as the format says."""
    return exponent.view(torch.float8_e8m0fnu).float()


def quantize_1x128(x: Tensor, *, power_of_two: bool = False) -> tuple[Tensor, Tensor]:
    """Quantise each run of 128 columns by its own scale, amax / 448.

    With ``power_of_two`` the scale is rounded up to one.

    Shapes: x [M, K] float16, bfloat16 or float32 -> codes [M, K] FP8, scale [K / 128, M] float32.
    Rounds: the scale once and its inverse once (true divisions), the product of x and the inverse,
    and the code. Tolerance: none, every byte is the same.
    Source: per-token-group scaling as in DeepGEMM and torch's blockwise ``scaled_mm``.
    """
    check_columns("x", x)
    groups = x.float().unflatten(1, (-1, GROUP))
    is_finite = groups.isfinite()
    scale = _float_scale(_amax(groups, is_finite, (2,)), power_of_two)
    codes = _encode(groups * (1.0 / scale), is_finite)
    return codes.flatten(1), scale[..., 0].t().contiguous()


def quantize_1x32(x: Tensor, *, rounding: str = "up") -> tuple[Tensor, Tensor]:
    """Quantise each run of 32 columns by a power of two (MXFP8).

    ``rounding="up"`` takes the smallest power of two under which nothing saturates, as current
    hardware recipes do. ``"down"`` is the rule of the OCP specification, 2^(floor(log2(amax)) - 8):
    what is then above 448 saturates. The default has the smaller measured error.

    Shapes: x [M, K] -> codes [M, K] FP8, exponents [K / 128, M, 4] uint8; K a multiple of 128.
    Rounds: the exponent exactly, the code once. Tolerance: none, every byte is the same.
    Source: OCP Microscaling Formats v1.0, section 6.3; the rounded-up form as in NVIDIA's recipes.
    """
    check_columns("x", x)
    groups = x.float().unflatten(1, (-1, GROUP // MX_GROUP, MX_GROUP))
    is_finite = groups.isfinite()
    exponent = _exponent(_amax(groups, is_finite, (3,)), rounding)
    inverse = ((254 - exponent) << 23).view(torch.float32)
    codes = _encode(groups * inverse, is_finite)
    packed = exponent[..., 0].to(torch.uint8).transpose(0, 1).contiguous()
    return codes.flatten(1), packed


def quantize_128x128(weight: Tensor, *, power_of_two: bool = False) -> tuple[Tensor, Tensor]:
    """Quantise each block of 128 rows and 128 columns by its own scale, amax / 448.

    Shapes: weight [N, K] -> codes [N, K] FP8, scale [ceil(N / 128), K / 128] float32; the last rows
    may be fewer than 128. Rounds: like ``quantize_1x128``.
    """
    check_columns("weight", weight)
    num_rows = weight.shape[0]
    padded = F.pad(weight.float(), (0, 0, 0, -num_rows % GROUP))
    blocks = padded.unflatten(1, (-1, GROUP)).unflatten(0, (-1, GROUP))
    is_finite = blocks.isfinite()
    scale = _float_scale(_amax(blocks, is_finite, (1, 3)), power_of_two)
    codes = _encode(blocks / scale, is_finite)
    return codes.flatten(2).flatten(0, 1)[:num_rows].contiguous(), scale[:, 0, :, 0].contiguous()


def silu_mul(gate_up: Tensor) -> Tensor:
    """SwiGLU: silu(gate) * up.

    Shapes: gate_up [M, 2 F], a column of the gate before each of up's -> [M, F] in its type.
    Rounds: once, at the end. Tolerance: one unit in the last place, for the exponential's sake.
    """
    check_columns("gate_up", gate_up, 2 * GROUP)
    return _swiglu(gate_up).to(gate_up.dtype)


def _swiglu(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.float().unflatten(1, (-1, 2)).unbind(2)
    return gate / (1.0 + torch.exp(-gate)) * up


def silu_mul_quantize(
    gate_up: Tensor, *, group: int = GROUP, power_of_two: bool = False, rounding: str = "up"
) -> tuple[Tensor, Tensor]:
    """SwiGLU and quantisation in one: silu(gate) * up, then groups of 128 or of 32 columns.

    ``power_of_two`` is for groups of 128, ``rounding`` for groups of 32.

    Shapes: gate_up [M, 2 F], a column of the gate before each of up's -> as ``quantize_1x128`` or
    ``quantize_1x32`` of [M, F]; F a multiple of 128.
    Rounds: the product stays in float32. Tolerance: the exponential of a backend may differ in the
    last bit, hence scales by 1e-6 of themselves and codes by one.
    """
    check_columns("gate_up", gate_up, 2 * GROUP)
    hidden = _swiglu(gate_up)
    if group == GROUP:
        return quantize_1x128(hidden, power_of_two=power_of_two)
    if group == MX_GROUP:
        return quantize_1x32(hidden, rounding=rounding)
    raise ValueError(f"The group is {group}; it must be {GROUP} or {MX_GROUP}.")


def dequantize_1x128(codes: Tensor, scale: Tensor) -> Tensor:
    """Codes [M, K] and scale [K / 128, M] back to float32 [M, K]."""
    check_columns("codes", codes)
    check_shape("scale", scale, (codes.shape[1] // GROUP, codes.shape[0]), torch.float32)
    return (codes.float().unflatten(1, (-1, GROUP)) * scale.t()[..., None]).flatten(1)


def dequantize_1x32(codes: Tensor, exponents: Tensor) -> Tensor:
    """Codes [M, K] and exponents [K / 128, M, 4] back to float32 [M, K]."""
    check_columns("codes", codes)
    num_rows, num_columns = codes.shape
    check_shape("exponents", exponents, (num_columns // GROUP, num_rows, 4), torch.uint8)
    scale = exponent_to_scale(exponents).transpose(0, 1).flatten(1)
    return (codes.float().unflatten(1, (-1, MX_GROUP)) * scale[..., None]).flatten(1)


def dequantize_128x128(codes: Tensor, scale: Tensor) -> Tensor:
    """Codes [N, K] and scale [ceil(N / 128), K / 128] back to float32 [N, K]."""
    check_columns("codes", codes)
    num_rows, num_columns = codes.shape
    check_shape("scale", scale, (-(-num_rows // GROUP), num_columns // GROUP), torch.float32)
    rows = scale.repeat_interleave(GROUP, dim=0)[:num_rows]
    return (codes.float().unflatten(1, (-1, GROUP)) * rows[..., None]).flatten(1)


def bsgemm(
    x: Tensor,
    x_scale: Tensor,
    weight: Tensor,
    weight_scale: Tensor,
    *,
    out_dtype: torch.dtype = torch.bfloat16,
    deterministic: bool = False,
) -> Tensor:
    """Multiply FP8 activations in 1x128 groups with FP8 weights in 128x128 blocks: x weight^T.

    With ``deterministic`` a row's result does not depend on how many rows there are.

    Shapes: x [M, K] FP8, x_scale [K / 128, M], weight [N, K] FP8, weight_scale
    [ceil(N / 128), K / 128] -> [M, N].
    Rounds: once, to ``out_dtype``; sums in float32. A GPU's tensor cores keep fewer bits inside of
    one block of 128, hence the tolerances in tests/kernels/tolerances.py.
    Source: the recipe of DeepGEMM, with its promotion to float32 after each 128 columns.
    """
    product = dequantize_1x128(x, x_scale) @ dequantize_128x128(weight, weight_scale).t()
    return product.to(out_dtype)


def w8a16_linear(
    x: Tensor, weight: Tensor, weight_scale: Tensor, *, deterministic: bool = False
) -> Tensor:
    """Multiply 16-bit activations with FP8 weights in 128x128 blocks: x weight^T.

    Shapes: x [M, K] bfloat16 or float16, weight [N, K] FP8, weight_scale
    [ceil(N / 128), K / 128] -> [M, N] in x's type (the reference takes float32 too).
    Rounds: once, at the end: every FP8 code is exact in 16 bits.
    """
    check_columns("x", x)
    product = x.float() @ dequantize_128x128(weight, weight_scale).t()
    return product.to(x.dtype)


def w8a16_swiglu(
    x: Tensor, weight: Tensor, weight_scale: Tensor, *, deterministic: bool = False
) -> Tensor:
    """``w8a16_linear``, then ``silu_mul``, in one: the product of gate and up is never written.

    Shapes: x [M, K], weight [2 F, K] FP8, a row of the gate before each of up's, weight_scale
    [ceil(2 F / 128), K / 128] -> [M, F] in x's type.
    Rounds: once, at the end. Tolerance: as ``silu_mul``.
    """
    check_columns("x", x)
    gate_up = x.float() @ dequantize_128x128(weight, weight_scale).t()
    return _swiglu(gate_up).to(x.dtype)


def mxfp8_linear(
    x: Tensor,
    x_exponents: Tensor,
    weight: Tensor,
    weight_exponents: Tensor,
    *,
    out_dtype: torch.dtype = torch.bfloat16,
    deterministic: bool = False,
) -> Tensor:
    """Multiply FP8 activations with FP8 weights, both in 1x32 groups (MXFP8): x weight^T.

    Shapes: x [M, K] FP8, x_exponents [K / 128, M, 4], weight [N, K] FP8, weight_exponents
    [K / 128, N, 4] -> [M, N]. Rounds: once, to ``out_dtype``; sums in float32.
    Source: OCP Microscaling Formats v1.0, section 6.2.
    """
    product = dequantize_1x32(x, x_exponents) @ dequantize_1x32(weight, weight_exponents).t()
    return product.to(out_dtype)


def check_shift(previous: Tensor, new: Tensor) -> None:
    """Refuse what ``prev_tokens_shift_`` does not take; nothing is cast or broadcast.

    Raises: ``ValueError`` naming both shapes and types.
    """
    fits = (
        previous.ndim == 3
        and previous.shape[1] > 0
        and new.shape == (previous.shape[0], previous.shape[2])
        and previous.dtype == new.dtype == torch.int32
        and previous.device == new.device
        and previous.is_contiguous()
        and new.is_contiguous()
    )
    if fits:
        return
    named = (
        f"{name} is {t.dtype} {list(t.shape)} on {t.device}"
        f"{'' if t.is_contiguous() else ', not contiguous'}"
        for name, t in (("previous", previous), ("new", new))
    )
    raise ValueError(
        f"{'; '.join(named)}. They must be torch.int32 [B, W, C] with W at least 1, and torch.int32"
        " [B, C], both contiguous and on one device."
    )


def prev_tokens_shift_(previous: Tensor, new: Tensor) -> Tensor:
    """Shift each row's window by one, in place: the oldest tokens fall out, the new ones go last.

    Shapes: previous int32 [B, W, C], oldest first, new int32 [B, C] -> previous itself. ``new`` may
    be a part of ``previous``: it is read first. Rounds: nothing.

    Raises: ``ValueError`` for any other shape, type, device or layout.
    """
    check_shift(previous, new)
    return previous.copy_(torch.cat((previous[:, 1:], new[:, None]), dim=1))


def check_norm(x: Tensor, weight: Tensor, residual: Tensor | None) -> None:
    """Refuse what the norms do not take.

    Raises: ``ValueError`` naming what does not fit.
    """
    if x.ndim != 2 or x.shape[1] == 0 or not x.is_contiguous():
        raise ValueError(
            f"x has the shape {list(x.shape)}; it must be a contiguous matrix with columns."
        )
    check_shape("weight", weight, (x.shape[1],), x.dtype)
    if residual is not None:
        check_shape("residual", residual, tuple(x.shape), x.dtype)


def residual_rms_norm(
    x: Tensor, weight: Tensor, eps: float, residual: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Add the residual stream, then norm: s = x + residual, s rsqrt(mean(s^2) + eps) weight.

    Shapes: x [N, E], weight [E], residual [N, E], all of one type -> the normed [N, E] and the sum
    [N, E]; without ``residual`` the sum is x itself.
    Rounds: the sum to the type; the norm is worked out in float32 from the rounded sum, rounded,
    and only then multiplied by the weight, which rounds again.
    Tolerance: two units of the type's last place, since the square root of a backend may differ.
    Source: the S2 architecture; its checkpoints are tuned to this order.
    """
    check_norm(x, weight, residual)
    total = x if residual is None else x + residual
    wide = total.float()
    root = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return (wide * root).to(x.dtype) * weight, total


def residual_rms_norm_quantize(
    x: Tensor,
    weight: Tensor,
    eps: float,
    residual: Tensor | None = None,
    *,
    group: int = GROUP,
    power_of_two: bool = False,
    rounding: str = "up",
) -> tuple[Tensor, Tensor, Tensor]:
    """Add the residual stream, norm, and quantise what ``residual_rms_norm`` gives.

    ``power_of_two`` is for groups of 128, ``rounding`` for groups of 32.

    Shapes: as ``residual_rms_norm``, E a multiple of 128 -> codes and scale as ``quantize_1x128``
    or ``quantize_1x32`` give them, and the sum [N, E].
    Tolerance: one code, where the norm differs in its last place.
    """
    check_columns("x", x)
    normed, total = residual_rms_norm(x, weight, eps, residual)
    if group == GROUP:
        return *quantize_1x128(normed, power_of_two=power_of_two), total
    if group == MX_GROUP:
        return *quantize_1x32(normed, rounding=rounding), total
    raise ValueError(f"The group is {group}; it must be {GROUP} or {MX_GROUP}.")

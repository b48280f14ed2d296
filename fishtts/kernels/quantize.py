"""The quantisers in Triton: one launch writes codes and scales.

Owns the schedule only; ``reference.py`` says what is computed. The jitted helpers are for other
kernels that end in FP8. Knows no product and no model.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fishtts.kernels.launch import launch_options, starts_early
from fishtts.kernels.reference import FP8, GROUP, MIN_AMAX, MX_GROUP, check_columns

_MIN_AMAX = tl.constexpr(MIN_AMAX)
_GROUPS_PER_PROGRAM = 4
"""Groups of 128 columns to a program: at one row, S2's 2,560 columns still feed five programs, and
a thread of four warps reads eight bytes of bf16."""


@triton.jit
def float_scale(amax, POWER_OF_TWO: tl.constexpr):
    """The scale of groups by their largest finite value: amax / 448, or the power of two above."""
    # A true division: the default one is an approximation on a GPU.
    scale = tl.div_rn(tl.maximum(amax, _MIN_AMAX), tl.full(amax.shape, 448.0, tl.float32))
    if POWER_OF_TWO:
        bits = (scale.to(tl.int32, bitcast=True) + 0x7FFFFF) & 0x7F800000
        scale = bits.to(tl.float32, bitcast=True)
    return scale


@triton.jit
def mx_exponent(amax, ROUND_UP: tl.constexpr):
    """The exponent byte of groups by their largest finite value, as int32."""
    if ROUND_UP:
        return float_scale(amax, True).to(tl.int32, bitcast=True) >> 23
    else:
        return (tl.maximum(amax, _MIN_AMAX).to(tl.int32, bitcast=True) >> 23) - 8


@triton.jit
def encode(scaled, is_finite):
    """Round scaled values to FP8, saturating; what is not finite becomes NaN."""
    codes = tl.minimum(tl.maximum(scaled, -448.0), 448.0)
    return tl.where(is_finite, codes, float("nan")).to(tl.float8e4nv)


@triton.jit
def is_finite(x):
    """Tell numbers from NaN and infinities."""
    return tl.abs(x) < float("inf")


@triton.jit
def store_1x128(
    x, codes_ptr, scale_ptr, row, groups, num_rows, num_groups, POWER_OF_TWO: tl.constexpr
):
    """Quantise x [groups, 128] of one row and write it."""
    mask = groups < num_groups
    finite = is_finite(x)
    amax = tl.max(tl.where(finite, tl.abs(x), 0.0), axis=1)
    scale = float_scale(amax, POWER_OF_TWO)
    # One division a group: a true one takes as long as everything else here together.
    inverse = tl.div_rn(tl.full(scale.shape, 1.0, tl.float32), scale)
    codes = encode(x * inverse[:, None], finite)
    at = (row.to(tl.int64) * num_groups + groups[:, None]) * 128 + tl.arange(0, 128)[None, :]
    tl.store(codes_ptr + at, codes, mask=mask[:, None])
    tl.store(scale_ptr + groups.to(tl.int64) * num_rows + row, scale, mask=mask)


@triton.jit
def store_1x32(
    x, codes_ptr, exponent_ptr, row, groups, num_rows, num_groups, ROUND_UP: tl.constexpr
):
    """Quantise x [groups, 32] of one row and write it."""
    mask = groups < num_groups
    finite = is_finite(x)
    amax = tl.max(tl.where(finite, tl.abs(x), 0.0), axis=1)
    exponent = mx_exponent(amax, ROUND_UP)
    inverse = ((254 - exponent) << 23).to(tl.float32, bitcast=True)
    codes = encode(x * inverse[:, None], finite)
    at = (row.to(tl.int64) * num_groups + groups[:, None]) * 32 + tl.arange(0, 32)[None, :]
    tl.store(codes_ptr + at, codes, mask=mask[:, None])
    place = ((groups // 4).to(tl.int64) * num_rows + row) * 4 + groups % 4
    tl.store(exponent_ptr + place, exponent.to(tl.uint8), mask=mask)


@triton.jit
def silu_mul_pairs(gate, up):
    """silu(gate) * up."""
    return gate / (1.0 + tl.exp(-gate)) * up


@triton.jit
def quantize_kernel(
    x_ptr,
    codes_ptr,
    scale_ptr,
    num_rows,
    num_groups,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
    SWIGLU: tl.constexpr,
    POWER_OF_TWO: tl.constexpr,
    ROUND_UP: tl.constexpr,
    PDL: tl.constexpr,
):
    """One row, ``GROUPS`` groups of it: x [rows, columns], or gate and up in turn."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    row = tl.program_id(0)
    groups = tl.program_id(1) * GROUPS + tl.arange(0, GROUPS)
    mask = (groups < num_groups)[:, None]
    width: tl.constexpr = 2 * GROUP if SWIGLU else GROUP
    columns = groups[:, None] * width + tl.arange(0, width)[None, :]
    start = x_ptr + row.to(tl.int64) * num_groups * width
    x = tl.load(start + columns, mask=mask, other=0.0).to(tl.float32)
    if SWIGLU:
        gate, up = tl.split(tl.reshape(x, (GROUPS, GROUP, 2)))
        x = silu_mul_pairs(gate, up)
    if GROUP == 128:
        store_1x128(x, codes_ptr, scale_ptr, row, groups, num_rows, num_groups, POWER_OF_TWO)
    else:
        store_1x32(x, codes_ptr, scale_ptr, row, groups, num_rows, num_groups, ROUND_UP)


@triton.jit
def silu_mul_kernel(x_ptr, out_ptr, num_columns, BLOCK: tl.constexpr, PDL: tl.constexpr):
    """``BLOCK`` columns of one row."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < num_columns
    pairs = tl.program_id(1) * (2 * BLOCK) + tl.arange(0, 2 * BLOCK)
    at = x_ptr + row * (2 * num_columns) + pairs
    x = tl.load(at, mask=pairs < 2 * num_columns, other=0.0).to(tl.float32)
    gate, up = tl.split(tl.reshape(x, (BLOCK, 2)))
    hidden = silu_mul_pairs(gate, up)
    tl.store(out_ptr + row * num_columns + columns, hidden.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def quantize_blocks_kernel(
    x_ptr, codes_ptr, scale_ptr, num_rows, num_columns, POWER_OF_TWO: tl.constexpr
):
    """One block of 128 rows and 128 columns."""
    rows = tl.program_id(0) * 128 + tl.arange(0, 128)
    columns = tl.program_id(1) * 128 + tl.arange(0, 128)
    at = rows.to(tl.int64)[:, None] * num_columns + columns[None, :]
    mask = (rows < num_rows)[:, None]
    x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    finite = is_finite(x)
    amax = tl.max(tl.max(tl.where(finite, tl.abs(x), 0.0), axis=1), axis=0)
    scale = float_scale(tl.full((1,), 0.0, tl.float32) + amax, POWER_OF_TWO)
    codes = encode(tl.div_rn(x, tl.broadcast_to(scale[:, None], x.shape)), finite)
    tl.store(codes_ptr + at, codes, mask=mask)
    place = tl.program_id(0) * (num_columns // 128) + tl.program_id(1) + tl.arange(0, 1)
    tl.store(scale_ptr + place, scale)


def _empty_scale(x: Tensor, num_columns: int, group: int) -> Tensor:
    num_rows = x.shape[0]
    if group == GROUP:
        shape: tuple[int, ...] = (num_columns // GROUP, num_rows)
        return torch.empty(shape, dtype=torch.float32, device=x.device)
    shape = (num_columns // GROUP, num_rows, GROUP // MX_GROUP)
    return torch.empty(shape, dtype=torch.uint8, device=x.device)


def run_quantize(
    x: Tensor,
    group: int,
    *,
    swiglu: bool = False,
    power_of_two: bool = False,
    rounding: str = "up",
    use_pdl: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """Quantise groups of 128 or 32 columns, with or without SwiGLU before, with or without PDL."""
    if group not in (GROUP, MX_GROUP):
        raise ValueError(f"The group is {group}; it must be {GROUP} or {MX_GROUP}.")
    if rounding not in ("up", "down"):
        raise ValueError(f'The rounding is "{rounding}"; it must be "up" or "down".')
    early = starts_early(x.device, use_pdl)
    num_rows, num_columns = x.shape[0], x.shape[1] // (2 if swiglu else 1)
    codes = torch.empty((num_rows, num_columns), dtype=FP8, device=x.device)
    scale = _empty_scale(x, num_columns, group)
    num_groups = num_columns // group
    groups = _GROUPS_PER_PROGRAM * GROUP // group
    quantize_kernel[(num_rows, triton.cdiv(num_groups, groups))](
        x.contiguous(),
        codes,
        scale,
        num_rows,
        num_groups,
        GROUP=group,
        GROUPS=groups,
        SWIGLU=swiglu,
        POWER_OF_TWO=power_of_two,
        ROUND_UP=rounding == "up",
        PDL=early,
        **launch_options(early),
    )
    return codes, scale


def quantize_1x128(x: Tensor, *, power_of_two: bool = False) -> tuple[Tensor, Tensor]:
    """See ``reference.quantize_1x128``."""
    check_columns("x", x)
    return run_quantize(x, GROUP, power_of_two=power_of_two)


def quantize_1x32(x: Tensor, *, rounding: str = "up") -> tuple[Tensor, Tensor]:
    """See ``reference.quantize_1x32``."""
    check_columns("x", x)
    return run_quantize(x, MX_GROUP, rounding=rounding)


def run_silu_mul(gate_up: Tensor, *, use_pdl: bool | None = None) -> Tensor:
    """SwiGLU with or without PDL."""
    check_columns("gate_up", gate_up, 2 * GROUP)
    early = starts_early(gate_up.device, use_pdl)
    num_rows, num_columns = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty((num_rows, num_columns), dtype=gate_up.dtype, device=gate_up.device)
    block = _GROUPS_PER_PROGRAM * GROUP
    silu_mul_kernel[(num_rows, triton.cdiv(num_columns, block))](
        gate_up.contiguous(), out, num_columns, BLOCK=block, PDL=early, **launch_options(early)
    )
    return out


def silu_mul(gate_up: Tensor) -> Tensor:
    """See ``reference.silu_mul``."""
    return run_silu_mul(gate_up)


def silu_mul_quantize(
    gate_up: Tensor, *, group: int = GROUP, power_of_two: bool = False, rounding: str = "up"
) -> tuple[Tensor, Tensor]:
    """See ``reference.silu_mul_quantize``. What lies between is never written."""
    check_columns("gate_up", gate_up, 2 * GROUP)
    return run_quantize(gate_up, group, swiglu=True, power_of_two=power_of_two, rounding=rounding)


def quantize_128x128(weight: Tensor, *, power_of_two: bool = False) -> tuple[Tensor, Tensor]:
    """See ``reference.quantize_128x128``."""
    check_columns("weight", weight)
    num_rows, num_columns = weight.shape
    grid = (triton.cdiv(num_rows, GROUP), num_columns // GROUP)
    codes = torch.empty((num_rows, num_columns), dtype=FP8, device=weight.device)
    scale = torch.empty(grid, dtype=torch.float32, device=weight.device)
    quantize_blocks_kernel[grid](
        weight.contiguous(),
        codes,
        scale,
        num_rows,
        num_columns,
        POWER_OF_TWO=power_of_two,
        num_warps=8,
        **launch_options(False),
    )
    return codes, scale

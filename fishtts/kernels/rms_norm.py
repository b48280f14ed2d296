"""The norm of a block in one launch: the residual sum before it, the quantiser after it.

Owns the schedule: one program has a row. ``reference.py`` says what is computed, and in which order
it rounds. Knows no product and no model.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from fishtts.kernels.checks import FP8, GROUP, check_columns
from fishtts.kernels.launch import launch_options, starts_early
from fishtts.kernels.quantize import store_1x32, store_1x128
from fishtts.kernels.reference import MX_GROUP, check_norm


@triton.jit
def rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    scale_ptr,
    total_ptr,
    eps,
    num_rows,
    num_columns,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
    QUANTIZED: tl.constexpr,
    POWER_OF_TWO: tl.constexpr,
    ROUND_UP: tl.constexpr,
    PDL: tl.constexpr,
):
    """One row as [GROUPS, GROUP], the groups being those of the quantiser.

    The weight does not depend on the kernel before: with PDL it comes while that one ends.
    """
    row = tl.program_id(0)
    groups = tl.arange(0, GROUPS)
    columns = groups[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    mask = columns < num_columns
    weight = tl.load(weight_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    start = row.to(tl.int64) * num_columns
    x = tl.load(x_ptr + start + columns, mask=mask, other=0.0)
    if residual_ptr is not None:
        residual = tl.load(residual_ptr + start + columns, mask=mask, other=0.0)
        x = (x.to(tl.float32) + residual.to(tl.float32)).to(x.dtype)
        tl.store(total_ptr + start + columns, x, mask=mask)
    wide = x.to(tl.float32)
    mean = tl.sum(tl.sum(wide * wide, axis=1), axis=0) / num_columns
    normed = (wide * tl.rsqrt(mean + eps)).to(x.dtype).to(tl.float32) * weight
    normed = normed.to(x.dtype)
    if not QUANTIZED:
        tl.store(out_ptr + start + columns, normed, mask=mask)
    else:
        wide = normed.to(tl.float32)
        count = num_columns // GROUP
        if GROUP == 128:
            store_1x128(wide, out_ptr, scale_ptr, row, groups, num_rows, count, POWER_OF_TWO)
        else:
            store_1x32(wide, out_ptr, scale_ptr, row, groups, num_rows, count, ROUND_UP)


def run_rms_norm(
    x: Tensor,
    weight: Tensor,
    eps: float,
    residual: Tensor | None,
    *,
    group: int | None = None,
    power_of_two: bool = False,
    rounding: str = "up",
    use_pdl: bool | None = None,
) -> tuple[Tensor, ...]:
    """Run either op, the quantised one where there is a ``group``, with or without PDL.

    Gives the normed and the sum, or codes, scale and the sum.
    """
    check_norm(x, weight, residual)
    if group not in (None, GROUP, MX_GROUP):
        raise ValueError(f"The group is {group}; it must be {GROUP} or {MX_GROUP}.")
    if rounding not in ("up", "down"):
        raise ValueError(f'The rounding is "{rounding}"; it must be "up" or "down".')
    early = starts_early(x.device, use_pdl)
    num_rows, num_columns = x.shape
    out = torch.empty(x.shape, dtype=x.dtype if group is None else FP8, device=x.device)
    total = x if residual is None else torch.empty_like(x)
    results: tuple[Tensor, ...] = (out, total)
    scale = out
    if group is not None:
        shape = (num_columns // GROUP, num_rows, *([] if group == GROUP else [4]))
        kind = torch.float32 if group == GROUP else torch.uint8
        scale = torch.empty(shape, dtype=kind, device=x.device)
        results = (out, scale, total)
    if not num_rows:
        return results
    size = group or GROUP
    groups = triton.next_power_of_2(triton.cdiv(num_columns, size))
    rms_norm_kernel[(num_rows,)](
        x,
        residual,
        weight,
        out,
        scale,
        total,
        eps,
        num_rows,
        num_columns,
        GROUP=size,
        GROUPS=groups,
        QUANTIZED=group is not None,
        POWER_OF_TWO=power_of_two,
        ROUND_UP=rounding == "up",
        PDL=early,
        num_warps=max(1, min(8, groups * size // 256)),
        **launch_options(early),
    )
    return results


def residual_rms_norm(
    x: Tensor, weight: Tensor, eps: float, residual: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """See ``reference.residual_rms_norm``."""
    normed, total = run_rms_norm(x, weight, eps, residual)
    return normed, total


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
    """See ``reference.residual_rms_norm_quantize``. What lies between is never written."""
    check_columns("x", x)
    codes, scale, total = run_rms_norm(
        x, weight, eps, residual, group=group, power_of_two=power_of_two, rounding=rounding
    )
    return codes, scale, total

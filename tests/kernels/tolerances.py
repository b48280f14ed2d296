"""How far a kernel may be from its reference, and why."""

from __future__ import annotations

import torch
from torch import Tensor

COSINE_LOSS = 1e-3
"""FP8 against bf16, one minus the normalised dot product: the limit that the field uses. Separate
from whether a kernel is its reference."""


def cosine_loss(ours: Tensor, theirs: Tensor) -> float:
    """One minus 2 a.b / (a.a + b.b), in float64."""
    a, b = ours.double().flatten(), theirs.double().flatten()
    return float(1 - 2 * (a @ b) / (a @ a + b @ b))


def assert_product_close(ours: Tensor, theirs: Tensor, magnitude: Tensor) -> None:
    """Compare a product with its reference on the same FP8 inputs.

    ``magnitude`` is |x| |w|^T: what was summed up. The output's own rounding may differ by one unit
    in its last place (2^-7 in bf16). Sums: on a CPU they differ by the order of float32 additions;
    Hopper's FP8 tensor cores keep 14 bits of a block's largest term, hence 2^-13 of the magnitude.
    """
    ours, theirs, magnitude = ours.float().cpu(), theirs.float().cpu(), magnitude.float().cpu()
    margin = theirs.abs() * 2.0**-7 + magnitude * 2.0**-13
    over = (ours - theirs).abs() > margin
    at = over.nonzero()
    assert ours.isfinite().all()
    assert not len(at), (
        f"{len(at)} of {over.numel()} values, the first at {at[0].tolist()}:"
        f" {ours[tuple(at[0])]} for {theirs[tuple(at[0])]}"
    )


ATTENTION_COSINE_LOSS = 3e-5
"""Weights and result rounded to bfloat16: 1e-5 is what a case with few terms gives."""

FP8_ATTENTION_COSINE_LOSS = 2e-3
"""Queries and weights in FP8 against the same keys and values and no further rounding: 1.3e-3 was
the most of 1,200 draws of standard normal queries and keys."""


def attention_limit(dtype: torch.dtype, values: Tensor, *, fp8_products: bool = False) -> float:
    """How far attention may be from its reference, by the largest value there is.

    Weights sum to one, so rounding each of them moves the mean by no more than that share of the
    largest value (2^-9 in bfloat16), and the rounding of the result may then fall the other way,
    which is one unit of its last place (2^-7). In float32 sums differ in their order only. With
    products in FP8 the limit is measured: 0.0162 was the most of the 1,200 draws named above.
    """
    largest = float(values.abs().max())
    if fp8_products:
        return 0.02 * largest
    return {torch.float32: 2e-6, torch.bfloat16: 2**-7, torch.float16: 2**-10}[dtype] * largest

"""How far a kernel may be from its reference, and why."""

from __future__ import annotations

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

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

"""What the ops refuse, in one wording; and the constants of FP8 that they share.

Owns no arithmetic. Knows no single op.
"""

from __future__ import annotations

import torch
from torch import Tensor

FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0
GROUP = 128
MIN_AMAX = 2.0**-96
"""Where a group's largest value is smaller, it counts as this: no scale is ever subnormal."""


def check_columns(name: str, tensor: Tensor, group: int = GROUP) -> None:
    """Refuse a matrix whose columns are not whole groups.

    Raises: ``ValueError`` naming the shape.
    """
    if tensor.ndim != 2 or tensor.shape[1] == 0 or tensor.shape[1] % group:
        raise ValueError(
            f"{name} has the shape {list(tensor.shape)}; it must be a matrix whose columns are a"
            f" multiple of {group}."
        )


def check_shape(name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Refuse a tensor of another shape, type or layout than the op documents.

    Raises: ``ValueError`` naming both.
    """
    if tuple(tensor.shape) != shape or tensor.dtype != dtype or not tensor.is_contiguous():
        layout = "" if tensor.is_contiguous() else ", not contiguous"
        raise ValueError(
            f"{name} is {tensor.dtype} {list(tensor.shape)}{layout}; it must be {dtype}"
            f" {list(shape)}, contiguous."
        )

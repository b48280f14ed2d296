"""The window of tokens drawn lately, shifted in place by one launch.

Owns the schedule only; ``reference.py`` says what is computed and refused.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from fishtts.kernels.launch import launch_options
from fishtts.kernels.reference import check_shift

_ELEMENTS = 4096
"""Of a program. Columns do not meet each other, so that a long window takes fewer of them."""


@triton.jit
def shift_kernel(
    previous_ptr, new_ptr, width, num_columns, BLOCK_W: tl.constexpr, BLOCK_C: tl.constexpr
):
    """Some columns of one row, the whole window: all is read before anything is written."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)[None, :]
    times = tl.arange(0, BLOCK_W)[:, None]
    start = previous_ptr + row * width * num_columns
    at = times * num_columns + columns
    is_inside = (times < width) & (columns < num_columns)
    is_old = (times < width - 1) & is_inside
    old = tl.load(start + at + num_columns, mask=is_old)
    new = tl.load(new_ptr + row * num_columns + columns + times * 0, mask=is_inside)
    # Another thread's element lies where this one writes.
    tl.debug_barrier()
    tl.store(start + at, tl.where(is_old, old, new), mask=is_inside)


def prev_tokens_shift_(previous: Tensor, new: Tensor) -> Tensor:
    """See ``reference.prev_tokens_shift_``."""
    check_shift(previous, new)
    num_rows, width, num_columns = previous.shape
    if previous.numel() == 0:
        return previous
    block_w = triton.next_power_of_2(width)
    block_c = min(triton.next_power_of_2(num_columns), max(1, _ELEMENTS // block_w))
    shift_kernel[(num_rows, triton.cdiv(num_columns, block_c))](
        previous,
        new,
        width,
        num_columns,
        BLOCK_W=block_w,
        BLOCK_C=block_c,
        num_warps=1 if block_w * block_c <= 1024 else 4,
        **launch_options(False),
    )
    return previous

"""Tiles of keys and values as the attention kernels read them, from pages or from plain tensors.

Owns where a position of a head lies, in the layouts that ``attention_reference.py`` documents.
Knows nothing of what is done with it.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_page_ids(table_ptr, first, end, PAGE: tl.constexpr, COUNT: tl.constexpr):
    """Pages of the tile that begins at position ``first``; 0 beyond the end."""
    places = tl.arange(0, COUNT)
    is_live = first + places * PAGE < end
    return tl.load(table_ptr + first // PAGE + places, mask=is_live, other=0).to(tl.int64)


@triton.jit
def load_keys(
    key_ptr,
    pages,
    first,
    end,
    group,
    G: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    FP8: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    """Keys [BLOCK_T, D] of the positions from ``first``, zeros at and beyond ``end``."""
    COUNT: tl.constexpr = BLOCK_T // PAGE
    inside = tl.arange(0, PAGE)
    if FP8:
        at = ((pages * G + group) * (PAGE * D))[:, None] + (inside * D)[None, :]
    else:
        at = (pages * (PAGE * G * D) + group * D)[:, None] + (inside * (G * D))[None, :]
    positions = first + (tl.arange(0, COUNT) * PAGE)[:, None] + inside[None, :]
    rows = tl.reshape(at, (BLOCK_T,))
    is_live = tl.reshape(positions < end, (BLOCK_T,))
    # A row lies together and begins at a multiple of its size: older compilers do not see that.
    at = tl.multiple_of(rows[:, None] + tl.arange(0, D)[None, :], (1, D))
    return tl.load(key_ptr + tl.max_contiguous(at, (1, D)), mask=is_live[:, None], other=0.0)


@triton.jit
def load_transposed_values(
    value_ptr,
    pages,
    first,
    end,
    group,
    G: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    """FP8 values [D, BLOCK_T] from pages that hold them so.

    Zeros in pages beyond ``end``; what its own page holds there comes along, and is finite.
    """
    inside = tl.arange(0, PAGE)[None, :]
    starts = tl.reshape(((pages * G + group) * (PAGE * D))[:, None] + inside, (BLOCK_T,))
    at = starts[None, :] + (tl.arange(0, D) * PAGE)[:, None]
    # What is read at once must be seen to lie together, and to be wanted together: a page's
    # positions do, but nobody can tell from what a table gives.
    at = tl.max_contiguous(tl.multiple_of(at, (1, PAGE)), (1, PAGE))
    places = tl.arange(0, BLOCK_T)
    is_live = tl.max_constancy(first + places // PAGE * PAGE < end, PAGE)
    return tl.load(value_ptr + at, mask=is_live[None, :], other=0.0)


@triton.jit
def load_scales(
    scale_ptr,
    pages,
    first,
    end,
    group,
    G: tl.constexpr,
    PAGE: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    """Scales [BLOCK_T] of a head's positions, zeros at and beyond ``end``."""
    COUNT: tl.constexpr = BLOCK_T // PAGE
    inside = tl.arange(0, PAGE)[None, :]
    positions = first + (tl.arange(0, COUNT) * PAGE)[:, None] + inside
    at = ((pages * G + group) * PAGE)[:, None] + inside
    scale = tl.load(scale_ptr + at, mask=positions < end, other=0.0)
    return tl.reshape(scale, (BLOCK_T,))


@triton.jit
def round_rows(x, AXIS: tl.constexpr):
    """Codes in FP8 and the scales that map them back, by the largest magnitude along an axis."""
    scale = tl.maximum(tl.max(tl.abs(x), axis=AXIS), 1e-30) * (1.0 / 448.0)
    return (x / tl.expand_dims(scale, AXIS)).to(tl.float8e4nv), scale

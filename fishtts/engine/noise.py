"""Uniform noise that depends on nothing but its key: seed, frame, draw, token id.

Owns the hash; the same integers come out on every device, in whatever order and beside whatever
else they are asked for. Knows nothing of what is drawn.
"""

from __future__ import annotations

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF
_FACTORS = (0x7FEB352D, 0x846CA68B - (1 << 32))
"""Multipliers of Wellons' 32-bit mixer ``lowbias32``, the second one less 2^32: so the product of
one with 32 bits fits into 64 with its sign, and nothing rests on how integers overflow."""

_SALT = 0x9E3779B9
_BITS = 23
"""With one half added this is what a float32 holds exactly, so that neither 0 nor 1 comes out."""


def seed_key(seed: int) -> int:
    """Mix a seed below 2^64, before the frame joins it: or one seed would be its neighbour, a frame
    late."""
    return int(_mix(_mix(torch.tensor(seed & _MASK)) ^ (seed >> 32)))


def draw_keys(seed_keys: Tensor, frames: Tensor, draws: Tensor) -> Tensor:
    """Key of each draw: int64 [B] seeds as mixed by ``seed_key``, [B] frames, [R] draws -> [B, R].

    Frames and draws are below 2^32.
    """
    return _mix(_mix(frames + seed_keys)[:, None] + _SALT * (draws + 1))


def uniforms(keys: Tensor, ids: Tensor) -> Tensor:
    """Uniform float32 in (0, 1), one for each token id below 2^32.

    Shapes: keys int64 [...], ids int64 [..., K] -> [..., K].
    """
    # Two rounds with the key before each: one alone would give keys that differ in few bits noise
    # that is the same up to the order of the ids.
    mixed = _mix(_mix(keys[..., None] + ids) ^ _mix(keys + _SALT)[..., None])
    return (mixed >> (32 - _BITS)).to(torch.float32).add_(0.5).mul_(0.5**_BITS)


def _mix(x: Tensor) -> Tensor:
    """A bijection of the low 32 bits of x in which every bit of x touches every bit."""
    x = x & _MASK
    x.bitwise_xor_(x >> 16).mul_(_FACTORS[0]).bitwise_and_(_MASK)
    x.bitwise_xor_(x >> 15).mul_(_FACTORS[1]).bitwise_and_(_MASK)
    return x.bitwise_xor_(x >> 16)

"""The keys of the noise: seed, frame and draw, mixed so that no two of them are neighbours.

Owns how a request's seed becomes keys; ``uniforms`` of the kernels' specification makes noise of
them and a token's id. Nothing else is in it: the same integers come out on every device, in
whatever order and beside whatever else they are asked for. Knows nothing of what is drawn.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fishtts.kernels.sampling_reference import SALT, mix

_MASK = 0xFFFFFFFF


def seed_key(seed: int) -> int:
    """Mix a seed below 2^64, before the frame joins it: or one seed would be its neighbour, a frame
    late."""
    return int(mix(mix(torch.tensor(seed & _MASK)) ^ (seed >> 32)))


def draw_keys(seed_keys: Tensor, frames: Tensor, draws: Tensor) -> Tensor:
    """Key of each draw: int64 [B] seeds as mixed by ``seed_key``, [B] frames, [R] draws -> [B, R].

    Frames and draws are below 2^32.
    """
    return mix(mix(frames + seed_keys)[:, None] + SALT * (draws + 1))

"""How causal convolutions are cut into tiles: pure functions of sizes, without torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConvPlan:
    """A tile of ``block_m`` positions and ``block_n + extra_n`` channels, ``block_k`` inputs at a
    time. All are powers of two, or zero."""

    block_m: int
    block_n: int
    block_k: int
    num_warps: int
    num_stages: int
    extra_n: int = 0


def plan_conv(num_out: int, num_in: int) -> ConvPlan:
    """Choose the tile of a convolution with so many channels out and in."""
    block_k = 64 if num_in % 64 == 0 else 32
    if num_out < 64:
        return ConvPlan(128, 16, block_k, 4, 4)
    if num_out % 128 == 0:
        return ConvPlan(128, 128, block_k, 8, 4)
    if num_out % 192 == 0:
        return ConvPlan(128, 128, block_k, 8, 4, extra_n=64)
    if num_out % 96 == 0:
        return ConvPlan(128, 64, block_k, 4, 4, extra_n=32)
    return ConvPlan(128, 64, block_k, 4, 4)


def plan_unit(num_channels: int) -> ConvPlan | None:
    """Choose the tile of a whole residual unit, or none where it is two convolutions.

    A tile holds all channels, twice: beyond 192 they do not fit.
    """
    if num_channels == 192:
        return ConvPlan(128, 128, 64, 8, 3, extra_n=64)
    if num_channels == 96:
        return ConvPlan(128, 64, 32, 8, 4, extra_n=32)
    if num_channels in (16, 32, 64, 128):
        return ConvPlan(128, num_channels, min(num_channels, 64), 8, 3)
    return None

"""How causal convolutions are cut into tiles: pure functions of sizes, without torch.

The tiles are the fastest of those that an H200 was given for the convolutions of S2's codec; see
docs/LOG.md. Those of its transformer's products were not timed yet. They do not depend on how many
positions there are, so that neither do the sums.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


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


_HOPPER_BYTES = 227 * 1024
_RESERVED_BYTES = 2048
"""Shared memory for barriers, beside the stages."""


def plan_conv(
    num_out: int, num_in: int, taps: int = 7, shared_bytes: int = _HOPPER_BYTES
) -> ConvPlan:
    """Choose the tile of a convolution with so many channels out and in, in a 16-bit type.

    ``shared_bytes`` is what a program may have; where it is less than on Hopper, tiles are smaller
    too, since their products are made from registers there.
    """
    block_k = 64 if num_in % 64 == 0 else 32
    if num_out < 64:
        return fitted(ConvPlan(256, 16, block_k, 8, 4), shared_bytes)
    if shared_bytes < _HOPPER_BYTES:
        plan = ConvPlan(128, 64, block_k, 4, 4, extra_n=32 if num_out % 96 == 0 else 0)
        return fitted(plan, shared_bytes)
    if num_out == 96:
        return ConvPlan(128, 64, 32, 4, 4, extra_n=32)
    if taps == 1 and num_out <= num_in and num_in >= 1024:
        # Products at the rate of frames: with larger tiles half of the GPU would have none.
        return ConvPlan(64, 64, block_k, 4, 6)
    if taps == 1 or num_out % 128:
        return ConvPlan(128, 64, block_k, 4, 4)
    if taps > 2 and num_out % 256 == 0:
        return ConvPlan(128, 256, block_k, 8, 3)
    return ConvPlan(128, 128, block_k, 4, 3)


def plan_unit(num_channels: int, shared_bytes: int = _HOPPER_BYTES) -> ConvPlan | None:
    """Choose the tile of a whole residual unit, or none where it is two convolutions.

    A tile holds all channels, twice: beyond 192 they do not fit.
    """
    is_small = shared_bytes < _HOPPER_BYTES
    if num_channels == 192:
        return None if is_small else ConvPlan(64, 128, 64, 4, 3, extra_n=64)
    if num_channels == 96:
        return fitted(ConvPlan(64 if is_small else 128, 64, 32, 4, 4, extra_n=32), shared_bytes)
    if num_channels in (16, 32, 64, 128):
        plan = ConvPlan(128, num_channels, min(num_channels, 64), 8, 3)
        return fitted(plan, shared_bytes)
    return None


def fitted(plan: ConvPlan, shared_bytes: int) -> ConvPlan:
    """Take as many stages as fit, two bytes a value."""
    stage_bytes = 2 * plan.block_k * (plan.block_m + plan.block_n + plan.extra_n)
    most = (shared_bytes - _RESERVED_BYTES) // stage_bytes
    return replace(plan, num_stages=min(plan.num_stages, most))

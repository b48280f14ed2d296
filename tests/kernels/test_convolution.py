"""The kernels of a convolutional decoder against what ``reference.py`` says they compute."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from fishtts.kernels import convolution, convolution_reference, signals, window_reference
from fishtts.kernels.convolution_plans import ConvPlan, plan_conv, plan_unit
from fishtts.kernels.window_attention import window_attention_
from tests.kernels.conftest import DEVICE

pytestmark = pytest.mark.usefixtures("poisoned")

HALF_ULP = 2**-10
"""A unit of the last place of float16, relative: sums in another order may round the other way."""


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float16) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype).to(DEVICE)


def alphas(channels: int) -> Tensor:
    return (0.5 + torch.rand(channels, generator=torch.Generator().manual_seed(9)) * 2).to(DEVICE)


def assert_near(made: Tensor, wanted: Tensor, scale: float = 1.0) -> None:
    assert made.dtype == wanted.dtype
    torch.testing.assert_close(
        made.float(), wanted.float(), rtol=2 * HALF_ULP, atol=scale * HALF_ULP
    )


def conv_operands(
    rows: int, length: int, num_in: int, num_out: int, taps: int, dilation: int
) -> tuple[Tensor, Tensor, Tensor]:
    signal = draw(rows, (taps - 1) * dilation + length, num_in)
    weight = (draw(num_out, taps, num_in, seed=1) / math.sqrt(taps * num_in)).to(signal.dtype)
    return signal, weight, draw(num_out, seed=2, dtype=torch.float32)


@pytest.mark.parametrize(
    ("plan", "rows", "length", "num_in", "num_out", "taps", "dilation", "stride"),
    [
        (ConvPlan(16, 16, 32, 4, 2), 2, 32, 32, 32, 7, 3, 1),  # whole tiles
        (ConvPlan(32, 16, 32, 4, 2), 3, 10, 40, 24, 3, 2, 1),  # none of the sizes is whole
        (ConvPlan(16, 32, 32, 4, 2), 2, 9, 32, 48, 2, 1, 4),  # a transposed one
        (ConvPlan(16, 64, 32, 4, 2, extra_n=32), 1, 20, 96, 96, 7, 1, 1),  # two tiles in one
        (ConvPlan(16, 16, 32, 4, 2), 2, 16, 32, 1, 7, 1, 1),  # to one channel
        (ConvPlan(32, 32, 32, 4, 2), 2, 8, 64, 64, 1, 1, 1),  # a product
    ],
)
def test_a_convolution_with_all_its_ends_is_the_reference_s(
    plan: ConvPlan,
    rows: int,
    length: int,
    num_in: int,
    num_out: int,
    taps: int,
    dilation: int,
    stride: int,
) -> None:
    operands = conv_operands(rows, length, num_in, num_out, taps, dilation)
    channels = num_out // stride
    ends: dict[str, Any] = {
        "dilation": dilation,
        "stride": stride,
        "residual": draw(rows, length * stride, channels, seed=3),
        "alpha": alphas(channels),
        "context": 3,
    }
    total, wave = convolution.run_causal_conv(plan, *operands, **ends)
    wanted_total, wanted_wave = convolution_reference.causal_conv(*operands, **ends)
    assert total is not None
    assert wave is not None
    assert wanted_total is not None
    assert wanted_wave is not None
    assert_near(total, wanted_total)
    # The activation is steep: it makes up to (1 + alpha) of an error of its input.
    assert_near(wave[:, 3:], wanted_wave[:, 3:], scale=2)


def test_a_convolution_gives_what_is_asked_for_and_no_more() -> None:
    operands = conv_operands(1, 16, 32, 16, 1, 1)
    total, wave = convolution.causal_conv(*operands, out_dtype=torch.float32)
    assert total is not None
    assert total.dtype == torch.float32
    assert wave is None
    total, wave = convolution.causal_conv(*operands, alpha=alphas(16), keep=False)
    assert total is None
    assert wave is not None


@pytest.mark.parametrize("num_in", [4, 20, 24])
def test_channels_of_no_whole_16_bytes_are_convolved_too(num_in: int) -> None:
    operands = conv_operands(2, 9, num_in, 8, 3, 1)
    total, _ = convolution.causal_conv(*operands)
    wanted, _ = convolution_reference.causal_conv(*operands)
    assert total is not None
    assert wanted is not None
    assert_near(total, wanted)


def test_a_row_s_sums_do_not_depend_on_who_is_beside_it() -> None:
    signal, weight, bias = conv_operands(5, 8, 32, 16, 3, 1)
    plan = ConvPlan(32, 16, 32, 4, 2)
    together, _ = convolution.run_causal_conv(plan, signal, weight, bias)
    assert together is not None
    for row in range(len(signal)):
        alone, _ = convolution.run_causal_conv(plan, signal[row : row + 1], weight, bias)
        assert alone is not None
        assert torch.equal(alone[0], together[row])


def test_what_is_too_large_for_half_precision_becomes_its_largest_value() -> None:
    signal = torch.full((1, 4, 32), 1000.0, dtype=torch.float16, device=DEVICE)
    weight = torch.full((16, 1, 32), 100.0, dtype=torch.float16, device=DEVICE)
    total, wave = convolution.causal_conv(
        signal, weight, torch.zeros(16, device=DEVICE), alpha=alphas(16)
    )
    assert total is not None
    assert wave is not None
    assert bool((total == 65504).all())
    assert bool((wave == 65504).all())


@pytest.mark.parametrize(("channels", "length"), [(16, 20), (96, 64), (192, 10)])
def test_a_residual_unit_is_the_reference_s(channels: int, length: int) -> None:
    signal, weight, bias = conv_operands(2, length, channels, channels, 7, 3)
    pointwise = (draw(channels, channels, seed=4) / math.sqrt(channels)).to(signal.dtype)
    pointwise_bias = draw(channels, seed=5, dtype=torch.float32)
    residual = draw(2, length, channels, seed=6)
    operands = (signal, weight, bias, alphas(channels), pointwise, pointwise_bias, residual)
    ends: dict[str, Any] = {"dilation": 3, "context": 6}
    total, wave = convolution.residual_unit(*operands, alphas(channels), **ends)
    wanted_total, wanted_wave = convolution_reference.residual_unit(
        *operands, alphas(channels), **ends
    )
    assert total is not None
    assert wanted_total is not None
    # What lies between is rounded, and may round the other way before it is summed.
    assert_near(total, wanted_total, scale=4)
    assert_near(wave[:, 6:], wanted_wave[:, 6:], scale=8)


@pytest.mark.parametrize("by_channel", [True, False])
def test_the_activation_is_the_reference_s(by_channel: bool) -> None:
    x, residual = draw(2, 19, 24) * 30, draw(2, 19, 24, seed=1)
    if not by_channel:
        x, residual = (each.mT.contiguous().mT for each in (x, residual))
    for other in (None, residual):
        total, signal = signals.snake(x, alphas(24), residual=other, context=5)
        wanted_total, wanted = convolution_reference.snake(x, alphas(24), residual=other, context=5)
        assert torch.equal(total, wanted_total)
        assert_near(signal[:, 5:], wanted[:, 5:], scale=1)


def test_the_past_is_put_in_front_and_the_end_is_kept() -> None:
    state = draw(4, 5, 24)
    slots = torch.tensor([2, 0, 3], device=DEVICE)
    is_new = torch.tensor([False, True, False], device=DEVICE)
    signal = draw(3, 5 + 12, 24, seed=1)
    wanted, wanted_state = signal.clone(), state.clone()
    convolution_reference.carry_context_(wanted, wanted_state, slots, is_new)
    signals.carry_context_(signal, state, slots, is_new)
    assert torch.equal(signal, wanted)
    assert torch.equal(state, wanted_state)


@pytest.mark.parametrize("channels", [24, 128])
def test_the_depthwise_convolution_and_its_norm_are_the_reference_s(channels: int) -> None:
    signal = draw(2, 6 + 9, channels)
    floats = [draw(channels, seed=seed, dtype=torch.float32) for seed in (2, 3, 4)]
    operands = (signal, draw(7, channels, seed=1, dtype=torch.float32), *floats, 1e-6)
    assert_near(
        signals.depthwise_norm(*operands), convolution_reference.depthwise_norm(*operands), scale=2
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("length", "window", "ring"), [(4, 6, 16), (8, 70, 80)])
def test_window_attention_is_the_reference_s(
    length: int, window: int, ring: int, dtype: torch.dtype
) -> None:
    rows, heads, size, steps = 3, 2, 64, 3 if window < 10 else 12
    angles = torch.rand(200, size // 2, generator=torch.Generator().manual_seed(7)) * 6
    turns = torch.stack((angles.cos(), angles.sin())).to(DEVICE)
    # What a slot held before its signal began must not be seen: it is not even a number.
    rings = torch.full((2, 5, heads, ring, size), float("nan"), dtype=dtype, device=DEVICE)
    wanted_rings = torch.zeros_like(rings)
    slots = torch.tensor([4, 0, 2], device=DEVICE)
    starts = torch.tensor([0, length, 3 * length], device=DEVICE)
    for step in range(steps):
        # Rows are at different positions; those that have not begun yet repeat their beginning.
        positions = (step * length - starts).clamp(min=0)
        qkv = draw(rows, length, 3, heads, size, seed=step, dtype=dtype)
        operands = (slots, positions, turns, window)
        made = window_attention_(qkv, rings, *operands)
        wanted = window_reference.window_attention_(qkv, wanted_rings, *operands)
        bound = 4e-6 if dtype == torch.float32 else 2 * HALF_ULP
        torch.testing.assert_close(made, wanted, rtol=bound, atol=2 * bound)


def test_what_does_not_fit_is_refused() -> None:
    signal, weight, bias = conv_operands(1, 8, 32, 16, 3, 1)
    with pytest.raises(ValueError, match="does not go with weights"):
        convolution.causal_conv(signal[:, :2], weight, bias)
    with pytest.raises(ValueError, match="does not hold 32"):
        convolution.run_residual_unit(
            ConvPlan(16, 16, 32, 4, 2),
            *(signal, draw(32, 3, 32), draw(32, dtype=torch.float32), alphas(32)),
            *(draw(32, 32), draw(32, dtype=torch.float32), draw(1, 8, 32), alphas(32)),
        )
    with pytest.raises(ValueError, match="at least twice as long"):
        signals.carry_context_(draw(1, 9, 4), draw(2, 5, 4), bias, bias)
    with pytest.raises(ValueError, match="do not go with rings"):
        window_attention_(draw(1, 4, 3, 2, 64), draw(2, 1, 2, 8, 64), bias[:1], bias[:1], bias, 6)


def test_plans_fit_into_what_a_gpu_has() -> None:
    for shared in (99 * 1024, 227 * 1024):
        plans = [
            plan_conv(n, k, taps, shared)
            for n in (1, 96, 192, 768)
            for k in (96, 768)
            for taps in (1, 2, 7)
        ]
        plans += [plan for n in (16, 64, 96, 128, 192) if (plan := plan_unit(n, shared))]
        for plan in plans:
            stage = 2 * plan.block_k * (plan.block_m + plan.block_n + plan.extra_n)
            assert plan.num_stages >= 2
            assert plan.num_stages * stage < shared

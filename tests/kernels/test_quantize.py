"""The Triton quantisers are their reference, byte for byte."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from fishtts.kernels import quantize as ours
from fishtts.kernels import reference

pytestmark = pytest.mark.usefixtures("poisoned")

ROWS = (1, 7, 16, 63, 100)


def odd_values(num_rows: int, num_columns: int, seed: int = 0) -> Tensor:
    """Values of many magnitudes with zeros, subnormals, NaN, infinities and ties among them."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(num_rows, num_columns, generator=draw)
    x *= (
        (torch.randn(num_rows, num_columns // 32, generator=draw) * 8)
        .exp()
        .repeat_interleave(32, 1)
    )
    special = torch.tensor(
        [0.0, -0.0, 1e-40, -1e-39, 1e38, float("nan"), float("inf"), -float("inf")]
    )
    places = torch.randint(0, num_columns, (num_rows, len(special)), generator=draw)
    x.scatter_(1, places, special.expand(num_rows, -1))
    x[:, :128] = 0.0
    x[0, :64] = 1.0625
    return x


def same_bytes(ours: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor]) -> None:
    for name, a, b in zip(("codes", "scale"), ours, theirs, strict=True):
        assert (a.shape, a.dtype, a.is_contiguous()) == (b.shape, b.dtype, True)
        left, right = (t.cpu().flatten().view(torch.uint8) for t in (a, b))
        differing = (left != right).nonzero().flatten()
        assert not len(differing), f"{name}: {len(differing)} bytes, the first at {differing[0]}"


@pytest.mark.parametrize("num_rows", ROWS)
def test_quantize_1x128_is_its_reference(num_rows: int, device: str) -> None:
    # Five groups do not fill two programs; many rows take long to interpret.
    x = odd_values(num_rows, 640 if num_rows < 16 else 256, seed=num_rows)
    for dtype, power_of_two in ((torch.float32, False), (torch.bfloat16, True)):
        x = x.to(dtype)
        same_bytes(
            ours.quantize_1x128(x.to(device), power_of_two=power_of_two),
            reference.quantize_1x128(x, power_of_two=power_of_two),
        )


@pytest.mark.parametrize("rounding", ["up", "down"])
@pytest.mark.parametrize("num_rows", ROWS)
def test_quantize_1x32_is_its_reference(num_rows: int, rounding: str, device: str) -> None:
    x = odd_values(num_rows, 384 if num_rows < 16 else 256, seed=num_rows).bfloat16()
    same_bytes(
        ours.quantize_1x32(x.to(device), rounding=rounding),
        reference.quantize_1x32(x, rounding=rounding),
    )


@pytest.mark.parametrize("num_rows", [1, 128, 200])
def test_quantize_128x128_is_its_reference(num_rows: int, device: str) -> None:
    weight = odd_values(num_rows, 256).bfloat16()
    same_bytes(ours.quantize_128x128(weight.to(device)), reference.quantize_128x128(weight))


def test_a_view_is_quantised_like_its_copy(device: str) -> None:
    x = odd_values(7, 512).bfloat16().to(device)[:, 128:384]
    same_bytes(ours.quantize_1x128(x), reference.quantize_1x128(x.cpu()))


@pytest.mark.parametrize("group", [128, 32])
@pytest.mark.parametrize("num_rows", ROWS)
def test_silu_mul_quantize_is_its_reference_but_for_the_exponential(
    num_rows: int, group: int, device: str
) -> None:
    gate_up = torch.randn(
        num_rows, 512, generator=torch.Generator().manual_seed(num_rows)
    ).bfloat16()
    codes, scale = ours.silu_mul_quantize(gate_up.to(device), group=group)
    wanted_codes, wanted_scale = reference.silu_mul_quantize(gate_up, group=group)
    if group == 128:
        torch.testing.assert_close(scale.cpu(), wanted_scale, rtol=1e-6, atol=0.0)
        steps = codes.cpu().view(torch.int8).int() - wanted_codes.view(torch.int8).int()
        assert steps.abs().max() <= 1
    else:
        # A group whose largest value lies on a power of two may take the next exponent.
        back, wanted = (
            reference.dequantize_1x32(c.cpu(), s.cpu())
            for c, s in ((codes, scale), (wanted_codes, wanted_scale))
        )
        assert ((scale.cpu().int() - wanted_scale.int()).abs() <= 1).all()
        torch.testing.assert_close(back, wanted, rtol=2.0**-3, atol=1e-3)


@pytest.mark.parametrize("num_rows", [1, 7])
def test_silu_mul_is_its_reference_but_for_the_exponential(num_rows: int, device: str) -> None:
    gate_up = torch.randn(num_rows, 1536, generator=torch.Generator().manual_seed(1)).bfloat16()
    hidden = ours.silu_mul(gate_up.to(device)).cpu()
    torch.testing.assert_close(hidden, reference.silu_mul(gate_up), rtol=2.0**-7, atol=1e-30)


def test_the_swish_of_extreme_gates_is_finite(device: str) -> None:
    gate_up = torch.zeros(1, 512)
    gate_up[0, 0:8:2] = torch.tensor([-1e4, 1e4, -89.0, 89.0])
    gate_up[0, 1::2] = 1.0
    # The interpreter warns where a GPU goes to infinity without a word.
    with np.errstate(over="ignore"):
        codes, scale = ours.silu_mul_quantize(gate_up.bfloat16().to(device))
    back = reference.dequantize_1x128(codes.cpu(), scale.cpu())
    assert back.isfinite().all()
    assert back[0, 0] == 0


def test_columns_and_options_are_checked_before_anything_runs(device: str) -> None:
    x = torch.zeros(2, 200, device=device)
    for quantize in (ours.quantize_1x128, ours.quantize_1x32, ours.quantize_128x128):
        with pytest.raises(ValueError, match="multiple of 128"):
            quantize(x)
    with pytest.raises(ValueError, match='"up" or "down"'):
        ours.quantize_1x32(torch.zeros(1, 128, device=device), rounding="nearest")

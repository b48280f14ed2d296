"""The specification itself: what the quantisers promise, also for odd values, and the layouts."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from fishtts.kernels import reference as ref
from fishtts.kernels.checks import MIN_AMAX
from tests.kernels.tolerances import COSINE_LOSS, cosine_loss

NAN, INF = float("nan"), float("inf")


def values(seed: int, num_rows: int, num_columns: int, spread: float) -> Tensor:
    """Random rows whose magnitudes differ by up to e^spread."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(num_rows, num_columns, generator=draw)
    return x * (torch.randn(num_rows, 1, generator=draw) * spread).exp()


shapes = st.tuples(
    st.integers(0, 2**32 - 1), st.sampled_from([1, 7, 16, 63, 100]), st.integers(1, 3)
)


@given(shapes, st.sampled_from([0.0, 2.0, 20.0]), st.booleans())
@example((213, 100, 1), 20.0, False)
def test_fp8_keeps_each_value_to_a_sixteenth_or_to_its_groups_smallest_step(
    shape: tuple[int, int, int], spread: float, power_of_two: bool
) -> None:
    seed, num_rows, groups = shape
    x = values(seed, num_rows, groups * 128, spread)
    forms = {
        128: ref.dequantize_1x128(*ref.quantize_1x128(x, power_of_two=power_of_two)),
        32: ref.dequantize_1x32(*ref.quantize_1x32(x)),
    }
    for group, back in forms.items():
        amax = x.unflatten(1, (-1, group)).abs().amax(2).repeat_interleave(group, 1)
        # Scales are not smaller than this one's: of groups below it little is left.
        amax = amax.clamp(min=MIN_AMAX)
        # Half a unit in the last of three places, or half a subnormal step of the largest scale.
        bound = torch.maximum(x.abs() / 16, amax / 224 * 2.0**-10) * (1 + 1e-6)
        assert ((back - x).abs() <= bound).all()


@given(shapes)
def test_a_power_of_two_scale_is_the_smallest_that_does_not_saturate(
    shape: tuple[int, int, int],
) -> None:
    seed, num_rows, groups = shape
    x = values(seed, num_rows, groups * 128, 5.0)
    _, scale = ref.quantize_1x128(x, power_of_two=True)
    amax = x.unflatten(1, (-1, 128)).abs().amax(2).t()
    assert (torch.frexp(scale)[0] == 0.5).all()
    assert (amax <= scale * 448 * (1 + 1e-6)).all()
    assert (amax > scale / 2 * 448 * (1 - 1e-6)).all()


def test_rounding_the_exponent_up_has_the_smaller_error() -> None:
    """Why it is the default: on normal, heavy-tailed and uniform values alike."""
    normal = values(0, 256, 1024, 0.0)
    for x in (normal, normal * values(1, 256, 1024, 0.0).exp(), torch.rand(256, 1024) - 0.5):
        error = {
            rounding: float(
                (ref.dequantize_1x32(*ref.quantize_1x32(x, rounding=rounding)) - x).norm()
            )
            for rounding in ("up", "down")
        }
        assert error["up"] < error["down"]


def test_the_ocp_rule_floors_the_exponent_and_saturates() -> None:
    x = torch.zeros(1, 128)
    x[0, 0], x[0, 32], x[0, 64] = 1.9, 1.0, 3.0
    codes, exponents = ref.quantize_1x32(x, rounding="down")
    assert exponents[0, 0].tolist()[:3] == [127 - 8, 127 - 8, 127 + 1 - 8]
    assert codes.float()[0, 0] == 448  # 1.9 * 256 = 486 is above the largest code
    up = ref.quantize_1x32(x)[1]
    assert up[0, 0].tolist()[:3] == [127 - 7, 127 - 8, 127 - 7]


@pytest.mark.parametrize("odd", [NAN, INF, -INF])
@pytest.mark.parametrize("form", ["1x128", "1x32", "128x128"])
def test_what_is_not_finite_becomes_nan_alone(odd: float, form: str) -> None:
    x = values(3, 2, 256, 0.0)
    clean = x.clone()
    clean[1, 5] = 0.0
    x[1, 5] = odd
    quantize = getattr(ref, f"quantize_{form}")
    (codes, scale), (clean_codes, clean_scale) = quantize(x), quantize(clean)
    assert codes.view(torch.uint8)[1, 5] == 0x7F
    assert torch.equal(scale, clean_scale)
    same = codes.view(torch.uint8) == clean_codes.view(torch.uint8)
    assert same.sum() == same.numel() - 1


@pytest.mark.parametrize("form", ["1x128", "1x32", "128x128"])
@pytest.mark.parametrize("tiny", [0.0, 2.0**-133, 1e-40, -1e-38])
def test_zeros_and_subnormals_quantise_to_zeros_with_a_usable_scale(form: str, tiny: float) -> None:
    codes, scale = getattr(ref, f"quantize_{form}")(torch.full((1, 128), tiny))
    assert (codes.float() == 0).all()
    as_float = ref.exponent_to_scale(scale) if scale.dtype == torch.uint8 else scale
    assert (as_float >= 2.0**-126).all()
    assert as_float.isfinite().all()


def test_exponents_are_the_bits_of_their_scale() -> None:
    x = values(4, 5, 256, 30.0) * 1e20
    for rounding in ("up", "down"):
        _, exponents = ref.quantize_1x32(x, rounding=rounding)
        bits = (exponents.int() << 23).view(torch.float32)
        assert torch.equal(bits, ref.exponent_to_scale(exponents))
        assert exponents.min() >= 1
        assert exponents.max() <= 247
    assert math.isnan(ref.exponent_to_scale(torch.tensor([255], dtype=torch.uint8)).item())


@pytest.mark.parametrize("form", ["bsfp8", "w8a16", "mxfp8"])
@pytest.mark.parametrize("shape", [(1, 64, 128), (16, 200, 384), (63, 128, 640)])
def test_fp8_products_stay_near_the_bf16_product(form: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    x, weight = values(5, m, k, 1.0).bfloat16(), (values(6, n, k, 0.3) / 20).bfloat16()
    if form == "bsfp8":
        ours = ref.bsgemm(*ref.quantize_1x128(x), *ref.quantize_128x128(weight))
    elif form == "w8a16":
        ours = ref.w8a16_linear(x, *ref.quantize_128x128(weight))
    else:
        ours = ref.mxfp8_linear(*ref.quantize_1x32(x), *ref.quantize_1x32(weight))
    assert ours.dtype == torch.bfloat16
    assert cosine_loss(ours, x.float() @ weight.float().t()) < COSINE_LOSS


def test_swiglu_then_quantise_is_both_in_one() -> None:
    gate_up = values(7, 16, 512, 1.0).bfloat16()
    gate, up = gate_up.float()[:, 0::2], gate_up.float()[:, 1::2]
    hidden = torch.nn.functional.silu(gate) * up
    for group, back in ((128, ref.dequantize_1x128), (32, ref.dequantize_1x32)):
        ours = back(*ref.silu_mul_quantize(gate_up, group=group))
        assert cosine_loss(ours, hidden) < COSINE_LOSS


@pytest.mark.parametrize("num_columns", [0, 64, 130, 192])
def test_columns_that_are_no_multiple_of_128_are_refused(num_columns: int) -> None:
    x = torch.zeros(4, num_columns)
    for quantize in (ref.quantize_1x128, ref.quantize_1x32, ref.quantize_128x128):
        with pytest.raises(ValueError, match=f"4, {num_columns}.*multiple of 128"):
            quantize(x)
    with pytest.raises(ValueError, match="multiple of 256"):
        ref.silu_mul_quantize(torch.zeros(4, 128))


def test_wrong_options_and_scales_are_refused() -> None:
    codes, scale = ref.quantize_1x128(values(8, 7, 256, 0.0))
    with pytest.raises(ValueError, match=r"\[7, 2\].*must be .*\[2, 7\]"):
        ref.dequantize_1x128(codes, scale.t().contiguous())
    with pytest.raises(ValueError, match="not contiguous"):
        ref.dequantize_1x128(codes, torch.empty(7, 2).t())
    with pytest.raises(ValueError, match=r'"nearest".*"up" or "down"'):
        ref.quantize_1x32(torch.zeros(1, 128), rounding="nearest")
    with pytest.raises(ValueError, match=r"64.*128 or 32"):
        ref.silu_mul_quantize(torch.zeros(1, 256), group=64)


def test_a_quantised_layer_survives_its_file(tmp_path: Path) -> None:
    """Layouts show in shapes: making everything contiguous, as the format does, loses nothing."""
    x, weight = values(9, 7, 384, 0.5).bfloat16(), values(10, 200, 384, 0.5).bfloat16()
    layer = dict(zip(("codes", "scale"), ref.quantize_128x128(weight), strict=True))
    layer |= dict(zip(("mx_codes", "exponents"), ref.quantize_1x32(weight), strict=True))
    assert all(tensor.is_contiguous() for tensor in layer.values())
    save_file(layer, tmp_path / "layer.safetensors")
    back = load_file(tmp_path / "layer.safetensors")
    for activations, op, names in (
        (ref.quantize_1x128(x), ref.bsgemm, ("codes", "scale")),
        (ref.quantize_1x32(x), ref.mxfp8_linear, ("mx_codes", "exponents")),
    ):
        before, after = (op(*activations, *(file[n] for n in names)) for file in (layer, back))
        assert torch.equal(before, after)

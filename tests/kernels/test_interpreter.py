"""The mended interpreter: without this, no test of a kernel on a CPU would mean anything."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl

from tests.kernels.conftest import IS_INTERPRETED

pytestmark = pytest.mark.skipif(not IS_INTERPRETED, reason="kernels are compiled here")


@triton.jit
def _copy(source_ptr, target_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(target_ptr + at, tl.load(source_ptr + at).to(target_ptr.dtype.element_ty))


@triton.jit
def _multiply(a_ptr, b_ptr, out_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    product = tl.dot(tl.load(a_ptr + at), tl.trans(tl.load(b_ptr + at)))
    tl.store(out_ptr + at, product)


def cast(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    size = triton.next_power_of_2(len(values))
    source = torch.zeros(size, dtype=values.dtype)
    source[: len(values)] = values
    target = torch.zeros(size, dtype=dtype)
    _copy[(1,)](source, target, SIZE=size)
    return target[: len(values)]


FP8 = torch.float8_e4m3fn
ALL_CODES = torch.arange(256, dtype=torch.uint8).view(FP8)


def test_casts_to_fp8_round_to_nearest_even_and_saturate() -> None:
    values = torch.tensor([1.0625, -31.6, 124.3, 500.0, -1e9, 464.0, 2.0**-10, 3 * 2.0**-10, 0.0])
    wanted = torch.tensor([1.0, -32.0, 128.0, 448.0, -448.0, 448.0, 0.0, 2.0**-8, 0.0])
    assert torch.equal(cast(values, FP8).float(), wanted)
    assert cast(torch.tensor([float("nan")]), FP8).float().isnan().all()


def test_casts_to_fp8_are_exact_next_to_every_code_and_every_tie() -> None:
    finite = ALL_CODES.float()[ALL_CODES.float().isfinite()].sort().values
    ties = (finite[1:] + finite[:-1]) / 2
    around = torch.cat(
        [finite, ties, torch.nextafter(ties, ties + 1), torch.nextafter(ties, -ties)]
    )
    assert torch.equal(cast(around, FP8).float(), around.clamp(-448, 448).to(FP8).float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_fp8_code_is_exact_in_wider_types(dtype: torch.dtype) -> None:
    assert torch.equal(cast(ALL_CODES, dtype).nan_to_num(9e3), ALL_CODES.to(dtype).nan_to_num(9e3))


def test_casts_to_bfloat16_carry_and_round_ties_to_even() -> None:
    values = torch.cat([torch.randn(1000), torch.tensor([1.99999, 1.00390625, 1.01171875])])
    assert torch.equal(cast(values, torch.bfloat16), values.bfloat16())


def test_products_of_bfloat16_are_products_of_numbers() -> None:
    a, b = torch.randn(2, 16, 16).bfloat16()
    out = torch.zeros(16, 16)
    _multiply[(1,)](a, b, out, SIZE=16)
    torch.testing.assert_close(out, a.float() @ b.float().t())

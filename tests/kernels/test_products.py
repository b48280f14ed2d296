"""The Triton products are their references on the same FP8 inputs, however they are cut."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

import triton

from fishtts.kernels import reference
from fishtts.kernels.block_scaled import (
    bsgemm,
    run_block_scaled,
    w8a16_linear,
    w8a16_swiglu,
)
from fishtts.kernels.launch import counters, gpu_facts
from fishtts.kernels.mxfp8 import mxfp8_linear, run_mxfp8
from fishtts.kernels.plans import Plan
from tests.kernels.conftest import IS_INTERPRETED
from tests.kernels.tolerances import COSINE_LOSS, assert_product_close, cosine_loss

pytestmark = pytest.mark.usefixtures("poisoned")

TOKENS = (1, 7, 16, 63, 100)
PLAN = Plan(block_n=64, block_m=16, splits=1, num_stages=3)
CAN_SCALE_BLOCKS = not IS_INTERPRETED or tuple(map(int, triton.__version__.split(".")[:2])) >= (
    3,
    8,
)
"""Older interpreters do not know ``tl.dot_scaled``."""


def inputs(num_tokens: int, num_rows: int, num_columns: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(num_tokens)
    x = torch.randn(num_tokens, num_columns, generator=draw)
    x *= torch.randn(num_tokens, 1, generator=draw).exp()
    weight = torch.randn(num_rows, num_columns, generator=draw) / num_columns**0.5
    return x.bfloat16(), weight.bfloat16()


def moved(tensors: tuple[Tensor, ...], device: str) -> tuple[Tensor, ...]:
    return tuple(tensor.to(device) for tensor in tensors)


def magnitude(x: Tensor, weight: Tensor) -> Tensor:
    return x.float().abs() @ weight.float().abs().t()


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("num_tokens", TOKENS)
def test_bsgemm_is_its_reference(num_tokens: int, deterministic: bool, device: str) -> None:
    x, weight = inputs(num_tokens, 200, 384)
    operands = (*reference.quantize_1x128(x), *reference.quantize_128x128(weight))
    product = bsgemm(*moved(operands, device), deterministic=deterministic)
    wanted = reference.bsgemm(*operands)
    assert product.dtype == wanted.dtype == torch.bfloat16
    assert_product_close(product, wanted, magnitude(x, weight))
    assert cosine_loss(product.cpu(), x.float() @ weight.float().t()) < COSINE_LOSS


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("num_tokens", TOKENS)
def test_w8a16_is_its_reference(num_tokens: int, dtype: torch.dtype, device: str) -> None:
    x, weight = inputs(num_tokens, 200, 256)
    x = x.to(dtype)
    operands = (x, *reference.quantize_128x128(weight))
    product = w8a16_linear(*moved(operands, device))
    assert product.dtype == dtype
    assert_product_close(product, reference.w8a16_linear(*operands), magnitude(x, weight))
    assert cosine_loss(product.cpu(), x.float() @ weight.float().t()) < COSINE_LOSS


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("num_tokens", [1, 7, 63])
def test_a_product_that_ends_in_swiglu_is_its_reference(
    num_tokens: int, deterministic: bool, device: str
) -> None:
    x, weight = inputs(num_tokens, 200, 384)
    operands = (x, *reference.quantize_128x128(weight))
    hidden = w8a16_swiglu(*moved(operands, device), deterministic=deterministic)
    assert hidden.shape == (num_tokens, 100)
    gate_up = reference.w8a16_linear(x.float(), *operands[1:])
    # What the sums of gate and up may be off by, each scaled by the other factor.
    assert_product_close(
        hidden,
        reference.w8a16_swiglu(*operands),
        (gate_up.abs() + 1)[:, 0::2] * (gate_up.abs() + 1)[:, 1::2],
    )


def test_swiglu_needs_an_even_number_of_rows(device: str) -> None:
    x, weight = inputs(1, 201, 128)
    with pytest.raises(ValueError, match="201 rows"):
        w8a16_swiglu(*moved((x, *reference.quantize_128x128(weight)), device))


@pytest.mark.parametrize("num_tokens", TOKENS)
def test_mxfp8_is_its_reference(num_tokens: int, device: str) -> None:
    x, weight = inputs(num_tokens, 200, 256)
    operands = (*reference.quantize_1x32(x), *reference.quantize_1x32(weight))
    product = mxfp8_linear(*moved(operands, device))
    assert_product_close(product, reference.mxfp8_linear(*operands), magnitude(x, weight))
    assert cosine_loss(product.cpu(), x.float() @ weight.float().t()) < COSINE_LOSS


@pytest.mark.skipif(not CAN_SCALE_BLOCKS, reason="this interpreter has no dot_scaled")
@pytest.mark.parametrize("num_tokens", [1, 63])
def test_block_scaled_instructions_compute_the_same(num_tokens: int, device: str) -> None:
    x, weight = inputs(num_tokens, 100, 256)
    operands = (*reference.quantize_1x32(x), *reference.quantize_1x32(weight))
    product = run_mxfp8(
        replace(PLAN, splits=2), *moved(operands, device), torch.bfloat16, native=True
    )
    assert_product_close(product, reference.mxfp8_linear(*operands), magnitude(x, weight))


@pytest.mark.parametrize("use_tma", [True, False])
@pytest.mark.parametrize("splits", [1, 2, 5, 8])
@pytest.mark.parametrize("block_n", [64, 128])
def test_every_cut_computes_the_same(block_n: int, splits: int, use_tma: bool, device: str) -> None:
    """Also splits that do not divide the columns, or are more than there are column blocks."""
    if use_tma and not gpu_facts(torch.device(device)).has_tma:
        pytest.skip("this GPU has no TMA")
    x, weight = inputs(7, 168, 640)
    operands = (*reference.quantize_1x128(x), *reference.quantize_128x128(weight))
    plan = Plan(block_n, 32, splits, 2, num_warps=4 if block_n == 64 else 8, use_tma=use_tma)
    plan = replace(plan, use_token_tma=use_tma and splits > 1)
    product = run_block_scaled(plan, *moved(operands, device), torch.float32)
    assert_product_close(product, reference.bsgemm(*operands), magnitude(x, weight))


@pytest.mark.parametrize("form", ["bsfp8", "mxfp8"])
def test_products_of_many_tiles_are_made_in_several_launches(
    form: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fishtts.kernels.block_scaled.MAX_TILES", 8)
    x, weight = inputs(100, 136, 256)
    plan = replace(PLAN, splits=2)  # three tiles of rows, seven of tokens
    if form == "bsfp8":
        operands = (*reference.quantize_1x128(x), *reference.quantize_128x128(weight))
        product = run_block_scaled(plan, *moved(operands, device), torch.float32)
        wanted = reference.bsgemm(*operands)
    else:
        operands = (*reference.quantize_1x32(x), *reference.quantize_1x32(weight))
        product = run_mxfp8(plan, *moved(operands, device), torch.float32, native=False)
        wanted = reference.mxfp8_linear(*operands)
    assert_product_close(product, wanted, magnitude(x, weight))


@pytest.mark.parametrize("form", ["bsfp8", "w8a16", "mxfp8"])
def test_deterministic_rows_do_not_depend_on_their_neighbours(form: str, device: str) -> None:
    x, weight = inputs(100, 136, 384)
    whole = _product(form, x, weight, device)
    for start, end in ((0, 1), (5, 12), (30, 93)):
        assert torch.equal(_product(form, x[start:end], weight, device), whole[start:end])


def _product(form: str, x: Tensor, weight: Tensor, device: str) -> Tensor:
    if form == "w8a16":
        operands = moved((x, *reference.quantize_128x128(weight)), device)
        return w8a16_linear(*operands, deterministic=True)
    if form == "bsfp8":
        operands = (*reference.quantize_1x128(x), *reference.quantize_128x128(weight))
        return bsgemm(*moved(operands, device), deterministic=True)
    operands = (*reference.quantize_1x32(x), *reference.quantize_1x32(weight))
    return mxfp8_linear(*moved(operands, device), deterministic=True)


def test_split_products_repeat_bit_for_bit_and_leave_their_counters_at_zero(device: str) -> None:
    x, weight = inputs(16, 200, 640)
    operands = moved((*reference.quantize_1x128(x), *reference.quantize_128x128(weight)), device)
    plan = replace(PLAN, splits=5)
    first, second = (run_block_scaled(plan, *operands, torch.float32) for _ in range(2))
    assert torch.equal(first, second)
    assert not counters(torch.device(operands[0].device)).any()


def test_a_nan_reaches_its_own_row_and_no_other(device: str) -> None:
    x, weight = inputs(7, 64, 256)
    x[3, 130] = float("nan")
    operands = (*reference.quantize_1x128(x), *reference.quantize_128x128(weight))
    product = bsgemm(*moved(operands, device)).cpu()
    assert product[3].isnan().all()
    assert product[[0, 1, 2, 4, 5, 6]].isfinite().all()


def test_operands_that_do_not_fit_are_named(device: str) -> None:
    x, weight = inputs(7, 64, 256)
    codes, scale, w_codes, w_scale = moved(
        (*reference.quantize_1x128(x), *reference.quantize_128x128(weight)), device
    )
    with pytest.raises(ValueError, match="x_scale is"):
        bsgemm(codes, scale.t().contiguous(), w_codes, w_scale)
    with pytest.raises(ValueError, match="weight_scale is"):
        bsgemm(codes, scale, w_codes, w_scale.t().contiguous())
    with pytest.raises(ValueError, match=r"x is .*must be .*float8"):
        bsgemm(x.to(device), scale, w_codes, w_scale)
    with pytest.raises(ValueError, match="weight is"):
        bsgemm(codes, scale, w_codes[:, :128], w_scale)
    with pytest.raises(ValueError, match="multiple of 128"):
        bsgemm(codes[:, :200].contiguous(), scale, w_codes, w_scale)
    with pytest.raises(ValueError, match="bfloat16 or"):
        w8a16_linear(x.float().to(device), w_codes, w_scale)

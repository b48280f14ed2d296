"""The norm of a block: the residual sum before it, the quantiser after it, in the order of S2."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from fishtts.kernels import reference
from fishtts.kernels.rms_norm import residual_rms_norm, residual_rms_norm_quantize, run_rms_norm
from fishtts.models.dual_ar.net import rms_norm
from tests.kernels.conftest import DEVICE, IS_INTERPRETED

pytestmark = pytest.mark.usefixtures("poisoned")

EPS = 1e-6
UNITS = {torch.float32: 2e-6, torch.bfloat16: 2**-6}


def inputs(rows: int, width: int, dtype: torch.dtype, has_residual: bool):
    draw = torch.Generator().manual_seed(rows * 7919 + width)
    x, residual = (torch.randn(rows, width, generator=draw) for _ in range(2))
    x *= torch.randn(rows, 1, generator=draw).exp()
    weight = 1 + torch.randn(width, generator=draw) / 4
    tensors = [t.to(dtype).to(DEVICE) for t in (x, weight, residual)]
    return tensors[0], tensors[1], EPS, tensors[2] if has_residual else None


@pytest.mark.parametrize("has_residual", [False, True])
@pytest.mark.parametrize("dtype", UNITS)
@pytest.mark.parametrize(("rows", "width"), [(1, 2560), (3, 1), (9, 100), (0, 64)])
def test_the_norm_is_its_reference(
    rows: int, width: int, dtype: torch.dtype, has_residual: bool
) -> None:
    given = inputs(rows, width, dtype, has_residual)
    (ours, total), (theirs, sums) = residual_rms_norm(*given), reference.residual_rms_norm(*given)
    assert ours.dtype == dtype
    torch.testing.assert_close(ours, theirs, rtol=UNITS[dtype], atol=1e-30)
    assert torch.equal(total, sums)
    if IS_INTERPRETED:
        # Nearly all are the same, or the order of rounding is another.
        assert float((ours != theirs).float().mean() if rows else 0) < 0.02 or dtype.itemsize == 4


@pytest.mark.parametrize("dtype", UNITS)
def test_the_reference_is_the_model_s_own_arithmetic(dtype: torch.dtype) -> None:
    x, weight, eps, _ = inputs(5, 2560, dtype, False)
    ours, total = reference.residual_rms_norm(x, weight, eps)
    torch.testing.assert_close(ours, rms_norm(x, weight, eps), rtol=UNITS[dtype] / 4, atol=0)
    assert total is x


def test_the_weight_multiplies_what_is_rounded_already() -> None:
    """In bfloat16 the other order gives other numbers, in one of six places or so."""
    x, weight, eps, _ = inputs(4, 512, torch.bfloat16, False)
    root = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)
    rounded_late = (x.float() * root * weight.float()).bfloat16()
    for op in (residual_rms_norm, reference.residual_rms_norm):
        assert float((op(x, weight, eps)[0] != rounded_late).float().mean()) > 0.05


def assert_quantised(ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...]) -> None:
    (codes, scale, total), (wanted, wanted_scale, wanted_total) = ours, theirs
    assert (codes.shape, scale.shape) == (wanted.shape, wanted_scale.shape)
    assert torch.equal(total, wanted_total)
    if scale.dtype == torch.uint8:
        assert int((scale.int() - wanted_scale.int()).abs().max()) <= 1
        is_same = (scale == wanted_scale).transpose(0, 1).flatten(1).repeat_interleave(32, dim=1)
    else:
        torch.testing.assert_close(scale, wanted_scale, rtol=2**-6, atol=0)
        is_same = torch.ones_like(codes, dtype=torch.bool)
    near = (codes.view(torch.uint8).int() - wanted.view(torch.uint8).int()).abs()
    assert int(near[is_same].max()) <= 1
    assert float((near > 0).float().mean()) < 0.1


@pytest.mark.parametrize("has_residual", [False, True])
@pytest.mark.parametrize(
    "options",
    [{}, {"power_of_two": True}, {"group": 32}, {"group": 32, "rounding": "down"}],
    ids=["128", "128-power", "32-up", "32-down"],
)
@pytest.mark.parametrize(("rows", "width"), [(1, 2560), (9, 384)])
def test_quantised_it_is_its_reference(
    rows: int, width: int, options: dict, has_residual: bool
) -> None:
    given = inputs(rows, width, torch.bfloat16, has_residual)
    ours = residual_rms_norm_quantize(*given, **options)
    assert_quantised(ours, reference.residual_rms_norm_quantize(*given, **options))


def test_what_does_not_fit_is_refused() -> None:
    x, weight, eps, residual = inputs(3, 128, torch.bfloat16, True)
    for operands, options, complaint in [
        ((x, weight.float(), eps), {}, "weight is torch.float32"),
        ((x, weight[:64], eps), {}, "weight is"),
        ((x[None], weight, eps), {}, "x has the shape"),
        ((x, weight, eps, residual[:1]), {}, "residual is"),
        ((x, weight, eps, residual.float()), {}, "residual is"),
        ((x, weight, eps), {"group": 64}, "group is 64"),
    ]:
        op = residual_rms_norm_quantize if options else residual_rms_norm
        with pytest.raises(ValueError, match=complaint):
            op(*operands, **options)
    with pytest.raises(ValueError, match="multiple of 128"):
        residual_rms_norm_quantize(x[:, :100].contiguous(), weight[:100].contiguous(), eps)


@pytest.mark.gpu
@pytest.mark.parametrize("use_pdl", [False, True])
@pytest.mark.parametrize("group", [None, 128, 32])
def test_a_replayed_graph_norms_what_is_there_then(group: int | None, use_pdl: bool) -> None:
    x, weight, eps, residual = inputs(64, 2560, torch.bfloat16, True)
    options = {"group": group, "use_pdl": use_pdl}
    run_rms_norm(x, weight, eps, residual, **options)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        first = run_rms_norm(x, weight, eps, residual, **options)
        results = run_rms_norm(first[-1], weight, eps, residual, **options)
    for step in range(3):
        x.copy_(torch.randn_like(x) * (step + 1))
        graph.replay()
        total = run_rms_norm(x, weight, eps, residual, **options)[-1]
        expected = run_rms_norm(total, weight, eps, residual, **options)
        for ours, theirs in zip(results, expected, strict=True):
            assert torch.equal(ours.float(), theirs.float())

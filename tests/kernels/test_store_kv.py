"""Queries, and keys and values in their pages: as the model's own arithmetic has them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from fishtts.kernels import small_reference
from fishtts.kernels.attention_reference import KVPages
from fishtts.kernels.small_reference import HeadNorms, Places, Rotations, quantize_heads
from fishtts.kernels.store_kv import norm_rope_store
from fishtts.models.dual_ar.net import rms_norm, rope_table, rotate
from tests.kernels.conftest import DEVICE

pytestmark = pytest.mark.usefixtures("poisoned")

SIZES = [(4, 2, 64), (3, 1, 16), (1, 1, 128)]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def turns_of(length: int, size: int) -> tuple[Tensor, Rotations]:
    turns = rope_table(length, size, 1e6, torch.device(DEVICE))
    return turns, Rotations(turns.real.contiguous(), turns.imag.contiguous())


def norms_of(size: int) -> HeadNorms:
    return HeadNorms(1 + draw(size, seed=5) / 4, 1 + draw(size, seed=6) / 4, 1e-6)


def places_of(positions: list[int], page: int) -> Places:
    most = max(positions) // page + 1
    order = torch.randperm(len(positions) * most, generator=torch.Generator().manual_seed(1))
    tables = order.view(len(positions), most).to(torch.int32).to(DEVICE)
    return Places(torch.tensor(positions, dtype=torch.int32, device=DEVICE), tables)


def empty_pages(places: Places, page: int, heads: tuple[int, int], like: Tensor, fp8: bool):
    num_pages = int(places.tables.max()) + 1
    return KVPages.empty((num_pages, page, *heads), like, fp8=fp8)


@pytest.mark.parametrize(("page", "has_norms"), [(16, True), (64, False)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("h", "g", "d"), SIZES)
def test_stored_heads_are_the_reference_s(
    h: int, g: int, d: int, dtype: torch.dtype, has_norms: bool, page: int
) -> None:
    positions = [0, 63, -1, 100, 16, 15]
    _, rotations = turns_of(101, d)
    qkv = draw(6, (h + 2 * g) * d).to(dtype)
    norms = norms_of(d) if has_norms else None
    places = places_of(positions, page)
    results = []
    for op in (norm_rope_store, small_reference.norm_rope_store):
        pages = empty_pages(places, page, (g, d), qkv, fp8=False)
        results.append((op(qkv, places, rotations, norms, pages), pages.keys, pages.values))
    unit = 1e-6 if dtype == torch.float32 else 2**-7
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=unit, atol=1e-6)
    q, keys, values = results[0]
    assert not q[2].any()
    assert int(values.abs().amax((2, 3)).count_nonzero()) == 5
    assert int(keys.abs().amax((2, 3)).count_nonzero()) == 5


@pytest.mark.parametrize("page", [16, 64])
@pytest.mark.parametrize(("h", "g", "d"), SIZES)
def test_in_fp8_codes_are_within_one_and_scales_within_rounding(
    h: int, g: int, d: int, page: int
) -> None:
    _, rotations = turns_of(101, d)
    qkv = (draw(4, h + 2 * g, d) * draw(4, h + 2 * g, 1, seed=2).exp()).flatten(1).bfloat16()
    places = places_of([0, 63, 100, 16], page)
    results = []
    for op in (norm_rope_store, small_reference.norm_rope_store):
        pages = empty_pages(places, page, (g, d), qkv, fp8=True)
        op(qkv, places, rotations, None, pages)
        results.append(pages)
    ours, theirs = results
    for a, b in ((ours.keys, theirs.keys), (ours.values, theirs.values)):
        near = (a.view(torch.uint8).int() - b.view(torch.uint8).int()).abs()
        assert int(near.max()) <= 1
    torch.testing.assert_close(ours.key_scale, theirs.key_scale, rtol=2**-7, atol=0)
    # Nothing was computed with the values: theirs are the same to the last bit.
    assert torch.equal(ours.value_scale, theirs.value_scale)
    assert torch.equal(ours.values.view(torch.uint8), theirs.values.view(torch.uint8))


def test_the_reference_is_the_model_s_own_arithmetic() -> None:
    h, g, d = 4, 2, 64
    turns, rotations = turns_of(101, d)
    qkv, norms, places = draw(3, (h + 2 * g) * d).bfloat16(), norms_of(d), places_of([5, 99, 0], 16)
    pages = empty_pages(places, 16, (g, d), qkv, fp8=False)
    q = small_reference.norm_rope_store(qkv, places, rotations, norms, pages)
    heads = qkv.unflatten(1, (-1, d))
    expected = []
    for part, weight in ((heads[:, :h], norms.q_weight), (heads[:, h : h + g], norms.k_weight)):
        normed = rms_norm(part.float(), weight, norms.eps).to(qkv.dtype)
        expected.append(rotate(normed, turns[places.positions.long()][:, None]))
    at = places.positions.long()
    number = places.tables[torch.arange(3), at // 16].long()
    assert torch.equal(q, expected[0])
    assert torch.equal(pages.keys[number, at % 16], expected[1])
    assert torch.equal(pages.values[number, at % 16], heads[:, h + g :])


@pytest.mark.parametrize("fp8", [False, True])
def test_rows_of_one_request_go_to_its_pages(fp8: bool) -> None:
    """A prefill's rows, given whose they are, are stored as if each were a request of its own."""
    h, g, d, page = 2, 1, 32, 16
    _, rotations = turns_of(64, d)
    qkv = draw(40, (h + 2 * g) * d)
    tables = torch.tensor([[3, 1, 4], [0, 2, 5]], dtype=torch.int32, device=DEVICE)
    positions = torch.cat((torch.arange(30), torch.arange(7, 17))).int().to(DEVICE)
    requests = torch.tensor([1] * 30 + [0] * 10, dtype=torch.int32, device=DEVICE)
    pages, twin = (KVPages.empty((6, page, g, d), qkv, fp8=fp8) for _ in range(2))
    q = norm_rope_store(qkv, Places(positions, tables, requests), rotations, None, pages)
    alone = norm_rope_store(qkv, Places(positions, tables[requests.long()]), rotations, None, twin)
    assert torch.equal(q, alone)
    for ours, theirs in zip((pages.keys, pages.values), (twin.keys, twin.values), strict=True):
        assert torch.equal(ours.float(), theirs.float())
    assert pages.read(tables[0], 17)[0][7:].any()
    assert not pages.read(tables[0], 17)[0][:7].any()


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_in_fp8_what_is_not_finite_shows_in_its_scale_alone(bad: float) -> None:
    h, g, d, page = 1, 2, 16, 16
    _, rotations = turns_of(16, d)
    qkv = draw(1, (h + 2 * g) * d)
    qkv[0, -1] = qkv[0, h * d] = bad
    results = []
    for op in (norm_rope_store, small_reference.norm_rope_store):
        pages = KVPages.empty((1, page, g, d), qkv, fp8=True)
        places = Places(*(torch.zeros(s, dtype=torch.int32, device=DEVICE) for s in ((1,), (1, 1))))
        op(qkv, places, rotations, None, pages)
        assert pages.keys.float().isfinite().all()
        assert pages.values.float().isfinite().all()
        assert pages.key_scale[0, :, 0].isnan().tolist() == [True, False]
        assert pages.value_scale[0, :, 0].isnan().tolist() == [False, True]
        results.append(pages)
    assert torch.equal(results[0].values.float(), results[1].values.float())


def test_a_head_of_zeros_is_stored_as_zeros() -> None:
    codes, scale = quantize_heads(torch.zeros(2, 3, 16))
    assert not codes.float().any()
    assert torch.equal(scale, torch.full((2, 3), 2.0**-96 / 448))


def test_what_does_not_fit_is_refused() -> None:
    _, rotations = turns_of(16, 16)
    qkv, places = draw(1, 5 * 16), places_of([3], 16)
    pages = empty_pages(places, 16, (2, 16), qkv, fp8=False)
    norms = norms_of(16)
    for operands, complaint in [
        ((draw(1, 64), places, rotations, norms, pages), "qkv has the shape"),
        ((qkv.bfloat16(), places, rotations, norms, pages), "the pages are"),
        ((qkv, replace(places, tables=places.tables[:0]), rotations, norms, pages), "tables is"),
        ((qkv, replace(places, positions=draw(1)), rotations, norms, pages), "positions is"),
        ((qkv, places, Rotations(draw(16, 16), draw(16, 16)), norms, pages), "cos is"),
        ((qkv, places, rotations, replace(norms, k_weight=draw(8)), pages), "k_weight is"),
    ]:
        with pytest.raises(ValueError, match=complaint):
            norm_rope_store(*operands)


@pytest.mark.gpu
@pytest.mark.parametrize("fp8", [False, True])
def test_a_replayed_graph_stores_what_is_there_then(fp8: bool) -> None:
    h, g, d = 32, 8, 128
    _, rotations = turns_of(200, d)
    qkv, norms = draw(8, (h + 2 * g) * d).bfloat16(), norms_of(d)
    places = places_of([199, 0, 3, -1, 16, 50, 64, 31], 16)
    pages = empty_pages(places, 16, (g, d), qkv, fp8=fp8)
    norm_rope_store(qkv, places, rotations, norms, pages)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        q = norm_rope_store(qkv, places, rotations, norms, pages)
    for step in range(3):
        qkv.copy_(draw(8, (h + 2 * g) * d, seed=step))
        places.positions.add_(1).clamp_(max=199)
        graph.replay()
        twin = empty_pages(places, 16, (g, d), qkv, fp8=fp8)
        for ours, theirs in ((pages.keys, twin.keys), (pages.values, twin.values)):
            theirs.copy_(ours)
        assert torch.equal(q, norm_rope_store(qkv, places, rotations, norms, twin))
        assert torch.equal(pages.keys.float(), twin.keys.float())
        assert torch.equal(pages.values.float(), twin.values.float())

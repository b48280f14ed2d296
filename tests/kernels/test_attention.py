"""Attention in Triton is its reference: plain, over pages, in chunks, whatever the pages' type."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from fishtts.kernels.attention_plans import DecodePlan, PrefillPlan
from fishtts.kernels.attention_reference import KVPages
from fishtts.kernels.attention_reference import causal_attention as expected_attention
from fishtts.kernels.attention_reference import paged_decode as expected_decode
from fishtts.kernels.attention_reference import paged_prefill as expected_prefill
from fishtts.kernels.flash_attention import (
    causal_attention,
    paged_prefill,
    run_causal_attention,
    run_prefill,
)
from fishtts.kernels.flash_decode import paged_decode, run_decode
from fishtts.kernels.launch import counters
from fishtts.models.paged import PagedKV
from tests.kernels.conftest import DEVICE
from tests.kernels.tolerances import (
    ATTENTION_COSINE_LOSS,
    FP8_ATTENTION_COSINE_LOSS,
    attention_limit,
    cosine_loss,
)

pytestmark = pytest.mark.usefixtures("poisoned")

LENGTHS = (1, 100, 16, 0, 129)
KINDS = ("float32", "bfloat16", "fp8", "fp8_products")
KINDS_AND_PAGES = [*((kind, 16) for kind in KINDS), ("bfloat16", 64), ("fp8_products", 64)]


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype).to(DEVICE)


def type_of(kind: str) -> torch.dtype:
    return torch.float32 if kind == "float32" else torch.bfloat16


def round_to_fp8(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(dim, keepdim=True) / 448
    return (x / scale).to(torch.float8_e4m3fn), scale.squeeze(dim).contiguous()


def make_pages(
    kind: str, lengths: tuple[int, ...], *, groups: int = 2, size: int = 32, page: int = 16
) -> tuple[KVPages, Tensor, Tensor]:
    """Pages in a wild order, and what no request owns in them is NaN where a NaN can be."""
    counts = [-(-length // page) for length in lengths]
    num_pages = sum(counts) + 1
    order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(7)) + 1
    tables = torch.zeros(len(lengths), max(counts) + 1, dtype=torch.int32)
    is_owned = torch.zeros(num_pages, page, dtype=torch.bool)
    for row, (own, length) in enumerate(zip(order.split(counts), lengths, strict=True)):
        tables[row, : len(own)] = own
        for at, number in enumerate(own.tolist()):
            is_owned[number, : max(0, length - at * page)] = True
    keys, values = (draw(num_pages, page, groups, size, seed=s) for s in (1, 2))
    if kind != "fp8_products":
        # Its error grows with the scores, as the rounding of the queries does.
        keys *= draw(num_pages, page, groups, 1, seed=3).exp()
    values *= draw(num_pages, page, groups, 1, seed=4).exp()
    free = ~is_owned.to(DEVICE)
    if kind.startswith("fp8"):
        k, k_scale = round_to_fp8(keys.transpose(1, 2).contiguous(), 3)
        v, v_scale = round_to_fp8(values.permute(0, 2, 3, 1).contiguous(), 2)
        for scale in (k_scale, v_scale):
            scale.transpose(1, 2)[free] = float("nan")
        pages = KVPages(k, v, k_scale, v_scale)
    else:
        keys[free] = values[free] = float("nan")
        pages = KVPages(keys.to(type_of(kind)), values.to(type_of(kind)))
    return pages, tables.to(DEVICE), torch.tensor(lengths, dtype=torch.int32, device=DEVICE)


def assert_close(ours: Tensor, theirs: Tensor, values: Tensor, kind: str) -> None:
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    assert ours.is_contiguous()
    is_fp8 = kind == "fp8_products"
    limit = attention_limit(ours.dtype, values, fp8_products=is_fp8)
    torch.testing.assert_close(ours.float(), theirs.float(), rtol=0, atol=limit)
    if ours.numel():
        limit = FP8_ATTENTION_COSINE_LOSS if is_fp8 else ATTENTION_COSINE_LOSS
        assert cosine_loss(ours.cpu(), theirs.cpu()) < limit


def all_values(pages: KVPages) -> Tensor:
    values = pages.values.float()
    if pages.value_scale is not None:
        values = values * pages.value_scale[:, :, None]
    return values.nan_to_num()


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("shape", "heads"),
    [
        ((1, 1, 1), (1, 1, 16)),
        ((2, 63, 63), (4, 2, 32)),
        ((1, 100, 100), (3, 1, 64)),
        ((1, 5, 130), (2, 2, 16)),
        ((2, 10, 70), (6, 2, 128)),
    ],
)
def test_causal_attention_is_its_reference(
    kind: str, shape: tuple[int, int, int], heads: tuple[int, int, int]
) -> None:
    (num, queries, positions), (h, g, d) = shape, heads
    dtype = type_of(kind)
    q = draw(num, queries, h, d, seed=1, dtype=dtype)
    k, v = (draw(num, positions, g, d, seed=s, dtype=dtype) for s in (2, 3))
    assert_close(causal_attention(q, k, v), expected_attention(q, k, v), v, kind)


def test_heads_may_lie_side_by_side_as_a_projection_leaves_them() -> None:
    qkv = draw(2, 40, 8, 32)
    q, k, v = qkv.split((4, 2, 2), dim=2)
    together = causal_attention(q, k, v)
    apart = causal_attention(q.contiguous(), k.contiguous(), v.contiguous())
    assert torch.equal(together, apart)
    assert_close(together, expected_attention(q, k, v), v, "float32")


def test_the_tile_does_not_change_a_row() -> None:
    q, k, v = draw(1, 70, 4, 32), draw(1, 70, 2, 32, seed=1), draw(1, 70, 2, 32, seed=2)
    small, large = (run_causal_attention(PrefillPlan(m, 1), q, k, v) for m in (64, 128))
    assert torch.equal(small, large)


@pytest.mark.parametrize(("kind", "page"), KINDS_AND_PAGES)
def test_decode_over_pages_is_its_reference(kind: str, page: int) -> None:
    pages, tables, lengths = make_pages(kind, LENGTHS, page=page)
    q = draw(len(LENGTHS), 6, 32, dtype=type_of(kind))
    ours = paged_decode(q, pages, tables, lengths, fp8_products=kind == "fp8_products")
    assert_close(ours, expected_decode(q, pages, tables, lengths), all_values(pages), kind)
    assert not ours[LENGTHS.index(0)].any()


@pytest.mark.parametrize("kind", ["float32", "fp8"])
@pytest.mark.parametrize("chunk", [64, 128])
def test_however_a_context_is_cut_decode_is_its_reference(kind: str, chunk: int) -> None:
    pages, tables, lengths = make_pages(kind, (130, 64, 1, 65, 0), size=16)
    q = draw(5, 2, 16, dtype=type_of(kind))
    plan = DecodePlan(chunk, -(-130 // chunk), num_stages=3)
    ours = run_decode(plan, q, pages, tables, lengths)
    assert_close(ours, expected_decode(q, pages, tables, lengths), all_values(pages), kind)
    assert torch.equal(ours, run_decode(plan, q, pages, tables, lengths))
    assert not counters(q.device).any()


def test_deterministic_decode_is_the_same_alone_and_in_a_crowd() -> None:
    lengths = (300, 7, 513, 256)
    pages, tables, length = make_pages("bfloat16", lengths, size=16, groups=1)
    q = draw(4, 2, 16, dtype=torch.bfloat16)
    crowd = paged_decode(q, pages, tables, length, deterministic=True)
    for row, own in enumerate(lengths):
        rows = slice(row, row + 1)
        alone = paged_decode(
            q[rows], pages, tables[rows], length[rows], max_length=own, deterministic=True
        )
        assert torch.equal(alone[0], crowd[row])


@pytest.mark.parametrize(("kind", "page"), KINDS_AND_PAGES)
def test_prefill_over_pages_is_its_reference(kind: str, page: int) -> None:
    pages, tables, lengths = make_pages(kind, LENGTHS, page=page)
    news = [1, 30, 16, 0, 20]
    starts = torch.tensor([0, *torch.tensor(news).cumsum(0)], dtype=torch.int32, device=DEVICE)
    q = draw(sum(news), 6, 32, dtype=type_of(kind))
    operands = (q, pages, tables, lengths, starts)
    ours = paged_prefill(*operands, max_queries=30, fp8_products=kind == "fp8_products")
    theirs = expected_prefill(*operands, max_queries=30)
    assert_close(ours, theirs, all_values(pages), kind)


def test_prefill_in_two_goes_is_the_whole_to_the_last_bit() -> None:
    pages, tables, lengths = make_pages("bfloat16", (100,))
    q = draw(100, 4, 32, dtype=torch.bfloat16)

    def run(begin: int, end: int) -> Tensor:
        starts = torch.tensor([0, end - begin], dtype=torch.int32, device=DEVICE)
        part = lengths - 100 + end
        return paged_prefill(q[begin:end], pages, tables, part, starts, max_queries=end - begin)

    assert torch.equal(torch.cat((run(0, 37), run(37, 100))), run(0, 100))


def test_one_new_position_is_the_same_by_either_way() -> None:
    pages, tables, lengths = make_pages("float32", LENGTHS[:3])
    q = draw(3, 4, 32)
    starts = torch.arange(4, dtype=torch.int32, device=DEVICE)
    prefilled = run_prefill(PrefillPlan(64, 1), q, pages, tables, lengths, starts, max_queries=1)
    decoded = paged_decode(q, pages, tables, lengths)
    assert_close(prefilled, decoded, all_values(pages), "float32")


def test_two_new_positions_of_a_request_may_be_two_rows() -> None:
    pages, tables, lengths = make_pages("float32", (2, 70))
    q = draw(4, 4, 32)
    starts = torch.tensor([0, 2, 4], dtype=torch.int32, device=DEVICE)
    prefilled = paged_prefill(q, pages, tables, lengths, starts, max_queries=2)
    own = lengths.repeat_interleave(2)
    own[::2] -= 1
    decoded = paged_decode(q, pages, tables.repeat_interleave(2, dim=0), own)
    assert_close(decoded, prefilled, all_values(pages), "float32")


def test_pages_are_those_of_plain_tensors() -> None:
    """The layout of 16 and 32 bits: a request's positions in the order of its table."""
    pages, tables, lengths = make_pages("float32", (48,))
    k, v = (pool[tables[0, :3].long()].flatten(0, 1)[None] for pool in (pages.keys, pages.values))
    q = draw(1, 4, 32)
    plain = causal_attention(q[:, None], k, v)[:, 0]
    assert_close(paged_decode(q, pages, tables, lengths), plain, v, "float32")


def test_the_engine_s_pools_are_such_pages() -> None:
    """What the model's own attention makes of them, by the same tables."""
    pool = PagedKV((9, 16, 2, 32), 1, draw(1))
    for store in (pool.keys[0], pool.values[0]):
        store.copy_(draw(9, 16, 2, 32, seed=5 + (store is pool.values[0])))
    tables, positions = [[3, 1, 4], [5, 2, 6], [8, 0, 7]], [40, 15, 16]
    q, k, v = draw(3, 4, 1, 32), draw(3, 2, 1, 32, seed=1), draw(3, 2, 1, 32, seed=2)
    theirs = pool.apart(tables, positions).attend(0, q, k, v)
    ours = paged_decode(
        q[:, :, 0],
        KVPages(pool.keys[0], pool.values[0]),
        torch.tensor(tables, dtype=torch.int32, device=DEVICE),
        torch.tensor(positions, dtype=torch.int32, device=DEVICE) + 1,
    )
    assert_close(ours.flatten(1), theirs[:, 0], pool.values[0], "float32")


def test_new_pages_hold_nothing_that_could_poison_a_sum() -> None:
    like = torch.empty(1, dtype=torch.bfloat16, device=DEVICE)
    for fp8 in (False, True):
        pages = KVPages.empty((3, 16, 2, 32), like, fp8=fp8)
        pages.check()
        assert (pages.page_size, pages.num_groups, pages.head_dim) == (16, 2, 32)
        assert not pages.keys.float().any()
        assert not pages.values.float().any()


def _unfit() -> list[tuple[str, dict[str, object], str]]:
    pages, tables, lengths = make_pages("fp8", (20, 3))
    fit = {"q": draw(2, 4, 32), "pages": pages, "tables": tables, "lengths": lengths}
    wide = KVPages.empty((3, 128, 2, 32), fit["q"])
    return [
        ("heads", {**fit, "q": draw(2, 3, 32)}, "multiple of 2"),
        ("head size", {**fit, "q": draw(2, 4, 16)}, "hold 32"),
        ("a batch axis", {**fit, "q": draw(2, 1, 4, 32)}, "three axes"),
        ("long lengths", {**fit, "lengths": lengths.long()}, "lengths is torch.int64"),
        ("other rows", {**fit, "tables": tables[:1]}, "tables is"),
        ("no scale", {**fit, "pages": KVPages(pages.keys, pages.values)}, "key_scale is missing"),
        (
            "values not transposed",
            {**fit, "pages": KVPages(pages.keys, pages.values.mT.contiguous())},
            "values is",
        ),
        (
            "another type",
            {**fit, "pages": KVPages.empty((3, 16, 2, 32), fit["q"].bfloat16())},
            "the pages are torch.bfloat16",
        ),
        ("page size", {**fit, "pages": wide}, "page size is 128"),
    ]


@pytest.mark.parametrize(
    ("operands", "complaint"), [pytest.param(*case[1:], id=case[0]) for case in _unfit()]
)
def test_what_does_not_fit_is_refused(operands: dict, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        paged_decode(**operands)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["bfloat16", "fp8", "fp8_products"])
def test_deterministic_attention_is_the_same_alone_and_in_a_crowd(kind: str) -> None:
    lengths = (100, 700, 1, 2000, 256, 257)
    pages, tables, length = make_pages(kind, lengths, groups=8, size=128)
    options = {"fp8_products": kind == "fp8_products", "deterministic": True}
    q = draw(6, 32, 128, dtype=torch.bfloat16)
    crowd = paged_decode(q, pages, tables, length, **options)
    news = [min(n, 600) for n in lengths]
    starts = torch.tensor([0, *torch.tensor(news).cumsum(0)], dtype=torch.int32, device=DEVICE)
    new = draw(sum(news), 32, 128, dtype=torch.bfloat16)
    prefilled = paged_prefill(new, pages, tables, length, starts, max_queries=600, **options)
    for row, own in enumerate(lengths):
        at = slice(row, row + 1)
        given = (pages, tables[at], length[at])
        alone = paged_decode(q[at], *given, max_length=own, **options)
        assert torch.equal(alone[0], crowd[row])
        end = int(starts[row + 1])
        last = torch.tensor([0, 1], dtype=torch.int32, device=DEVICE)
        one = paged_prefill(new[end - 1 : end], *given, last, max_queries=1, **options)
        assert torch.equal(one[0], prefilled[end - 1])


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["bfloat16", "fp8", "fp8_products"])
def test_a_replayed_graph_attends_to_what_is_there_then(kind: str) -> None:
    lengths = (100, 700, 1, 2000)
    pages, tables, length = make_pages(kind, lengths, groups=8, size=128)
    q = draw(4, 32, 128, dtype=torch.bfloat16)
    options = {"fp8_products": kind == "fp8_products"}
    paged_decode(q, pages, tables, length, **options)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = paged_decode(q, pages, tables, length, **options)
    for step in range(3):
        q.copy_(draw(4, 32, 128, seed=step, dtype=torch.bfloat16))
        length.sub_(step).clamp_(min=1)
        out.fill_(float("nan"))
        graph.replay()
        assert torch.equal(out, paged_decode(q, pages, tables, length, **options))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["bfloat16", "fp8", "fp8_products"])
@pytest.mark.parametrize("size", [64, 128])
def test_at_full_size_it_is_its_reference_on_the_device(kind: str, size: int) -> None:
    lengths = (1, 511, 512, 1023, 2000, 64, 65, 1500)
    pages, tables, length = make_pages(kind, lengths, groups=8, size=size)
    q = draw(8, 32, size, dtype=torch.bfloat16)
    fp8 = kind == "fp8_products"
    for deterministic in (False, True):
        ours = paged_decode(q, pages, tables, length, fp8_products=fp8, deterministic=deterministic)
        assert_close(ours, expected_decode(q, pages, tables, length), all_values(pages), kind)
    starts = torch.tensor([0, 600], dtype=torch.int32, device=DEVICE)
    q = draw(600, 32, size, dtype=torch.bfloat16)
    operands = (q, pages, tables[4:5], length[4:5], starts)
    ours = paged_prefill(*operands, max_queries=600, fp8_products=fp8)
    theirs = expected_prefill(*operands, max_queries=600)
    assert_close(ours, theirs, all_values(pages), kind)

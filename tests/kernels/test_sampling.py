"""Codes drawn on the device: the filter, the race, the noise and the rule against repetition."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

pytest.importorskip("triton")

from fishtts.engine import sampler
from fishtts.kernels import sampling_reference
from fishtts.kernels.sampling import draw_codes
from fishtts.kernels.sampling_reference import DrawRules, Semantic, uniforms
from tests.kernels.conftest import DEVICE

pytestmark = pytest.mark.usefixtures("poisoned")

FIRST, END = 300, 7
OPS = [draw_codes, sampling_reference.draw_codes]


def rules_of(num_rows: int, *pairs: tuple[float, float], top_k: int = 30) -> DrawRules:
    temperature, top_p = zip(*pairs, strict=True)
    return DrawRules(
        torch.tensor(temperature).repeat(num_rows, 1).to(DEVICE),
        torch.tensor(top_p).repeat(num_rows, 1).to(DEVICE),
        torch.full((num_rows,), top_k, dtype=torch.int32, device=DEVICE),
    )


def inputs(num_rows: int, num_ids: int, draws: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 4 * torch.randn(num_rows, num_ids, generator=generator)
    keys = torch.randint(0, 2**32, (num_rows, draws), generator=generator)
    return logits.to(DEVICE), keys.to(DEVICE)


def expected(logits: list[float], key: int, temperature: float, top_p: float, top_k: int) -> int:
    """The rule in plain Python, in double precision."""
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    total = sum(math.exp(value - logits[order[0]]) for value in logits)
    held, best, drawn = 0.0, -1.0, order[0]
    for rank, i in enumerate(order):
        held += math.exp(logits[i] - logits[order[0]]) / total
        if rank and (held > top_p or rank >= top_k):
            break
        weight = math.exp((logits[i] - logits[order[0]]) / temperature)
        wait = -math.log(hashed(key, i))
        if weight / wait > best:
            best, drawn = weight / wait, i
    return drawn


def hashed(key: int, token: int) -> float:
    def mix(x: int) -> int:
        x &= 0xFFFFFFFF
        x = (x ^ x >> 16) * 0x7FEB352D & 0xFFFFFFFF
        x = (x ^ x >> 15) * 0x846CA68B & 0xFFFFFFFF
        return x ^ x >> 16

    return ((mix(mix(key + token) ^ mix(key + 0x9E3779B9)) >> 9) + 0.5) / 2**23


def test_noise_is_the_hash_to_the_last_bit() -> None:
    keys = torch.tensor([0, 1, 2**31, 2**32 - 1])
    ids = torch.tensor([0, 1, 4096, 155773])
    found = uniforms(keys, ids.expand(4, 4))
    assert found.tolist() == [[hashed(k, i) for i in ids.tolist()] for k in keys.tolist()]
    assert 0 < float(found.min()) < float(found.max()) < 1


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("num_ids", [1, 63, 257])
@pytest.mark.parametrize(
    ("temperature", "top_p", "top_k"),
    [(1.0, 0.9, 30), (0.7, 0.8, 64), (1.3, 1.0, 5), (0.5, 0.3, 1)],
)
def test_what_is_drawn_is_what_the_rule_says(
    op, num_ids: int, temperature: float, top_p: float, top_k: int
) -> None:
    logits, keys = inputs(2, num_ids, 1, seed=num_ids)
    codes, looked_up = op(logits, keys, rules_of(2, (temperature, top_p), top_k=top_k))
    assert looked_up is None
    assert codes.dtype == torch.int64
    assert codes.tolist() == [
        expected(row, key, temperature, top_p, top_k)
        for row, (key,) in zip(logits.tolist(), keys.tolist(), strict=True)
    ]


@settings(deadline=None, max_examples=12)
@given(
    logits=st.lists(st.integers(-3, 3), min_size=1, max_size=20),
    key=st.integers(0, 2**32 - 1),
    top_k=st.integers(1, 25),
    temperature=st.sampled_from([0.1, 0.5, 1.0, 2.0]),
)
def test_equal_logits_rank_by_id(
    logits: list[int], key: int, top_k: int, temperature: float
) -> None:
    """Ties everywhere, and a top-p that no sum can fall on."""
    given = torch.tensor([logits], dtype=torch.float32, device=DEVICE)
    keys = torch.tensor([[key]], device=DEVICE)
    for op in OPS:
        codes, _ = op(given, keys, rules_of(1, (temperature, 1.5), top_k=top_k))
        assert codes.tolist() == [expected(logits, key, temperature, 1.5, top_k)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_ids", [65, 257, pytest.param(4097, marks=pytest.mark.gpu)])
def test_semantic_draws_are_the_reference_s(num_ids: int, dtype: torch.dtype) -> None:
    logits, keys = inputs(4, num_ids, 2, seed=3)
    rules = rules_of(4, (0.8, 0.8), (1.0, 0.9))
    rows = torch.zeros(4, 10, 11, dtype=torch.int32, device=DEVICE)
    semantic = Semantic(rows[:, :, 0], FIRST, END)
    given = (logits.to(dtype), keys, rules)
    plain, _ = draw_codes(*given, semantic=semantic)
    # Half of the rows have just drawn what they draw now.
    rows[::2, 4, 0] = (plain[::2] + FIRST).int()
    embeddings = torch.randn(num_ids - 1, 100, device=DEVICE)
    options = {"semantic": semantic, "embeddings": embeddings, "max_top_k": 30}
    ours, theirs = (op(*given, **options) for op in OPS)
    assert torch.equal(ours[0], theirs[0])
    assert torch.equal(ours[1], embeddings[ours[0].clamp(max=num_ids - 2)])
    assert torch.equal(ours[1], theirs[1])
    assert torch.equal(ours[0][1::2], plain[1::2])


@pytest.mark.parametrize("op", OPS)
def test_a_repeated_code_gives_way_to_the_high_draw_once_and_the_end_never(op) -> None:
    logits = torch.zeros(3, 4, device=DEVICE)
    keys = torch.tensor([[11, 12], [11, 11], [11, 12]], device=DEVICE)
    window = torch.zeros(3, 10, dtype=torch.int32, device=DEVICE)
    # The normal draw is forced by its temperature, the high one by top-k of one more logit.
    logits[:, 2] = 1.0
    logits[2, 2], logits[2, 3] = 0.0, 1.0
    rules = rules_of(3, (1e-5, 1.0), (100.0, 1.5), top_k=4)
    semantic = Semantic(window, FIRST, END)
    first, _ = op(logits, keys, rules, semantic=semantic)
    assert first.tolist() == [2, 2, 3]
    window[:, 0] = FIRST + 2
    window[:, 5] = END
    window[2, 9] = FIRST + 3
    again, _ = op(logits, keys, rules, semantic=semantic)
    high = [
        _high_draw(row, key) for row, (_, key) in zip(logits.tolist(), keys.tolist(), strict=True)
    ]
    assert again.tolist() == [high[0], high[1], 3]


def _high_draw(logits: list[float], key: int) -> int:
    waits = [-math.log(hashed(key, FIRST + i if i < 3 else END)) for i in range(4)]
    return max(range(4), key=lambda i: math.exp((logits[i] - max(logits)) / 100) / waits[i])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_ids", [65, 1025])
def test_the_reference_draws_what_the_engine_draws(num_ids: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(num_ids)
    logits, keys = (t.cpu() for t in inputs(64, num_ids, 2, seed=num_ids))
    logits = logits.to(dtype)
    temperature, top_p = (torch.rand(64, 2, generator=generator) for _ in range(2))
    temperature += 0.2
    top_k = torch.randint(1, 65, (64,), generator=generator)
    window = torch.zeros(64, 10, dtype=torch.int32)
    weights, ids = sampler.filtered(
        logits[:, None], temperature[..., None], top_p[..., None], top_k[:, None, None], 64
    )
    ids = ids.expand_as(weights)
    tokens = torch.where(ids == num_ids - 1, END, ids + FIRST)
    normal, high = sampler.race(weights, ids, uniforms(keys, tokens)).unbind(dim=1)
    window[::2, 3] = (normal[::2] + FIRST).int()
    window[normal == num_ids - 1] = 0
    theirs = sampler.replace_repeats(normal, high, window - FIRST)
    rules = DrawRules(temperature, top_p, top_k.int())
    ours, _ = sampling_reference.draw_codes(
        logits, keys, rules, semantic=Semantic(window, FIRST, END)
    )
    assert torch.equal(ours, theirs)


def test_codes_come_as_often_as_their_probability_says() -> None:
    logits = torch.tensor([[0.5, 0.3, 0.2]]).log().expand(2000, 3).contiguous()
    keys = torch.arange(2000)[:, None] * 7919
    rules = DrawRules(torch.ones(2000, 1), torch.full((2000, 1), 1.5), torch.full((2000,), 3).int())
    codes, _ = sampling_reference.draw_codes(logits, keys, rules)
    counts = Counter(codes.tolist())
    for code, share in enumerate((0.5, 0.3, 0.2)):
        # Four standard deviations.
        assert abs(counts[code] - 2000 * share) < 4 * math.sqrt(2000 * share * (1 - share))


@pytest.mark.parametrize("op", OPS)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_whatever_the_logits_an_id_comes_out(op) -> None:
    inf, nan = float("inf"), float("nan")
    rows = [[-inf, 0, -inf], [nan, -inf, 5], [-inf, -inf, -inf], [nan, nan, nan], [-0.0, 0.0, -1]]
    logits = torch.tensor(rows, device=DEVICE)
    keys = torch.arange(5, device=DEVICE)[:, None]
    codes, _ = op(logits, keys, rules_of(5, (1.0, 1.5), top_k=1))
    assert codes.tolist() == [1, 2, 0, 0, 0]


@pytest.mark.parametrize("op", OPS)
def test_a_top_k_counts_as_the_largest_that_is_allowed(op) -> None:
    logits, keys = inputs(16, 100, 1)
    given = (logits.contiguous(), keys)
    capped, _ = op(*given, rules_of(16, (2.0, 1.5), top_k=90), max_top_k=5)
    assert torch.equal(capped, op(*given, rules_of(16, (2.0, 1.5), top_k=5))[0])
    assert not torch.equal(capped, op(*given, rules_of(16, (2.0, 1.5), top_k=90))[0])


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    logits, keys = inputs(5, 100, 1)
    rules = rules_of(5, (0.9, 0.9))
    rules.top_k[:] = torch.tensor([1, 50, 3, 7, 100])
    together, _ = draw_codes(logits, keys, rules)
    for row in range(5):
        at = slice(row, row + 1)
        own = DrawRules(rules.temperature[at], rules.top_p[at], rules.top_k[at])
        assert int(draw_codes(logits[at], keys[at], own)[0]) == int(together[row])


def test_what_does_not_fit_is_refused() -> None:
    logits, keys = inputs(2, 10, 1)
    rules = rules_of(2, (1.0, 0.9))
    window = torch.zeros(2, 10, dtype=torch.int32, device=DEVICE)
    for operands, options, complaint in [
        ((logits[0], keys, rules), {}, "logits has the shape"),
        ((logits, keys.int(), rules), {}, "keys is torch.int32"),
        ((logits, keys, rules), {"semantic": Semantic(window, 1, 2)}, "keys is"),
        ((logits, keys, rules_of(3, (1.0, 0.9))), {}, "temperature is"),
        ((logits, keys, rules), {"embeddings": window[0]}, "embeddings has the shape"),
        ((logits, keys, rules), {"max_top_k": 0}, "max_top_k is 0"),
    ]:
        with pytest.raises(ValueError, match=complaint):
            draw_codes(*operands, **options)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_ids", [1025, 4097])
def test_a_replayed_graph_draws_from_what_is_there_then(num_ids: int, dtype: torch.dtype) -> None:
    logits, keys = inputs(64, num_ids, 2)
    logits = logits.to(dtype)
    rules = rules_of(64, (0.8, 0.8), (1.0, 0.9))
    window = torch.zeros(64, 10, dtype=torch.int32, device=DEVICE)
    semantic = Semantic(window, FIRST, END)
    draw_codes(logits, keys, rules, semantic=semantic)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        codes, _ = draw_codes(logits, keys, rules, semantic=semantic)
    mismatches = 0
    for step in range(20):
        changed, _ = inputs(64, num_ids, 2, seed=step)
        logits.copy_(changed)
        keys.add_(step)
        graph.replay()
        assert torch.equal(codes, draw_codes(logits, keys, rules, semantic=semantic)[0])
        cpu = [t.cpu() for t in (logits, keys, *(getattr(rules, f) for f in DrawRules.__slots__))]
        theirs, _ = sampling_reference.draw_codes(
            cpu[0], cpu[1], DrawRules(*cpu[2:]), semantic=Semantic(window.cpu(), FIRST, END)
        )
        mismatches += int((codes.cpu() != theirs).sum())
        window.copy_(window.roll(-1, dims=1))
        window[:, -1] = (codes + FIRST).int()
    # A sum may fall on top-p: exponentials differ in their last bit.
    assert mismatches <= (1 if dtype == torch.float32 else 12)

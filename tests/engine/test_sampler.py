"""Filters and the race against the goldens' unit cases, and the noise behind them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from fishtts.engine.noise import draw_keys, seed_key
from fishtts.engine.sampler import best_ids, filtered, race, replace_repeats
from fishtts.kernels.sampling_reference import uniforms
from tests.fakes import GOLDEN


@pytest.fixture(scope="module")
def golden() -> dict[str, Tensor]:
    return load_file(GOLDEN / "ar_goldens.safetensors")


def spread(weights: Tensor, ids: Tensor, size: int) -> Tensor:
    """Probabilities by id."""
    return torch.zeros(size).scatter(0, ids, weights / weights.sum())


def noise_of(seed: int, frames: Tensor, draws: Tensor, ids: Tensor) -> Tensor:
    """Noise [F, R, V] of one seed."""
    seeds = torch.full(frames.shape, seed_key(seed))
    found = draw_keys(seeds, frames, draws)
    return uniforms(found, ids.expand(*found.shape, -1))


def one(value: float) -> Tensor:
    return torch.tensor([value])


@pytest.mark.parametrize("case", range(6))
@pytest.mark.parametrize("kind", ["float32", "bf16"])
def test_filtered_probabilities_are_the_golden_ones(
    golden: dict[str, Tensor], case: int, kind: str
) -> None:
    prefix, dtype = (
        ("sampler.", torch.float32) if kind == "float32" else ("sampler.bf16_", torch.bfloat16)
    )
    temperature, top_p, top_k = golden["sampler.params"][case]
    logits = golden[f"{prefix}logits"][case].to(dtype)
    found = filtered(logits, temperature[None], top_p[None], top_k[None], 64)
    wanted = golden[f"{prefix}probs"][case]
    ours = spread(*found, logits.shape[0])
    assert torch.equal(ours > 0, wanted > 0), "the same ids may be drawn"
    # One unit in the last place of each dtype, at probabilities of up to 1.
    assert (ours - wanted).abs().max() <= (1e-6 if kind == "float32" else 2**-8)


@pytest.mark.parametrize("case", range(6))
def test_the_race_draws_the_golden_ids(golden: dict[str, Tensor], case: int) -> None:
    temperature, top_p, top_k = golden["sampler.params"][case]
    logits, uniform = golden["sampler.logits"][case], golden["sampler.uniform"][case]
    weights, ids = filtered(logits, temperature[None], top_p[None], top_k[None], int(top_k))
    assert race(weights, ids, uniform.gather(0, ids)) == golden["sampler.index"][case]


def test_the_best_id_always_stays() -> None:
    logits = torch.tensor([5.0, 0.0, 0.0])
    weights, ids = filtered(logits, one(1.0), one(1e-6), one(3), 3)
    assert spread(weights, ids, 3).tolist() == [1.0, 0.0, 0.0]


def test_a_repeated_token_gives_way_once() -> None:
    window = torch.tensor([[4, 7], [1, 2]])
    normal, high = torch.tensor([7, 7]), torch.tensor([4, 9])
    # The first row's stand-in is in the window too, and is taken all the same.
    assert replace_repeats(normal, high, window).tolist() == [4, 7]


def keys(*values: int) -> Tensor:
    return torch.tensor(values)


def test_noise_is_uniform_and_its_keys_are_apart() -> None:
    drawn = noise_of(2**40 + 5, torch.arange(40), torch.arange(3), torch.arange(1000)).double()
    assert 0 < drawn.min() < 1e-3
    assert 1 - 1e-3 < drawn.max() < 1
    # 120,000 draws: the mean within five standard errors, no two rows alike, rows unrelated.
    assert abs(drawn.mean() - 0.5) < 5 * (1 / 12) ** 0.5 / 120_000**0.5
    rows = drawn.flatten(0, 1).numpy()
    related = np.corrcoef(rows) - np.eye(len(rows))
    assert np.abs(related).max() < 6 / 1000**0.5


def test_a_part_of_a_head_meets_the_same_noise() -> None:
    whole = noise_of(7, keys(3), keys(1), torch.arange(5000))
    part = noise_of(7, keys(3), keys(1), torch.arange(1200, 1300))
    assert torch.equal(part, whole[..., 1200:1300])


def test_seeds_that_differ_in_any_bit_differ() -> None:
    seeds = [0, 1, 2**31, 2**32, 2**33, 2**62, 2**63 - 1]
    rows = [noise_of(s, keys(0), keys(0), torch.arange(64)).flatten() for s in seeds]
    assert len({tuple(r.tolist()) for r in rows}) == len(seeds)


def test_noise_of_neighbouring_seeds_is_not_shifted() -> None:
    """One seed a frame late would be the next seed, if they were only added."""
    some, next_one = (noise_of(s, torch.arange(8), keys(0, 1), torch.arange(50)) for s in (10, 11))
    flat = some.flatten().tolist()
    assert len(set(flat) & set(next_one.flatten().tolist())) < 5


def numpy_uniforms(seed: int, frame: int, draw: int, at: int) -> np.float32:
    """The same noise, one key at a time, in plain integers."""

    def mix(x: int) -> int:
        x &= 0xFFFFFFFF
        x = (x ^ x >> 16) * 0x7FEB352D & 0xFFFFFFFF
        x = (x ^ x >> 15) * 0x846CA68B & 0xFFFFFFFF
        return x ^ x >> 16

    key = mix(mix(mix(seed) ^ seed >> 32) + frame)
    key = mix(key + 0x9E3779B9 * (draw + 1))
    mixed = mix(mix(key + at) ^ mix(key + 0x9E3779B9))
    return np.float32((mixed >> 9) + 0.5) / np.float32(2**23)


@pytest.mark.parametrize("seed", [0, 12345, 2**63 - 1])
def test_noise_is_what_plain_integers_give(seed: int) -> None:
    frames, draws, ids = keys(0, 1, 70000), keys(0, 1, 10), keys(0, 258, 155773, 2**31)
    noise = noise_of(seed, frames, draws, ids)
    for i, frame in enumerate(frames.tolist()):
        for j, draw in enumerate(draws.tolist()):
            for k, at in enumerate(ids.tolist()):
                assert noise[i, j, k].item() == numpy_uniforms(seed, frame, draw, at)


def test_equal_logits_rank_by_id() -> None:
    logits = torch.zeros(1, 200).index_fill_(1, keys(150, 17), 1.0).bfloat16()
    weights, ids = filtered(logits, one(1.0), one(1.0), one(5), 5)
    assert ids.tolist() == [[17, 150, 0, 1, 2]]
    assert weights.shape == (1, 5)


def test_the_crossing_id_is_dropped() -> None:
    logits = torch.tensor([0.5, 0.3, 0.2]).log()
    for top_p, kept in ((0.49, 1), (0.79, 1), (0.81, 2), (1.0, 3)):
        weights, _ = filtered(logits, one(1.0), one(top_p), one(3), 3)
        assert (weights > 0).sum() == kept, top_p


def test_draws_follow_the_probabilities() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0])
    weights, ids = (t.expand(20000, 4) for t in filtered(logits, one(0.7), one(1.0), one(4), 4))
    noise = noise_of(1, torch.arange(20000), keys(0), torch.arange(4))[:, 0].gather(1, ids)
    shares = torch.bincount(race(weights, ids, noise), minlength=4) / 20000
    wanted = torch.softmax(logits / 0.7, dim=0)
    assert (shares - wanted).abs().max() < 4 * (0.25 / 20000) ** 0.5


def test_the_normal_and_the_high_draw_are_the_golden_ones(golden: dict[str, Tensor]) -> None:
    """Both at once, from one sorted row, as a request draws them."""
    ids_of_head = [*range(268, 300), 258]
    temperature, top_p = torch.tensor([[0.8], [1.0]]), torch.tensor([[0.9], [0.9]])
    for frame in range(24):
        logits = golden["sampled.slow_logits"][frame, ids_of_head]
        weights, ids = filtered(logits[None], temperature, top_p, torch.tensor([[12]]), 12)
        for row, name in enumerate(("normal", "high")):
            wanted = golden[f"sampled.probs_{name}"][frame, ids_of_head]
            ours = spread(weights[row], ids[0], len(ids_of_head))
            assert (ours - wanted).abs().max() < 1e-6
        noise = golden["sampled.uniform_slow"][frame][:, ids_of_head]
        ids = ids.expand_as(weights)
        drawn = race(weights, ids, noise.gather(1, ids)).tolist()
        assert ids_of_head[drawn[0]] == golden["sampled.slow_normal"][frame]
        assert ids_of_head[drawn[1]] == golden["sampled.slow_high"][frame]


def test_a_row_weighs_the_same_beside_rows_with_other_limits() -> None:
    logits = torch.randn(5, 300, generator=torch.Generator().manual_seed(1))
    temperature, top_p = torch.full((5, 1), 0.7), torch.full((5, 1), 0.9)
    top_k = torch.tensor([[1], [7], [30], [64], [300]])
    together, ids = filtered(logits, temperature, top_p, top_k, 300)
    for row, own in enumerate(top_k[:, 0].tolist()):
        alone, own_ids = filtered(logits[row], one(0.7), one(0.9), one(own), own)
        assert torch.equal(together[row, :own], alone)
        assert torch.equal(ids[row, :own], own_ids)
        assert together[row, own:].count_nonzero() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_best_ids_are_those_of_a_stable_sort(dtype: torch.dtype) -> None:
    """With ties, both zeros, infinities and the smallest numbers among them."""
    generator = torch.Generator().manual_seed(2)
    logits = (torch.randn(50, 400, generator=generator) * 3).round(decimals=1).to(dtype)
    special = [0.0, -0.0, float("inf"), float("-inf"), 1e-38, -1e-38, 6e-8, -6e-8]
    logits[:, 5:400:7] = torch.tensor(special, dtype=dtype)[torch.arange(57) % 8]
    _, wanted = torch.sort(logits, dim=-1, descending=True, stable=True)
    for width in (1, 30, 400):
        assert torch.equal(best_ids(logits, width), wanted[:, :width])

"""One request: against the goldens, and what it promises whoever runs it."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from fishtts.engine.generate import CountedNoise, Generation, generate
from fishtts.engine.noise import uniforms
from fishtts.errors import FishTTSError
from fishtts.models import LoadedModel, load_model
from fishtts.types import Prompt, Reference, SamplingParams
from tests.fakes import GOLDEN

CPU = torch.device("cpu")
GREEDY = SamplingParams(temperature=1.0, top_p=1.0, top_k=1)


@pytest.fixture(scope="module")
def golden() -> dict[str, Tensor]:
    return load_file(GOLDEN / "ar_goldens.safetensors")


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return load_model(GOLDEN, device=CPU, dtype=torch.float32)


def prompt(golden: dict[str, Tensor], name: str = "trace.prompt") -> Prompt:
    return Prompt(golden[name].numpy())


def codes_of(run: Generation) -> np.ndarray:
    return np.stack(list(run), axis=1)


class StoredNoise:
    """The goldens' uniforms; the slow ones are stored for the whole vocabulary."""

    def __init__(self, golden: dict[str, Tensor], model: LoadedModel) -> None:
        config = model.config
        ids = [*range(config.semantic_begin, config.semantic_end + 1), config.end_id]
        self._slow = golden["sampled.uniform_slow"][:, None][..., ids]
        self._fast = golden["sampled.uniform_fast"][:, :, None]

    def slow(self, frame: int) -> Tensor:
        return self._slow[frame]

    def fast(self, frame: int, codebook: int) -> Tensor:
        return self._fast[frame, codebook - 1]


def test_greedy_frames_are_the_golden_ones(model: LoadedModel, golden: dict[str, Tensor]) -> None:
    run = generate(model, prompt(golden), replace(GREEDY, max_frames=12))
    assert np.array_equal(codes_of(run), golden["greedy.frames"][1:].numpy())
    assert run.stop_reason == "limit"


def test_sampled_frames_with_stored_noise_and_repetition_rule(
    model: LoadedModel, golden: dict[str, Tensor]
) -> None:
    assert golden["sampled.ras_fired"].any(), "the case must show the rule at work"
    # And that the prefill's token is outside of the window: it comes again at once.
    assert golden["sampled.frames"][0, 0] == golden["sampled.frames"][0, 1]
    params = SamplingParams(temperature=0.8, top_p=0.9, top_k=12, max_frames=24)
    run = Generation(model, prompt(golden), params, noise=StoredNoise(golden, model))
    assert np.array_equal(codes_of(run), golden["sampled.frames"][1:].numpy())


@pytest.mark.parametrize("name", ["p0.b0", "p1.b0", "p2.b0", "p2.b1"])
def test_prompts_give_the_golden_codes_and_keep_their_last_frame(
    model: LoadedModel, golden: dict[str, Tensor], name: str
) -> None:
    """The reference drops its last column; where that was no end token, we have one frame more."""
    run = generate(model, prompt(golden, f"prompt.{name}.matrix"), replace(GREEDY, max_frames=6))
    ours, theirs = codes_of(run), golden[f"prompt.{name}.codes"].numpy()
    if run.stop_reason == "limit":
        assert ours.shape[1] == 6
        ours = ours[:, :-1]
    assert np.array_equal(ours, theirs)


def test_one_frame_is_one_frame(model: LoadedModel, golden: dict[str, Tensor]) -> None:
    run = generate(model, prompt(golden), replace(GREEDY, max_frames=1))
    assert np.array_equal(codes_of(run), golden["greedy.frames"][1:, :1].numpy())
    assert run.num_frames == 1


def test_an_end_token_at_prefill_ends_the_request(
    model: LoadedModel, golden: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    def only_the_end(hidden: Tensor) -> Tensor:
        logits = torch.full((hidden.shape[0], model.config.codebook_size + 1), -10.0)
        logits[:, -1] = 10.0
        return logits

    monkeypatch.setattr(model.net, "slow_logits", only_the_end)
    run = generate(model, prompt(golden), replace(GREEDY, max_frames=6))
    assert list(run) == []
    assert run.stop_reason == "eos"


def test_abort_ends_it(model: LoadedModel, golden: dict[str, Tensor]) -> None:
    run = generate(model, prompt(golden), GREEDY)
    next(run)
    run.abort()
    assert list(run) == []
    assert run.stop_reason == "aborted"


def test_no_room_is_said_with_both_numbers(model: LoadedModel, golden: dict[str, Tensor]) -> None:
    long = np.tile(golden["trace.prompt"].numpy(), (1, 30))
    with pytest.raises(FishTTSError, match="5,010") as caught:
        generate(model, Prompt(long), GREEDY)
    assert "4,096" in str(caught.value)


def references(golden: dict[str, Tensor], *names: str) -> list[Reference]:
    return [Reference(golden[name].numpy(), f"Words of {name}.") for name in names]


def test_a_reused_prefix_changes_nothing(model: LoadedModel, golden: dict[str, Tensor]) -> None:
    params = SamplingParams(seed=3, max_frames=8)
    voice = references(golden, "ref_a")
    first = generate(model, model.prompts.build("One.", voice), params)
    list(first)
    second = model.prompts.build("Two, and more.", voice)
    fresh = codes_of(generate(model, second, params))
    assert first.prefix is not None
    assert first.prefix.fits(second)
    assert np.array_equal(codes_of(generate(model, second, params, prefix=first.prefix)), fresh)


def test_a_prefix_of_another_voice_is_not_taken(
    model: LoadedModel, golden: dict[str, Tensor]
) -> None:
    """Two recordings with the same semantic codes differ only below: that must count."""
    params = SamplingParams(seed=3, max_frames=8)
    other = golden["ref_a"].clone()
    other[1:] = (other[1:] + 1) % 16
    mine, theirs = (
        model.prompts.build("One.", [Reference(codes.numpy(), "Words.")])
        for codes in (golden["ref_a"], other)
    )
    first = generate(model, mine, params)
    list(first)
    assert first.prefix is not None
    assert not first.prefix.fits(theirs)
    fresh = codes_of(generate(model, theirs, params))
    assert np.array_equal(codes_of(generate(model, theirs, params, prefix=first.prefix)), fresh)


def test_same_seed_same_frames_other_seed_others(
    model: LoadedModel, golden: dict[str, Tensor]
) -> None:
    def frames(seed: int) -> np.ndarray:
        params = SamplingParams(seed=seed, max_frames=6)
        return codes_of(generate(model, prompt(golden), params))

    assert np.array_equal(frames(5), frames(5))
    assert not np.array_equal(frames(5), frames(6))


def test_noise_does_not_depend_on_the_order_of_asking(model: LoadedModel) -> None:
    there, back = (CountedNoise(9, model.config, CPU) for _ in range(2))
    forward = [there.slow(f) for f in range(40)]
    backward = [back.slow(f) for f in reversed(range(40))][::-1]
    assert all(torch.equal(a, b) for a, b in zip(forward, backward, strict=True))


def test_slicing_the_head_does_not_change_the_noise(model: LoadedModel) -> None:
    config = model.config
    whole = uniforms(9, torch.tensor([21]), torch.arange(2), torch.arange(304))[0]
    ids = [*range(config.semantic_begin, config.semantic_end + 1), config.end_id]
    assert torch.equal(CountedNoise(9, config, CPU).slow(21)[0], whole[:, ids])


def test_a_request_ends_where_the_model_has_no_more_room(
    model: LoadedModel, golden: dict[str, Tensor]
) -> None:
    long = np.tile(golden["trace.prompt"].numpy(), (1, 25))[:, :4093]
    for max_frames in (0, 50):
        run = generate(model, Prompt(long), replace(GREEDY, max_frames=max_frames))
        assert codes_of(run).shape == (10, 3)
        assert run.stop_reason == "limit"


def test_many_frames_outgrow_the_first_cache(
    model: LoadedModel, golden: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    params = SamplingParams(seed=11, max_frames=40)
    roomy = codes_of(generate(model, prompt(golden), params))
    monkeypatch.setattr("fishtts.engine.generate._FIRST_FRAMES", 1)
    assert np.array_equal(codes_of(generate(model, prompt(golden), params)), roomy)


def test_requests_may_take_turns(model: LoadedModel, golden: dict[str, Tensor]) -> None:
    """Nothing is left in the model: two requests a frame at a time are each as they are alone."""
    params = [SamplingParams(seed=s, max_frames=8) for s in (1, 2)]
    alone = [codes_of(generate(model, prompt(golden), p)) for p in params]
    runs = [generate(model, prompt(golden), p) for p in params]
    together: list[list[np.ndarray]] = [[], []]
    for frames in zip_longest(*runs):
        for made, frame in zip(together, frames, strict=True):
            made += [] if frame is None else [frame]
    for one, made in zip(alone, together, strict=True):
        assert np.array_equal(one, np.stack(made, axis=1))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_it_runs_in_other_dtypes(golden: dict[str, Tensor], dtype: torch.dtype) -> None:
    model = load_model(GOLDEN, device="cpu", dtype=dtype)
    run = generate(model, prompt(golden), SamplingParams(max_frames=5))
    codes = codes_of(run)
    assert codes.dtype == np.int64
    assert codes.shape == (10, run.num_frames)
    assert 0 <= codes.min() <= codes.max() < 32


def test_a_prompt_without_a_shared_part_has_no_prefix(
    model: LoadedModel, golden: dict[str, Tensor]
) -> None:
    run = generate(model, prompt(golden), replace(GREEDY, max_frames=1))
    list(run)
    assert run.prefix is None


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_gpu_meets_the_same_noise_and_gives_frames(
    golden: dict[str, Tensor], dtype: torch.dtype
) -> None:
    model = load_model(GOLDEN, device="cuda", dtype=dtype)
    near, far = (CountedNoise(5, model.config, torch.device(d)) for d in ("cpu", "cuda"))
    assert all(torch.equal(near.slow(f), far.slow(f).cpu()) for f in range(20))
    run = generate(model, prompt(golden), replace(GREEDY, max_frames=12))
    codes = codes_of(run)
    if dtype == torch.float32:
        assert np.array_equal(codes, golden["greedy.frames"][1:].numpy())

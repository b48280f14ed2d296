"""The engine on the tiny model: against the goldens, and the same frames in any company."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fishtts.config import EngineConfig
from fishtts.engine.draws import CountedNoise, Noise
from fishtts.engine.engine import Engine
from fishtts.engine.graphs import CapturedSteps, EagerSteps, Inputs, Program, Steps
from fishtts.engine.request import Batch, FrameMade, StepResult
from fishtts.engine.runner import Runner
from fishtts.errors import FishTTSError
from fishtts.models import FrameNet, LoadedModel, load_model
from fishtts.types import Prompt, Reference, SamplingParams
from tests.engine.crowds import Asked, Made, collect, run_all, same
from tests.fakes import GOLDEN
from tests.goldens import golden, tiny

GREEDY = SamplingParams(temperature=1.0, top_p=1.0, top_k=1)
TRACE = "trace.prompt"
FEW_PAGES = 22
"""Less than a crowd of these needs, more than the longest of them."""
DEPTHS = pytest.mark.parametrize("depth", [0, 1])


def prompt(name: str = TRACE) -> Prompt:
    return Prompt(golden()[name].numpy())


def engine_of(
    model: LoadedModel,
    config: EngineConfig = EngineConfig(),  # noqa: B008 (it is frozen)
    *,
    num_pages: int = 0,
    noise: Noise | None = None,
    depth: int | None = None,
) -> Engine:
    runner = Runner(model, config, num_pages=num_pages, noise=noise, depth=depth)
    return Engine(runner, checked=True)


def made_alone(asked: Asked, model: LoadedModel, config: EngineConfig = EngineConfig()) -> Made:  # noqa: B008
    return run_all(engine_of(model, config), [asked])[0]


class StoredNoise:
    """The goldens' uniforms, for one request; the slow ones are stored for the whole vocabulary."""

    def __init__(self) -> None:
        self._frame = -1

    def slow(self, keys: Tensor, ids: Tensor) -> Tensor:
        self._frame += 1
        return golden()["sampled.uniform_slow"][self._frame][None].gather(-1, ids)

    def fast(self, keys: Tensor, codes: Tensor, codebook: int) -> Tensor:
        return golden()["sampled.uniform_fast"][self._frame, codebook - 1][None].gather(-1, codes)


def test_greedy_frames_are_the_golden_ones() -> None:
    codes, reason = made_alone((prompt(), replace(GREEDY, max_frames=12)), tiny())
    assert np.array_equal(codes, golden()["greedy.frames"][1:].numpy())
    assert reason == "limit"


def test_sampled_frames_with_stored_noise_and_repetition_rule() -> None:
    assert golden()["sampled.ras_fired"].any(), "the case must show the rule at work"
    # And that the prefill's token is outside of the window: it comes again at once.
    assert golden()["sampled.frames"][0, 0] == golden()["sampled.frames"][0, 1]
    params = SamplingParams(temperature=0.8, top_p=0.9, top_k=12, max_frames=24)
    [(codes, _)] = run_all(engine_of(tiny(), noise=StoredNoise()), [(prompt(), params)])
    assert np.array_equal(codes, golden()["sampled.frames"][1:].numpy())


@pytest.mark.parametrize("name", ["p0.b0", "p1.b0", "p2.b0", "p2.b1"])
def test_prompts_give_the_golden_codes_and_keep_their_last_frame(name: str) -> None:
    """The reference drops its last column; where that was no end token, we have one frame more."""
    asked = (prompt(f"prompt.{name}.matrix"), replace(GREEDY, max_frames=6))
    ours, reason = made_alone(asked, tiny())
    if reason == "limit":
        assert ours.shape[1] == 6
        ours = ours[:, :-1]
    assert np.array_equal(ours, golden()[f"prompt.{name}.codes"].numpy())


def test_an_end_token_at_prefill_ends_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny()

    def only_the_end(hidden: Tensor) -> Tensor:
        logits = torch.full((hidden.shape[0], model.config.codebook_size + 1), -10.0)
        logits[:, -1] = 10.0
        return logits

    monkeypatch.setattr(model.net, "slow_logits", only_the_end)
    codes, reason = made_alone((prompt(), replace(GREEDY, max_frames=6)), model)
    assert (codes.size, reason) == (0, "eos")


def test_abort_ends_it_and_leaves_the_others_alone() -> None:
    params = SamplingParams(seed=4, max_frames=6)
    engine = engine_of(tiny())
    kept, dropped = (engine.add(prompt(), replace(params, seed=seed)) for seed in (4, 5))
    first = engine.step()
    engine.abort(dropped)
    made = collect(engine, [kept])[kept]
    begin = [e.codes for e in first if isinstance(e, FrameMade) and e.request_id == kept]
    whole = np.concatenate([np.stack(begin, axis=1), made[0]], axis=1)
    assert np.array_equal(whole, made_alone((prompt(), params), tiny())[0])


def test_no_room_is_said_with_both_numbers() -> None:
    long = np.tile(golden()[TRACE].numpy(), (1, 30))
    with pytest.raises(FishTTSError, match=r"5,010 .* 4,096"):
        engine_of(tiny()).add(Prompt(long), GREEDY)


def test_a_request_ends_where_the_model_has_no_more_room() -> None:
    long = Prompt(np.tile(golden()[TRACE].numpy(), (1, 25))[:, :4093])
    codes, reason = made_alone((long, replace(GREEDY, max_frames=50)), tiny())
    assert (codes.shape, reason) == ((10, 3), "limit")


def test_same_seed_same_frames_other_seed_others() -> None:
    one, again, other = (
        made_alone((prompt(), SamplingParams(seed=seed, max_frames=6)), tiny())[0]
        for seed in (5, 5, 6)
    )
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def references(*names: str) -> list[Reference]:
    words = "to fill a page"
    return [Reference(golden()[name].numpy(), f"Words of {name}, {words}.") for name in names]


def talkative(dtype: torch.dtype, device: str = "cpu") -> LoadedModel:
    """The tiny model, less eager to end: its requests must outgrow the pages they begin with."""
    model = load_model(GOLDEN, device=device, dtype=dtype)
    table = model.net.slow.embeddings.weight
    table[model.config.end_id] *= 0.5
    return model


def crowd(model: LoadedModel) -> list[Asked]:
    """Requests as they come: with and without voices, of all lengths, drawn in all ways."""
    voices = [[], references("ref_a"), references("ref_b"), references("ref_a", "ref_b")]
    asked = []
    for n in range(12):
        params = SamplingParams(
            temperature=0.6 + 0.1 * n,
            top_p=0.5 + 0.04 * n,
            top_k=3 + 5 * n,
            seed=n * 977,
            max_frames=(9, 60, 33)[n % 3],
        )
        built = model.prompts.build(f"Line {n}. " + "word " * n, voices[n % 4])
        asked.append((built, params))
    return asked


@pytest.fixture(scope="module")
def exact() -> tuple[LoadedModel, list[Asked], list[Made]]:
    """In float64 rounding flips no draw: what each request makes alone."""
    model = talkative(torch.float64)
    asked = crowd(model)
    return model, asked, [made_alone(each, model) for each in asked]


Exact = tuple[LoadedModel, list[Asked], list[Made]]


@DEPTHS
def test_alone_is_in_a_crowd(exact: Exact, depth: int) -> None:
    model, asked, alone = exact
    engine = engine_of(model, depth=depth)
    assert same(run_all(engine, asked), alone)
    assert engine.metrics.rows_a_step > 3
    # What is known of their voices by now changes nothing either.
    assert same(run_all(engine, asked), alone)


@DEPTHS
def test_chunked_is_whole(exact: Exact, monkeypatch: pytest.MonkeyPatch, depth: int) -> None:
    model, asked, alone = exact
    monkeypatch.setattr("fishtts.engine.scheduler.CHUNK", 16)
    assert same(run_all(engine_of(model, depth=depth), asked), alone)


@DEPTHS
def test_preempted_is_undisturbed(exact: Exact, depth: int) -> None:
    model, asked, alone = exact
    engine = engine_of(model, num_pages=FEW_PAGES, depth=depth)
    assert same(run_all(engine, asked), alone)
    assert engine.metrics.num_preempted > 0, "the case must run out of pages"


@DEPTHS
def test_arriving_late_changes_nothing(exact: Exact, depth: int) -> None:
    model, asked, alone = exact
    engine = engine_of(model, EngineConfig(max_batch=3), depth=depth)
    ids = [engine.add(*each) for each in asked[6:]]
    head = [engine.step() for _ in range(5)]
    ids += [engine.add(*each) for each in asked[:6]]
    made = collect(engine, ids)
    for events in reversed(head):
        for event in reversed(events):
            if isinstance(event, FrameMade):
                codes, reason = made[event.request_id]
                codes = codes.reshape(len(event.codes), -1)
                joined = np.concatenate([event.codes[:, None], codes], axis=1)
                made[event.request_id] = (joined, reason)
    assert same([made[n] for n in ids], alone[6:] + alone[:6])


@pytest.mark.parametrize(("kernels", "depth"), [(False, 0), (False, 1), (True, 1)])
def test_programs_of_fixed_shapes_give_the_same(exact: Exact, kernels: bool, depth: int) -> None:
    """The way of a GPU: rows of all lengths at once, filled up with rows that are nobody's."""
    model, asked, alone = exact
    steps, config = CountingSteps(), EngineConfig(kernels=kernels)
    runner = Runner(model, config, steps=steps, depth=depth)
    assert same(run_all(Engine(runner, checked=True), asked), alone)
    assert steps.num_runs > 3 * len(steps.shapes), "few programs serve many steps"
    runner = Runner(model, config, steps=CountingSteps(), num_pages=FEW_PAGES, depth=depth)
    assert same(run_all(Engine(runner, checked=True), asked), alone)


class CountingSteps:
    """Runs each program first as a capture would warm it up, with inputs that are nobody's."""

    def __init__(self) -> None:
        self.shapes: set[object] = set()
        self.num_runs = 0

    def run(self, key: Hashable, program: Program, inputs: Inputs, idle: Inputs) -> Tensor:
        for given, nobody in zip(inputs, idle, strict=True):
            assert (given.shape, given.dtype) == (nobody.shape, nobody.dtype)
        program(*idle)
        self.shapes.add((key, *(each.shape for each in inputs)))
        self.num_runs += 1
        return program(*inputs)


def test_deterministic_by_the_fused_ops_too() -> None:
    """As on a GPU: programs of one number of rows, each for those who draw from as many ids."""
    model, config = talkative(torch.bfloat16), EngineConfig(deterministic=True, kernels=True)
    asked = [(built, replace(params, max_frames=5)) for built, params in crowd(model)[1:5]]
    assert len({params.top_k.bit_length() for _, params in asked}) > 1, "the case has two widths"

    def made(some: list[Asked], num_pages: int = 0) -> list[Made]:
        steps = EagerSteps(torch.device("cpu"))
        runner = Runner(model, config, steps=steps, num_pages=num_pages, depth=1)
        return run_all(Engine(runner, checked=True), some)

    alone = [made([each])[0] for each in asked[:2]]
    assert same(made(asked[::-1])[::-1][:2], alone)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_deterministic_is_the_same_to_the_last_bit(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, in a crowd in another order, in a small batch, and after giving way."""
    model, states = talkative(dtype), {}
    whole = Runner._frames

    def noted(
        self: Runner, net: FrameNet, hidden: Tensor, slots: Tensor, numbers: Tensor, width: int
    ) -> Tensor:
        for slot, number, state in zip(slots.tolist(), numbers.tolist(), hidden, strict=True):
            if slot != self._scratch_slot:
                key = (int(self._draws._seeds[slot]), number)
                twin = states.setdefault(key, state)
                assert torch.equal(twin, state), f"the hidden state of {key} differs"
        return whole(self, net, hidden, slots, numbers, width)

    monkeypatch.setattr(Runner, "_frames", noted)
    asked, config = crowd(model), EngineConfig(deterministic=True)
    alone = [made_alone(each, model, config) for each in asked]
    assert same(run_all(engine_of(model, config), asked[::-1])[::-1], alone)
    assert same(run_all(engine_of(model, replace(config, max_batch=5)), asked), alone)
    for depth in (0, 1):
        engine = engine_of(model, config, num_pages=FEW_PAGES, depth=depth)
        assert same(run_all(engine, asked), alone)
        assert engine.metrics.num_preempted > 0


def test_slicing_the_head_does_not_change_the_noise() -> None:
    """By token id: the whole vocabulary's noise at the places of a head's ids."""
    keys = torch.tensor([[12345, 6789]])
    whole = CountedNoise().slow(keys, torch.arange(304).expand(1, 2, -1))
    ids = torch.tensor([*range(268, 300), 258])
    assert torch.equal(CountedNoise().slow(keys, ids.expand(1, 2, -1)), whole[..., ids])


def test_rows_keep_their_own_windows() -> None:
    """The rule looks at what the same request drew, whoever had the slot before."""
    engine = engine_of(tiny(), EngineConfig(max_batch=1))
    params = SamplingParams(temperature=0.8, top_p=0.9, top_k=12, seed=3, max_frames=24)
    fresh = made_alone((prompt(), params), tiny())
    run_all(engine, [(prompt(), replace(params, seed=9))])
    assert same(run_all(engine, [(prompt(), params)]), [fresh])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_gpu_meets_the_same_noise_and_gives_frames(dtype: torch.dtype) -> None:
    model = load_model(GOLDEN, device="cuda", dtype=dtype)
    keys, ids = torch.arange(40).reshape(20, 2), torch.arange(304).expand(20, 2, -1)
    near, far = (CountedNoise().slow(keys.to(d), ids.to(d)).cpu() for d in ("cpu", "cuda"))
    assert torch.equal(near, far)
    codes, _ = made_alone((prompt(), replace(GREEDY, max_frames=12)), model)
    if dtype == torch.float32:
        assert np.array_equal(codes, golden()["greedy.frames"][1:].numpy())


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_deterministic_on_a_gpu(dtype: torch.dtype) -> None:
    model = talkative(dtype, "cuda")
    asked, config = crowd(model), EngineConfig(deterministic=True)
    alone = [made_alone(each, model, config) for each in asked]
    assert same(run_all(engine_of(model, config), asked[::-1])[::-1], alone)
    assert same(run_all(engine_of(model, config, num_pages=FEW_PAGES), asked), alone)


def test_the_fused_ops_make_the_golden_frames() -> None:
    """In float32, as the ops' specification has it; there no rounding flips a greedy draw."""
    runner = Runner(tiny(), EngineConfig(kernels=True), steps=EagerSteps(torch.device("cpu")))
    engine = Engine(runner, checked=True)
    asked = (prompt(), replace(GREEDY, max_frames=12))
    for codes, _ in run_all(engine, [asked, asked]):
        assert np.array_equal(codes, golden()["greedy.frames"][1:].numpy())


@pytest.mark.gpu
@pytest.mark.parametrize("kernels", [False, True])
def test_a_gpu_in_float32_makes_the_golden_frames_by_graphs(kernels: bool) -> None:
    model = load_model(GOLDEN, device="cuda", dtype=torch.float32)
    config = EngineConfig("cuda", "float32", kernels=kernels)
    codes, _ = made_alone((prompt(), replace(GREEDY, max_frames=12)), model, config)
    assert np.array_equal(codes, golden()["greedy.frames"][1:].numpy())


@pytest.mark.gpu
@pytest.mark.parametrize("steps", [EagerSteps, CapturedSteps])
def test_a_gpu_makes_the_frames_of_a_cpu(
    exact: Exact, steps: Callable[[torch.device], Steps]
) -> None:
    """Graphs too: replayed with other inputs, they give what the program gives."""
    _, asked, alone = exact
    runner = Runner(
        talkative(torch.float64, "cuda"), EngineConfig(), steps=steps(torch.device("cuda"))
    )
    engine = Engine(runner, checked=True)
    assert same(run_all(engine, asked), alone)
    assert same(run_all(engine, asked[::-1])[::-1], alone)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_nothing_that_begins_a_step_waits_for_the_gpu(exact: Exact, dtype: torch.dtype) -> None:
    """Neither as plain programs, in float64, nor by the kernels. And nothing is wrong for that:
    requests come, give way while their frame is on its way, begin again and end."""
    _, asked, alone = exact
    steps = CapturingApart(torch.device("cuda"))
    config = EngineConfig(kernels=dtype == torch.float32)
    runner = Runner(talkative(dtype, "cuda"), config, num_pages=FEW_PAGES, steps=steps)
    engine = Engine(WithoutWaiting(runner), checked=True)
    for _ in range(2):
        made = run_all(engine, asked)
        assert dtype == torch.float32 or same(made, alone)
    assert engine.metrics.num_preempted > 0


class WithoutWaiting:
    """A runner that fails where it begins a step and waits for the GPU."""

    def __init__(self, runner: Runner) -> None:
        self.capacity, self.depth = runner.capacity, runner.depth
        assert self.depth == 1
        self._runner = runner

    def execute(self, batch: Batch) -> Iterable[StepResult]:
        torch.cuda.set_sync_debug_mode("error")
        try:
            return map(self._checked, self._runner.execute(batch))
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def _checked(self, result: StepResult) -> StepResult:
        """Pinned memory is made slowly: what is kept for long must not hold it."""
        assert result.row is None or not torch.from_numpy(result.row).is_pinned()
        return result


class CapturingApart(CapturedSteps):
    """Waits where it captures, which happens once."""

    def _capture(self, program: Program, idle: Inputs) -> Any:
        mode = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("default")
        try:
            return super()._capture(program, idle)
        finally:
            torch.cuda.set_sync_debug_mode(mode)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the size of the process")
def test_two_thousand_requests_leave_nothing_behind() -> None:
    engine = engine_of(tiny())
    voices = [references("ref_a"), references("ref_b")]
    sizes = []
    for n in range(2000):
        built = tiny().prompts.build(f"Line {n}.", voices[n % 2])
        engine.add(built, replace(GREEDY, seed=n, max_frames=2))
        if engine.num_requests == 50 or n == 1999:
            while engine.has_work:
                engine.step()
            sizes.append(int(Path("/proc/self/statm").read_text().split()[1]) * 4096)
    assert len(sizes) == 40
    # Of the 1,600 requests after the first 400 not even two kilobytes each.
    assert max(sizes[8:]) - max(sizes[:8]) < 3_000_000
    assert engine.scheduler.pages.num_available == engine.capacity.num_pages

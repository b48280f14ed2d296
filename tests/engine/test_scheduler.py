"""Who runs next, through thousands of arrivals, lengths, aborts and shortages, without a model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fishtts.engine.engine import Engine
from fishtts.engine.request import Capacity, Finished, FrameMade
from fishtts.engine.scheduler import CHUNK
from fishtts.errors import UsageError
from fishtts.types import Prompt, SamplingParams
from tests.engine.crowds import ScriptedExecutor, ends_at, run_all

PAGE = 16
DEPTHS = pytest.mark.parametrize("depth", [0, 1])


def prompt_of(voice: int, shared: int, own: int, seed: int) -> Prompt:
    """A voice's part, which begins with the voice's number, and a text of its own."""
    ids = np.arange(shared + own) % 50
    ids[:shared] += 100 * (voice + 1)
    ids[shared:] += 10_000 + 100 * seed
    return Prompt(np.stack((ids, ids % 7)).astype(np.int64), num_shared=shared)


@dataclass(frozen=True)
class Arrival:
    """A request, how many steps after the one before it it comes, and when it is given up."""

    prompt: Prompt
    params: SamplingParams
    after: int
    abort_after: int | None


arrivals = st.builds(
    lambda voice, shared, own, seed, most, after, abort: Arrival(
        prompt_of(voice, shared, own, seed),
        SamplingParams(seed=seed, max_frames=most),
        after,
        abort,
    ),
    voice=st.integers(0, 3),
    shared=st.sampled_from([0, 0, 5, 16, 40, 100, 300, 520]),
    own=st.integers(1, 120),
    seed=st.integers(0, 10_000),
    most=st.integers(1, 60),
    after=st.integers(0, 12),
    abort=st.one_of(st.none(), st.none(), st.none(), st.integers(0, 30)),
)


@DEPTHS
@settings(max_examples=120, deadline=None)
@given(
    coming=st.lists(arrivals, min_size=1, max_size=40),
    num_pages=st.integers(44, 130),
    max_batch=st.integers(1, 12),
    budget=st.sampled_from([1, 64, CHUNK, 4096]),
)
def test_everybody_gets_their_frames_in_order_and_no_page_is_lost(
    depth: int, coming: list[Arrival], num_pages: int, max_batch: int, budget: int
) -> None:
    executor = ScriptedExecutor(Capacity(num_pages, PAGE, max_batch, 2000), depth)
    engine = Engine(executor, budget=budget, checked=True)
    made: dict[int, list[int]] = {}
    ended: dict[int, str] = {}
    asked: dict[int, Arrival] = {}
    dropped: set[int] = set()
    to_abort: dict[int, int] = {}
    queue, clock, next_at, first_frames = list(coming), 0, 0, []
    while queue or engine.has_work:
        while queue and next_at <= clock:
            arrival = queue.pop(0)
            number = engine.add(arrival.prompt, arrival.params)
            asked[number], made[number] = arrival, []
            if arrival.abort_after is not None:
                to_abort[number] = clock + arrival.abort_after
            next_at = clock + (queue[0].after if queue else 0)
        for number, at in list(to_abort.items()):
            if at <= clock:
                del to_abort[number]
                if number not in ended:
                    engine.abort(number)
                    dropped.add(number)
        for event in engine.step():
            assert event.request_id not in dropped, "nothing comes of what was given up"
            if isinstance(event, FrameMade):
                frames = made[event.request_id]
                assert event.codes.tolist() == [asked[event.request_id].params.seed, len(frames)]
                frames.append(len(frames))
                if len(frames) == 1:
                    first_frames.append(event.request_id)
            else:
                ended[event.request_id] = event.stop_reason
        clock += 1
        assert clock < 40_000, "somebody starves"
    assert set(ended) | dropped == set(asked)
    for number, reason in ended.items():
        params = asked[number].params
        wanted = min(ends_at(params.seed), params.max_frames)
        assert len(made[number]) == wanted
        assert reason == ("eos" if ends_at(params.seed) < params.max_frames else "limit") or (
            ends_at(params.seed) == params.max_frames
        )
    # First come, first served: who came first has the first frame first.
    assert first_frames == sorted(first_frames)
    assert engine.scheduler.pages.num_available == num_pages
    assert engine.scheduler.num_running == engine.scheduler.num_waiting == 0


@DEPTHS
def test_the_youngest_gives_way_and_the_oldest_is_never_held_up(depth: int) -> None:
    executor = ScriptedExecutor(Capacity(12, PAGE, 4, 2000), depth)
    engine = Engine(executor, checked=True)
    ids = [
        engine.add(prompt_of(0, 0, 20, n), SamplingParams(seed=40, max_frames=100))
        for n in range(4)
    ]
    frames_of_oldest = 0
    for _ in range(depth):
        assert engine.step() == []
    while engine.has_work:
        made = {e.request_id for e in engine.step() if isinstance(e, FrameMade)}
        if frames_of_oldest < 40:
            assert ids[0] in made, "a frame in every step"
            frames_of_oldest += 1
    assert engine.metrics.num_preempted > 0, "the case must run out of pages"


def test_with_a_step_in_hand_an_ended_request_costs_one_more_row() -> None:
    params = [SamplingParams(seed=12, max_frames=60), SamplingParams(seed=30, max_frames=20)]
    rows = []
    for depth in (0, 1):
        engine = Engine(ScriptedExecutor(Capacity(40, PAGE, 4, 2000), depth), checked=True)
        run_all(engine, [(prompt_of(0, 0, 10, each.seed), each) for each in params])
        rows.append(engine.metrics.num_rows)
    # The one that came to its end; the other's last frame is known beforehand.
    assert rows[1] == rows[0] + 1


def test_what_is_in_hand_is_work_though_nobody_wants_it() -> None:
    engine = Engine(ScriptedExecutor(Capacity(40, PAGE, 4, 2000), depth=1), checked=True)
    params = SamplingParams(seed=12, max_frames=60)
    dropped = engine.add(prompt_of(0, 0, 20, 12), params)
    assert engine.step() == []
    engine.abort(dropped)
    assert engine.has_work
    assert engine.num_requests == 0
    # Somebody else has its pages and its slot at once, and none of its frames.
    [(codes, reason)] = run_all(engine, [(prompt_of(1, 0, 30, 9), replace(params, seed=9))])
    assert (codes[0, 0], codes.shape[1], reason) == (9, 9, "eos")
    assert not engine.has_work


def test_who_gives_way_gets_the_frame_that_was_on_its_way() -> None:
    """Or its end: then it ends while it waits, or has begun again."""
    rng, seen = np.random.default_rng(1), Counter[str]()
    for _ in range(200):
        engine = Engine(ScriptedExecutor(Capacity(16, 4, 4, 2000), depth=1), checked=True)
        asked = [
            (prompt_of(0, 0, own, n), SamplingParams(seed=seed, max_frames=most))
            for n, (own, most, seed) in enumerate(rng.integers(1, [30, 34, 41], (8, 3)).tolist())
        ]
        requests = [engine._requests[engine.add(*each)] for each in asked]
        while engine.has_work:
            before = [(r.num_preempted, r.next_frame, len(r.frames)) for r in requests]
            ended = {e.request_id: e.stop_reason for e in engine.step() if isinstance(e, Finished)}
            for request, (times, drawn, known) in zip(requests, before, strict=True):
                if request.num_preempted > times and drawn > known:
                    reason = ended.get(request.id, "goes on")
                    assert len(request.frames) == known + (reason != "eos")
                    seen[reason] += 1
        for request, (_, params) in zip(requests, asked, strict=True):
            assert len(request.frames) == min(ends_at(params.seed), params.max_frames)
    assert min(seen["goes on"], seen["eos"], seen["limit"]) > 5


@DEPTHS
def test_a_voice_is_worked_out_once_for_many_lines(depth: int) -> None:
    executor = ScriptedExecutor(Capacity(400, PAGE, 8, 2000), depth)
    engine = Engine(executor, budget=10_000, checked=True)
    asked = [(prompt_of(1, 200, 30, n), SamplingParams(seed=5, max_frames=5)) for n in range(20)]
    run_all(engine, asked)
    # Of 200 shared positions 192 are whole pages; the other 8 belong to each line.
    assert executor.num_prefilled == 192 + 20 * 38
    run_all(engine, [(prompt_of(1, 200, 9, 99), SamplingParams(seed=1, max_frames=2))])
    assert executor.num_prefilled == 192 + 20 * 38 + 17, "it is still known afterwards"


def test_two_voices_that_differ_below_the_first_row_share_nothing() -> None:
    one = prompt_of(1, 64, 10, 3)
    other = Prompt(one.matrix.copy(), num_shared=64)
    other.matrix[1] += 1
    executor = ScriptedExecutor(Capacity(100, PAGE, 4, 2000))
    engine = Engine(executor, checked=True)
    params = SamplingParams(seed=3, max_frames=3)
    run_all(engine, [(one, params)])
    run_all(engine, [(other, params)])
    assert executor.num_prefilled == 2 * 74


@DEPTHS
def test_a_long_prompt_does_not_hold_up_those_who_speak(depth: int) -> None:
    executor = ScriptedExecutor(Capacity(400, PAGE, 4, 4000), depth)
    engine = Engine(executor, budget=CHUNK, checked=True)
    first = engine.add(prompt_of(0, 0, 10, 1), SamplingParams(seed=40, max_frames=30))
    engine.step()
    engine.add(prompt_of(0, 0, 3000, 2), SamplingParams(seed=40, max_frames=3))
    while engine.has_work:
        before = executor.num_prefilled
        made = [e.request_id for e in engine.step() if isinstance(e, FrameMade | Finished)]
        assert executor.num_prefilled - before <= CHUNK
        if engine.num_requests == 2:
            assert first in made, "a frame beside every part of the prompt"


def test_what_can_never_fit_is_refused_at_once_with_both_numbers() -> None:
    engine = Engine(ScriptedExecutor(Capacity(10, PAGE, 4, 2000)), checked=True)
    with pytest.raises(UsageError, match=r"160 positions, and the model has 160"):
        engine.add(prompt_of(0, 0, 160, 1), SamplingParams())
    assert not engine.has_work


@DEPTHS
def test_a_request_ends_where_there_is_no_more_room(depth: int) -> None:
    engine = Engine(ScriptedExecutor(Capacity(10, PAGE, 4, 2000), depth), checked=True)
    for max_frames in (0, 1000):
        [(codes, reason)] = run_all(
            engine, [(prompt_of(0, 0, 150, 1), SamplingParams(seed=40, max_frames=max_frames))]
        )
        assert (codes.shape[1], reason) == (10, "limit")


def test_books_that_do_not_balance_are_noticed() -> None:
    engine = Engine(ScriptedExecutor(Capacity(10, PAGE, 4, 2000)))
    engine.add(prompt_of(0, 0, 20, 1), SamplingParams(seed=40, max_frames=30))
    engine.step()
    engine.scheduler.pages.take(1)
    with pytest.raises(AssertionError, match="held"):
        engine.scheduler.check()

"""Signals that come and go while others are decoded: who is in a step, and what each gets."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np
import pytest
import torch
from torch import Tensor

from fishtts.codec.batched import BatchDecoder, Signal, StepInputs, step_sizes
from fishtts.errors import ModelError

CHUNK, FRAME = 3, 2


class Counting:
    """A decoder whose samples are the sums of a signal's codes so far, slot by slot."""

    chunk_frames, num_slots, num_codebooks, samples_per_frame = CHUNK, 3, 2, FRAME
    device = torch.device("cpu")

    def __init__(self) -> None:
        self.sums = torch.full((self.num_slots + 1,), 1000)
        self.rows: list[int] = []

    def idle(self, num_rows: int) -> StepInputs:
        shape = (num_rows, self.num_codebooks, CHUNK)
        slots = torch.full((num_rows,), self.num_slots)
        return torch.zeros(shape, dtype=torch.int64), slots, torch.zeros_like(slots)

    def decode(self, codes: Tensor, slots: Tensor, positions: Tensor) -> Tensor:
        self.rows.append(int((slots < self.num_slots).sum()))
        taken = slots[slots < self.num_slots]
        assert len(set(taken.tolist())) == len(taken), "two rows of one step share a slot"
        before = torch.where(positions == 0, 0, self.sums[slots])
        sums = before[:, None] + codes.sum(1).cumsum(1)
        self.sums[slots] = sums[:, -1]
        return sums.float().repeat_interleave(FRAME, dim=1)


class Direct:
    """Runs programs as they stand."""

    def run(
        self,
        key: Hashable,
        program: Callable[..., Tensor],
        inputs: tuple[Tensor, ...],
        idle: tuple[Tensor, ...],
    ) -> Tensor:
        assert [each.shape for each in inputs] == [each.shape for each in idle]
        return program(*inputs)


def begun(sizes: tuple[int, ...] = (1, 2)) -> tuple[BatchDecoder, Counting]:
    decoder = Counting()
    return BatchDecoder(decoder, Direct(), sizes), decoder


def frames(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 9, (count, 2))


def wanted(codes: np.ndarray) -> list[float]:
    return np.repeat(codes.sum(1).cumsum(), FRAME).astype(float).tolist()


def taken(signal: Signal) -> list[float]:
    return [float(value) for samples in signal.take() for value in samples]


def push(signal: Signal, codes: np.ndarray) -> None:
    for frame in codes:
        signal.push(frame)


@pytest.mark.parametrize("sizes", [(1,), (2,), (1, 3)])
@pytest.mark.parametrize("seed", range(6))
def test_whoever_comes_and_goes_everybody_gets_their_own_samples(
    seed: int, sizes: tuple[int, ...]
) -> None:
    """More signals than slots, of odd lengths, some urgent, some given up."""
    batch, _ = begun(sizes)
    draw = np.random.default_rng(seed)
    waiting = [frames(number, int(draw.integers(0, 11))) for number in range(12)]
    running: list[tuple[Signal, np.ndarray, list[float]]] = []
    ended: list[tuple[Signal, np.ndarray, list[float]]] = []
    while waiting or running:
        if waiting and len(running) < 3:
            running.append((batch.begin(is_urgent=draw.random() < 0.3), waiting.pop(), []))
        for entry in list(running):
            signal, codes, samples = entry
            if signal.num_frames < len(codes):
                signal.push(codes[signal.num_frames])
            else:
                running.remove(entry)
                if draw.random() < 0.2:
                    batch.drop(signal)
                else:
                    batch.end(signal)
                    ended.append(entry)
            samples.extend(taken(signal))
        batch.advance()
    for signal, codes, samples in ended:
        assert batch.complete(signal)
        assert samples + taken(signal) == wanted(codes)
    assert batch.num_signals == 0


def test_one_that_somebody_listens_to_goes_at_once_the_others_together() -> None:
    batch, decoder = begun()
    patient = [batch.begin(is_urgent=False) for _ in range(3)]
    push(patient[0], frames(0, CHUNK))
    batch.advance()
    assert decoder.rows == []
    push(patient[1], frames(1, CHUNK))
    batch.advance()
    assert decoder.rows == [2]
    hurried = batch.begin(is_urgent=True)
    push(patient[0], frames(2, CHUNK))
    push(hurried, frames(3, CHUNK))
    batch.advance()
    assert decoder.rows == [2, 2]
    batch.advance()
    assert taken(hurried) == wanted(frames(3, CHUNK))


def test_an_end_waits_for_a_slot_that_only_others_can_give_back() -> None:
    batch, _ = begun((3,))
    holders = [batch.begin(is_urgent=True) for _ in range(3)]
    for holder in holders:
        push(holder, frames(1, CHUNK))
    batch.advance()
    late = batch.begin(is_urgent=False)
    push(late, frames(2, 4))
    batch.end(late)
    assert not batch.complete(late)
    batch.drop(holders[0])
    assert batch.complete(late)
    assert taken(late) == wanted(frames(2, 4))


def test_preparing_disturbs_nobody() -> None:
    batch, decoder = begun()
    batch.prepare()
    assert decoder.rows == [0]
    signal = batch.begin(is_urgent=True)
    push(signal, frames(1, 2))
    batch.end(signal)
    assert batch.complete(signal)
    assert taken(signal) == wanted(frames(1, 2))


def test_a_signal_of_nothing_is_complete_when_it_ends() -> None:
    batch, _ = begun()
    signal = batch.begin(is_urgent=True)
    batch.end(signal)
    assert batch.complete(signal)
    assert taken(signal) == []
    assert batch.num_signals == 0


def test_codes_of_another_codec_are_refused() -> None:
    batch, _ = begun()
    signal = batch.begin(is_urgent=True)
    for codes in (np.zeros(3, np.int64), np.array([0, -1])):
        with pytest.raises(ModelError, match="do not fit the codec, which has 2 codebooks"):
            signal.push(codes)


def test_sizes_of_steps_are_powers_of_two_and_the_most() -> None:
    assert step_sizes(1) == [1]
    assert step_sizes(8) == [1, 2, 4, 8]
    assert step_sizes(12) == [1, 2, 4, 8, 12]

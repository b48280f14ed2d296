"""Many signals decoded beside each other on a device, in steps that nobody waits for.

Owns which signal lies in which slot, which rows a step has, and how results come back: a step is
begun on a stream of its own, and its samples are fetched when they are there. Does not know how a
codec decodes, nor what the engine does meanwhile.

A step has rows for as many signals as one of the ``sizes``; those that are left over are nobody's.
Signals that somebody listens to go first and at once; the others wait until half of all signals
can go, since many rows cost little more than few.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fishtts.errors import ModelError
from fishtts.types import Codes, Samples

_IN_FLIGHT = 2
"""Steps that are begun and not fetched, at most: one that runs, and one that follows at once."""

StepInputs = tuple[Tensor, Tensor, Tensor]
"""Codes int64 [B, C, chunk_frames], slots int64 [B], positions int64 [B] in frames."""


class StepDecoder(Protocol):
    """Decodes steps of one shape; see ``dac_batch.DacBatch``. Row by row: what a row gives depends
    on no other row."""

    chunk_frames: int
    num_slots: int
    num_codebooks: int
    samples_per_frame: int
    device: torch.device

    def idle(self, num_rows: int) -> StepInputs:
        """Inputs of a step of rows that are nobody's."""
        ...

    def decode(self, codes: Tensor, slots: Tensor, positions: Tensor) -> Tensor:
        """Go on with the signals in these slots -> float32 [B, chunk_frames * frame]."""
        ...


class Programs(Protocol):
    """Runs a program on inputs that may lie on the host; see ``fishtts/engine/graphs.py``."""

    def run(
        self,
        key: Hashable,
        program: Callable[..., Tensor],
        inputs: tuple[Tensor, ...],
        idle: tuple[Tensor, ...],
    ) -> Tensor: ...


class Signal:
    """One signal being decoded; made by ``BatchDecoder.begin``."""

    def __init__(self, shape: tuple[int, int], *, is_urgent: bool) -> None:
        self.is_urgent = is_urgent
        self.is_ended = self.is_dropped = False
        self.slot: int | None = None
        self.num_frames = self.num_begun = self.num_decoded = 0
        self._shape = shape
        self._chunks: deque[np.ndarray[Any, np.dtype[np.int64]]] = deque()
        self._fresh: list[Samples] = []

    @property
    def is_complete(self) -> bool:
        """Whether it has ended and all of it is decoded."""
        return self.is_ended and self.num_decoded == self.num_frames

    @property
    def has_samples(self) -> bool:
        """Whether something was decoded since the last ``take``."""
        return bool(self._fresh)

    @property
    def can_go(self) -> bool:
        """Whether it has the frames of a step: a whole chunk, or all that will come."""
        waiting = self.num_frames - self.num_begun
        return not self.is_dropped and (
            waiting >= self._shape[1] or (self.is_ended and waiting > 0)
        )

    def push(self, codes: Codes) -> None:
        """Take on a further frame [C].

        Raises: ``ModelError`` for codes of another codec.
        """
        assert not self.is_ended, "a signal that has ended takes no more frames"
        if codes.shape != self._shape[:1] or codes.min() < 0:
            raise ModelError(
                f"Codes of shape {list(codes.shape)} do not fit the codec, which has "
                f"{self._shape[0]} codebooks."
            )
        place = self.num_frames % self._shape[1]
        if place == 0:
            self._chunks.append(np.zeros(self._shape, np.int64))
        self._chunks[-1][:, place] = codes
        self.num_frames += 1

    def take(self) -> list[Samples]:
        """Answer what was decoded since the last call."""
        fresh, self._fresh = self._fresh, []
        return fresh

    def begin_chunk(self) -> tuple[np.ndarray[Any, np.dtype[np.int64]], int, int]:
        """Hand out the next chunk [C, f], where it begins, and how many frames it really has."""
        start = self.num_begun
        count = min(self._shape[1], self.num_frames - start)
        self.num_begun += count
        return self._chunks.popleft(), start, count

    def receive(self, samples: Samples, num_frames: int) -> None:
        """Take the samples of so many frames."""
        self.num_decoded += num_frames
        self._fresh.append(samples)


@dataclass(frozen=True, slots=True)
class _Step:
    """A step that was begun: where its samples will lie, once ``event`` has happened."""

    rows: list[tuple[Signal, int]]
    samples: Tensor
    event: torch.cuda.Event | None


class BatchDecoder:
    """Decodes signals beside each other. ``sizes`` are the numbers of rows that a step may have."""

    def __init__(self, decoder: StepDecoder, programs: Programs, sizes: Sequence[int]) -> None:
        assert max(sizes) <= decoder.num_slots, "a step has no more rows than there are slots"
        self._decoder, self._programs, self._sizes = decoder, programs, sorted(sizes)
        self._signals: list[Signal] = []
        self._free = list(range(decoder.num_slots))[::-1]
        self._flying: deque[_Step] = deque()
        self._idle = {size: decoder.idle(size) for size in self._sizes}
        self._stream: torch.cuda.Stream | None = None
        if decoder.device.type == "cuda":
            self._stream = torch.cuda.Stream(decoder.device)
            # The weights were brought into order on the current one.
            self._stream.wait_stream(torch.cuda.current_stream(decoder.device))

    def prepare(self) -> None:
        """Run the smallest step once, of rows that are nobody's: its kernels are compiled, and a
        graph of it captured, before anybody waits for it."""
        self._start([], self._idle[self._sizes[0]])

    @property
    def num_signals(self) -> int:
        """Signals that are not complete."""
        return len(self._signals)

    def begin(self, *, is_urgent: bool) -> Signal:
        """Begin a signal. ``is_urgent`` says that somebody listens."""
        shape = (self._decoder.num_codebooks, self._decoder.chunk_frames)
        signal = Signal(shape, is_urgent=is_urgent)
        self._signals.append(signal)
        return signal

    def end(self, signal: Signal) -> None:
        """No more frames of this signal will come."""
        signal.is_ended = True
        if signal.is_complete:
            self._leave(signal)

    def drop(self, signal: Signal) -> None:
        """Give a signal up; one that is complete is left alone."""
        if signal in self._signals:
            signal.is_dropped = True
            self._leave(signal)

    def advance(self) -> None:
        """Fetch what is there and begin what is worth it. Waits for nothing."""
        while self._flying and self._is_there(self._flying[0]):
            self._land()
        ready = self._ready()
        is_worth_it = 2 * len(ready) >= len(self._signals) or any(s.is_urgent for s in ready)
        if ready and is_worth_it and len(self._flying) < _IN_FLIGHT:
            self._begin(ready)

    def complete(self, signal: Signal) -> bool:
        """Wait until a signal that has ended is decoded.

        Answers whether it is: not where all slots belong to signals of which more frames will come.
        """
        assert signal.is_ended, "more frames may come"
        assert not signal.is_dropped, "it was given up"
        while not signal.is_complete:
            ready = self._ready()
            if ready and len(self._flying) < _IN_FLIGHT:
                # It goes even where it would not be worth it.
                self._begin(sorted(ready, key=lambda each: each is not signal))
            elif self._flying:
                self._land()
            else:
                return False
        return True

    def _ready(self) -> list[Signal]:
        """Signals that can go, in the order in which they should. One without a slot gets one while
        there are any; those that have ended come first, since they give theirs back."""
        able = [signal for signal in self._signals if signal.can_go]
        able.sort(key=lambda signal: (not signal.is_urgent, not signal.is_ended))
        for signal in able:
            if signal.slot is None and self._free:
                signal.slot = self._free.pop()
        return [signal for signal in able if signal.slot is not None]

    def _begin(self, ready: Sequence[Signal]) -> None:
        """Begin a step with as many as it can have."""
        taken = ready[: self._sizes[-1]]
        size = next(size for size in self._sizes if size >= len(taken))
        shape = (size, self._decoder.num_codebooks, self._decoder.chunk_frames)
        codes, rows = np.zeros(shape, np.int64), []
        slots = np.full(size, self._decoder.num_slots, np.int64)
        positions = np.zeros(size, np.int64)
        for row, signal in enumerate(taken):
            codes[row], positions[row], count = signal.begin_chunk()
            assert signal.slot is not None
            slots[row] = signal.slot
            rows.append((signal, count))
        self._start(
            rows, (torch.from_numpy(codes), torch.from_numpy(slots), torch.from_numpy(positions))
        )

    def _start(self, rows: list[tuple[Signal, int]], inputs: StepInputs) -> None:
        """Let the device begin a step, and bring its samples to the host after it."""
        idle = self._idle[len(inputs[0])]
        with torch.cuda.stream(self._stream) if self._stream else nullcontext():
            made = self._programs.run("decode", self._decoder.decode, inputs, idle)
            if self._stream is None:
                self._flying.append(_Step(rows, made, None))
                return
            samples = torch.empty(made.shape, dtype=made.dtype, pin_memory=True)
            samples.copy_(made, non_blocking=True)
            event = torch.cuda.Event()
            event.record(self._stream)
        self._flying.append(_Step(rows, samples, event))

    def _is_there(self, step: _Step) -> bool:
        return step.event is None or step.event.query()

    def _land(self) -> None:
        """Wait for the oldest step and hand its samples out."""
        step = self._flying.popleft()
        if step.event is not None:
            step.event.synchronize()
        samples = step.samples.numpy()
        for row, (signal, count) in enumerate(step.rows):
            if signal.is_dropped:
                continue
            # A copy: pinned memory is not to be held for as long as somebody listens.
            signal.receive(samples[row, : count * self._decoder.samples_per_frame].copy(), count)
            if signal.is_complete:
                self._leave(signal)

    def _leave(self, signal: Signal) -> None:
        """Forget a signal. Its slot may be taken at once: steps run in the order they began in."""
        self._signals.remove(signal)
        if signal.slot is not None:
            self._free.append(signal.slot)
            signal.slot = None


def step_sizes(most: int) -> list[int]:
    """Numbers of rows that a step may have: powers of two, and the most."""
    sizes = [2**power for power in range(most.bit_length()) if 2**power < most]
    return [*sizes, most]

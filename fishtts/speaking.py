"""Units of text to samples: prompt, frames, decoding, checks, and further tries.

Owns what makes a try good enough, and when audio may go out before its unit is finished. Knows
nothing of the order of units, and nothing of files.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch

from fishtts.codec import Codec
from fishtts.codec.batched import BatchDecoder, step_sizes
from fishtts.engine.checks import Fault, code_faults, longest_s, shortest_s, sound_faults
from fishtts.engine.engine import Engine
from fishtts.engine.graphs import captured_steps
from fishtts.engine.request import Finished
from fishtts.errors import DeviceError
from fishtts.models import LoadedModel
from fishtts.plan import PlannedUnit, expected_seconds, unit_seed
from fishtts.types import Codes, Reference, Samples, SamplingParams, StopReason

_CHUNK_S = 0.5
"""How much is decoded at a time while somebody listens: enough that the codec's fixed cost per call
does not count."""

_END_STEPS = 16
"""Steps after which a try's end is fetched. By then it is decoded: on a CPU a step of many rows
takes 50 ms, and decoding a long sentence 100 to 200; beside others on a GPU there is one chunk to
decode, which takes about as long as a step."""

_SPARE_SLOTS = 8
"""Signals beyond those being made that may have their end decoded."""


@dataclass(frozen=True, slots=True)
class Try:
    """One try at a unit. ``is_out`` tells that its samples went out while it was made."""

    codes: Codes
    samples: Samples
    seed: int
    number: int
    stop_reason: StopReason
    faults: tuple[Fault, ...]
    is_out: bool


class UnitInWork:
    """One unit being spoken.

    ``items`` are what came of it and was not fetched yet: samples that may go out at once, and at
    last the try that is kept (the first of those with the fewest faults).

    ``live`` lets samples go out as soon as the unit is long enough to be whole and nothing is wrong
    with it so far. What goes wrong after that cannot be mended, only reported.
    """

    def __init__(
        self,
        planned: PlannedUnit,
        references: Sequence[Reference],
        params: SamplingParams,
        *,
        retries: int,
        live: bool,
    ) -> None:
        self.planned, self.references, self.params = planned, references, params
        self.retries, self.live = retries, live
        self.items: deque[Samples | Try] = deque()
        self.request_id = -1
        self.number = 0
        self.making: _Making
        self.kept: _Making | None = None


@dataclass(frozen=True, slots=True)
class _Ending:
    """A try that is being decoded and checked, to be fetched at the step ``due``."""

    unit: UnitInWork
    work: Future[bool] | None
    due: int


def batch_decoder(codec: Codec, max_batch: int, *, deterministic: bool) -> BatchDecoder | None:
    """Make what decodes units beside each other, where the codec's device is worth it.

    With ``deterministic`` all steps have the same number of rows, so that the same kernels run
    whoever else speaks.
    """
    num_slots = max_batch + _SPARE_SLOTS
    with memory_errors():
        decoder = codec.steps(num_slots)
        if decoder is None:
            return None
        sizes = [max_batch] if deterministic else step_sizes(max_batch)
        made = BatchDecoder(decoder, captured_steps(decoder.device), sizes)
        made.prepare()
        return made


class Speaking:
    """Speaks many units beside each other, each in as many tries as it needs.

    With a ``decoder`` units are decoded beside each other while they are made, and otherwise one by
    one. Then ``in_chunks`` decodes every unit in the chunks of one that is listened to, so that it
    has the same bits either way; without it, it is decoded whole, which is faster.
    """

    def __init__(
        self,
        model: LoadedModel,
        codec: Codec,
        engine: Engine,
        *,
        in_chunks: bool = False,
        decoder: BatchDecoder | None = None,
    ) -> None:
        self._model, self._codec, self._engine = model, codec, engine
        self._in_chunks = in_chunks
        self._decoder = decoder
        self._frame_rate = codec.sample_rate / codec.samples_per_frame
        self._units: dict[int, UnitInWork] = {}
        # A CPU has another core for what is decoded when nobody waits for it.
        has_worker = model.device.type == "cpu" and decoder is None
        self._worker = ThreadPoolExecutor(1, "fishtts-codec") if has_worker else None
        self._ending: deque[_Ending] = deque()

    @property
    def num_units(self) -> int:
        """Units whose frames are being made."""
        return len(self._units)

    def start(self, unit: UnitInWork) -> None:
        """Begin a unit.

        Raises: ``FishTTSError`` for one that the model cannot take.
        """
        unit.number += 1
        seed = unit.planned.seed
        if unit.number > 1:
            seed = unit_seed(seed, unit.planned.unit.text, attempt=unit.number)
        expected_s = unit.planned.expected_s
        pace = pace_of(unit.references, self._frame_rate)
        limit = max(1, round(longest_s(expected_s, pace) * self._frame_rate))
        if unit.params.max_frames:
            limit = min(limit, unit.params.max_frames)
        prompt = self._model.prompts.build(unit.planned.unit.model_text, unit.references)
        params = replace(unit.params, seed=seed, max_frames=limit)
        unit.request_id = self._engine.add(prompt, params)
        in_chunks = unit.live or self._in_chunks
        if self._decoder is None:
            unit.making = _Making(self._codec, expected_s, seed, in_chunks=in_chunks)
        else:
            unit.making = _BatchedMaking(
                self._codec, expected_s, seed, self._decoder, is_urgent=unit.live
            )
        self._units[unit.request_id] = unit

    def drop(self, unit: UnitInWork) -> None:
        """Give a unit up; one that is done is left alone."""
        if self._units.pop(unit.request_id, None) is not None:
            self._engine.abort(unit.request_id)
            unit.making.drop()
        for ending in [ending for ending in self._ending if ending.unit is unit]:
            if ending.work is not None:
                ending.work.cancel()
            unit.making.drop()
            self._ending.remove(ending)

    def step(self) -> None:
        """Make a step with every unit that is in work; what comes of it lies in their ``items``."""
        with memory_errors():
            for event in self._engine.step():
                unit = self._units[event.request_id]
                if isinstance(event, Finished):
                    self._end(unit, event.stop_reason)
                else:
                    unit.making.add(event.codes)
                    if unit.live and self._may_decode(unit):
                        unit.items.extend(unit.making.go_out())
            if self._decoder is not None:
                self._decoder.advance()
            while self._ending and self._is_due(self._ending[0]):
                ending = self._ending[0]
                if ending.work is not None:
                    ending.work.result()
                if not ending.unit.making.check():
                    break
                self._ending.popleft()
                self._judge(ending.unit)

    def _end(self, unit: UnitInWork, stop_reason: StopReason) -> None:
        """Let a try be decoded and checked, beside the others if nobody listens."""
        del self._units[unit.request_id]
        unit.making.end(stop_reason)
        work = None
        if self._decoder is None:
            if self._worker is None or unit.live:
                unit.making.check()
                self._judge(unit)
                return
            work = self._worker.submit(unit.making.check)
        self._ending.append(_Ending(unit, work, self._engine.metrics.num_steps + _END_STEPS))

    def _is_due(self, ending: _Ending) -> bool:
        """Tell whether to wait for a try to be checked. That goes by steps and not by the clock, so
        that further tries begin at the same step each time: the same run gives the same audio."""
        return self._engine.metrics.num_steps >= ending.due or not self._engine.has_work

    def _judge(self, unit: UnitInWork) -> None:
        """Keep a try that has ended, or make another."""
        making, kept = unit.making, unit.kept
        if making.is_out:
            unit.items.extend(making.go_out())
        if kept is None or making.is_out or len(making.faults) < len(kept.faults):
            unit.kept = kept = making
        if making.is_out or not making.faults or unit.number > unit.retries:
            unit.items.append(kept.result(unit.number))
        else:
            self.start(unit)

    def _may_decode(self, unit: UnitInWork) -> bool:
        """Wait until a unit cannot be too short any more, then go by chunks."""
        making = unit.making
        is_long_enough = (
            len(making.frames) >= shortest_s(unit.planned.expected_s) * self._frame_rate
        )
        return is_long_enough and making.has_chunk


def pace_of(references: Sequence[Reference], frame_rate: float) -> float | None:
    """Say how slowly a voice speaks: its seconds for each that are expected. ``None`` where its
    words are not known."""
    if not references or not all(reference.text.strip() for reference in references):
        return None
    seconds = sum(reference.codes.shape[1] for reference in references) / frame_rate
    return seconds / sum(expected_seconds(reference.text) for reference in references)


class _Making:
    """A unit in the making: its frames, the samples of those that are decoded, and its faults."""

    def __init__(self, codec: Codec, expected_s: float, seed: int, *, in_chunks: bool) -> None:
        self._codec = codec
        self._frame_rate = codec.sample_rate / codec.samples_per_frame
        self._chunk = max(1, round(_CHUNK_S * self._frame_rate)) if in_chunks else 0
        self._expected_s = expected_s
        self._stream = codec.stream()
        self._samples: list[Samples] = []
        self._num_decoded = 0
        self._num_chunks_out = 0
        self._stop_reason: StopReason | None = None
        self._is_finished = self._is_checked = False
        self.seed = seed
        self.frames: list[Codes] = []
        self.faults: tuple[Fault, ...] = ()
        self.is_out = False

    @property
    def num_waiting(self) -> int:
        """Frames that are not decoded yet."""
        return len(self.frames) - self._num_decoded

    @property
    def has_chunk(self) -> bool:
        """Whether there is enough to go out."""
        return self.num_waiting >= _CHUNK_S * self._frame_rate

    def add(self, codes: Codes) -> None:
        """Take on a further frame."""
        self.frames.append(codes)

    def drop(self) -> None:
        """It is given up."""

    def go_out(self) -> Iterator[Samples]:
        """Answer what has not gone out yet, unless something is wrong with the unit so far."""
        self._decode()
        if not self.is_out:
            self.is_out = not (self._code_faults() or self._sound_faults())
        if self.is_out:
            fresh = self._samples[self._num_chunks_out :]
            self._num_chunks_out = len(self._samples)
            yield from fresh

    def end(self, stop_reason: StopReason) -> None:
        """No more frames will come."""
        self._stop_reason = stop_reason

    def check(self) -> bool:
        """Judge the whole, once. What its codes condemn is not decoded: it may never be needed.

        Answers whether it could be judged yet.
        """
        if not self._is_checked:
            self._is_checked = True
            self.faults = self._code_faults()
            if self.is_out or not self.faults:
                self._decode()
                self.faults += self._sound_faults()
        return True

    def result(self, number: int) -> Try:
        """Answer this try as the one that is kept, of so many."""
        assert self._stop_reason is not None, "it has ended"
        self._decode()
        return Try(
            codes=self._codes(),
            samples=self._joined(),
            seed=self.seed,
            number=number,
            stop_reason=self._stop_reason,
            faults=self.faults,
            is_out=self.is_out,
        )

    def _decode(self) -> None:
        """Decode what waits, to the last sample if no more frames will come."""
        if self._is_finished:
            return
        fresh = []
        is_last = self._stop_reason is not None
        with torch.inference_mode():
            while self.num_waiting >= (1 if is_last else max(1, self._chunk)):
                end = len(self.frames)
                if self._chunk:
                    end = min(end, self._num_decoded + self._chunk)
                waiting = np.stack(self.frames[self._num_decoded : end], axis=1)
                fresh.append(self._stream.push(torch.from_numpy(waiting)))
                self._num_decoded = end
            if is_last:
                fresh.append(self._stream.finish())
                self._is_finished = True
        self._samples.extend(tensor.float().cpu().numpy() for tensor in fresh)
        if self._is_finished:
            self._assert_whole()

    def _assert_whole(self) -> None:
        """All frames that were made were decoded, to the last sample."""
        num_samples = sum(map(len, self._samples))
        made = len(self.frames) * self._codec.samples_per_frame
        assert num_samples == made, f"{num_samples} samples of {made} were decoded"

    def _codes(self) -> Codes:
        if not self.frames:
            return np.zeros((self._codec.num_codebooks, 0), np.int64)
        return np.stack(self.frames, axis=1)

    def _joined(self) -> Samples:
        return np.concatenate([np.zeros(0, np.float32), *self._samples])

    def _code_faults(self) -> tuple[Fault, ...]:
        return code_faults(
            self._codes(),
            frame_rate=self._frame_rate,
            expected_s=self._expected_s,
            stop_reason=self._stop_reason,
        )

    def _sound_faults(self) -> tuple[Fault, ...]:
        return sound_faults(self._joined(), sample_rate=self._codec.sample_rate)


class _BatchedMaking(_Making):
    """The same, decoded beside others while it is made: what its codes condemn, too."""

    def __init__(
        self, codec: Codec, expected_s: float, seed: int, decoder: BatchDecoder, *, is_urgent: bool
    ) -> None:
        super().__init__(codec, expected_s, seed, in_chunks=True)
        self._decoder = decoder
        self._signal = decoder.begin(is_urgent=is_urgent)

    @property
    def has_chunk(self) -> bool:
        """Whether there is something to go out."""
        return self._signal.has_samples

    def add(self, codes: Codes) -> None:
        """Take on a further frame."""
        super().add(codes)
        self._signal.push(codes)

    def drop(self) -> None:
        """It is given up."""
        self._decoder.drop(self._signal)

    def end(self, stop_reason: StopReason) -> None:
        """No more frames will come."""
        super().end(stop_reason)
        self._decoder.end(self._signal)

    def check(self) -> bool:
        """Judge the whole, unless it must wait for others to be decoded."""
        return self._decoder.complete(self._signal) and super().check()

    def _decode(self) -> None:
        """Fetch what was decoded."""
        self._samples.extend(self._signal.take())
        if self._signal.is_complete:
            self._assert_whole()


@contextmanager
def memory_errors() -> Iterator[None]:
    """Turn a lack of memory into one sentence."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError) as error:
        reason = str(error).split("\n")[0].split(". ")[0] or "none is left"
        raise DeviceError(
            f"There is not enough memory: {reason}.",
            hint="Close other programs, or choose a smaller model or --device cpu.",
        ) from None

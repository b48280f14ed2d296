"""One unit of text to samples: prompt, frames, decoding, checks, and further tries.

Owns what makes a try good enough, and when audio may go out before its unit is finished. Knows
nothing of the units before and after, and nothing of files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch

from fishtts.codec import Codec
from fishtts.engine.checks import Fault, code_faults, longest_s, shortest_s, sound_faults
from fishtts.engine.generate import PrefilledPrefix, generate
from fishtts.errors import DeviceError
from fishtts.models import LoadedModel
from fishtts.plan import PlannedUnit, unit_seed
from fishtts.types import Codes, Reference, Samples, SamplingParams, StopReason

_CHUNK_S = 0.5
"""How much is decoded at a time while somebody listens: enough that the codec's fixed cost per call
does not count."""


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


class UnitSpeaker:
    """Speaks units, one at a time.

    ``live`` lets samples go out as soon as the unit is long enough to be whole and nothing is wrong
    with it so far. What goes wrong after that cannot be mended, only reported.
    """

    def __init__(
        self, model: LoadedModel, codec: Codec, params: SamplingParams, *, retries: int, live: bool
    ) -> None:
        self._model = model
        self._codec = codec
        self._params = params
        self._retries = retries
        self._live = live
        self._frame_rate = codec.sample_rate / codec.samples_per_frame
        self._prefix: PrefilledPrefix | None = None
        """The voice's part of the prompt, worked out once for all units and tries."""

    @property
    def sample_rate(self) -> int:
        """Samples a second, in Hz."""
        return self._codec.sample_rate

    def speak(
        self, planned: PlannedUnit, references: Sequence[Reference]
    ) -> Iterator[Samples | Try]:
        """Try a unit until it passes: answers samples that may go out at once, at last the try
        that is kept (the first of those with the fewest faults)."""
        kept: _Making | None = None
        for number in range(1, self._retries + 2):
            seed = planned.seed
            if number > 1:
                seed = unit_seed(planned.seed, planned.unit.text, attempt=number)
            making = _Making(self._codec, planned.expected_s, seed)
            with memory_errors():
                yield from self._make(making, planned, references)
                if kept is None or making.is_out or len(making.faults) < len(kept.faults):
                    kept = making
                if making.is_out or not making.faults:
                    break
        assert kept is not None, "there is at least one try"
        with memory_errors():
            yield kept.result(number)

    def _make(
        self, making: _Making, planned: PlannedUnit, references: Sequence[Reference]
    ) -> Iterator[Samples]:
        """Make a unit once, from its first frame to its last, and judge it."""
        limit = max(1, round(longest_s(planned.expected_s) * self._frame_rate))
        if self._params.max_frames:
            limit = min(limit, self._params.max_frames)
        prompt = self._model.prompts.build(planned.unit.model_text, references)
        params = replace(self._params, seed=making.seed, max_frames=limit)
        run = generate(self._model, prompt, params, prefix=self._prefix)
        for frame in run:
            self._prefix = run.prefix
            making.frames.append(frame)
            if self._live and self._may_decode(making, planned.expected_s):
                yield from making.go_out()
        assert run.stop_reason is not None, "it has run to its end"
        making.end(run.stop_reason)
        if making.is_out:
            yield from making.go_out()

    def _may_decode(self, making: _Making, expected_s: float) -> bool:
        """Wait until a unit cannot be too short any more, then go by chunks."""
        is_long_enough = len(making.frames) >= shortest_s(expected_s) * self._frame_rate
        return is_long_enough and making.num_waiting >= _CHUNK_S * self._frame_rate


class _Making:
    """A unit in the making: its frames, the samples of those that are decoded, and its faults."""

    def __init__(self, codec: Codec, expected_s: float, seed: int) -> None:
        self._codec = codec
        self._frame_rate = codec.sample_rate / codec.samples_per_frame
        self._expected_s = expected_s
        self._stream = codec.stream()
        self._samples: list[Samples] = []
        self._num_decoded = 0
        self._num_chunks_out = 0
        self._stop_reason: StopReason | None = None
        self._is_finished = False
        self.seed = seed
        self.frames: list[Codes] = []
        self.faults: tuple[Fault, ...] = ()
        self.is_out = False

    @property
    def num_waiting(self) -> int:
        """Frames that are not decoded yet."""
        return len(self.frames) - self._num_decoded

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
        """Judge the whole. What its codes condemn is not decoded: it may never be needed."""
        self._stop_reason = stop_reason
        self.faults = self._code_faults()
        if self.is_out or not self.faults:
            self._decode()
            self.faults += self._sound_faults()

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
        with torch.inference_mode():
            if self.num_waiting:
                waiting = np.stack(self.frames[self._num_decoded :], axis=1)
                fresh.append(self._stream.push(torch.from_numpy(waiting)))
                self._num_decoded = len(self.frames)
            if self._stop_reason is not None:
                fresh.append(self._stream.finish())
                self._is_finished = True
        self._samples.extend(tensor.float().cpu().numpy() for tensor in fresh)

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

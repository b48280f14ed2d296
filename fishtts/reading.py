"""One text being spoken: its units beside each other, its samples in their order.

Owns when a unit may begin, the joins, and the report. Knows nothing of files, and nothing of how a
unit is made.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

from fishtts.audio.join import Joiner
from fishtts.audio.tempo import change_tempo
from fishtts.errors import DeviceError, FishTTSError
from fishtts.plan import Plan, PlannedUnit
from fishtts.report import Report, UnitReport
from fishtts.speaking import Speaking, Try, UnitInWork
from fishtts.types import Reference, Samples, SamplingParams

References = tuple[Reference, ...]


class Reading:
    """One text in work. ``voices`` gives the references of a unit's voice ("": the text's own).

    Without references, whoever speaks the first unit goes on: it is the reference of the others,
    which wait for it.
    """

    def __init__(
        self,
        plan: Plan,
        speaking: Speaking,
        voices: Callable[[str], References],
        params: SamplingParams,
        report: Report,
        *,
        speed: float,
        retries: int,
        live: bool,
    ) -> None:
        self.report = report
        self.error: FishTTSError | None = None
        self._speaking, self._params = speaking, params
        self._voices, self._speed = voices, speed
        self._retries, self._live = retries, live and speed == 1.0
        self._to_start = deque(plan.units)
        self._open: deque[tuple[PlannedUnit, UnitInWork | None]] = deque()
        self._joiner = Joiner(report.sample_rate)
        self._first_speaker: References = ()
        self._num_samples = 0
        self._unit_begin = 0
        self._started = time.perf_counter()

    @property
    def is_done(self) -> bool:
        """Tell whether nothing more comes."""
        return not self._to_start and not self._open

    def fill(self, width: int) -> None:
        """Begin further units, up to ``width`` in work, other texts' counted in.

        What the model cannot take ends the text, with that error.
        Raises: ``DeviceError``.
        """
        while self._to_start and self._speaking.num_units < width:
            planned = self._to_start[0]
            references = self._voices(planned.voice) or self._first_speaker
            if not references and any(unit for _, unit in self._open):
                return
            self._to_start.popleft()
            unit = None
            if not planned.is_silent:
                unit = UnitInWork(
                    planned, references, self._params, retries=self._retries, live=self._live
                )
                try:
                    self._speaking.start(unit)
                except DeviceError:
                    raise
                except FishTTSError as error:
                    self.error = error
                    self.drop()
                    return
            self._open.append((planned, unit))

    def take(self) -> Iterator[Samples]:
        """Answer the samples that can go out now, in order."""
        while self._open:
            planned, unit = self._open[0]
            kept: Try | None = None
            while unit is not None and unit.items:
                item = unit.items.popleft()
                if isinstance(item, Try):
                    kept = item
                    yield from self._tail(planned, kept)
                else:
                    yield from self._out(self._joiner.push(item))
            if unit is not None and kept is None:
                break
            if unit is None and not planned.unit.text:
                # A pause that was asked for by itself; other silent units have nothing to add.
                yield from self._out(self._joiner.end_unit(planned.unit.pause_s))
            self._open.popleft()
            self._close(planned, kept)
        self.report.work_s = time.perf_counter() - self._started

    def drop(self) -> None:
        """Give up what is not done."""
        for _, unit in self._open:
            if unit is not None:
                self._speaking.drop(unit)
        self._open.clear()
        self._to_start.clear()

    def _tail(self, planned: PlannedUnit, kept: Try) -> Iterator[Samples]:
        """The end of a unit, or all of it where nothing has gone out yet, and its pause."""
        if not kept.is_out:
            samples = change_tempo(kept.samples, self.report.sample_rate, self._speed)
            yield from self._out(self._joiner.push(samples))
        yield from self._out(self._joiner.end_unit(planned.unit.pause_s))

    def _out(self, samples: Samples) -> Iterator[Samples]:
        if len(samples):
            report = self.report
            self._num_samples += len(samples)
            report.seconds = self._num_samples / report.sample_rate
            report.first_audio_s = report.first_audio_s or time.perf_counter() - self._started
            yield samples

    def _close(self, planned: PlannedUnit, kept: Try | None) -> None:
        """Report a unit that is done."""
        report = self.report
        begin, self._unit_begin = self._unit_begin, self._num_samples
        span_s = (begin / report.sample_rate, (self._num_samples - begin) / report.sample_rate)
        report.units.append(_unit_report(planned, kept, *span_s))
        is_own = not planned.voice and not self._first_speaker
        if kept is not None and is_own and not kept.faults:
            self._first_speaker = (Reference(kept.codes, planned.unit.model_text),)


def _unit_report(
    planned: PlannedUnit, kept: Try | None, start_s: float, seconds: float
) -> UnitReport:
    unit = planned.unit
    if kept is None:
        return UnitReport(
            text=unit.text,
            model_text="",
            seed=planned.seed,
            tries=0,
            start_s=start_s,
            seconds=seconds,
            warnings=unit.warnings,
            voice=planned.voice,
        )
    return UnitReport(
        text=unit.text,
        model_text=unit.model_text,
        seed=kept.seed,
        tries=kept.number,
        start_s=start_s,
        seconds=seconds,
        voice=planned.voice,
        num_frames=kept.codes.shape[1],
        stop_reason=kept.stop_reason,
        faults=kept.faults,
        warnings=unit.warnings,
    )

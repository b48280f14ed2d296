"""The loop of a run: lines go out to be spoken, come back in any order, and are saved one by one.

Owns further tries at a line, and that a bad line never stops the others. Knows no model (only a
call that speaks lines) and no order of the script.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from fishtts.errors import AudioError, FishTTSError, ModelError, ScriptError, UsageError, VoiceError
from fishtts.jobs.folder import RunFolder
from fishtts.jobs.manifest import EndReason, Record
from fishtts.jobs.plan import Job, Planner, next_seed
from fishtts.jobs.stopping import Stopping
from fishtts.jobs.verify import Verifier
from fishtts.types import Samples, Voice

if TYPE_CHECKING:
    from fishtts.report import Report
    from fishtts.tts import Line, Speech, SpokenLine

Speak = Callable[[Iterable["Line"]], Iterator["SpokenLine"]]

LoadSpeaker = Callable[[], tuple[Speak, Mapping[str, "Voice | None"]]]
"""Loads the model; answers what speaks lines, and the jobs' voices, encoded, by their identity."""

_HOPELESS = (ScriptError, UsageError, VoiceError, ModelError, AudioError)
"""Errors that another seed does not mend."""


class Reporter(Protocol):
    """Who is told of every line."""

    def line(self, job: Job, record: Record, *, is_new: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How lines are saved, and how often they are tried. ``model`` is its files' identity."""

    format_name: str
    retries: int
    model: str


@dataclass(slots=True)
class _Attempt:
    """A job on its way. ``again`` counts how often it was asked for anew, ``number`` the tries
    before this one, ``best`` is the best of those that came out."""

    job: Job
    again: int = 0
    number: int = 0
    also: tuple[str, ...] = ()
    best: _Made | None = None


@dataclass(frozen=True, slots=True)
class _Made:
    record: Record
    samples: Samples
    is_saved: bool = False

    @property
    def badness(self) -> tuple[bool, float]:
        """Order tries: the one with the least of it is kept."""
        return self.record.status != "ok", self.record.wer or 0.0


@dataclass(slots=True)
class Run:
    """One run over the jobs of a folder. ``load`` is called when there is something to speak."""

    folder: RunFolder
    planner: Planner
    load: LoadSpeaker
    options: RunOptions
    reporter: Reporter
    stopping: Stopping
    verifier: Verifier | None = None
    records: dict[str, Record] = field(default_factory=dict)
    """What became of each job of this run, by key."""

    _queue: deque[_Attempt] = field(default_factory=deque)
    _flying: dict[str, _Attempt] = field(default_factory=dict)
    _loaded: tuple[Speak, Mapping[str, Voice | None]] | None = None

    def make(self, jobs: Sequence[Job], *, anew: Mapping[str, int]) -> None:
        """Speak and save jobs; ``anew`` says which were asked for again, and for which time.

        Raises: ``Stopped`` where a stop was asked for, ``DeviceError`` where going on is no use.
        """
        for job in jobs:
            self._queue.append(self._first_attempt(job, anew.get(job.key, 0)))
        self._work()

    def verify(self, found: Iterable[tuple[Job, Record, Samples]]) -> None:
        """Listen to finished lines that nobody listened to; make anew those that fail."""
        assert self.verifier is not None, "there is somebody to listen"
        for job, record, samples in found:
            self.stopping.check()
            attempt = _Attempt(job, record.again, also=record.also)
            self._judge(attempt, _Made(replace(record, status="ok"), samples, is_saved=True))
        self._work()

    def _work(self) -> None:
        if self._queue and self._loaded is None:
            self._loaded = self.load()
        while self._queue and self._loaded is not None:
            self.stopping.check()
            speak, voices = self._loaded
            for spoken in speak(self._feed(voices)):
                self._take(spoken)

    def _first_attempt(self, job: Job, again: int) -> _Attempt:
        """Begin a job. It stands in for work on the same words that fell short or failed."""
        also = set()
        for record in self.folder.records_of(job.line.id):
            if record.status != "ok" and record.text == job.line.text and record.take == job.take:
                also |= {record.key, *record.also}
        if again:
            job = self.planner.with_seed(job, next_seed(job.config.seed, "again", again))
        return _Attempt(job, again, also=tuple(sorted(also - {job.key, ""})))

    def _feed(self, voices: Mapping[str, Voice | None]) -> Iterator[Line]:
        """Hand out lines as there is room for them; none once a stop was asked for."""
        from fishtts.tts import Line

        while self._queue and not self.stopping.requested:
            attempt = self._queue.popleft()
            job = attempt.job
            assert job.plan is not None, "there is something to say"
            self._flying[job.key] = attempt
            yield Line(job.key, job.plan, voices[job.voice.identity], job.config)

    def _take(self, spoken: SpokenLine) -> None:
        attempt = self._flying.pop(spoken.key)
        if spoken.speech is not None:
            record = self._record(attempt, spoken.speech)
            self._judge(attempt, _Made(record, spoken.speech.samples))
        elif spoken.error is not None:
            self._fail(attempt, spoken.error)

    def _judge(self, attempt: _Attempt, made: _Made) -> None:
        """Listen to a line if somebody does; try it again, or keep the best try."""
        passes = True
        if self.verifier is not None and len(made.samples):
            heard = self.verifier.judge(attempt.job, made.samples, made.record.sample_rate)
            passes = self.verifier.passes(heard.wer)
            record = replace(made.record, wer=round(heard.wer, 4), missed=heard.missed)
            if not passes:
                record = replace(record, status="fell_short", stop_reason="retry_exhausted")
            made = replace(made, record=record)
        if attempt.best is None or made.badness < attempt.best.badness:
            attempt.best = made
        if passes or attempt.number >= self.options.retries:
            self._keep(attempt, attempt.best)
        else:
            self._try_again(attempt)

    def _try_again(self, attempt: _Attempt) -> None:
        number = attempt.number + 1
        seed = next_seed(attempt.job.config.seed, "retry", number)
        job = self.planner.with_seed(attempt.job, seed)
        self._queue.appendleft(_Attempt(job, attempt.again, number, attempt.also, attempt.best))

    def _keep(self, attempt: _Attempt, made: _Made) -> None:
        record = replace(made.record, retries=max(made.record.retries, attempt.number))
        with self.stopping.saving():
            if made.is_saved:
                self.folder.append(record)
            else:
                record = self.folder.save(record, made.samples, self.options.format_name)
        self._done(attempt.job, record, is_new=not made.is_saved)

    def _fail(self, attempt: _Attempt, error: FishTTSError) -> None:
        hopeless = isinstance(error, _HOPELESS)
        if not hopeless and attempt.number < self.options.retries:
            self._try_again(attempt)
        elif attempt.best is not None:
            self._keep(attempt, attempt.best)
        else:
            record = replace(
                base_record(attempt.job, self.options.model),
                status="failed",
                stop_reason="aborted",
                retries=attempt.number,
                again=attempt.again,
                also=attempt.also,
                error=str(error),
            )
            with self.stopping.saving():
                self.folder.append(record)
            self._done(attempt.job, record, is_new=True)

    def _done(self, job: Job, record: Record, *, is_new: bool) -> None:
        self.records[job.key] = record
        self.reporter.line(job, record, is_new=is_new)

    def _record(self, attempt: _Attempt, speech: Speech) -> Record:
        job, report = attempt.job, speech.report
        warnings = dict.fromkeys(w for unit in report.units for w in unit.warnings)
        problems = dict.fromkeys(report.problems)
        return replace(
            base_record(job, self.options.model),
            status="fell_short" if problems else "ok",
            frames=sum(unit.num_frames for unit in report.units),
            samples=len(speech.samples),
            sample_rate=speech.sample_rate,
            seconds=round(len(speech.samples) / speech.sample_rate, 6),
            stop_reason=_stop_reason(report),
            retries=max((unit.tries - 1 for unit in report.units if unit.tries), default=0),
            again=attempt.again,
            also=attempt.also,
            file=job.file,
            warnings=(*warnings, *problems),
        )


def base_record(job: Job, model: str) -> Record:
    """Say of a job what is known before it is spoken."""
    line = job.line
    return Record(
        id=line.id,
        line=line.number,
        text=line.text,
        status="skipped",
        model_text=job.model_text,
        voice=job.voice.name,
        seed=job.config.seed,
        model=model,
        key=job.key,
        take=job.take,
        heading=line.heading,
        error=job.reason if job.loses_words else "",
        warnings=(job.reason,) if job.reason and not job.loses_words else (),
    )


def _stop_reason(report: Report) -> EndReason:
    """Say how a line ended: well, or at the limit, or with a fault that all tries had."""
    faulty = [unit for unit in report.units if unit.faults]
    if not faulty:
        return "eos"
    return "limit" if any(unit.stop_reason == "limit" for unit in faulty) else "retry_exhausted"

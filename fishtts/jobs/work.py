"""The work in one folder: what is finished, what is to be made, what became of it.

Owns the order of a run after its script was planned. Knows neither command lines nor models.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from fishtts.errors import LimitError, UsageError
from fishtts.jobs import join
from fishtts.jobs.drift import Drift
from fishtts.jobs.folder import (
    Ledger,
    Permissions,
    RunFolder,
    check_targets,
    described,
    open_folder,
)
from fishtts.jobs.manifest import Record, Status, write_whole
from fishtts.jobs.plan import Job, Planner, next_seed
from fishtts.jobs.progress import Progress, readable_time
from fishtts.jobs.run import Run, RunOptions, Speak, base_record
from fishtts.jobs.shard import Shard, shard_folders
from fishtts.jobs.stopping import Stopping
from fishtts.jobs.verify import Verifier, passes
from fishtts.text.records import record_of
from fishtts.types import Samples, Voice

FAILED = "failed.jsonl"
CHAPTERS = "chapters.json"
_MAX_NAMED = 20


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is to be done. ``chosen`` are the ids that are worked on (None: all), ``redo`` those
    that are made again, ``pause_s`` the silence between two lines of a joined file. ``max_wer`` is
    the share of words that may be heard wrongly, None where nobody listens."""

    format_name: str
    retries: int
    chosen: set[str] | None
    redo: set[str]
    shard: Shard | None
    merges: bool
    may_be_incomplete: bool
    allowed: Permissions
    joined: Path | None
    subtitles: tuple[Path, ...]
    pause_s: float
    max_wer: float | None = None
    is_rest: bool = False
    """Tells that the script is what failed of a whole that is not at hand."""

    def include(self, job: Job) -> bool:
        """Tell whether a job is to be worked on."""
        is_dealt = self.shard is None or self.shard.holds(job.line.id)
        return is_dealt and (self.chosen is None or job.line.id in self.chosen)


class Tools(Protocol):
    """What speaks and what listens; loaded when asked for."""

    def speaker(self, jobs: Sequence[Job]) -> tuple[Speak, dict[str, Voice | None]]: ...
    def verifier(self) -> Verifier | None: ...
    @property
    def drift(self) -> Drift: ...


class Work:
    """One run's work; its steps are called in the order in which they stand here."""

    def __init__(
        self,
        folder: RunFolder,
        jobs: Sequence[Job],
        planner: Planner,
        wishes: Wishes,
        progress: Progress,
        stopping: Stopping,
    ) -> None:
        shard = wishes.shard
        self._jobs = [job for job in jobs if shard is None or shard.holds(job.line.id)]
        self._folder = folder
        self._planner = planner
        self._wishes = wishes
        self._progress = progress
        self._stopping = stopping
        self._model = planner.settings.model
        self._records: dict[str, Record] = {}
        """What became of each job: by its key, or its file where there is nothing to say."""

        self._to_make: list[Job] = []
        self._anew: dict[str, int] = {}
        self._placed: list[join.Placed] = []
        self._has_looked = False

    def look(self) -> None:
        """Find what is finished, bring it to its names, and refuse what must not be replaced."""
        self._leave_out_merged()
        moves: list[tuple[Job, Record, Path]] = []
        with ExitStack() as stack:
            places = [self._folder, *self._shards(stack)]
            for job in self._jobs:
                if job.plan is None:
                    self._records[job.file] = base_record(job, self._model)
                elif job.line.id in self._wishes.redo:
                    self._redo(job)
                else:
                    self._look_for(job, places, moves)
            self._check_complete()
            kept = [*self._records.values(), *(record for _, record, _ in moves)]
            skipped = [job for job in self._jobs if job.plan is None]
            targets = [*self._to_make, *(job for job, _, _ in moves), *skipped]
            check_targets(self._folder, targets, kept, self._wishes.allowed)
            if moves:
                self._records |= self._folder.adopt(moves)
        self._has_looked = True

    def make(self, tools: Tools) -> None:
        """Make what is missing; listen to what nobody listened to."""
        for job in self._jobs:
            if job.plan is None:
                self._skip(job)
        unheard = list(self._unheard())
        self._progress.start(
            self._to_make,
            num_lines=len(self._jobs),
            num_done=len(self._jobs) - len(self._to_make) - len(unheard),
        )
        if not self._to_make and not unheard:
            return
        jobs = [*self._to_make, *(job for job, _ in unheard)]
        run = Run(
            folder=self._folder,
            planner=self._planner,
            load=lambda: tools.speaker(jobs),
            options=RunOptions(self._wishes.format_name, self._wishes.retries, self._model),
            reporter=self._progress,
            stopping=self._stopping,
            verifier=tools.verifier(),
            drift=tools.drift,
            records=self._records,
        )
        if unheard:
            run.verify((job, record, self._samples(record)) for job, record in unheard)
        run.make(self._to_make, anew=self._anew)

    def join(self) -> None:
        """Place the lines one after another; write the joined file, chapters and subtitles."""
        made = [
            (job, record)
            for job in self._jobs
            if job.take == 1 and (record := self._records.get(job.key)) and record.file
        ]
        self._placed = join.lay_out(made, self._wishes.pause_s)
        wishes = self._wishes
        if wishes.shard is not None or not (wishes.joined or wishes.subtitles) or not made:
            return
        if wishes.is_rest:
            self._progress.note("Run the whole script again to join them with the others.")
            return
        missing = self._missing()
        if missing and not wishes.may_be_incomplete:
            self._progress.note(
                f"Nothing is joined yet: {len(missing)} lines are still to be made, the first is"
                f" {missing[0].name}."
            )
            return
        self._records |= join.timed(self._placed)
        if wishes.joined is not None:
            join.join(
                self._folder.path,
                self._placed,
                wishes.joined,
                force=wishes.allowed.force,
                stopping=self._stopping,
            )
        self._write_beside()

    def save(self) -> None:
        """Put the manifest in order, and write down what failed."""
        if not self._has_looked:
            return
        with self._stopping.saving():
            records = [record for job in self._jobs if (record := self._record_of(job))]
            self._folder.put_in_order(records, in_place=self._wishes.is_rest)
            failed = [record for record in records if _is_bad(record) and record.take == 1]
            path = self._folder.path / FAILED
            if failed:
                write_whole(path, "".join(self._failed_lines(failed)))
            else:
                with suppress(OSError):
                    path.unlink(missing_ok=True)

    def stopped(self) -> None:
        """Tell that the run ends before its work does."""
        self._progress.end()
        self._progress.event("stopped", done=self._num_done(), lines=len(self._jobs))

    def kept(self) -> str:
        """Say what is safe, and how to go on."""
        num_done = self._num_done()
        done = f"{num_done} of {len(self._jobs)} lines are finished. " if num_done else ""
        return f"{done}Run the same command again to go on."

    def finish(self) -> None:
        """Tell how it went.

        Raises: ``LimitError`` where lines failed or fell short.
        """
        records = [record for job in self._jobs if (record := self._records.get(_place(job)))]
        counts = Counter(record.status for record in records)
        speed = self._progress.speed()
        self._progress.end(
            ok=counts["ok"],
            skipped=counts["skipped"],
            fell_short=counts["fell_short"],
            failed=counts["failed"],
            made_s=round(speed.audio_s, 3),
            work_s=round(speed.work_s, 3),
            file=str(self._wishes.joined or self._folder.path),
        )
        self._progress.note(self._summary(counts))
        bad = [record for record in records if _is_bad(record)]
        for record in bad[:_MAX_NAMED]:
            print(f"fishtts: {record.id}: {_reason(record)}", file=sys.stderr)
        if bad:
            raise LimitError(
                f"Finished, but {len(bad)} of {len(records)} lines failed or fell short.",
                hint=f"They are in {self._folder.path / FAILED}, which can be spoken again.",
            )

    def _shards(self, stack: ExitStack) -> Iterator[RunFolder]:
        """Open the folders of shares, where there are any: what is finished there is taken over."""
        if self._wishes.shard is None:
            for path in shard_folders(self._folder.path):
                yield stack.enter_context(open_folder(path))

    def _leave_out_merged(self) -> None:
        """Let a share do nothing that lies in the whole already."""
        if self._wishes.shard is not None:
            whole = Ledger.read(self._folder.path.parent)
            self._jobs = [job for job in self._jobs if whole.finished(job) is None]

    def _look_for(
        self, job: Job, places: Sequence[RunFolder], moves: list[tuple[Job, Record, Path]]
    ) -> None:
        for place in places:
            record = place.finished(job)
            if record is None or self._is_worth_a_try(record):
                continue
            if place is self._folder and record.file == job.file:
                self._records[job.key] = described(record, job)
            else:
                moves.append((job, record, place.path))
            return
        if self._wishes.include(job):
            self._to_make.append(job)

    def _is_worth_a_try(self, record: Record) -> bool:
        """Tell whether a line that fell short may come out better with more tries; words that the
        model cannot say are no matter of tries."""
        may_mend = record.status == "fell_short" and record.stop_reason != "eos"
        return may_mend and record.retries < self._wishes.retries

    def _redo(self, job: Job) -> None:
        records = self._folder.records_of(job.line.id)
        self._anew[job.key] = 1 + max((record.again for record in records), default=0)
        self._to_make.append(job)

    def _check_complete(self) -> None:
        """Refuse to merge before all shares are finished, unless told to."""
        if not self._wishes.merges or not self._to_make:
            return
        if not self._wishes.may_be_incomplete:
            raise UsageError(
                f"{len(self._to_make)} of {len(self._jobs)} lines are not made yet; the first is"
                f" {self._to_make[0].name}.",
                hint="Finish all shares first. --incomplete merges what there is; without --merge"
                " this command makes the rest.",
            )
        self._to_make.clear()

    def _skip(self, job: Job) -> None:
        """Record once that there is nothing to say in a line."""
        record = self._records[job.file]
        known = self._folder.records_of(job.line.id)
        if not known or (known[-1].status, known[-1].text) != ("skipped", record.text):
            self._folder.append(record)

    def _unheard(self) -> Iterator[tuple[Job, Record]]:
        """List finished lines that no recogniser has let pass, if one is to listen."""
        max_wer = self._wishes.max_wer
        if max_wer is None or self._wishes.merges:
            return
        for job in self._jobs:
            record = self._records.get(job.key)
            if record and record.status == "ok" and not passes(record.wer, max_wer):
                yield job, record

    def _samples(self, record: Record) -> Samples:
        import soundfile

        samples, _ = soundfile.read(self._folder.path / record.file, dtype="float32")
        return np.asarray(samples, np.float32)

    def _num_done(self) -> int:
        return len(self._jobs) - len(self._missing()) if self._has_looked else 0

    def _missing(self) -> list[Job]:
        """List jobs that nothing became of yet."""
        return [job for job in self._jobs if _place(job) not in self._records]

    def _record_of(self, job: Job) -> Record | None:
        """Find what is to stand in the manifest: what is new, or what stood there before."""
        record = self._records.get(_place(job))
        if record is None:
            before = [r for r in self._folder.records_of(job.line.id) if r.take == job.take]
            record = before[-1] if before else None
        return record

    def _write_beside(self) -> None:
        chapters = join.chapters(self._placed)
        if chapters:
            text = json.dumps(chapters, ensure_ascii=False, indent=2)
            write_whole(self._folder.path / CHAPTERS, f"{text}\n")
        for target in self._wishes.subtitles:
            force = self._wishes.allowed.force
            join.write_cues(self._folder.path, self._placed, target, force=force)
        late = [part for part in self._placed if part.late_s > 0]
        for part in late[:_MAX_NAMED]:
            self._progress.note(f"{part.record.id} begins {part.late_s:.2f} s after its cue.")

    def _failed_lines(self, failed: Sequence[Record]) -> Iterator[str]:
        """Write lines that failed as a script: under the same names, with other seeds."""
        jobs = {job.line.id: job for job in self._jobs if job.take == 1}
        for record in failed:
            job = jobs[record.id]
            seed = next_seed(record.seed, "failed", 1)
            line = replace(job.line, voice=job.voice.name, seed=seed, out=job.file)
            values = {**record_of(line), "error": _reason(record)}
            yield json.dumps(values, ensure_ascii=False) + "\n"

    def _summary(self, counts: Counter[Status]) -> str:
        speed = self._progress.speed()
        words = [f"{counts['ok']} ok"]
        others: tuple[Status, ...] = ("skipped", "fell_short", "failed")
        for status in others:
            if counts[status]:
                words.append(f"{counts[status]} {status.replace('_', ' ')}")
        made = "nothing new was made"
        if speed.audio_s:
            made = (
                f"{readable_time(speed.audio_s)} of audio in {readable_time(speed.work_s)}"
                f" ({speed.rate:.1f} s/s)"
            )
        missing = self._missing()
        rest = f", {len(missing)} still to be made" if missing else ""
        target = self._wishes.joined or self._folder.path
        return f"{target}: {', '.join(words)}{rest}; {made}."


def _place(job: Job) -> str:
    return job.key or job.file


def _is_bad(record: Record) -> bool:
    """Tell whether words are missing or may be."""
    return record.status in ("failed", "fell_short") or bool(record.error)


def _reason(record: Record) -> str:
    """Say what is wrong with a line."""
    if record.error:
        return record.error
    reasons = list(record.warnings)
    if record.missed:
        words = " ".join(record.missed[:_MAX_NAMED])
        reasons.append(f"{record.wer or 0:.0%} of the words were heard wrongly, such as: {words}.")
    return " ".join(reasons) or "it fell short."

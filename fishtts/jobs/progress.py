"""What a run tells while it works: a bar on a terminal, a line a minute in a log, or JSON events.

Knows nothing of how lines are made. Times are monotonic, so that a clock that is set does no harm.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fishtts.jobs.manifest import Record
from fishtts.jobs.plan import Job
from fishtts.printing import print_line

_LOG_EVERY_S = 60.0
_EVENT_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Manner:
    """How to tell: ``as_json`` as events on standard output, ``quiet`` only errors."""

    as_json: bool = False
    quiet: bool = False
    shows_progress: bool = True


@dataclass(frozen=True, slots=True)
class Speed:
    """How far a run is. ``num_done`` counts what was finished before, too."""

    num_lines: int
    num_done: int
    audio_s: float
    work_s: float
    eta_s: float | None
    occupancy: float | None

    @property
    def rate(self) -> float:
        """Seconds of audio made in a second."""
        return self.audio_s / self.work_s if self.work_s else 0.0


@dataclass(slots=True)
class Progress:
    """Counts and tells. ``occupancy`` answers how full the running batch is, from 0 to 1."""

    manner: Manner
    num_lines: int = 0
    num_done: int = 0
    occupancy: Callable[[], float | None] = lambda: None
    _expected_s: float = 0.0
    _expected_done_s: float = 0.0
    _audio_s: float = 0.0
    _start: float = 0.0
    _told: float = 0.0
    _bar: Any = None

    def start(self, to_make: Sequence[Job], *, num_lines: int, num_done: int) -> None:
        """Begin: so many files in all, so many finished before."""
        self.num_lines, self.num_done = num_lines, num_done
        self._expected_s = sum(job.expected_s for job in to_make)
        self._start = self._told = time.monotonic()
        self.event(
            "started",
            lines=num_lines,
            done=num_done,
            to_make=len(to_make),
            estimated_seconds=round(self._expected_s, 1),
        )
        if self._shows and sys.stderr.isatty() and to_make:
            from tqdm import tqdm

            self._bar = tqdm(
                total=num_lines, initial=num_done, unit=" lines", file=sys.stderr, leave=False
            )

    def watch(self, occupancy: Callable[[], float | None]) -> None:
        """Tell from now on how full the running batch is; work begins now."""
        self.occupancy = occupancy
        self._start = self._told = time.monotonic()

    def line(self, job: Job, record: Record, *, is_new: bool) -> None:
        """Tell of a line that has come to an end; one that was only listened to is not new."""
        self.num_done += 1
        if is_new:
            self._audio_s += record.seconds
            self._expected_done_s += job.expected_s
        values = json.loads(record.to_json())
        self.event("line", **values)
        self._tell()

    def end(self, **values: Any) -> None:
        """Put the bar away and tell the end."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        if values:
            self.event("finished", **values)

    def note(self, text: str) -> None:
        """Tell a person something, beside the bar."""
        if self.manner.quiet:
            return
        if self._bar is not None:
            self._bar.clear()
        print(f"fishtts: {text}", file=sys.stderr)

    def event(self, kind: str, **values: Any) -> None:
        """Tell a script something."""
        if self.manner.as_json:
            print_line(json.dumps({"event": kind, **values}, ensure_ascii=False))
            sys.stdout.flush()

    def speed(self) -> Speed:
        """Say how far it is and how fast."""
        work_s = time.monotonic() - self._start if self._start else 0.0
        eta_s = None
        if self._expected_done_s:
            left_s = max(0.0, self._expected_s - self._expected_done_s)
            eta_s = work_s * left_s / self._expected_done_s
        return Speed(self.num_lines, self.num_done, self._audio_s, work_s, eta_s, self.occupancy())

    @property
    def _shows(self) -> bool:
        return self.manner.shows_progress and not self.manner.quiet

    def _tell(self) -> None:
        if self._bar is not None:
            self._bar.update(1)
            self._bar.set_postfix_str(_facts(self.speed()))
            return
        now = time.monotonic()
        if now - self._told < (_EVENT_EVERY_S if self.manner.as_json else _LOG_EVERY_S):
            return
        self._told = now
        speed = self.speed()
        if self.manner.as_json:
            facts = {"audio_s_per_s": speed.rate, **asdict(speed)}
            self.event(
                "progress",
                **{key: None if fact is None else round(fact, 3) for key, fact in facts.items()},
            )
        elif self._shows:
            left = f", {readable_time(speed.eta_s)} left" if speed.eta_s is not None else ""
            self.note(f"{speed.num_done} of {speed.num_lines} lines, {_facts(speed)}{left}")


def _facts(speed: Speed) -> str:
    facts = [f"{speed.audio_s / 3600:.2f} h of audio", f"{speed.rate:.1f} s/s"]
    if speed.occupancy is not None:
        facts.append(f"batch {speed.occupancy:.0%} full")
    return ", ".join(facts)


def readable_time(seconds: float) -> str:
    """Write a length of time as people say it."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"

"""What is told about speech: of each unit, and of the whole. Records only, no torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from fishtts.engine.checks import REASONS, Fault
from fishtts.types import StopReason

_MAX_QUOTED_CHARS = 80


@dataclass(frozen=True, slots=True)
class UnitReport:
    """What became of one unit. Seconds are of audio; ``start_s`` counts from the beginning,
    ``seconds`` includes the pause after it. ``seed`` is the one of the try that was kept, ``voice``
    the name that a dialogue gives it ("": the voice of the whole)."""

    text: str
    model_text: str
    seed: int
    tries: int
    start_s: float
    seconds: float
    voice: str = ""
    num_frames: int = 0
    stop_reason: StopReason | None = None
    faults: tuple[Fault, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """``ok``, ``fell_short`` or ``skipped`` (nothing to say in it)."""
        if not self.model_text:
            return "skipped"
        return "fell_short" if self.faults else "ok"

    @property
    def problem(self) -> str:
        """Say what fell short, with the words that it is about; "" for nothing."""
        if not self.faults:
            return ""
        words = self.text
        if len(words) > _MAX_QUOTED_CHARS:
            words = f"{words[: _MAX_QUOTED_CHARS - 1].rstrip()}…"
        reasons = " and ".join(REASONS[fault] for fault in self.faults)
        tries = f"{self.tries} {'try' if self.tries == 1 else 'tries'}"
        return f'Words may be missing or wrong in "{words}": {reasons} ({tries}).'


@dataclass(slots=True)
class Report:
    """What was said and how it went; complete once the stream has ended.

    ``seconds`` are of audio; ``load_s``, ``first_audio_s`` and ``work_s`` are of work, the last two
    counted from when the first chunk was asked for.
    """

    model: str
    voice: str
    sample_rate: int
    seed: int
    shortfalls: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    units: list[UnitReport] = field(default_factory=list)
    seconds: float = 0.0
    load_s: float = 0.0
    first_audio_s: float = 0.0
    work_s: float = 0.0

    @property
    def problems(self) -> list[str]:
        """Say what fell short, one sentence each."""
        return [*self.shortfalls, *(unit.problem for unit in self.units if unit.faults)]

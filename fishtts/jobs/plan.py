"""A script to jobs: for each line what is said, by whom, with which seed, into which file.

Owns the identity of a line of work: two runs that would make the same audio have the same key,
wherever their files lie and whatever their voices are called. Knows nothing of what is done already
(``folder.py``) or of how speech is made.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fishtts.audio.tempo import check_speed
from fishtts.config import SpeechConfig
from fishtts.errors import AudioError, LimitError, ScriptError, UsageError, VoiceError
from fishtts.jobs.voices import LoadedVoice, VoiceLoader
from fishtts.plan import Plan, make_plan
from fishtts.text.dialogue import Speakers, spread_turns
from fishtts.text.problems import Problems
from fishtts.text.script import Script
from fishtts.types import Card, ScriptLine

_KEY_VERSION = 1
"""Goes up when the same settings make other audio than before, so that nothing stale is kept."""

_WEIGHTS = (".json", ".safetensors", ".pth")
_CARD = "fishtts.json"


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for all lines unless they say otherwise. ``format_name`` is how lines are
    written; ``model`` is the identity of the model's files ("" where no keys are needed)."""

    speech: SpeechConfig
    format_name: str = "wav"
    voice: str = ""
    takes: int = 1
    strict: bool = False
    model: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """One file to be made. Without a ``plan`` there is nothing to say; then ``reason`` says why,
    and ``loses_words`` whether that loses any."""

    line: ScriptLine
    voice: LoadedVoice
    config: SpeechConfig
    file: str
    key: str
    take: int = 1
    plan: Plan | None = None
    reason: str = ""
    loses_words: bool = False

    @property
    def name(self) -> str:
        """What a person calls it."""
        return self.line.id if self.take == 1 else f"{self.line.id} (take {self.take})"

    @property
    def model_text(self) -> str:
        """What the model is given, all units together."""
        units = self.plan.units if self.plan else ()
        return " ".join(planned.unit.model_text for planned in units if not planned.is_silent)

    @property
    def expected_s(self) -> float:
        """Estimate the length of its audio."""
        return self.plan.expected_s / self.config.speed if self.plan else 0.0


@dataclass(slots=True)
class Planner:
    """Turns lines into jobs, in the order of the script."""

    card: Card
    voices: VoiceLoader
    settings: Settings
    speakers: Speakers = Speakers()  # noqa: RUF009 (it is frozen)
    _seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    _keys: Counter[str] = field(default_factory=Counter)
    """Rows that ask for the very same audio twice get a file each."""

    def plan(self, script: Script, files: Sequence[str]) -> list[Job]:
        """Plan all lines, each with its file's name.

        Raises: ``ScriptError`` that says all that is wrong, and in which lines.
        """
        source = _shown(script.source)
        problems = Problems(source)
        jobs = []
        lines = spread_turns(script.lines, self.speakers, source=source)
        for line, file in zip(lines, files, strict=True):
            try:
                jobs.extend(self._jobs_of(line, file))
            except (ScriptError, UsageError, VoiceError, AudioError) as error:
                problems.add(line.number, str(error))
        problems.raise_any()
        return jobs

    def _jobs_of(self, line: ScriptLine, file: str) -> list[Job]:
        settings = self.settings
        voice = self.voices.load(line.voice or settings.voice)
        identity = self._identity(line, voice)
        speed = settings.speech.speed if line.speed is None else line.speed
        check_speed(speed)
        jobs = []
        for take in range(1, settings.takes + 1):
            seed = line_seed(settings.speech.seed, identity, line.seed, take=take)
            config = replace(settings.speech, seed=seed, speed=speed)
            taken = file if take == 1 else _take_file(file, take)
            jobs.append(self._job(line, voice, config, taken, take))
        return jobs

    def _identity(self, line: ScriptLine, voice: LoadedVoice) -> str:
        """Name a line by what it is, not by where it stands: its own id, or its words and voice
        with a running number for repeats."""
        if line.has_own_id:
            return f"id\0{line.id}"
        said = (line.text, voice.identity)
        number = self._seen[said]
        self._seen[said] += 1
        return f"text\0{number}\0{voice.identity}\0{line.text}"

    def _job(
        self, line: ScriptLine, voice: LoadedVoice, config: SpeechConfig, file: str, take: int
    ) -> Job:
        job = Job(line, voice, config, file, key="", take=take)
        try:
            plan = self._plan_of(line, config)
        except ScriptError as error:
            return replace(job, reason=error.message)
        except LimitError as error:
            if self.settings.strict:
                raise ScriptError(error.message, hint="Without --strict it is skipped.") from None
            return replace(job, reason=error.message, loses_words=True)
        if plan.shortfalls and self.settings.strict:
            raise ScriptError(
                plan.shortfalls[0], hint="Without --strict the rest of the line is spoken."
            )
        named = {planned.voice for planned in plan.units if not planned.is_silent}
        if len(named) == 1 and named != {""}:
            # Whoever speaks all of it is the voice of the line, and is held in memory.
            voice = self.voices.load(next(iter(named)))
            job = replace(job, voice=voice)
            plan = _in_one_voice(plan)
        key = self._key(plan, voice, config)
        self._keys[key] += 1
        if self._keys[key] > 1:
            key = f"{key}-{self._keys[key]}"
        return replace(job, plan=plan, key=key)

    def with_seed(self, job: Job, seed: int) -> Job:
        """Plan a job anew with another seed; it stays the same job."""
        config = replace(job.config, seed=seed)
        plan = self._plan_of(job.line, config)
        assert job.plan is not None, "a job without words is never tried"
        is_one_voice = not any(planned.voice for planned in job.plan.units)
        return replace(job, config=config, plan=_in_one_voice(plan) if is_one_voice else plan)

    def _plan_of(self, line: ScriptLine, config: SpeechConfig) -> Plan:
        return make_plan(
            line.text, self.card, config, speakers=self.speakers, first_line=line.number
        )

    def _key(self, plan: Plan, voice: LoadedVoice, config: SpeechConfig) -> str:
        card = self.card
        parts = {
            "version": _KEY_VERSION,
            "model": self.settings.model,
            "format": self.settings.format_name,
            "voice": voice.identity,
            "units": [
                [
                    planned.unit.model_text,
                    planned.unit.pause_s,
                    self.voices.load(planned.voice).identity if planned.voice else "",
                ]
                for planned in plan.units
            ],
            "speed": config.speed,
            "seed": config.seed,
            "temperature": _given(config.temperature, card.temperature),
            "top_p": _given(config.top_p, card.top_p),
            "top_k": _given(config.top_k, card.top_k),
            "max_frames": config.max_frames,
        }
        text = json.dumps(parts, sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def line_seed(run_seed: int, identity: str, own: int | None = None, *, take: int = 1) -> int:
    """Derive the seed of a line: its own where it has one, else 63 bits of a hash of the run's
    seed and its identity. Further takes have seeds of their own."""
    if own is None:
        return _hashed(f"line\0{run_seed}\0{take}\0{identity}")
    return own if take == 1 else _hashed(f"take\0{own}\0{take}")


def next_seed(seed: int, kind: str, number: int) -> int:
    """Derive the seed of a further try at a line."""
    return _hashed(f"{kind}\0{seed}\0{number}")


def _hashed(text: str) -> int:
    data = f"fishtts\0{text}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(data).digest()[:8], "big") >> 1


def model_identity(folder: Path) -> str:
    """Hash a model's files; its card is left out, as what it says is part of every key by itself.

    A file of the hub's cache is named after its hash already.
    """
    digest = hashlib.sha256(b"model")
    for path in sorted(folder.iterdir()):
        if path.suffix in _WEIGHTS and path.is_file() and path.name != _CARD:
            digest.update(f"{path.name}\0{_hash_of(path)}\0".encode())
    return digest.hexdigest()[:16]


def _hash_of(path: Path) -> str:
    named = path.resolve().name
    is_hash = len(named) == 64 and set(named) <= set("0123456789abcdef")
    if path.is_symlink() and is_hash:
        return named
    return file_hash(path)


def file_hash(path: Path) -> str:
    """Hash a file of any size."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def select(lines: Sequence[ScriptLine], wanted: str) -> set[str]:
    """Find the ids that ``L010-L020,L033`` means, in the order of the script.

    Raises: ``UsageError`` for one that is not there.
    """
    places = {line.id: number for number, line in enumerate(lines)}
    found: set[str] = set()
    for part in filter(None, (part.strip() for part in wanted.split(","))):
        span = _span(part, places)
        found |= {line.id for line in lines[span]}
    return found


def _span(part: str, places: dict[str, int]) -> slice:
    """Turn an id, or two with a dash between (ids may hold dashes themselves), into a slice."""
    if part in places:
        return slice(places[part], places[part] + 1)
    for at, sign in enumerate(part):
        first, last = part[:at].strip(), part[at + 1 :].strip()
        if sign == "-" and first in places and last in places:
            if places[first] > places[last]:
                raise UsageError(f'In "{part}" the second line comes before the first.')
            return slice(places[first], places[last] + 1)
    some = ", ".join(list(places)[:3])
    raise UsageError(
        f'No line has the id "{part}".', hint=f"The ids are {some}, … (--dry-run shows all)."
    )


def _in_one_voice(plan: Plan) -> Plan:
    return replace(plan, units=tuple(replace(planned, voice="") for planned in plan.units))


def _given(value: float | None, default: float) -> float:
    return default if value is None else value


def _take_file(file: str, take: int) -> str:
    path = Path(file)
    return path.with_name(f"{path.stem}.take{take}{path.suffix}").as_posix()


def _shown(source: str) -> str:
    return "Standard input" if source == "-" else f'The file "{source}"'

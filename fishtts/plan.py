"""A text and a model's card to a plan: which units are spoken, with which seeds, for how long.

Torch-free, so that a dry run answers at once. Knows neither models nor voices nor audio.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, zip_longest
from operator import itemgetter

from fishtts.config import DEFAULT_SPEECH, SpeechConfig
from fishtts.errors import LimitError, ScriptError
from fishtts.text.dialogue import Segment, Speakers, find_speakers, segments
from fishtts.text.duration import expected_seconds
from fishtts.text.language import (
    likely_language,
    scripts,
    sentence_language,
    unspoken,
)
from fishtts.text.normalise import normalise, plain
from fishtts.text.split import Limits, check_spoken, pause_between, stretch_units
from fishtts.types import Card, Unit

_CLAUSE_PAUSE_S = 0.1

_SPEAKER = re.compile(r"<\|speaker:\d+\|>")
_MAX_QUOTED = 8


@dataclass(frozen=True, slots=True)
class PlannedUnit:
    """One unit, the seed of its first try, how long it should take, and the name of the voice that
    a dialogue gives it ("": whoever speaks the whole)."""

    unit: Unit
    seed: int
    expected_s: float
    voice: str = ""

    @property
    def is_silent(self) -> bool:
        """Tell whether there is nothing to say in it."""
        return not self.unit.model_text


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be said. ``shortfalls`` are sentences about words that the model cannot say."""

    units: tuple[PlannedUnit, ...]
    shortfalls: tuple[str, ...] = ()

    @property
    def voices(self) -> tuple[str, ...]:
        """Name the voices of a dialogue, each once."""
        return tuple(dict.fromkeys(planned.voice for planned in self.units if planned.voice))

    @property
    def expected_s(self) -> float:
        """Estimate the length of the whole, pauses included."""
        return sum(planned.expected_s + planned.unit.pause_s for planned in self.units)


def make_plan(
    text: str,
    card: Card,
    config: SpeechConfig = DEFAULT_SPEECH,
    *,
    strict: bool = False,
    voices: Sequence[str] | None = None,
    cast: Mapping[str, str] | None = None,
    speakers: Speakers | None = None,
    first_line: int = 1,
) -> Plan:
    """Split a text for a model, give its turns to voices, and find what the model cannot say.

    ``voices`` are the names that a dialogue may use; without them and a ``cast`` no line is taken
    for a speaker's. ``speakers`` stands for both where the text is one line of a script, at
    ``first_line``, whose other lines have their say in who is a speaker.
    Raises: ``ScriptError`` where there is nothing to say, for unknown speakers and voices, and
    under ``strict`` for the first word that the model cannot say; ``LimitError`` where it cannot
    say any.
    """
    who = speakers or find_speakers(text.split("\n"), voices, cast)
    found = segments(text, who, first_line=first_line)
    words = "".join(segment.text for segment in found)
    shortfalls = _shortfalls(words, card)
    if shortfalls and strict:
        raise ScriptError(shortfalls[0], hint="Without --strict the rest of the text is spoken.")
    if shortfalls and card.scripts and not _speaks_any(words, card):
        raise LimitError(f"Nothing was said. {shortfalls[0]}", hint="Choose another --model.")
    made = _segment_units(found, words, card, config)
    check_spoken(words, [unit for _, unit in made])
    if not card.normalise:
        made = [
            (voice, unit)
            for voice, turn in groupby(made, key=itemgetter(0))
            for unit in _with_speakers([unit for _, unit in turn])
        ]
    seen: Counter[tuple[str, str]] = Counter()
    planned = []
    for voice, unit in made:
        key = f"{voice}\0{unit.text}" if voice else unit.text
        seed = unit_seed(config.seed, key, seen[voice, unit.text])
        seen[voice, unit.text] += 1
        planned.append(PlannedUnit(unit, seed, expected_seconds(unit.model_text), voice))
    return Plan(tuple(planned), shortfalls)


def _segment_units(
    found: Sequence[Segment], words: str, card: Card, config: SpeechConfig
) -> list[tuple[str, Unit]]:
    """Split each segment, and put the pauses between them."""
    limits = _limits(card, config)
    language = sentence_language(words, next(iter(card.languages), "en"))
    made: list[tuple[str, Unit]] = []
    for segment, following in zip_longest(found, found[1:]):
        units = stretch_units(
            segment.text,
            limits=limits,
            render=normalise if card.normalise else plain,
            language=language,
        )
        made.extend((segment.voice, unit) for unit in units)
        if segment.pause_s is not None:
            _put_pause(made, segment)
        elif following and units:
            pause_s = pause_between(segment.text, following.text, limits)
            made[-1] = (segment.voice, replace(units[-1], pause_s=pause_s))
    return made


def _put_pause(made: list[tuple[str, Unit]], segment: Segment) -> None:
    """Let a pause that was asked for follow what was spoken last; where nothing was, a unit without
    any text stands for it."""
    for at in reversed(range(len(made))):
        voice, unit = made[at]
        if unit.model_text:
            made[at] = (voice, replace(unit, pause_s=segment.pause_s or 0.0))
            return
    made.append((segment.voice, Unit("", "", segment.pause_s or 0.0)))


def unit_seed(run_seed: int, text: str, repeat: int = 0, attempt: int = 0) -> int:
    """Derive the seed of a unit: 63 bits of a hash of the run's seed, the unit's text, how often
    the same text came before, and the number of the try.

    Its place is not in it: a line that is added or taken out changes no other line.
    """
    key = f"fishtts\0{run_seed}\0{repeat}\0{attempt}\0{text}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(key).digest()[:8], "big") >> 1


def _with_speakers(found: list[Unit]) -> list[Unit]:
    """Tell the model of each unit who speaks, where a tag said so in a unit before it."""
    told = []
    speaker = ""
    for unit in found:
        if speaker and unit.model_text and not _SPEAKER.match(unit.model_text):
            unit = replace(unit, model_text=f"{speaker}{unit.model_text}")
        speaker = (_SPEAKER.findall(unit.text) or [speaker])[-1]
        told.append(unit)
    return told


def _limits(card: Card, config: SpeechConfig) -> Limits:
    """Gather short sentences, unless a pause is asked for between all of them."""
    if config.pause_s is None:
        return Limits(max_chars=card.unit_chars, group_chars=card.unit_chars // 2)
    return Limits(
        max_chars=card.unit_chars,
        pause_s=config.pause_s,
        paragraph_pause_s=2 * config.pause_s,
        clause_pause_s=min(_CLAUSE_PAUSE_S, config.pause_s),
    )


def _shortfalls(text: str, card: Card) -> tuple[str, ...]:
    """Say which words the model's card does not cover."""
    found: list[str] = []
    left_out = unspoken(text, card.scripts)
    if left_out:
        quoted = ", ".join(f'"{words.text}" ({words.script})' for words in left_out[:_MAX_QUOTED])
        more = f" and {len(left_out) - _MAX_QUOTED} more" if len(left_out) > _MAX_QUOTED else ""
        found.append(
            f"The model {card.name} speaks {_and(card.scripts)} letters only and cannot say"
            f" {quoted}{more}."
        )
    language = likely_language(text) if card.languages else ""
    if language and language not in card.languages:
        found.append(
            f'The text looks like language "{language}"; the model {card.name} speaks only'
            f" {_and(card.languages)}, so it will be mispronounced."
        )
    return tuple(found)


def _speaks_any(text: str, card: Card) -> bool:
    spoken = {name.casefold() for name in card.scripts}
    counts = scripts(text)
    return not counts or any(script.casefold() in spoken for script in counts)


def _and(words: tuple[str, ...]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)

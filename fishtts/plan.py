"""A text and a model's card to a plan: which units are spoken, with which seeds, for how long.

Torch-free, so that a dry run answers at once. Knows neither models nor voices nor audio.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass, replace

from fishtts.config import DEFAULT_SPEECH, SpeechConfig
from fishtts.errors import LimitError, ScriptError
from fishtts.text.language import (
    likely_language,
    script_of,
    scripts,
    sentence_language,
    unspoken,
)
from fishtts.text.normalise import normalise, plain
from fishtts.text.split import Limits, units
from fishtts.types import Card, Unit

_LETTER_S = 0.065
"""Seconds a letter or a space takes: 15 a second, as unhurried readers of alphabets speak."""

_LETTER_OF_SCRIPT_S = {
    "Han": 0.22,
    "Hiragana": 0.13,
    "Katakana": 0.13,
    "Hangul": 0.18,
    "Ethiopic": 0.13,
}
_DIGIT_S = 0.35
_PAUSE_S = {**dict.fromkeys(".!?…。！？।", 0.25), **dict.fromkeys(",;:–—、，；：", 0.12)}
_BREATH_S = 0.3
"""What comes on top once: the silence before and after."""

_CLAUSE_PAUSE_S = 0.1

_TAG = re.compile(r"\[[^\[\]\n]*\]|<\|[^|]*\|>")
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
    def expected_s(self) -> float:
        """Estimate the length of the whole, pauses included."""
        return sum(planned.expected_s + planned.unit.pause_s for planned in self.units)


def make_plan(
    text: str, card: Card, config: SpeechConfig = DEFAULT_SPEECH, *, strict: bool = False
) -> Plan:
    """Split a text for a model, and find what the model cannot say.

    Raises: ``ScriptError`` where there is nothing to say, and under ``strict`` for the first word
    that the model cannot; ``LimitError`` where it cannot say any.
    """
    shortfalls = _shortfalls(text, card)
    if shortfalls and strict:
        raise ScriptError(shortfalls[0], hint="Without --strict the rest of the text is spoken.")
    if shortfalls and card.scripts and not _speaks_any(text, card):
        raise LimitError(f"Nothing was said. {shortfalls[0]}", hint="Choose another --model.")
    found = units(
        text,
        limits=_limits(card, config),
        render=normalise if card.normalise else plain,
        language=sentence_language(text, next(iter(card.languages), "en")),
    )
    if not card.normalise:
        found = _with_speakers(found)
    seen: Counter[str] = Counter()
    planned = []
    for unit in found:
        seed = unit_seed(config.seed, unit.text, seen[unit.text])
        seen[unit.text] += 1
        planned.append(PlannedUnit(unit, seed, expected_seconds(unit.model_text)))
    return Plan(tuple(planned), shortfalls)


def unit_seed(run_seed: int, text: str, repeat: int = 0, attempt: int = 0) -> int:
    """Derive the seed of a unit: 63 bits of a hash of the run's seed, the unit's text, how often
    the same text came before, and the number of the try.

    Its place is not in it: a line that is added or taken out changes no other line.
    """
    key = f"fishtts\0{run_seed}\0{repeat}\0{attempt}\0{text}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(key).digest()[:8], "big") >> 1


def expected_seconds(text: str) -> float:
    """Estimate how long it takes to say a text; right within a factor of two, which is its use."""
    if not text:
        return 0.0
    return _BREATH_S + sum(
        number * _seconds_of(character) for character, number in Counter(_TAG.sub("", text)).items()
    )


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


def _seconds_of(character: str) -> float:
    if character in _PAUSE_S:
        return _PAUSE_S[character]
    if character.isdigit():
        return _DIGIT_S
    if character == " ":
        return _LETTER_S
    script = script_of(character)
    return _LETTER_OF_SCRIPT_S.get(script, _LETTER_S) if script else 0.0


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

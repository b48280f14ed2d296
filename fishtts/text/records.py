"""Records of a script (rows of a table, objects of JSON) to script lines, and back.

Owns which keys there are and what their values may be. Knows nothing of how a file writes them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from difflib import get_close_matches

from fishtts.config import MAX_PAUSE_S, MAX_SPEED, MIN_SPEED
from fishtts.errors import ScriptError, UsageError
from fishtts.text.problems import Problems
from fishtts.text.read import clean
from fishtts.types import ScriptLine

KEYS = ("id", "text", "voice", "seed", "speed", "out", "pause")
"""What a record may say; only the text is a must."""

_MAX_SEED = 2**63 - 1


def check_columns(columns: Mapping[str, str]) -> None:
    """Refuse a mapping of columns whose keys are none of ours.

    Raises: ``UsageError``.
    """
    for key in columns:
        if key not in KEYS:
            raise UsageError(
                f'There is no column "{key}" to be named.', hint=f"There are: {', '.join(KEYS)}."
            )


def unknown_key(name: str) -> str:
    """Say that a column or a key is unknown, and which may have been meant."""
    near = get_close_matches(name.casefold(), KEYS, n=1)
    meant = f' Did you mean "{near[0]}"?' if near else f" There are: {', '.join(KEYS)}."
    return f'the column "{name}" is unknown.{meant}'


def script_line(values: Mapping[str, str], number: int, problems: Problems) -> ScriptLine:
    """Make a script line of a record; values that are "" were not given.

    What is wrong with it is added to the problems, and left out of the line.
    """
    record = _Record(values, number, problems)
    identity = values.get("id", "") if values.get("id", "").strip() else ""
    text = record.text("text")
    if not text:
        problems.add(number, "the text is empty.")
    return ScriptLine(
        id=identity,
        number=number,
        text=text,
        has_own_id=bool(identity),
        voice=record.text("voice"),
        seed=record.seed(),
        speed=record.number("speed", MIN_SPEED, MAX_SPEED),
        pause_s=record.number("pause", 0.0, MAX_PAUSE_S),
        out=values.get("out", "").strip(),
    )


def record_of(line: ScriptLine) -> dict[str, str | int | float]:
    """Write a script line as the record that ``script_line`` makes it of; reading it again gives an
    equal line, save for its number. Its id is always among its keys."""
    values = {
        "id": line.id,
        "text": line.text,
        "voice": line.voice,
        "seed": line.seed,
        "speed": line.speed,
        "out": line.out,
        "pause": line.pause_s,
    }
    return {key: value for key, value in values.items() if value is not None and value != ""}


class _Record:
    """One record under examination."""

    def __init__(self, values: Mapping[str, str], number: int, problems: Problems) -> None:
        self._values = values
        self._number = number
        self._problems = problems

    def text(self, key: str) -> str:
        try:
            return clean(self._values.get(key, ""), source=f"the {key}").strip()
        except ScriptError as error:
            message = error.message
            self._refuse(message[:1].lower() + message[1:])
            return "?"

    def seed(self) -> int | None:
        written = self._values.get("seed", "").strip()
        if not written:
            return None
        if not (written.isascii() and written.isdigit()):
            self._refuse(f'the seed "{written}" is not a whole number from 0.')
            return None
        if len(written) > len(str(_MAX_SEED)) or int(written) > _MAX_SEED:
            self._refuse(f"the seed {written} is too large: it may be at most 2^63 - 1.")
            return None
        return int(written)

    def number(self, key: str, low: float, high: float) -> float | None:
        written = self._values.get(key, "").strip()
        if not written:
            return None
        try:
            value = float(written)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            self._refuse(f'the {key} "{written}" is not a number (such as 1.25).')
            return None
        if not low <= value <= high:
            self._refuse(f"the {key} is {written}; it must lie between {low:g} and {high:g}.")
        return value

    def _refuse(self, message: str) -> None:
        self._problems.add(self._number, message)

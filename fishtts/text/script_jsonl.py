"""Lines of JSON to script lines: one object a line, with the columns of a table as keys.

The list of failed lines that a run writes is such a file. What values may say is the business of
``records.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fishtts.text.problems import Problems
from fishtts.text.records import KEYS, check_columns, script_line, unknown_key
from fishtts.text.stretches import Found

_NUMBERS = ("seed", "speed", "pause")
_REPORTED = ("error",)
"""What the list of failed lines says besides, and nobody needs to read again."""


def read_jsonl(lines: list[str], problems: Problems, columns: Mapping[str, str]) -> Found:
    """Read JSON lines; a value of null was not given."""
    check_columns(columns)
    made = []
    unused: dict[str, None] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        record = _record(line, number, problems)
        if record is None:
            continue
        values = _values(record, columns, number, problems, unused)
        if values is not None:
            made.append(script_line(values, number, problems))
    notes = (f"Keys not used: {', '.join(unused)}.",) if unused else ()
    return Found(tuple(made), notes)


def _record(line: str, number: int, problems: Problems) -> dict[str, Any] | None:
    """Parse one line; what is no object is added to the problems."""
    twice: list[str] = []

    def gathered(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        twice.extend(key for key in dict.fromkeys(keys) if keys.count(key) > 1)
        return dict(pairs)

    try:
        record = json.loads(line, object_pairs_hook=gathered)
    except json.JSONDecodeError as error:
        problems.add(number, f"this is not JSON: {error.msg} (character {error.pos + 1}).")
        return None
    except (ValueError, RecursionError):
        problems.add(number, "this JSON holds more than a script line can.")
        return None
    if not isinstance(record, dict):
        problems.add(number, 'this is no JSON object, such as {"text": "Hello."}.')
        return None
    for key in twice:
        problems.add(number, f'the key "{key}" is there more than once.')
    return record


def _values(
    record: dict[str, Any],
    columns: Mapping[str, str],
    number: int,
    problems: Problems,
    unused: dict[str, None],
) -> dict[str, str] | None:
    """Take the values that we know from a record; None where the others are no use."""
    names = {columns.get(key, key): key for key in KEYS}
    values: dict[str, str] = {}
    is_sound = True
    for name, value in record.items():
        key = names.get(name, "")
        if name in _REPORTED:
            continue
        if not key and columns:
            unused[name] = None
        elif not key:
            problems.add(number, unknown_key(name).replace("column", "key", 1))
        elif value is None:
            continue
        elif isinstance(value, str):
            values[key] = value
        elif isinstance(value, int | float) and not isinstance(value, bool) and _takes(key, value):
            values[key] = str(value)
        else:
            problems.add(number, f'the value of "{name}" is not of the right kind.')
            is_sound = False
    if "text" not in values and is_sound:
        problems.add(number, f'the key "{columns.get("text", "text")}" is missing.')
        is_sound = False
    return values if is_sound else None


def _takes(key: str, value: float) -> bool:
    return key in _NUMBERS or (key == "id" and isinstance(value, int))

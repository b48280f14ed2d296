"""Subtitles (SubRip) to script lines, each with the times of its cue.

Knows nothing of how long speech takes; whether a line fits its cue is found out when it is spoken.
"""

from __future__ import annotations

import re
from html import unescape

from fishtts.errors import ScriptError
from fishtts.text.problems import Problems
from fishtts.text.read import clean
from fishtts.text.split import glued
from fishtts.text.stretches import Found, Row
from fishtts.types import ScriptLine

_TIME = r"(?:(\d{1,3}):)?(\d{1,2}):(\d{1,2})(?:[,.](\d{1,3}))?"
_TIMES = re.compile(rf"\s*{_TIME}\s*-->\s*{_TIME}(?:\s+\S+)*\s*$")
_INDEX = re.compile(r"\s*\d+\s*$")
_TAG = re.compile(
    r"</?(?:[ibus]|font|c|v|ruby|rt|lang)\b[^<>|]*>|\{\\[^{}]*\}|\{/?[ibus]\}", re.IGNORECASE
)
_DASH = re.compile(r"[-–—‐]\s*\w")


def read_srt(lines: list[str], problems: Problems) -> Found:
    """Read cues, in order of time, without their tags. Those without text are only counted."""
    made = []
    num_empty = 0
    for rows in _blocks(lines):
        cue = _cue(rows, problems)
        if cue is None:
            continue
        if cue.text:
            made.append(cue)
        else:
            num_empty += 1
    notes = []
    if num_empty:
        cues = "1 cue" if num_empty == 1 else f"{num_empty} cues"
        notes.append(f"Left out {cues} without text.")
    in_order = sorted(made, key=lambda cue: cue.start_s or 0.0)
    if in_order != made:
        notes.append("The cues were not in order of time; they are now.")
    return Found(tuple(in_order), tuple(notes))


def _blocks(lines: list[str]) -> list[list[Row]]:
    """Part the cues at blank lines."""
    blocks: list[list[Row]] = [[]]
    for number, line in enumerate(lines, start=1):
        if line.strip():
            blocks[-1].append(Row(number, line))
        elif blocks[-1]:
            blocks.append([])
    return [rows for rows in blocks if rows]


def _cue(rows: list[Row], problems: Problems) -> ScriptLine | None:
    """Read one cue: a number, which may be missing, its times, its text."""
    first = rows[0]
    body = rows[1:] if _INDEX.match(first.text) and len(rows) > 1 else rows
    times = _TIMES.match(body[0].text)
    if not times:
        problems.add(
            body[0].number,
            "a cue's times are missing here, such as 00:00:01,000 --> 00:00:02,500.",
        )
        return None
    start_s, end_s = _seconds(times.groups()[:4]), _seconds(times.groups()[4:])
    if start_s is None or end_s is None:
        problems.add(body[0].number, "a time has more than 59 minutes or seconds.")
        return None
    if end_s < start_s:
        problems.add(body[0].number, "the cue ends before it begins.")
        return None
    try:
        text = _text(body[1:])
    except ScriptError as error:
        problems.add(body[0].number, error.message)
        return None
    return ScriptLine("", first.number, text, start_s=start_s, end_s=end_s)


def _seconds(groups: tuple[str | None, ...]) -> float | None:
    hours, minutes, seconds, fraction = groups
    if int(minutes or 0) > 59 or int(seconds or 0) > 59:
        return None
    milliseconds = int((fraction or "").ljust(3, "0"))
    whole = (int(hours or 0) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
    return (whole * 1000 + milliseconds) / 1000


def _text(rows: list[Row]) -> str:
    """Join the lines of a cue; those that begin with a dash are other speakers' and stay apart."""
    text = ""
    for row in rows:
        line = clean(unescape(_TAG.sub("", row.text)), source="the cue")
        line = " ".join(line.split())
        if text and _DASH.match(line):
            text = f"{text}\n{line}"
        elif line:
            text = glued(text, line) if text else line
    return text

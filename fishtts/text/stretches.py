"""Numbered lines of running text to script lines: by line, by paragraph, by sentence.

Owns what wrapping is: a wrapped line ends because the next word no longer fitted. What readers of
plain text and Markdown share; knows neither format.
"""

from __future__ import annotations

import operator
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal

from fishtts.text.dialogue import may_be_speaker
from fishtts.text.language import sentence_language
from fishtts.text.split import SENTENCE_END, gap, sentences
from fishtts.types import ScriptLine

Split = Literal["auto", "line", "paragraph", "sentence"]
SPLITS: tuple[Split, ...] = ("auto", "line", "paragraph", "sentence")

_MIN_WRAPPED_COLUMNS = 40
"""Text whose lines are narrower is a list or verse."""

_MIN_CONTINUED = 0.3
"""Least share of the line ends inside paragraphs that a sentence goes on over: half of them or more
in wrapped prose (English 0.75, German 0.5), none in lists of sentences, few in verse."""

_MIN_FULL = 0.6
"""Least share of these where the next word no longer fitted: nearly all in prose, few in lists."""

_RAGGED_COLUMNS = 8
"""How much narrower than the widest a line may be and still be taken for full."""

_BULLET = re.compile(r"\s*(?:[-*+•‣–]|\d{1,3}[.)])\s")
_HYPHENATED = re.compile(r"[^\W\d_]-$")
"""A word that goes on in the next line: the hyphen stays, since it may be the word's own."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a reader found; its lines have no ids yet unless the script gave them."""

    lines: tuple[ScriptLine, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a file, without the spaces at its end."""

    number: int
    text: str


def columns(text: str) -> int:
    """Count the columns of a terminal that a text takes: most East Asian characters take two."""
    if text.isascii():
        return len(text)
    return sum(
        2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
        if not unicodedata.combining(character)
    )


def wrapped_width(paragraphs: Sequence[Sequence[Row]]) -> int:
    """Find the column at which a text was wrapped; 0 for one that was not."""
    pairs = [pair for rows in paragraphs for pair in pairwise(rows)]
    if not pairs:
        return 0
    widths = sorted(columns(row.text) for rows in paragraphs for row in rows)
    width = widths[-1 - len(widths) // 50]
    continued = [pair for pair in pairs if _goes_on(pair[0].text, pair[1].text)]
    num_full = sum(_is_full(first.text, second.text, width) for first, second in continued)
    is_wrapped = (
        width >= _MIN_WRAPPED_COLUMNS
        and len(continued) >= _MIN_CONTINUED * len(pairs)
        and num_full >= _MIN_FULL * len(continued)
    )
    return width if is_wrapped else 0


def paragraphs(rows: Sequence[Row]) -> list[list[Row]]:
    """Gather lines to paragraphs: a blank line ends one, and an indented line begins one."""
    found: list[list[Row]] = [[]]
    for row in rows:
        if not row.text.strip():
            found.append([])
            continue
        if found[-1] and _is_indented(row) and not _is_indented(found[-1][-1]):
            found.append([])
        found[-1].append(row)
    return [paragraph for paragraph in found if paragraph]


def script_lines(stretches: Sequence[Sequence[Row]], split: Split) -> Iterator[ScriptLine]:
    """Make script lines, still without ids, of one paragraph: of stretches that are one line each,
    however many lines they were written in. ``auto`` is ``paragraph``."""
    if split == "line":
        for rows in stretches:
            for row in rows:
                yield ScriptLine("", row.number, row.text.strip())
    elif split == "sentence":
        for rows in stretches:
            yield from _sentences(rows)
    else:
        yield ScriptLine("", stretches[0][0].number, "\n".join(map(_flow, stretches)))


def unwrapped(rows: Sequence[Row], width: int) -> list[list[Row]]:
    """Gather the lines that were one before they were wrapped at a width (0: none was)."""
    stretches = [[rows[0]]]
    for first, second in pairwise(rows):
        if width and _belong_together(first.text, second.text, width):
            stretches[-1].append(second)
        else:
            stretches.append([second])
    return stretches


def _belong_together(first: str, second: str, width: int) -> bool:
    if may_be_speaker(second, first) or _BULLET.match(second):
        return False
    return _is_full(first, second, width) or _goes_on(first, second)


def _is_full(first: str, second: str, width: int) -> bool:
    """Tell whether the next line's first word would not have fitted any more."""
    word = second.split(maxsplit=1)[0]
    return columns(first) + 1 + columns(word) > width - _RAGGED_COLUMNS


def _goes_on(first: str, second: str) -> bool:
    """Tell whether a line is plainly the middle of a sentence that the next goes on with."""
    opening = second.lstrip(" \t\"'“‘«([")[:1]
    return not SENTENCE_END.search(first) and opening.isalpha() and not opening.isupper()


def _flow(rows: Sequence[Row]) -> str:
    """Put wrapped lines together again."""
    lines = [row.text.strip() for row in rows]
    return "".join(map(operator.add, lines, _gaps(lines)))


def _gaps(lines: Sequence[str]) -> list[str]:
    """Tell what stands between lines that are joined, and nothing after the last."""
    gaps = [
        "" if _HYPHENATED.search(first[-2:]) else gap(first, second)
        for first, second in pairwise(lines)
    ]
    return [*gaps, ""]


def _sentences(rows: Sequence[Row]) -> Iterator[ScriptLine]:
    """Split into sentences, each with the line that it begins in."""
    lines = [row.text.strip() for row in rows]
    pieces = list(map(operator.add, lines, _gaps(lines)))
    starts = [0, *accumulate(map(len, pieces))]
    text = "".join(pieces)
    begin = 0
    for sentence in sentences(text, sentence_language(text)):
        if sentence.strip():
            begins = begin + len(sentence) - len(sentence.lstrip())
            row = rows[bisect_right(starts, begins, hi=len(rows)) - 1]
            yield ScriptLine("", row.number, sentence.strip())
        begin += len(sentence)


def _is_indented(row: Row) -> bool:
    return row.text.startswith(("  ", "\t", "\u3000"))

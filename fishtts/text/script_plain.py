"""Plain text to script lines. Books that are wrapped hard are noticed, and their lines joined.

Knows nothing of ids and of other formats.
"""

from __future__ import annotations

import re

from fishtts.text.read import clean
from fishtts.text.stretches import (
    Found,
    Row,
    Split,
    paragraphs,
    script_lines,
    unwrapped,
    wrapped_width,
)

_PARAGRAPH_SIGNS = re.compile("[\x0c\u2029]")
_LINE_SIGNS = re.compile("[\x0b\x85\u2028]")


def read_plain(lines: list[str], split: Split) -> Found:
    """Read plain text: blank lines are silent, lines of bare punctuation are kept."""
    found = paragraphs(_rows(lines))
    width = 0 if split == "line" else wrapped_width(found)
    how = split
    if split == "auto":
        how = "paragraph" if width else "line"
    made = [line for rows in found for line in script_lines(unwrapped(rows, width), how)]
    notes = []
    if width and split == "auto":
        num_lines = sum(map(len, found))
        notes.append(
            f"The text is wrapped at {width} columns: {num_lines} lines joined to {len(made)}"
            " paragraphs. (--split line keeps them apart.)"
        )
    return Found(tuple(made), tuple(notes))


def _rows(lines: list[str]) -> list[Row]:
    """Number the lines. A form feed ends a paragraph, other signs end a line, in the same line."""
    rows = []
    for number, line in enumerate(lines, start=1):
        for paragraph_number, paragraph in enumerate(_PARAGRAPH_SIGNS.split(line)):
            if paragraph_number:
                rows.append(Row(number, ""))
            rows.extend(
                Row(number, clean(part, source=f"line {number}").rstrip())
                for part in _LINE_SIGNS.split(paragraph)
            )
    return rows

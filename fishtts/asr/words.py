"""What was heard against what was to be said: the share of wrong words, and which were missed.

Knows no recogniser and no audio.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from fishtts.text.normalise import normalise

_TAG = re.compile(r"\[[^\[\]\n]*\]|<\|[^|]*\|>")
_WORD = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
    r"|[^\W_]+(?:'[^\W_]+)*"
)
"""A word; where a script puts no spaces, a letter."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """``wer`` is the number of wrong, missing and added words over the number there should be;
    ``missed`` are those that were not heard, in order."""

    wer: float
    missed: tuple[str, ...]


def words(text: str, language: str = "en") -> list[str]:
    """Bring a text into the words that are compared: no case, no punctuation, no tags; in English
    numbers and abbreviations as they are spoken."""
    text = _TAG.sub(" ", text)
    if language == "en":
        text = normalise(text).text
    text = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    return _WORD.findall(text)


def compare(expected: str, heard: str, language: str = "en") -> Comparison:
    """Count what a recogniser heard differently."""
    reference, hypothesis = words(expected, language), words(heard, language)
    distances = _distances(reference, hypothesis)
    missed = _missed(reference, hypothesis, distances)
    wer = distances[-1][-1] / max(1, len(reference))
    return Comparison(wer, tuple(missed))


def _distances(reference: Sequence[str], hypothesis: Sequence[str]) -> list[list[int]]:
    """Fill the table of edit distances between all beginnings of the two."""
    table = [list(range(len(hypothesis) + 1))]
    for row, word in enumerate(reference, start=1):
        above = table[-1]
        line = [row]
        for column, other in enumerate(hypothesis, start=1):
            replaced = above[column - 1] + (word != other)
            line.append(min(replaced, above[column] + 1, line[-1] + 1))
        table.append(line)
    return table


def _missed(
    reference: Sequence[str], hypothesis: Sequence[str], table: list[list[int]]
) -> list[str]:
    """Walk back through the table; collect the words that were replaced or left out."""
    missed = []
    row, column = len(reference), len(hypothesis)
    while row:
        here = table[row][column]
        if (
            column
            and reference[row - 1] == hypothesis[column - 1]
            and here == table[row - 1][column - 1]
        ):
            row, column = row - 1, column - 1
        elif column and here == table[row][column - 1] + 1:
            column -= 1
        else:
            missed.append(reference[row - 1])
            replaced = column and here == table[row - 1][column - 1] + 1
            row, column = row - 1, column - 1 if replaced else column
    return missed[::-1]

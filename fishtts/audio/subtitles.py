"""Subtitles beside audio: cues to .srt and .vtt.

Owns what a viewer can read (how long a line and a cue may be), and that times never run backwards.
Knows nothing of where texts and times come from.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from fishtts.audio.write import write_bytes
from fishtts.errors import OutputError

MAX_LINE_COLUMNS = 42
"""What broadcasters allow in a line; two lines make a cue."""

MAX_CUE_S = 7.0
"""Shown longer, a text is read twice."""

_MAX_CUE_COLUMNS = 2 * MAX_LINE_COLUMNS
_CLAUSE_BONUS_COLUMNS = 12
"""How far from the even share a cut may lie to fall behind punctuation."""

_SUFFIXES = (".srt", ".vtt")
_MARKUP = re.compile(r"<(?=[A-Za-z/!])|\{(?=[\\A-Za-z/])|--(?=>)")
_WORD_JOINER = "\u2060"
_CLAUSE_END = re.compile(r"[.!?…,;:。！？、，；：]['\"”’»)\]」』）]*$")


@dataclass(frozen=True, slots=True)
class Cue:
    """A text, and when it is said."""

    start_s: float
    end_s: float
    text: str


@dataclass(frozen=True, slots=True)
class _Token:
    """What no line is broken in: a word, or a character of a script without spaces."""

    text: str
    has_space: bool
    columns: int


def write_subtitles(path: Path, cues: Iterable[Cue], *, force: bool = False) -> None:
    """Write cues, split and wrapped so that they can be read; the file's ending tells the format.

    Raises: ``OutputError`` for another ending, a file that exists, or a place that cannot be
    written; ``DeviceError`` for a full disk.
    """
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise OutputError(
            f'Subtitles cannot be written to "{path}".', hint=f"End it in {' or '.join(_SUFFIXES)}."
        )
    text = as_vtt(cues) if suffix == ".vtt" else as_srt(cues)
    write_bytes(path, text.encode(), force=force)


def as_srt(cues: Iterable[Cue]) -> str:
    """Write cues as SubRip. It knows no escapes: an unseen joiner keeps players from taking a text
    for a tag or an arrow."""
    return "\n".join(
        f"{number}\n{_time(start_ms, ',')} --> {_time(end_ms, ',')}\n"
        f"{_MARKUP.sub(lambda sign: sign[0] + _WORD_JOINER, text)}\n"
        for number, (start_ms, end_ms, text) in enumerate(_timed(cues), start=1)
    )


def as_vtt(cues: Iterable[Cue]) -> str:
    """Write cues as WebVTT."""
    blocks = (
        f"{_time(start_ms, '.')} --> {_time(end_ms, '.')}\n{_escaped(text)}\n"
        for start_ms, end_ms, text in _timed(cues)
    )
    return "\n".join(["WEBVTT\n", *blocks])


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _time(time_ms: int, sign: str) -> str:
    seconds, milliseconds = divmod(time_ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{sign}{milliseconds:03}"


def _timed(cues: Iterable[Cue]) -> Iterator[tuple[int, int, str]]:
    """Round the times to milliseconds, so that no cue begins before the last has ended, and each
    can be seen."""
    pieces = [piece for cue in cues for piece in _pieces(cue)]
    begins = [round(max(piece.start_s, 0.0) * 1000) for piece in pieces]
    end_ms = 0
    for at, piece in enumerate(pieces):
        start_ms = max(begins[at], end_ms)
        end_ms = round(piece.end_s * 1000)
        if at + 1 < len(pieces):
            end_ms = min(end_ms, max(begins[at + 1], start_ms))
        end_ms = max(end_ms, start_ms + 1)
        yield start_ms, end_ms, piece.text


def _pieces(cue: Cue) -> Iterator[Cue]:
    """Split a cue that is too long to be read at once; time is shared out by the words' widths."""
    tokens = list(_tokens(cue.text))
    if not tokens:
        return
    length_s = max(cue.end_s - cue.start_s, 0.0)
    total = _columns(tokens) + tokens[0].has_space
    in_time = int(total * MAX_CUE_S / length_s) - 1 if length_s > MAX_CUE_S else total
    columns = 0
    begin_s = cue.start_s
    parts = list(_readable(tokens, max(min(_MAX_CUE_COLUMNS, in_time), 1)))
    for number, part in enumerate(parts, start=1):
        columns += _columns(part) + part[0].has_space
        end_s = cue.start_s + length_s * columns / total if number < len(parts) else cue.end_s
        yield Cue(begin_s, end_s, _wrapped(part))
        begin_s = end_s


def _readable(tokens: list[_Token], max_columns: int) -> Iterator[list[_Token]]:
    """Part tokens until each part can be read at once, in two lines; one token is never parted."""
    columns = _columns(tokens)
    if len(tokens) == 1 or (columns <= max_columns and _wrapped(tokens)):
        yield tokens
        return
    num = min(max(-(-columns // max_columns), 2), len(tokens))
    for part in _parted(tokens, num):
        yield from _readable(part, max_columns)


def _tokens(text: str) -> Iterator[_Token]:
    """Find the places where a line may break; a word wider than a line is cut."""
    for word in text.split():
        has_space = True
        for part in _parts_of_word(word):
            yield _Token(part, has_space, sum(map(_width, part)))
            has_space = False


def _parts_of_word(word: str) -> Iterator[str]:
    """Cut a word between wide characters (never before punctuation or a mark), and at the width of
    a line."""
    part, columns = "", 0
    for character in word:
        width = _width(character)
        is_letter = unicodedata.category(character)[0] in "LNS"
        is_break = bool(part) and is_letter and 2 in (width, _width(part[-1]))
        if part and (is_break or columns + width > MAX_LINE_COLUMNS):
            yield part
            part, columns = "", 0
        part += character
        columns += width
    yield part


def _width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf", "Cc"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _columns(tokens: Sequence[_Token]) -> int:
    return sum(token.columns + token.has_space for token in tokens) - tokens[0].has_space


def _line(tokens: Sequence[_Token]) -> str:
    return "".join(" " * token.has_space + token.text for token in tokens).removeprefix(" ")


def _parted(tokens: list[_Token], num: int) -> list[list[_Token]]:
    """Part tokens into so many nearly equal parts, behind punctuation where it is near."""
    ends: list[int] = []
    position = 0
    for token in tokens:
        position += token.columns + token.has_space
        ends.append(position)
    cuts = [0]
    for number in range(1, num):
        aim = position * number / num
        near = bisect_left(ends, aim)
        low = max(cuts[-1] + 1, near - _MAX_CUE_COLUMNS)
        high = min(len(tokens) - (num - number), max(near, low) + _MAX_CUE_COLUMNS)
        low = min(low, high)
        cuts.append(min(range(low, high + 1), key=lambda at: _distance(tokens, ends, at, aim)))
    return [tokens[begin:end] for begin, end in pairwise([*cuts, len(tokens)])]


def _distance(tokens: list[_Token], ends: list[int], at: int, aim: float) -> float:
    bonus = _CLAUSE_BONUS_COLUMNS if _CLAUSE_END.search(tokens[at - 1].text) else 0
    return max(abs(ends[at - 1] - aim) - bonus, 0.0)


def _wrapped(tokens: Sequence[_Token]) -> str:
    """Break into two lines as even as can be; "" where two do not hold the text."""
    if _columns(tokens) <= MAX_LINE_COLUMNS:
        return _line(tokens)
    ways = [(max(_columns(tokens[:at]), _columns(tokens[at:])), at) for at in range(1, len(tokens))]
    widest, at = min(ways, default=(MAX_LINE_COLUMNS + 1, 0))
    if widest > MAX_LINE_COLUMNS:
        return ""
    return f"{_line(tokens[:at])}\n{_line(tokens[at:])}"

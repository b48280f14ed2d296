"""Text to units: what a model speaks in one request, in order, with nothing dropped.

Sentences are found by ``sentencex``; this file only groups and cuts them. A unit keeps the user's
words apart from the model's. Knows no model: its limits and its way of reading come in.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fishtts.errors import ScriptError, UsageError
from fishtts.text.normalise import ModelText, Render, has_words
from fishtts.types import Unit


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a unit may be, and the silence after it.

    ``max_chars`` counts characters of model text. Sentences of a paragraph are gathered while the
    unit stays within ``group_chars`` (0: one sentence a unit). ``clause_pause_s`` follows a piece
    of a sentence that had to be cut at punctuation.
    """

    max_chars: int = 300
    group_chars: int = 0
    pause_s: float = 0.25
    paragraph_pause_s: float = 0.6
    clause_pause_s: float = 0.1

    def __post_init__(self) -> None:
        if self.max_chars < 1:
            raise UsageError(f"A unit of at most {self.max_chars} characters holds no text.")
        if min(self.pause_s, self.paragraph_pause_s, self.clause_pause_s) < 0:
            raise UsageError("A pause cannot be negative.")


@dataclass(frozen=True, slots=True)
class _Piece:
    """A stretch of the user's text on its way to a unit, and how the model will read it."""

    text: str
    spoken: ModelText
    ends_line: bool = False
    ends_sentence: bool = True


_MIN_WORDS = 3
"""Sentences of fewer words are spoken with a neighbour: alone they come out as gibberish."""

_MIN_WRAPPED_CHARS = 40
"""Text whose longest line is shorter was not wrapped: each of its lines stands for itself."""

_WINDOW = 2
"""A cut is looked for within this many times ``max_chars``: enough for text that shrinks."""

_PARAGRAPHS = re.compile(r"\n[^\S\n]*\n\s*")
_CLAUSE_ENDS = re.compile(
    r"[,;:…–—،؛][\"'”’»)\]]*(?=\s+\D)|(?<=\s)[-–—]+(?=\s)|[，、；：][”’」』）]*(?=.)", re.DOTALL
)
_CLAUSE_END = re.compile(r"[-,;:…–—،؛、，；：][\"'”’»)\]」』）]*$")
_SPACES = re.compile(r"(?<=\S)(?=\s)")
SENTENCE_END = re.compile(r"[.!?…。！？।॥։؟۔።၊။።៕][\"'”’»)\]」』）]*$")
_LINE_START = re.compile(r"[\"'“‘«(\[]*[^\W_]|[-*•‣–]\s")
_NO_SPACES = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u3002\u3040-\u30ff\u3400-\u9fff"
    "\uf900-\ufaff\uff01-\uff1f]"
)
"""Thai, Lao, Burmese, Khmer, Chinese and Japanese; Korean puts spaces."""

_CHARS_A_WORD = 2
"""Letters that count as a word in scripts that put no spaces between words."""


def sentences(text: str, language: str = "en") -> list[str]:
    """Split into sentences; joined they are the text again, white space included."""
    from sentencex import segment

    return list(segment(language or "en", text))


def units(text: str, *, limits: Limits, render: Render, language: str = "en") -> list[Unit]:
    """Split a text into units; their texts joined are the input, white space apart.

    A unit whose ``model_text`` is empty has nothing to say and only carries its text, a pause and
    a warning. The last unit has no pause.
    Raises: ``ScriptError`` where the whole text has nothing to say.
    """
    made = stretch_units(text, limits=limits, render=render, language=language)
    check_spoken(text, made)
    return made


def stretch_units(text: str, *, limits: Limits, render: Render, language: str = "en") -> list[Unit]:
    """Split a stretch of a longer text, as ``units`` does; it may have nothing to say."""
    made: list[Unit] = []
    for paragraph in _PARAGRAPHS.split(text):
        pieces = _joined(_pieces(paragraph, language, limits, render), limits)
        spoken = [_unit(piece, limits) for piece in pieces]
        if spoken:
            spoken[-1] = replace(spoken[-1], pause_s=limits.paragraph_pause_s, paragraph_end=True)
        made.extend(spoken)
    if made:
        made[-1] = replace(made[-1], pause_s=0.0)
    return made


def check_spoken(text: str, made: list[Unit]) -> None:
    """Raise ``ScriptError`` that says why there is nothing to say in the units of a text."""
    if not any(unit.model_text for unit in made):
        raise ScriptError(_nothing_to_say(text, made))


def pause_between(before: str, after: str, limits: Limits) -> float:
    """Tell the silence between two stretches of a text that are not spoken as one."""
    space = before[len(before.rstrip()) :] + after[: len(after) - len(after.lstrip())]
    if _PARAGRAPHS.search(space):
        return limits.paragraph_pause_s
    if "\n" in space or SENTENCE_END.search(before.rstrip()):
        return limits.pause_s
    return limits.clause_pause_s if _CLAUSE_END.search(before.rstrip()) else 0.0


def _nothing_to_say(text: str, made: list[Unit]) -> str:
    if not text.strip():
        return "The text is empty."
    if not has_words(text):
        return "There is nothing to say in the text: it has neither letters nor digits."
    reasons = [warning for unit in made for warning in unit.warnings]
    return f"There is nothing to say in the text. {' '.join(reasons[:3])}".strip()


def _pieces(paragraph: str, language: str, limits: Limits, render: Render) -> Iterator[_Piece]:
    """Cut a paragraph at the ends of its lines, into sentences, and those to fit the model."""
    for line in _lines(paragraph):
        found = [sentence for sentence in sentences(line, language) if sentence.strip()]
        for number, sentence in enumerate(found, start=1):
            ends_line = number == len(found) or "\n" in sentence[len(sentence.rstrip()) :]
            yield from _cut(" ".join(sentence.split()), ends_line, limits.max_chars, render)


def _lines(paragraph: str) -> Iterator[str]:
    """Undo the wrapping of prose, and only that: titles, lists and verse keep their lines.

    A wrapped line ends where the next word no longer fitted into the longest line.
    """
    lines = [line.strip() for line in paragraph.split("\n") if line.strip()]
    width = max(map(len, lines), default=0)
    gathered: list[str] = []
    for line in lines:
        if gathered and _stands_alone(gathered[-1], line, width):
            yield "\n".join(gathered)
            gathered = []
        gathered.append(line)
    if gathered:
        yield "\n".join(gathered)


def _stands_alone(line: str, following: str, width: int) -> bool:
    if SENTENCE_END.search(line):
        return True
    if not has_words(line) or not has_words(following):
        return True
    if not _LINE_START.match(following):
        return False
    first = following.lstrip("\"'“‘«([")[:1]
    if not (first.isupper() or first.isdigit() or first in "-*•‣–"):
        return False
    fitted = len(line) + 1 + len(following.split(maxsplit=1)[0]) <= width
    return fitted or width < _MIN_WRAPPED_CHARS


def _joined(pieces: Iterator[_Piece], limits: Limits) -> list[_Piece]:
    """Gather what is short, in one paragraph."""
    result: list[_Piece] = []
    for piece in pieces:
        if result and _belong_together(result[-1], piece, limits):
            piece = _merged(result.pop(), piece)
        result.append(piece)
    return result


def _merged(before: _Piece, after: _Piece) -> _Piece:
    spoken = ModelText(
        glued(before.spoken.text, after.spoken.text),
        before.spoken.warnings + after.spoken.warnings,
    )
    return replace(after, text=glued(before.text, after.text), spoken=spoken)


def glued(before: str, after: str) -> str:
    """Put one text after another; scripts without spaces get none."""
    return f"{before}{gap(before, after)}{after}"


def gap(before: str, after: str) -> str:
    """Tell what stands between two texts that are put together."""
    dense = _NO_SPACES.match(before[-1:]) or _NO_SPACES.match(after[:1])
    return "" if dense else " "


def _belong_together(before: _Piece, after: _Piece, limits: Limits) -> bool:
    """Decide whether two neighbours are spoken as one.

    Short ones are, though lines are kept apart unless one is a single word. Nothing that is silent
    joins: it would only change how its neighbour is said.
    """
    if not (before.ends_sentence and before.spoken.text and after.spoken.text):
        return False
    length = len(before.spoken.text) + 1 + len(after.spoken.text)
    if length > limits.max_chars:
        return False
    few = 2 if before.ends_line else _MIN_WORDS
    if min(_count_words(before.text, few), _count_words(after.text, few)) < few:
        return True
    return not before.ends_line and length <= limits.group_chars


def _count_words(text: str, enough: int) -> int:
    """Count words, but no further than needed."""
    words = 0
    for word in text.split(maxsplit=4 * enough):
        dense = len(_NO_SPACES.findall(word[: _CHARS_A_WORD * enough]))
        words += -(-dense // _CHARS_A_WORD) if dense else has_words(word)
        if words >= enough:
            break
    return words


def _unit(piece: _Piece, limits: Limits) -> Unit:
    spoken, warnings = piece.spoken
    if not spoken:
        pause_s = 0.0
        warnings = warnings or (f'Nothing to say in "{piece.text}".',)
    elif piece.ends_sentence:
        pause_s = limits.pause_s
    else:
        pause_s = limits.clause_pause_s if _CLAUSE_END.search(piece.text) else 0.0
    return Unit(piece.text, spoken, pause_s, warnings=warnings)


def _cut(sentence: str, ends_line: bool, max_chars: int, render: Render) -> Iterator[_Piece]:
    """Cut a sentence until each part's model text fits: at clauses, spaces, or in a word."""
    rest = sentence
    while rest:
        window = rest[: _WINDOW * max_chars]
        spoken = render(window)
        at = len(rest)
        if len(window) < len(rest) or len(spoken.text) > max_chars:
            at = _cut_point(window, max_chars, render, final=len(window) == len(rest))
        part, rest = rest[:at].rstrip(), rest[at:].lstrip()
        if rest:
            # It ends as the rendering has it, with a full stop where the model needs one: after a
            # comma a small model goes on, with words of its own.
            yield _Piece(part, render(part), ends_sentence=False)
        else:
            yield _Piece(part, spoken, ends_line)


def _cut_point(text: str, max_chars: int, render: Render, *, final: bool) -> int:
    """Find the best place to cut: near equal parts, so that no short tail is left."""
    spaces = [found.end() for found in _SPACES.finditer(text)]
    limit = _last_fitting(text, spaces, max_chars, render)
    if not limit:
        word = spaces[0] if spaces else len(text)
        return _cut_in_word(text[:word], max_chars, render)
    parts = -(-len(text) // limit) if final else 1
    aim = len(text) / parts if final and parts > 1 else limit
    clauses = [found.end() for found in _CLAUSE_ENDS.finditer(text) if found.end() <= limit]
    good = [at for at in clauses if at >= aim / 2]
    return min(good or [at for at in spaces if at <= limit], key=lambda at: abs(at - aim))


def _last_fitting(text: str, places: list[int], max_chars: int, render: Render) -> int:
    """Find the last place whose text before it fits (0: none), by halving."""
    low, high = 0, len(places)
    while low < high:
        middle = (low + high) // 2
        if len(render(text[: places[middle]]).text) <= max_chars:
            low = middle + 1
        else:
            high = middle
    return places[low - 1] if low else 0


def _cut_in_word(word: str, max_chars: int, render: Render) -> int:
    """Cut a word that alone is too long; never before a mark that belongs to a letter."""
    places = [
        at
        for at in range(1, len(word))
        if not unicodedata.category(word[at]).startswith("M")
        and "\u200d" not in word[at - 1 : at + 1]
    ]
    clauses = {found.end() for found in _CLAUSE_ENDS.finditer(word)}
    limit = _last_fitting(word, places, max_chars, render)
    if not limit:
        return places[0] if places else len(word)
    return max((at for at in clauses if limit / 2 <= at <= limit), default=limit)

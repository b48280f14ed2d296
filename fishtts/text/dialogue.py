"""Who speaks which stretch of a text, and where it pauses: "MIRA: Hello.", "[voice:ada]",
"[pause:0.5s]" and S2's "<|speaker:0|>".

Owns which lines begin with a speaker's name; prose with a colon in it must never do. Knows the
names of voices, and nothing else of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from fishtts.config import MAX_PAUSE_S
from fishtts.errors import ScriptError, UsageError
from fishtts.text.problems import Problems
from fishtts.text.split import SENTENCE_END
from fishtts.types import ScriptLine

Style = Literal["capitals", "title", "lower", ""]
"""How a name is written. Where known speakers are written in one of the first three, other names in
it are speakers too, and unknown ones are refused; "" is none of them, such as Chinese."""

NARRATOR = "narrator"
"""The name of whoever speaks where nobody is named, if the cast does not say otherwise."""

_MIN_CAPITALS_SHARE = 0.1
"""Least share of lines that begin with "NAME:" for which a text is a dialogue though none of its
names is known. In a book, one line in hundreds does ("BREAKING: ...")."""

_MAX_HEADING_WORDS = 3
_MAX_NAME_WORDS = 4

_LINE = re.compile(r"[ \t]*([^:：\n]{1,80}?)[ \t]*(?:(:)[ \t]*|：[ \t]*)")
_NAME = re.compile(r"[^\W\d_][\w.'’-]*(?: [\w.'’-]+)*")
_MARK = re.compile(r"\[[ \t]*(voice|pause)[ \t]*:[ \t]*([^\[\]\n]*?)[ \t]*\]", re.IGNORECASE)
_SPEAKER_TAG = re.compile(r"<\|speaker:(\d+)\|>")
_PAUSE = re.compile(r"(\d{1,6}(?:\.\d{1,6})?|\.\d{1,6}) ?(ms|s)?", re.IGNORECASE)

_LABELS = frozenset(
    (
        "abstract", "achtung", "act", "alert", "also", "announcement", "answer", "appendix",
        "attention", "author", "book", "breaking", "capitolo", "capítulo", "caution",
        "chapitre", "chapter", "conclusion", "contents", "critical", "danger", "date", "day",
        "debug", "definition", "disclaimer", "done", "edit", "epilogue", "error", "example",
        "exercise", "failed", "failure", "fatal", "fig", "figure", "fixme", "from", "fyi",
        "hint", "hinweis", "important", "info", "introduction", "item", "kapitel", "keywords",
        "language", "lesson", "log", "message", "nb", "news", "nota", "note", "notes", "notice",
        "ok", "part", "passed", "preface", "problem", "prologue", "proof", "ps", "question",
        "quote", "re", "reason", "reminder", "result", "results", "scene", "section", "see",
        "source", "sources", "spoiler", "status", "step", "subject", "success", "summary",
        "table", "teil", "theorem", "tip", "title", "to", "todo", "update", "urgent", "verse",
        "volume", "warning", "warnung", "week",
    )
)  # fmt: skip
"""Words that label what follows; nobody is called so."""


@dataclass(frozen=True, slots=True)
class Speakers:
    """Who may speak. ``voices`` are the known names of voices (None: nobody has asked), ``cast``
    maps a name in the text to a voice ("" the narrator's), ``styles`` are those of the names that
    begin lines."""

    voices: tuple[str, ...] | None = None
    cast: Mapping[str, str] = field(default_factory=dict)
    styles: frozenset[Style] = frozenset()

    def voice_of(self, name: str) -> str | None:
        """Find the voice of a name, whatever its case; "" is the narrator's, None unknown."""
        voices = {voice: voice for voice in self.voices or ()}
        names = {NARRATOR: "", **voices, **self.cast}
        if name in names:
            return names[name]
        return {known.casefold(): voice for known, voice in names.items()}.get(name.casefold())

    @property
    def has_numbers(self) -> bool:
        """Tell whether the cast gives voices to S2's numbered speakers."""
        return any(name.isdigit() for name in self.cast)

    @property
    def known(self) -> str:
        """List the known names, for a hint."""
        names = [*self.cast, *(voice for voice in self.voices or () if voice not in self.cast)]
        return f"Known: {', '.join(names) or 'none'}. Give one with --cast NAME=VOICE."


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of text of one voice ("" the narrator's), without the marks. ``pause_s`` is the
    silence that was asked for after it, None if none was; ``number`` the line it begins in."""

    voice: str
    text: str
    number: int
    pause_s: float | None = None


class _Mark(NamedTuple):
    """A mark in a text: from where to where, its line, the voice that goes on or the pause."""

    begin: int
    end: int
    number: int
    voice: str | None
    pause_s: float = 0.0


def may_be_speaker(line: str, before: str) -> bool:
    """Tell whether a line may begin with a speaker's name, so that it must not be joined to the
    line before it."""
    found = _candidate(line)
    style = _style(found[0]) if found else ""
    return style == "capitals" or (bool(style) and bool(SENTENCE_END.search(before)))


def find_speakers(
    lines: Iterable[str],
    voices: Sequence[str] | None = None,
    cast: Mapping[str, str] | None = None,
) -> Speakers:
    """Find out, from all lines of a text, which of them begin with a speaker's name.

    Raises: ``ScriptError`` for a cast whose voices are unknown.
    """
    known = None if voices is None else tuple(voices)
    roles = {name: "" if voice == NARRATOR else voice for name, voice in (cast or {}).items()}
    for name, voice in roles.items():
        if known is not None and voice not in ("", *known):
            raise ScriptError(
                f'There is no voice "{voice}" for {name}.',
                hint=f"There are: {', '.join(known) or 'none'}.",
            )
    speakers = Speakers(known, roles)
    if voices is None and not cast:
        return speakers
    num_lines = num_capitals = 0
    styles: set[Style] = set()
    for line in lines:
        num_lines += bool(line.strip())
        found = _candidate(line)
        if found is None:
            continue
        style = _style(found[0])
        if speakers.voice_of(found[0]) is not None:
            styles.add(style)
        elif style == "capitals" and not _is_label(*found):
            num_capitals += 1
    if num_capitals and (cast or num_capitals >= _MIN_CAPITALS_SHARE * num_lines):
        styles.add("capitals")
    return replace(speakers, styles=frozenset(styles) - {""})


def read_cast(entries: Iterable[str]) -> dict[str, str]:
    """Read "NAME=VOICE" as it stands on a command line.

    Raises: ``UsageError`` for what is not of that form, and for a name with two voices.
    """
    cast: dict[str, str] = {}
    for entry in entries:
        name, sign, voice = (part.strip() for part in entry.partition("="))
        if not (name and sign and voice):
            raise UsageError(
                f'The cast "{entry}" is not of the form NAME=VOICE.',
                hint="For example: --cast MIRA=ada --cast 0=miles",
            )
        if cast.setdefault(name, voice) != voice:
            raise UsageError(f'The cast gives "{name}" two voices: {cast[name]} and {voice}.')
    return cast


def segments(
    text: str, speakers: Speakers, *, first_line: int = 1, source: str = "The text"
) -> list[Segment]:
    """Part a text where the voice changes or a pause is asked for.

    The texts of the segments joined are the text without its marks; there is at least one.
    Raises: ``ScriptError`` that names every unknown speaker, voice and pause, with its line.
    """
    problems = Problems(source)
    found, _ = _parse(text, speakers, "", first_line, problems)
    problems.raise_any(hint=speakers.known)
    return found


def spread_turns(
    lines: Sequence[ScriptLine], speakers: Speakers, *, source: str = "The script"
) -> tuple[ScriptLine, ...]:
    """Let a turn go on over the lines of a script: fill in the voice of lines that name none.

    A heading is the narrator's, and so is what follows it. Lines that the script gave a voice keep
    it. Their texts keep their marks.
    Raises: as ``segments``, for the whole script at once.
    """
    problems = Problems(source)
    voice = ""
    spread = []
    for line in lines:
        if line.heading:
            voice = ""
        spread.append(replace(line, voice=line.voice or voice))
        _, voice = _parse(line.text, speakers, voice, line.number, problems)
    problems.raise_any(hint=speakers.known)
    return tuple(spread)


def _parse(
    text: str, speakers: Speakers, voice: str, first_line: int, problems: Problems
) -> tuple[list[Segment], str]:
    """Part a text, and answer the voice at its end too."""
    found: list[Segment] = []
    begin, number = 0, first_line

    def close(end: int) -> None:
        part = text[begin:end]
        if found and not part.strip():
            found[-1] = replace(found[-1], text=found[-1].text + part)
        elif part:
            lead = part[: len(part) - len(part.lstrip())]
            found.append(Segment(voice, part, number + lead.count("\n")))

    for mark in _marks(text, speakers, first_line, problems):
        close(mark.begin)
        begin, number = mark.end, mark.number
        if mark.voice is not None:
            voice = mark.voice
            continue
        if not found:
            found.append(Segment(voice, "", first_line))
        found[-1] = replace(found[-1], pause_s=(found[-1].pause_s or 0.0) + mark.pause_s)
    close(len(text))
    return found or [Segment(voice, "", first_line)], voice


def _marks(text: str, speakers: Speakers, first_line: int, problems: Problems) -> Iterator[_Mark]:
    """Find the marks in order; those that cannot be obeyed are added to the problems."""
    begin = 0
    for number, line in enumerate(text.split("\n"), start=first_line):
        for mark in _marks_of_line(line, speakers, number, problems):
            yield mark._replace(begin=begin + mark.begin, end=begin + mark.end)
        begin += len(line) + 1


def _marks_of_line(
    line: str, speakers: Speakers, number: int, problems: Problems
) -> Iterator[_Mark]:
    found = _candidate(line)
    start = 0
    if found is not None:
        voice = speakers.voice_of(found[0])
        style = _style(found[0])
        if voice is not None and (style in speakers.styles or not style):
            start = len(line) - len(found[1])
            yield _Mark(0, start, number, voice)
        elif voice is None and style in speakers.styles and not _is_label(*found):
            problems.add(number, f'there is no voice for the speaker "{found[0]}".')
    patterns = [_MARK, _SPEAKER_TAG] if speakers.has_numbers else [_MARK]
    marks = [mark for pattern in patterns for mark in pattern.finditer(line, start)]
    for mark in sorted(marks, key=lambda mark: mark.start()):
        try:
            yield _obeyed(mark, number, speakers)
        except ValueError as error:
            problems.add(number, str(error))


def _obeyed(mark: re.Match[str], number: int, speakers: Speakers) -> _Mark:
    """Read an inline mark.

    Raises: ``ValueError`` that says what is wrong with it.
    """
    if mark.re is _SPEAKER_TAG:
        if mark[1] not in speakers.cast:
            raise ValueError(f"the cast has no voice for {mark[0]}.")
        return _Mark(mark.start(), mark.end(), number, speakers.voice_of(mark[1]))
    if mark[1].lower() == "voice":
        voice = speakers.voice_of(mark[2])
        if voice is None:
            raise ValueError(f'there is no voice "{mark[2]}".')
        return _Mark(mark.start(), mark.end(), number, voice)
    length = _PAUSE.fullmatch(mark[2])
    if not length:
        raise ValueError(f'"{mark[0]}" is no pause such as [pause:0.5s] or [pause:300ms].')
    pause_s = float(length[1]) / (1000 if (length[2] or "s").lower() == "ms" else 1)
    if pause_s > MAX_PAUSE_S:
        raise ValueError(f'"{mark[0]}" is longer than {MAX_PAUSE_S:g} seconds.')
    return _Mark(mark.start(), mark.end(), number, None, pause_s)


def _candidate(line: str) -> tuple[str, str] | None:
    """Part a line into what may be a name, and what follows its colon."""
    found = _LINE.match(line)
    if not found or not _NAME.match(found[1]):
        return None
    rest = line[found.end() :]
    has_space = found.end() > found.end(2) if found[2] else True
    return (found[1], rest) if has_space or not rest else None


def _style(name: str) -> Style:
    """Tell how a name is written; "" where it cannot be told from prose."""
    words = name.split(" ")
    if not _NAME.fullmatch(name) or len(words) > _MAX_NAME_WORDS:
        return ""
    if name.isupper():
        return "capitals" if sum(map(str.isalpha, name)) > 1 else ""
    if all(word[:1].isupper() or word.isdigit() for word in words):
        return "title"
    return "lower" if name.islower() and len(words) == 1 else ""


def _is_label(name: str, rest: str) -> bool:
    """Tell "NOTE: ..." and "CHAPTER ONE: THE RIVER RISES" from a speaker's line."""
    words = [word.strip(".").replace(".", "") for word in name.casefold().split()]
    is_heading = rest.isupper() and len(rest.split()) > _MAX_HEADING_WORDS
    return is_heading or words[0] in _LABELS or words[-1] in _LABELS

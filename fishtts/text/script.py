"""Script files to script lines: which reader a file needs, what every line is called, all faults
at once.

Owns what holds for every format: ids, duplicates, what is checked of the whole. Knows nothing of
models, voices or audio; each format has a module of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Literal

from fishtts.errors import ScriptError, UsageError
from fishtts.text.names import key_folders, out_key, out_problem
from fishtts.text.problems import Problems
from fishtts.text.read import decode_lines, read_bytes
from fishtts.text.script_jsonl import read_jsonl
from fishtts.text.script_markdown import read_markdown
from fishtts.text.script_plain import read_plain
from fishtts.text.script_srt import read_srt
from fishtts.text.script_table import read_csv, read_tsv
from fishtts.text.stretches import SPLITS, Found, Split
from fishtts.types import ScriptLine

Format = Literal["", "txt", "md", "csv", "tsv", "jsonl", "srt"]
Columns = Mapping[str, str]
"""What a file calls a column, by what we call it: ``{"text": "text_de"}``."""

_MAX_ID_CHARS = 200
_MIN_DIGITS = 4

_READERS: dict[str, Callable[[list[str], Problems, Split, Columns], Found]] = {
    "txt": lambda lines, problems, split, columns: read_plain(lines, split),
    "md": lambda lines, problems, split, columns: read_markdown(lines, split),
    "csv": lambda lines, problems, split, columns: read_csv(lines, problems, columns),
    "tsv": lambda lines, problems, split, columns: read_tsv(lines, problems, columns),
    "jsonl": lambda lines, problems, split, columns: read_jsonl(lines, problems, columns),
    "srt": lambda lines, problems, split, columns: read_srt(lines, problems),
}
FORMATS = tuple(_READERS)

_FORMAT_OF_SUFFIX = {
    "": "txt",
    ".txt": "txt",
    ".text": "txt",
    ".md": "md",
    ".markdown": "md",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".srt": "srt",
}
_TABLES = ("csv", "tsv", "jsonl")


@dataclass(frozen=True, slots=True)
class Script:
    """A script as it was read. ``notes`` are sentences that a person should see; ``source`` is the
    name of its file ("-" for a pipe), ``format`` how it was read."""

    lines: tuple[ScriptLine, ...]
    notes: tuple[str, ...] = ()
    source: str = ""
    format: str = "txt"


def read_script(
    source: str | Path | BinaryIO,
    *,
    format: str = "",
    split: str = "auto",
    encoding: str = "utf-8",
    columns: Columns | None = None,
    suffix: str = "",
) -> Script:
    """Read and check a whole script: a file, ``-`` for standard input, or a binary stream.

    The format follows from the file's ending where it is not named; a stream is plain text.
    ``split`` says what a line of txt and md files is: auto, line, paragraph, sentence. ``suffix``
    is how the run's files end (".wav"), so that an ``out`` of another format is refused.
    Raises: ``ScriptError`` that names every fault with its line; ``UsageError`` for options that
    do not go together.
    """
    name, data = _contents(source)
    kind = _choose_format(name, format)
    how = _choose_split(split, kind)
    if columns and kind not in _TABLES:
        raise UsageError(f"Columns are named for csv, tsv and jsonl; this is {kind}.")
    shown = "standard input" if name == "-" else f'the file "{name}"'
    lines = decode_lines(data, encoding=encoding, source=shown)
    problems = Problems(shown[:1].upper() + shown[1:])
    found = _READERS[kind](lines, problems, how, columns or {})
    named = _with_ids(found.lines, len(lines))
    _check(named, problems, suffix)
    problems.raise_any()
    if not named:
        raise ScriptError(f"There is nothing to say in {shown}.")
    return Script(named, found.notes, name, kind)


def _contents(source: str | Path | BinaryIO) -> tuple[str, bytes]:
    """Read the bytes, and tell what the source is called."""
    if isinstance(source, str | Path):
        if str(source) == "-":
            return "-", sys.stdin.buffer.read()
        return str(source), read_bytes(Path(source))
    return "-", source.read()


def _choose_format(name: str, format_name: str) -> str:
    known = ", ".join(FORMATS)
    if format_name:
        if format_name not in _READERS:
            raise UsageError(f'There is no script format "{format_name}".', hint=f"Known: {known}.")
        return format_name
    suffix = Path(name).suffix.lower()
    if suffix not in _FORMAT_OF_SUFFIX:
        raise ScriptError(
            f'The ending of "{name}" tells no script format.',
            hint=f"Name the format, for example --format txt. Known: {known}.",
        )
    return _FORMAT_OF_SUFFIX[suffix]


def _choose_split(split: str, kind: str) -> Split:
    for known in SPLITS:
        if split == known:
            break
    else:
        raise UsageError(f'There is no split "{split}".', hint=f"Known: {', '.join(SPLITS)}.")
    if known != "auto" and kind not in ("txt", "md"):
        raise UsageError(
            f"A {kind} script is never split: each of its records is one line.",
            hint="Leave --split out.",
        )
    return known


def _with_ids(lines: tuple[ScriptLine, ...], num_lines: int) -> tuple[ScriptLine, ...]:
    """Name what has no id after the line that it begins in; several in one line are counted."""
    digits = max(_MIN_DIGITS, len(str(num_lines)))
    starts: dict[int, int] = {}
    for line in lines:
        starts[line.number] = starts.get(line.number, 0) + 1
    seen: dict[int, int] = {}
    named = []
    for line in lines:
        seen[line.number] = seen.get(line.number, 0) + 1
        if not line.has_own_id:
            part = f".{seen[line.number]}" if starts[line.number] > 1 else ""
            line = replace(line, id=f"L{line.number:0{digits}d}{part}")
        named.append(line)
    return tuple(named)


def _check(lines: tuple[ScriptLine, ...], problems: Problems, suffix: str) -> None:
    """Check what only the whole tells: ids and files that are asked for twice."""
    ids: dict[str, ScriptLine] = {}
    outs: dict[str, ScriptLine] = {}
    for line in lines:
        fault = _id_fault(line.id) if line.has_own_id else ""
        if fault:
            problems.add(line.number, fault)
        elif line.id in ids:
            first = ids[line.id]
            problems.add(line.number, f'the id "{line.id}" is that of line {first.number} already.')
        ids.setdefault(line.id, line)
        if not line.out:
            continue
        fault = out_problem(line.out, suffix)
        key = out_key(line.out, suffix)
        if fault:
            problems.add(line.number, fault)
        elif key in outs:
            number = outs[key].number
            problems.add(line.number, f'the file "{line.out}" is that of line {number} already.')
        outs.setdefault(key, line)
    for key, line in outs.items():
        for parent in key_folders(key):
            if parent in outs:
                problems.add(
                    line.number,
                    f'"{line.out}" lies in a folder that line {outs[parent].number} makes a file.',
                )


def _id_fault(text: str) -> str:
    if len(text) > _MAX_ID_CHARS:
        return f"the id has {len(text)} characters; {_MAX_ID_CHARS} are allowed."
    if not text.isprintable():
        return f"the id {text!a} holds a character that cannot be printed."
    return ""

"""The tables of an evaluation, made from its records only: for a terminal and for the page.

Owns columns, rounding and the page's frame. Knows no judge and no model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from recipes.minnow.records import HERE, Line, Record
from recipes.minnow.score import (
    LineErrors,
    bootstrap_interval,
    char_error_rate,
    word_error_rate,
)

PAGE = HERE.parents[1] / "docs" / "quality.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
TITLES = {
    "teacher": "The teacher, in its own voices",
    "codec": "The codec alone: the teacher's audio, encoded and decoded",
    "say": "The product: `fishtts say`, one seed, no second try",
    "endings": "Lines that do not end well: one try each, voices in turn",
    "clone": "Cloning: the product in the voice of a recording, one seed, no second try",
    "speed": "Speed on the CPU, loading not counted",
}
Table = list[tuple[str, ...]]


def table(record: Record) -> Table:
    """Turn a record into a table, its header first."""
    makers = {"clone": _clones, "endings": _endings, "speed": _speeds}
    return makers.get(record.mode, _voices)(record)


def _voices(record: Record) -> Table:
    header = ("Voice", "WER", "95 %", "CER", "DistillMOS mean", "min", "DNSMOS", "Speech, s", "RTF")
    rows = [_voice(voice, lines) for voice, lines in record.voices.items()]
    if len(record.voices) > 1:
        rows.append(_voice("all", *record.voices.values()))
    return [header, *rows]


def _voice(name: str, *voices: list[Line]) -> tuple[str, ...]:
    lines = [line for voice in voices for line in voice]
    seconds = sum(line.seconds for line in lines)
    return (
        name,
        *_errors(voices),
        f"{np.mean([line.mos for line in lines]):.2f}",
        f"{min(line.mos for line in lines):.2f}",
        f"{np.mean([line.dnsmos for line in lines]):.2f}",
        f"{seconds:.1f}",
        f"{sum(line.took_s for line in lines) / seconds:.3f}",
    )


def _errors(voices: Sequence[list[Line]]) -> tuple[str, str, str]:
    """WER, its interval, CER. Voices share their sentences: a sentence is what is drawn again."""
    by_sentence = [_sum(lines) for lines in zip(*voices, strict=True)]
    low, high = bootstrap_interval(by_sentence)
    return (
        f"{word_error_rate(by_sentence):.3f}",
        f"{low:.3f} to {high:.3f}",
        f"{char_error_rate(by_sentence):.3f}",
    )


def _sum(lines: Iterable[Line]) -> LineErrors:
    columns = zip(*((x.word_errors, x.words, x.char_errors, x.chars)
                    for x in (line.errors for line in lines)), strict=True)  # fmt: skip
    return LineErrors(*map(sum, columns))


def _clones(record: Record) -> Table:
    header = ("Reference", "WER", "95 %", "CER", "DistillMOS mean", "Similarity", "of the codec",
              "right one first", "Speech, s")  # fmt: skip
    rows = [_clone(name, lines) for name, lines in record.voices.items()]
    groups: dict[str, list[list[Line]]] = {}
    for name, lines in record.voices.items():
        groups.setdefault(name.split("/")[0], []).append(lines)
    return [header, *rows, *(_clone(f"all {group}", *voices) for group, voices in groups.items())]


def _clone(name: str, *voices: list[Line]) -> tuple[str, ...]:
    lines = [line for voice in voices for line in voice]
    similarity = [line.similarity for line in lines if line.similarity is not None]
    ceiling = [line.ceiling for line in lines if line.ceiling is not None]
    return (
        name,
        *_errors(voices),
        f"{np.mean([line.mos for line in lines]):.2f}",
        f"{np.mean(similarity):.3f}",
        f"{np.mean(ceiling):.3f}",
        f"{np.mean([line.rank == 1 for line in lines]):.0%}",
        f"{sum(line.seconds for line in lines):.1f}",
    )


def _endings(record: Record) -> Table:
    """Faults as the product's checks see them, and lines of which half the words were not heard."""
    header = ("Voice", "Lines", "no end", "cut off", "silent", "repeats", "half misheard", "bad")
    rows = [_ending(voice, lines) for voice, lines in record.voices.items()]
    return [header, *rows, _ending("all", [x for lines in record.voices.values() for x in lines])]


def _ending(voice: str, lines: list[Line]) -> tuple[str, ...]:
    def misheard(line: Line) -> bool:
        return line.errors.words >= 4 and line.errors.word_errors >= 0.5 * line.errors.words

    faults = (sum(f in line.faults for line in lines)
              for f in ("limit", "short", "silent", "repeats"))  # fmt: skip
    lost = sum(misheard(line) for line in lines)
    bad = sum(bool(line.faults) or misheard(line) for line in lines)
    return (voice, str(len(lines)), *map(str, faults), str(lost), f"{bad / len(lines):.1%}")


def _speeds(record: Record) -> Table:
    header = ("How", "Lines", "Speech, s", "Work, s", "RTF")
    rows = []
    for name, lines in record.voices.items():
        seconds, work = sum(x.seconds for x in lines), sum(x.took_s for x in lines)
        cells = (f"{seconds:.1f}", f"{work:.1f}", f"{work / seconds:.3f}")
        rows.append((name, str(len(lines)), *cells))
    return [header, *rows]


def as_text(record: Record) -> str:
    """Lay a record out for a terminal."""
    cells = table(record)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )


def as_markdown(record: Record) -> str:
    """Lay a record out for the documentation, with where it comes from."""
    header, *rows = table(record)
    cells = [header, ("---",) + ("---:",) * (len(header) - 1), *rows]
    versions = ", ".join(
        f"{name} {value}"
        for name, value in record.environment.items()
        if name not in ("processor", "threads")
    )
    model = f" Weights `{record.model}`." if record.model else ""
    count = len(next(iter(record.voices.values())))
    what = f"`{record.sentences}`, {count} lines a row."
    return "\n".join(
        (
            f"### {TITLES[record.mode]} ({record.sentences.removesuffix('.txt')})",
            "",
            f"{what}{model}",
            "",
            *("| " + " | ".join(row) + " |" for row in cells),
            "",
            f"{record.environment['processor']}, {record.environment['threads']} threads; "
            f"{versions}.",
            "",
        )
    )


def write_page(records: Sequence[Record]) -> None:
    """Put the tables into the page, between its marks; what else stands there stays."""
    tables = "\n".join((BEGIN, *map(as_markdown, records), END, ""))
    before, rest = PAGE.read_text("utf-8").split(BEGIN, 1)
    after = rest.split(END, 1)[1].removeprefix("\n")
    PAGE.write_text(before + tables + after, "utf-8")

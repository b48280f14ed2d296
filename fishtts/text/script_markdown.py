"""Markdown to script lines, as a careful reader would read it aloud: headings begin chapters, marks
are not spoken, code is left out and said to be.

Knows the common ground of Markdown (paragraphs, headings, lists, quotes, tables, links, emphasis),
not every corner of it; what it does not know is read as text, so that no words are lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape

from fishtts.text.dialogue import may_be_speaker
from fishtts.text.read import clean
from fishtts.text.stretches import Found, Row, Split, script_lines
from fishtts.types import ScriptLine

_FENCE = re.compile(r"\s*(`{3,}|~{3,})(.*)$")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]+(.*))?$")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-{2,})\s*$")
_BREAK = re.compile(r"\s*([-*_])(?:\s*\1){2,}\s*$")
_QUOTE = re.compile(r"\s{0,3}(?:>\s?)+")
_ITEM = re.compile(r"\s*(?:[-*+]|(\d{1,9}[.)]))\s+(?:\[[ xX]\]\s+)?(?=\S)")
_TABLE_ROW = re.compile(r"\s*\|.*\|\s*$")
_TABLE_RULE = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$")
_CELL_END = re.compile(r"(?<!\\)\|")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_DEFINITION = re.compile(
    r"\s{0,3}\[([^\]^]+)\]:\s*<?(?:\S*[/#]\S*|mailto:\S+|\S+\.[a-z]{2,})>?"
    r"(?:\s+[\"'(].*[\"')])?\s*$"
)
_FOOTNOTE = re.compile(r"\s{0,3}\[\^[^\]\s]+\]:\s*")

_CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_IMAGE = re.compile(r"!\[([^\[\]]*)\]\([^()\s]*(?:\([^()]*\)[^()\s]*)*(?:\s+[\"'][^\"']*[\"'])?\)")
_LINK = re.compile(r"\[([^\[\]]*)\]\([^()\s]*(?:\([^()]*\)[^()\s]*)*(?:\s+[\"'][^\"']*[\"'])?\)")
_REFERENCE = re.compile(r"!?\[([^\[\]]+)\](?:\[([^\[\]]*)\])?")
_NOTE_MARK = re.compile(r"\[\^[^\]\s]+\]")
_ADDRESS = re.compile(r"<((?:https?|ftp|mailto):[^\s<>]+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+)>")
_HTML = re.compile(
    r"</?[A-Za-z][\w-]*"
    r"(?:\s+[\w:-]+(?:\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s\"'<>]+))?)*\s*/?>"
)
_EMPHASIS = (
    re.compile(r"(\*{1,3})(?=[^\s*])([^*]+?)(?<=\S)\1"),
    re.compile(r"(?<!\w)(_{1,3})(?=[^\s_])((?:[^_]|(?<=\w)_(?=\w))+?)(?<=[^\s_])\1(?!\w)"),
    re.compile(r"(~~)(?=\S)([^~]+?)(?<=\S)\1"),
)
"""None looks past the next sign of its kind, so that many of them take no longer than one; what is
nested is found from the inside."""

_HELD = re.compile("\0(\\d+)\0")
"""Stands for what is not Markdown any more; no text holds a NUL."""

_MAX_TITLE_CHARS = 100
_MAX_NESTED = 4
_MAX_SHOWN = 5


@dataclass(slots=True)
class _Block:
    """A paragraph, an item of a list, a row of a table, or a heading."""

    rows: list[Row]
    is_heading: bool = False
    is_item: bool = False
    is_quote: bool = False


def read_markdown(lines: list[str], split: Split) -> Found:
    """Read Markdown. A heading is a line of its own and begins a chapter."""
    tidy = [
        clean(line, source=f"line {number}").replace("\n", " ")
        for number, line in enumerate(lines, start=1)
    ]
    text = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), "\n".join(tidy))
    rows = [Row(number, line) for number, line in enumerate(text.split("\n"), start=1)]
    notes = []
    rest = _without_front_matter(rows)
    if len(rest) < len(rows):
        notes.append(f"Left out the front matter (lines 1 to {len(rows) - len(rest)}).")
    prose, code = _without_code(rest)
    if code:
        shown = ", ".join(map(str, code[:_MAX_SHOWN])) + (", ..." if code[_MAX_SHOWN:] else "")
        blocks = "1 block" if len(code) == 1 else f"{len(code)} blocks"
        notes.append(f"Left out {blocks} of code (line {shown}).")
    prose, names = _without_definitions(prose)
    made = [line for block in _blocks(prose) for line in _script_lines(block, split, names)]
    return Found(tuple(made), tuple(notes))


def _without_front_matter(rows: list[Row]) -> list[Row]:
    """Drop what stands between "---" in the first line and the next."""
    if rows[0].text.rstrip() != "---":
        return rows
    for row in rows[1:]:
        if row.text.rstrip() in ("---", "..."):
            return rows[row.number :]
        if not row.text.strip():
            return rows
    return rows


def _without_code(rows: list[Row]) -> tuple[list[Row], list[int]]:
    """Drop fenced code, and tell where it began. A fence that is never closed is none."""
    kept: list[Row] = []
    dropped: list[int] = []
    at = 0
    while at < len(rows):
        fence = _FENCE.match(rows[at].text)
        end = _fence_end(rows, at, fence[1]) if fence and "`" not in fence[2] else 0
        if end:
            dropped.append(rows[at].number)
            kept.append(Row(rows[at].number, ""))
            at = end + 1
            continue
        kept.append(Row(rows[at].number, "") if fence else rows[at])
        at += 1
    return kept, dropped


def _fence_end(rows: list[Row], begin: int, fence: str) -> int:
    closing = re.compile(rf"\s*{fence[0]}{{{len(fence)},}}\s*$")
    for at in range(begin + 1, len(rows)):
        if closing.match(rows[at].text):
            return at
    return 0


def _without_definitions(rows: list[Row]) -> tuple[list[Row], frozenset[str]]:
    """Drop the lines that say where links lead, and answer the names of those links."""
    kept, names = [], set()
    for row in rows:
        definition = _DEFINITION.match(row.text)
        if definition:
            names.add(_link_name(definition[1]))
        kept.append(Row(row.number, "") if definition else row)
    return kept, frozenset(names)


def _blocks(rows: list[Row]) -> list[_Block]:
    """Tell headings, paragraphs, items, quotes and rows of tables from each other."""
    blocks: list[_Block] = []
    is_open = False
    for row in rows:
        quote = _QUOTE.match(row.text)
        text = row.text[quote.end() :] if quote else row.text
        row = Row(row.number, text)
        last = blocks[-1] if blocks and is_open else None
        if last and last.is_quote != bool(quote) and quote:
            last = None
        is_open = False
        heading = _HEADING.match(text)
        if not text.strip():
            continue
        if last and _UNDERLINE.match(text) and _may_be_title(last):
            last.is_heading = True
        elif heading:
            title = re.sub(r"(?:^|[ \t]+)#+[ \t]*$", "", heading[1] or "")
            blocks.append(_Block([Row(row.number, title)], is_heading=True))
        elif _BREAK.match(text):
            blocks.append(_Block([row]))
        elif _TABLE_ROW.match(text):
            if not _TABLE_RULE.match(text):
                blocks.append(_Block([Row(row.number, _cells(text))]))
        elif begun := _item(row, last):
            blocks.append(begun)
            is_open = True
        elif last:
            last.rows.append(row)
            is_open = True
        else:
            blocks.append(_Block([Row(row.number, _FOOTNOTE.sub("", text))], is_quote=bool(quote)))
            is_open = True
    return blocks


def _may_be_title(block: _Block) -> bool:
    """Tell a title that is underlined from a paragraph with a rule under it."""
    return len(block.rows) == 1 and not block.is_item and len(block.rows[0].text) < _MAX_TITLE_CHARS


def _item(row: Row, last: _Block | None) -> _Block | None:
    """Begin an item of a list. A number may also be where a paragraph's line happened to end."""
    item = _ITEM.match(row.text)
    if not item:
        return None
    number = item[1] or ""
    if number and last and not last.is_item and number[:-1] != "1":
        return None
    text = f"{number} {row.text[item.end() :]}" if number else row.text[item.end() :]
    return _Block([Row(row.number, text)], is_item=True)


def _cells(text: str) -> str:
    cells = [cell.strip() for cell in _CELL_END.split(text.strip().strip("|"))]
    return ", ".join(cell for cell in cells if cell)


def _script_lines(block: _Block, split: Split, names: frozenset[str]) -> Iterator[ScriptLine]:
    """Make script lines of a block; it may have none, as a picture without a description has."""
    ends = [row.text.endswith(("  ", "\\")) for row in block.rows]
    joined = "\n".join(row.text.strip().removesuffix("\\") for row in block.rows)
    texts = joined if _BREAK.match(joined) else _spoken(joined, names)
    stretches: list[list[Row]] = [[]]
    for row, text, ends_line in zip(block.rows, texts.split("\n"), ends, strict=True):
        if not text.strip():
            continue
        if stretches[-1] and may_be_speaker(text, stretches[-1][-1].text):
            stretches.append([])
        stretches[-1].append(Row(row.number, text))
        if ends_line:
            stretches.append([])
    whole = [rows for rows in stretches if rows]
    if not whole:
        return
    if block.is_heading:
        title = " ".join(row.text.strip() for rows in whole for row in rows)
        yield ScriptLine("", block.rows[0].number, title, heading=title)
    else:
        yield from script_lines(whole, split)


def _spoken(text: str, names: frozenset[str]) -> str:
    """Take the marks out of a block and keep its words; its line ends stay where they are."""
    held: list[str] = []

    def hold(words: str) -> str:
        held.append(words)
        return f"\0{len(held) - 1}\0"

    text = _CODE.sub(lambda code: hold(code[2]), text)
    text = _ESCAPED.sub(lambda escaped: hold(escaped[1]), text)
    text = _ADDRESS.sub(lambda address: hold(address[1]), text)
    text = _HTML.sub(lambda tag: " " if tag[0][:3].lower() == "<br" else "", text)
    text = _LINK.sub(r"\1", _IMAGE.sub(r"\1", text))
    text = _REFERENCE.sub(lambda link: _words_of_reference(link, names), text)
    text = _NOTE_MARK.sub("", text)
    for _ in range(_MAX_NESTED):
        before = text
        for emphasis in _EMPHASIS:
            text = emphasis.sub(r"\2", text)
        if text == before:
            break
    return _HELD.sub(lambda place: held[int(place[1])], unescape(text))


def _words_of_reference(link: re.Match[str], names: frozenset[str]) -> str:
    """Answer the words of a link whose address stands elsewhere; other brackets are left alone."""
    is_link = _link_name(link[2] or link[1]) in names
    return link[1] if is_link else link[0]


def _link_name(words: str) -> str:
    return " ".join(words.split()).casefold()

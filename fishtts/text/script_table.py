"""Tables (csv, tsv) to script lines. The first row names the columns.

Knows how cells are written; what they may say is the business of ``records.py``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping

from fishtts.text.problems import Problems
from fishtts.text.records import KEYS, check_columns, script_line, unknown_key
from fishtts.text.stretches import Found


def read_csv(lines: list[str], problems: Problems, columns: Mapping[str, str]) -> Found:
    """Read comma-separated values; a header with semicolons and no comma sets them apart."""
    header = next((line for line in lines if line.strip()), "")
    delimiter = ";" if ";" in header and "," not in header else ","
    rows = _csv_rows(lines, problems, delimiter)
    return _table(rows, problems, columns, "A cell with a comma in it needs quotes.")


def read_tsv(lines: list[str], problems: Problems, columns: Mapping[str, str]) -> Found:
    """Read tab-separated values: a cell in quotes from end to end loses them, no cell has a tab or
    a line end in it."""
    rows = (
        (number, list(map(_unquoted, line.split("\t"))))
        for number, line in enumerate(lines, start=1)
    )
    return _table(rows, problems, columns, "No cell may hold a tab or a line end.")


def _csv_rows(
    lines: list[str], problems: Problems, delimiter: str
) -> Iterator[tuple[int, list[str]]]:
    """Read the rows, each with the line that it begins in, up to the first that is no CSV."""
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=delimiter, strict=True)
    while True:
        number = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            problems.add(number, f"the quotes of this row are not right ({error}).")
            return
        if row is None:
            return
        yield number, row


def _table(
    rows: Iterator[tuple[int, list[str]]],
    problems: Problems,
    columns: Mapping[str, str],
    why_uneven: str,
) -> Found:
    check_columns(columns)
    filled = ((number, row) for number, row in rows if any(cell.strip() for cell in row))
    first = next(filled, None)
    if first is None:
        return Found(())
    number, header = first
    places, notes = _places(header, columns, number, problems)
    if "text" not in places:
        return Found(())
    made = []
    for number, row in filled:
        if len(row) != len(header):
            cells = f"{len(row)} cells, and the header has {len(header)}"
            problems.add(number, f"the row has {cells}. {why_uneven}")
            continue
        values = {key: row[at] for key, at in places.items()}
        made.append(script_line(values, number, problems))
    return Found(tuple(made), notes)


def _places(
    header: list[str], columns: Mapping[str, str], number: int, problems: Problems
) -> tuple[dict[str, int], tuple[str, ...]]:
    """Find the column of each key. What is not named by a mapping is left out, if there is one."""
    names = [name.strip() for name in header]
    plain = [name.casefold() for name in names]
    for name in sorted({name for name in plain if name and plain.count(name) > 1}):
        problems.add(number, f'the column "{name}" is there more than once.')
    places: dict[str, int] = {}
    for key in KEYS:
        wanted = columns.get(key, key).strip().casefold()
        if wanted in plain:
            places[key] = plain.index(wanted)
        elif key in columns:
            problems.add(number, f'there is no column "{columns[key]}". {_there_are(names)}')
    unused = [name for at, name in enumerate(names) if at not in places.values()]
    if not columns:
        for name in unused:
            problems.add(number, unknown_key(name))
        unused = []
    if "text" not in places and "text" not in columns:
        problems.add(number, f'the first row must name a column "text". {_there_are(names)}')
    return places, (f"Columns not used: {', '.join(unused)}.",) if unused else ()


def _there_are(names: list[str]) -> str:
    return f"There are: {', '.join(names)}."


def _unquoted(cell: str) -> str:
    """Take off quotes as spreadsheets put them; others belong to the text."""
    inner = cell.strip()[1:-1]
    is_quoted = len(cell.strip()) > 1 and cell.strip()[0] == cell.strip()[-1] == '"'
    if not is_quoted or '"' in inner.replace('""', ""):
        return cell
    return inner.replace('""', '"')

"""What scripts read on standard output (lines, tables and JSON, as UTF-8 whatever the locale), and
what people read on standard error.

Knows nothing of what is printed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any, BinaryIO


def print_json(value: Any) -> None:
    """Print JSON as UTF-8, whatever the locale."""
    print_line(json.dumps(value, ensure_ascii=False, indent=2))


def print_line(text: str) -> None:
    """Print a line as UTF-8, whatever the locale: what a script reads must not depend on it."""
    stream: BinaryIO | None = getattr(sys.stdout, "buffer", None)
    if stream is None:
        print(text)
        return
    sys.stdout.flush()
    # A buffered stream answers a short count, and no error, when its reader goes away meanwhile.
    line = memoryview(text.encode("utf-8", "replace") + b"\n")
    while line:
        line = line[stream.write(line) :]


def note(text: str) -> None:
    """Tell a person something on standard error."""
    print(f"fishtts: {text}", file=sys.stderr)


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        print_line("  ".join(cells).rstrip())


def readable_bytes(size: float) -> str:
    """Write a number of bytes as people read it."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"

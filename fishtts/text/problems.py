"""What is wrong with a script, gathered line by line, so that a person hears of all of it at once.

Knows no format: readers say what they meet, and where.
"""

from __future__ import annotations

from fishtts.errors import ScriptError

MAX_SHOWN = 20


class Problems:
    """The faults found so far in one script; ``source`` is how messages call it."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._found: list[tuple[int, str]] = []

    def add(self, number: int, message: str) -> None:
        """Note what is wrong in a line (from 1): a sentence that goes on after "line 7:"."""
        self._found.append((number, message))

    def raise_any(self, *, hint: str = "") -> None:
        """Raise one ``ScriptError`` that names them all (the first 20), if there are any."""
        found = sorted(self._found, key=lambda problem: problem[0])
        if not found:
            return
        shown = [f"line {number}: {message}" for number, message in found[:MAX_SHOWN]]
        if len(found) == 1:
            raise ScriptError(f"{self.source}, {shown[0]}", hint=hint)
        if len(found) > MAX_SHOWN:
            shown.append(f"and {len(found) - MAX_SHOWN} more")
        rows = "\n".join(f"  {row}" for row in shown)
        rows = f"{rows}\n{hint}" if hint else rows
        raise ScriptError(f"{self.source} has {len(found)} problems:\n{rows}")

"""Who speaks which stretch of a text."""

from __future__ import annotations

import re

_CAPITALS = re.compile(r"\s*(?=[^a-z:]*[A-Z]{2})[A-Z][A-Z0-9 .'’_-]{0,39}:\s+\S*[^\W\d_]")


def may_be_speaker(line: str) -> bool:
    """Tell whether a line looks like "MIRA: Hello."."""
    return bool(_CAPITALS.match(line))

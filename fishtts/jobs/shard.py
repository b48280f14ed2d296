"""A script dealt out to several runs that know nothing of each other, and gathered again.

Owns how lines are dealt: by the hash of their id, so that every run deals alike. Each share has a
folder of its own inside the folder of the whole.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from fishtts.errors import UsageError

_SHARD = re.compile(r"(\d{1,6})/(\d{1,6})")
_FOLDER = re.compile(r"shard-(\d+)-of-(\d+)")


@dataclass(frozen=True, slots=True)
class Shard:
    """The share ``number`` (from 0) of ``count``."""

    number: int
    count: int

    @property
    def folder_name(self) -> str:
        """The folder of this share, inside the folder of the whole."""
        return f"shard-{self.number}-of-{self.count}"

    def holds(self, line_id: str) -> bool:
        """Tell whether a line is in this share."""
        digest = hashlib.sha256(line_id.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") % self.count == self.number


def parse_shard(text: str) -> Shard:
    """Read ``i/n``.

    Raises: ``UsageError`` for anything else.
    """
    match = _SHARD.fullmatch(text.strip())
    if not match or not 0 <= int(match[1]) < int(match[2]):
        raise UsageError(
            f'"{text}" is not a share of the work.',
            hint="Write --shard 0/4 to --shard 3/4 for four runs.",
        )
    return Shard(int(match[1]), int(match[2]))


def shard_folders(folder: Path) -> list[Path]:
    """List the folders of shares that were worked on."""
    return sorted(path for path in folder.glob("shard-*-of-*") if _FOLDER.fullmatch(path.name))

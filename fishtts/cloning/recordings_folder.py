"""A folder of recordings and their words: which of them make which voice.

Two layouts, also mixed: recordings side by side, each a voice of its own, and a folder for each
voice with its recordings in it (as fish-speech's ``references/<id>/``). The words of ``a.wav`` are
in ``a.lab`` or ``a.txt``. Knows nothing of what is in a recording.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fishtts.cloning.store import MAX_NAME, is_allowed
from fishtts.errors import AudioError

SUFFIXES = frozenset((".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a"))

_REFERENCES = "references"


@dataclass(frozen=True, slots=True)
class Recordings:
    """The recordings of one voice, in the order of their names. ``name`` is made from that of the
    file or folder, and is a name that a voice may have (or empty)."""

    name: str
    paths: tuple[Path, ...]


def find_recordings(folder: Path) -> list[Recordings]:
    """Go through a folder, and through the folder ``references`` in it.

    Raises: ``AudioError`` where there is no folder, or no recording in it.
    """
    try:
        found = list(_recordings(folder))
        if (folder / _REFERENCES).is_dir():
            found += _recordings(folder / _REFERENCES)
    except OSError as error:
        raise AudioError(f'The folder "{folder}" cannot be read: {error.strerror}.') from None
    if not found:
        raise AudioError(
            f'There are no recordings in "{folder}".',
            hint="Each is a sound file with its words beside it: mira.wav and mira.lab",
        )
    return found


def _recordings(folder: Path) -> Iterator[Recordings]:
    for path in sorted(folder.iterdir()):
        if _is_sound(path):
            yield Recordings(name_from(path.stem), (path,))
        elif path.is_dir() and path.name != _REFERENCES and not path.name.startswith("."):
            paths = tuple(sorted(filter(_is_sound, path.iterdir())))
            if paths:
                yield Recordings(name_from(path.name), paths)


def name_from(text: str) -> str:
    """Make a name for a voice out of that of a file: what is not allowed in it becomes ``-``."""
    text = unicodedata.normalize("NFC", text)
    kept = "".join(sign if is_allowed(sign) else "-" for sign in text)
    return re.sub("-+", "-", kept).strip("-_")[:MAX_NAME].rstrip("-_")


def _is_sound(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()

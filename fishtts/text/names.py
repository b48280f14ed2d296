"""File names from ids and titles: legal on every system, unique in their folder, never outside it.

Knows no file system: what is taken on the disk is not its business.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Sequence

from fishtts.errors import ScriptError

MAX_NAME_BYTES = 120
"""Of UTF-8, its ending included: leaves room for folders under Windows' limit of 260."""

_ILLEGAL = frozenset('<>:"/\\|?*')
_RESERVED = frozenset(
    ["con", "prn", "aux", "nul", "conin$", "conout$"]
    + [f"{port}{number}" for port in ("com", "lpt") for number in "0123456789¹²³"]
)
_SOUND_ENDINGS = (
    ".aac", ".aif", ".aiff", ".flac", ".m4a", ".m4b", ".mp3", ".ogg", ".opus", ".pcm", ".raw",
    ".wav", ".wma",
)  # fmt: skip
_DRIVE = re.compile(r"[A-Za-z]:")
_NUM_HASH_CHARS = 8


def file_names(items: Sequence[tuple[str, str]], suffix: str) -> list[str]:
    """Name the files of a whole run: of each item's id, or as its ``out`` asks for.

    ``suffix`` is how all of them end (".wav"). Names are relative, with "/" between folders, and
    differ even where case or the spelling of accents does not count. The same items get the same
    names. Of ids that would share a name the first keeps it; the others get a hash of theirs.
    Raises: ``ScriptError`` for an ``out`` that is not allowed, or taken.
    """
    taken: set[str] = set()
    for identity, out in items:
        fault = out_problem(out, suffix) if out else ""
        if not fault and out and out_key(out, suffix) in taken:
            fault = f'the file "{out}" is asked for twice.'
        if fault:
            raise ScriptError(f'Line "{identity}": {fault}')
        if out:
            taken.add(out_key(out, suffix))
    folders = {parent for key in taken for parent in key_folders(key)}
    if folders & taken:
        name = min(folders & taken)
        raise ScriptError(f'"{name}" is asked for both as a file and as a folder.')
    taken |= folders
    return [
        with_ending(out, suffix) if out else _unused_name(identity, suffix, taken)
        for identity, out in items
    ]


def file_name(title: str, suffix: str = "") -> str:
    """Make one file name of an id or a title: what is not legal in it becomes "_"."""
    text = unicodedata.normalize("NFC", title)
    text = "".join("_" if _is_illegal(character) else character for character in text)
    stem = _cut(text.strip(" "), MAX_NAME_BYTES - len(suffix.encode()) - 1) or "_"
    if stem[0] in ".-~":
        stem = f"_{stem[1:]}"
    return f"_{stem}{suffix}" if _is_reserved(stem) else f"{stem}{suffix}"


def out_problem(out: str, suffix: str = "") -> str:
    """Say what is wrong with a path that a script asks for; "" if nothing is.

    With a ``suffix`` (".wav"), an ending that means another format is refused too.
    """
    quoted = f'the out "{out}"' if out.isprintable() else f"the out {out!a}"
    if out.startswith(("/", "\\")) or _DRIVE.match(out):
        return f"{quoted} must lie inside the run's folder: no drive, no leading slash."
    for part in out.split("/"):
        if part == "..":
            return f'{quoted} leaves the run\'s folder with "..".'
        if not part:
            return f"{quoted} has an empty part."
        illegal = next((character for character in part if _is_illegal(character)), "")
        if illegal:
            return f"{quoted} holds {illegal!a}, which not every system allows in a name."
        if part[0] == "." or part[-1] in ". " or part[0] == " ":
            return f"{quoted} has a part that begins or ends with a dot or a space."
        if _is_reserved(part):
            return f'{quoted} has the part "{part}", a name that Windows keeps for a device.'
        if len(unicodedata.normalize("NFD", part).encode()) > MAX_NAME_BYTES:
            return f"{quoted} has a part of more than {MAX_NAME_BYTES} bytes."
    ending = _sound_ending(out)
    if suffix and ending and ending != suffix.lower():
        return f"{quoted} ends in {ending}, but this run writes {suffix}."
    return ""


def out_key(out: str, suffix: str = "") -> str:
    """Answer what two paths share exactly when some file system takes them for the same."""
    return _key(with_ending(out, suffix))


def with_ending(out: str, suffix: str) -> str:
    """Let a path end as the run's files do, if no ending of sound files tells its format yet."""
    return out if _sound_ending(out) else f"{out}{suffix}"


def _unused_name(identity: str, suffix: str, taken: set[str]) -> str:
    """Make the name of an id, and take it."""
    name = file_name(identity, suffix)
    salt = 0
    while _key(name) in taken:
        digest = hashlib.sha256(f"{salt}\0{identity}".encode("utf-8", "surrogatepass")).hexdigest()
        mark = f"-{digest[:_NUM_HASH_CHARS]}"
        name = file_name(identity, f"{mark}{suffix}")
        salt += 1
    taken.add(_key(name))
    return name


def _key(path: str) -> str:
    folded = unicodedata.normalize("NFKC", path).casefold()
    return unicodedata.normalize("NFKC", folded)


def key_folders(key: str) -> list[str]:
    """List the folders that a path lies in, outermost first."""
    return ["/".join(key.split("/")[:depth]) for depth in range(1, key.count("/") + 1)]


def _is_illegal(character: str) -> bool:
    """Tell characters that some system forbids, and those that nobody sees."""
    return character in _ILLEGAL or unicodedata.category(character) in (
        "Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp",
    )  # fmt: skip


def _is_reserved(name: str) -> bool:
    return name.split(".")[0].rstrip(" ").casefold() in _RESERVED


def _cut(text: str, max_bytes: int) -> str:
    """Shorten to so many bytes at a character; never leave a dot or a space at the end."""
    data = text.encode("utf-8", "replace")[:max_bytes]
    return data.decode("utf-8", "ignore").rstrip(". ")


def _sound_ending(out: str) -> str:
    return next((ending for ending in _SOUND_ENDINGS if out.lower().endswith(ending)), "")

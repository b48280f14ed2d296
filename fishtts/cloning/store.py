"""Named voices in a folder, one file each: add, get, list, rename, remove; and which voice a name
means.

Owns the names that voices may have, and who may write when. A name becomes part of a path only
after it was checked, and one that is asked for is only ever compared with those that are there.
Knows no codec and no model but its list of voices.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fishtts import hub, model_folder
from fishtts.cloning.voice_file import SUFFIX, read_voice, write_voice
from fishtts.config import DEFAULT_MODEL
from fishtts.errors import OutputError, VoiceError
from fishtts.types import Voice

FOLDER_VARIABLE = "FISHTTS_VOICES"
"""The environment variable that moves the folder."""

MAX_NAME = 64
_MAX_NAME_BYTES = 160
"""File systems end at 255, and the name of a file in the making is longer by some."""

_LOCK_WAIT_S = 30.0

_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])", re.IGNORECASE)
"""Windows takes these for devices, whatever their ending."""

_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0]")
"""Letters and marks that nobody sees: two names must not look the same."""

_NAME_RULE = "Names are letters, digits, - and _, and begin with a letter or a digit."


@dataclass(frozen=True, slots=True)
class Found:
    """The voice that a name means. ``note`` tells a person where two had that name."""

    voice: Voice
    path: Path
    is_own: bool
    note: str = ""


def default_folder() -> Path:
    """Say where this user's voices are."""
    chosen = os.environ.get(FOLDER_VARIABLE, "")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_data_path

    return user_data_path("fishtts", appauthor=False) / "voices"


class Store:
    """The voices in a folder, by default this user's own.

    Voices are read whole, so that one in use does not change or vanish. Names differ in more than
    upper and lower case, or the way that accents are encoded.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_folder()

    def names(self) -> list[str]:
        """List the names."""
        return sorted(_name_of(path) for path in self._files().values())

    def has(self, name: str) -> bool:
        """Tell whether there is a voice of this name."""
        return _key(name) in self._files()

    def path(self, name: str) -> Path:
        """Find the file of a voice.

        Raises: ``VoiceError`` that says which names there are.
        """
        path = self._files().get(_key(name))
        if path is None:
            names = self.names()
            raise VoiceError(
                f'There is no voice "{name}" among your own.',
                hint=model_folder.suggestion(name, names)
                + (f"There are: {', '.join(names)}." if names else "There are none yet."),
            )
        return path

    def get(self, name: str) -> Voice:
        """Read a voice.

        Raises: ``VoiceError`` for an unknown name, ``ModelError`` for a damaged file.
        """
        path = self.path(name)
        return replace(read_voice(path), name=_name_of(path))

    def place_for(self, name: str, *, force: bool = False) -> Path:
        """Say where a voice of this name would be kept: to find out before the work that it can be.

        Raises: ``VoiceError`` for a name that is not allowed or taken.
        """
        name = check_name(name)
        taken = self._files().get(_key(name))
        if force:
            return taken or self.folder / f"{name}{SUFFIX}"
        if taken is not None:
            raise VoiceError(
                f'There is a voice "{_name_of(taken)}" already.',
                hint="Choose another name, or add --force to replace it.",
            )
        if _key(name) in map(_key, _builtin_names()):
            raise VoiceError(
                f'"{name}" is the name of a built-in voice.',
                hint="Choose another name; with --force, yours comes first from then on.",
            )
        return self.folder / f"{name}{SUFFIX}"

    def add(self, voice: Voice, name: str = "", *, force: bool = False) -> Path:
        """Keep a voice under a name (its own, if none is given).

        ``force`` replaces a voice that has the name, and lets it be that of a built-in voice.
        Raises: ``VoiceError`` for a name that is not allowed or taken, ``OutputError`` where the
        folder cannot be written to.
        """
        name = check_name(name or voice.name)
        with self._lock():
            target = self.place_for(name, force=force)
            write_voice(replace(voice, name=name), target)
        return target

    def rename(self, old: str, new: str, *, force: bool = False) -> Path:
        """Give a voice another name; at no moment is it under neither.

        Raises: as ``get`` and ``add`` do.
        """
        new = check_name(new)
        with self._lock():
            source = self.path(old)
            voice = replace(self.get(old), name=new)
            if _key(old) == _key(new):
                write_voice(voice, source)
                target = self.folder / f"{new}{SUFFIX}"
                with self._writing():
                    source.rename(target)
                return target
            target = self.place_for(new, force=force)
            write_voice(voice, target)
            with self._writing():
                source.unlink()
        return target

    def remove(self, name: str) -> None:
        """Delete a voice.

        Raises: ``VoiceError`` for an unknown name.
        """
        self.path(name)
        with self._lock(), self._writing():
            self.path(name).unlink()

    def _files(self) -> dict[str, Path]:
        """Find the files by what their names are compared by."""
        found: dict[str, Path] = {}
        for path in sorted(self.folder.glob(f"*{SUFFIX}")):
            name = _name_of(path)
            if _fault(name) == "":
                found.setdefault(_key(name), path)
        return found

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Keep other writers out; make the folder if it is not there yet."""
        import filelock

        with self._writing():
            self.folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(self.folder / ".lock")
        try:
            with self._writing():
                lock.acquire(timeout=_LOCK_WAIT_S)
        except filelock.Timeout:
            raise OutputError(
                f"Another program keeps the voices in {self.folder} to itself.",
                hint="Try again when it has ended.",
            ) from None
        try:
            # Whoever writes here holds the lock: these are left over from programs that died.
            for part in self.folder.glob(f".*{SUFFIX}.*.part"):
                part.unlink(missing_ok=True)
            yield
        finally:
            lock.release()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, NotImplementedError) as error:
            if isinstance(error, TimeoutError):
                raise
            reason = getattr(error, "strerror", None) or "its file system cannot lock files"
            raise OutputError(
                f"The folder of voices {self.folder} cannot be written to: {reason}.",
                hint=f"Set {FOLDER_VARIABLE} to one that can.",
            ) from None


def find_voice(name: str, folder: Path, model: str, *, store: Store | None = None) -> Found:
    """Find the voice that a name means, for a model in a folder: one's own first, then the model's.

    Raises: ``VoiceError`` with names from both lists, ``ModelError`` for a damaged file.
    """
    store = store or Store()
    if store.has(name):
        path = store.path(name)
        note = ""
        if _key(name) in map(_key, model_folder.voice_names(folder)):
            note = (
                f'"{name}" is your own voice here; the model {model} has one of that name, too.'
                f" To hear that one, rename yours: fishtts voices rename {name} NEW"
            )
        return Found(store.get(name), path, is_own=True, note=note)
    path = model_folder.find_voice(folder, model, name, own=store.names())
    return Found(read_voice(path), path, is_own=False)


def check_name(name: str) -> str:
    """Check a name for a voice; answer it as it is kept (NFC).

    Raises: ``VoiceError`` for one that is not allowed.
    """
    name = unicodedata.normalize("NFC", name)
    fault = _fault(name)
    if fault:
        raise VoiceError(
            f"{name[:MAX_NAME]!a} cannot be the name of a voice: {fault}.", hint=_NAME_RULE
        )
    return name


def _fault(name: str) -> str:
    if not name:
        return "it is empty"
    if len(name) > MAX_NAME or len(name.encode("utf-8", "replace")) > _MAX_NAME_BYTES:
        return f"it is longer than {MAX_NAME} letters"
    wrong = next((sign for sign in name if not is_allowed(sign)), "")
    if wrong:
        return f"it has {wrong!a} in it"
    if not name[0].isalnum():
        return f'it begins with "{name[0]}"'
    if _RESERVED.fullmatch(name):
        return "Windows keeps it for a device"
    return ""


def is_allowed(sign: str) -> bool:
    """Tell whether a character may be in a name."""
    kind = unicodedata.category(sign)
    return sign in "-_" or ((kind[0] in "LM" or kind == "Nd") and not _INVISIBLE.match(sign))


def _key(name: str) -> str:
    """Make what names are compared by: upper and lower case, and how accents are encoded, aside."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _name_of(path: Path) -> str:
    return unicodedata.normalize("NFC", path.name.removesuffix(SUFFIX))


def _builtin_names() -> Sequence[str]:
    return model_folder.voice_names(hub.parse(DEFAULT_MODEL).folder)

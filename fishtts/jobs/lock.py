"""One run to a folder: a lock that the system lets go of when its process ends, however it ends.

Knows nothing of what the folder is for. A lock file that was left behind locks nothing.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fishtts.errors import OutputError
from fishtts.jobs.manifest import disk_error

NAME = ".fishtts.lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other runs out of a folder.

    Raises: ``OutputError`` where another run is in it.
    """
    path = folder / NAME
    file = _acquire(path)
    try:
        with suppress(OSError):
            os.ftruncate(file, 0)
            os.write(file, f"{os.getpid()}\n".encode())
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(file)


def _acquire(path: Path) -> int:
    """Open and lock the file; again if it was taken away between the two."""
    while True:
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise disk_error(error, path) from None
        if not _lock(file):
            owner = _owner(path)
            os.close(file)
            raise OutputError(
                f'Another run{owner} is working in "{path.parent}".',
                hint="Wait for it, or choose another folder.",
            )
        if _is_same(file, path):
            return file
        os.close(file)


def _lock(file: int) -> bool:
    """Try to lock; a file system that has no locks locks nobody out."""
    try:
        import fcntl
    except ImportError:
        import msvcrt

        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EACCES, errno.EAGAIN)
    return True


def _is_same(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except OSError:
        return False


def _owner(path: Path) -> str:
    """Name the process that wrote the file, where it can be read."""
    try:
        number = path.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""
    return f" (process {number})" if number.isdecimal() else ""

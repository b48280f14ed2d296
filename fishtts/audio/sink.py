"""Bytes on their way to a file or a pipe, whatever writes them.

Owns the difference between a target that can seek and one that cannot, and the first error of
either. Knows nothing of audio.
"""

from __future__ import annotations

import io
import os
from typing import Any


class Sink(io.RawIOBase):
    """Bytes on their way out; keeps the first error, as libsndfile's callbacks cannot raise.

    Where the target cannot seek, positions are only counted, and bytes written back into what has
    gone out already (sizes in a header) are dropped.
    """

    def __init__(self, stream: Any, *, seekable: bool, owned: bool) -> None:
        self._stream = stream
        self._can_seek = seekable
        self._owned = owned
        self._start = stream.tell() if seekable else 0
        self._position = 0
        self._end = 0
        self._skips = False
        self._error: OSError | None = None

    def skip_next_write(self) -> None:
        """Drop the next bytes, which their writer means to come back to, though it cannot."""
        self._skips = True

    def seekable(self) -> bool:
        """Say whether sizes can be put right at the end."""
        return self._can_seek

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        wanted = self._can_seek or (self._position == self._end and not self._skips)
        self._skips = False
        if wanted and self._error is None:
            try:
                self._write_all(view)
            except OSError as error:
                self._error = error
        self._position += len(view)
        self._end = max(self._end, self._position)
        return len(view)

    def _write_all(self, view: memoryview) -> None:
        while view:
            view = view[self._stream.write(view) or 0 :]

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._end}[whence]
        self._position = base + offset
        if self._can_seek and self._error is None:
            try:
                self._stream.seek(self._start + self._position)
            except OSError as error:
                self._error = error
        return self._position

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        """Send all bytes on.

        Raises: the first error met since the start.
        """
        if self._error is None:
            try:
                self._stream.flush()
            except OSError as error:
                self._error = error
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        if self._owned:
            self._stream.close()

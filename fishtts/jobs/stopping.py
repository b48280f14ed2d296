"""What a run does when it is told to stop: nothing half-saved, and an end within ten seconds.

Owns the process's signals while a run is on. Knows nothing of what is being made.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

GRACE_S = 6.0
"""How long lines in flight may take to end after SIGTERM; then they are dropped."""


class Stopped(BaseException):
    """SIGTERM, and its grace is over. Not an ``Exception``: nothing may swallow it on its way."""


class Stopping:
    """Listens to SIGTERM and Ctrl-C. ``requested`` tells the run to begin nothing new."""

    def __init__(self) -> None:
        self.requested = False
        self._is_saving = False
        self._pending: type[BaseException] | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take the signals over; only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers: dict[int, Any] = {
            signal.SIGTERM: self._terminate,
            signal.SIGINT: self._interrupt,
        }
        if hasattr(signal, "SIGALRM"):
            handlers[signal.SIGALRM] = self._time_is_up
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            if hasattr(signal, "setitimer"):
                signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Let a signal wait until what is being saved is saved."""
        self._is_saving = True
        try:
            yield
        finally:
            self._is_saving = False
        if self._pending is not None:
            pending, self._pending = self._pending, None
            raise pending

    def check(self) -> None:
        """End here if a stop was asked for and nothing is in flight.

        Raises: ``Stopped``.
        """
        if self.requested:
            raise Stopped

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        is_second = self.requested
        self.requested = True
        if is_second or not hasattr(signal, "setitimer"):
            self._raise(Stopped)
        else:
            signal.setitimer(signal.ITIMER_REAL, GRACE_S)

    def _time_is_up(self, number: int, frame: FrameType | None) -> None:
        self._raise(Stopped)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._raise(KeyboardInterrupt)

    def _raise(self, kind: type[BaseException]) -> None:
        if self._is_saving:
            self._pending = kind
        else:
            raise kind

"""The errors a person may meet, each with the exit code a script may test for.

Knows nothing of who raises them or who prints them. A message says what is wrong and where, in one
sentence; a hint says what to do next. Anything that is not a ``FishTTSError`` is a bug of ours.
"""

from __future__ import annotations

import errno
from enum import IntEnum


class ExitCode(IntEnum):
    """What the process answers to the shell."""

    OK = 0
    BUG = 1
    USAGE = 2
    FELL_SHORT = 3
    MODEL = 4
    DEVICE = 5
    TRY_AGAIN = 75
    INTERRUPTED = 130


DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What the system says where a disk is full or failing, and another name would not help."""


class FishTTSError(Exception):
    """Something a person can mend: one sentence, a next step, and an exit code."""

    exit_code: ExitCode = ExitCode.USAGE

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class UsageError(FishTTSError):
    """Options that contradict each other, or a command that does not exist."""


class ScriptError(FishTTSError):
    """Text that cannot be read or has nothing to say."""


class AudioError(FishTTSError):
    """A recording that cannot be read or used."""


class VoiceError(FishTTSError):
    """A voice name that is unknown or not allowed."""


class OutputError(FishTTSError):
    """A place that cannot be written to, or that holds something already."""


class LimitError(FishTTSError):
    """Finished, but something fell short: words may be missing from the audio."""

    exit_code = ExitCode.FELL_SHORT


class ModelError(FishTTSError):
    """Model or voice files that are missing, incomplete, damaged or of an unknown kind."""

    exit_code = ExitCode.MODEL


class DeviceError(FishTTSError):
    """A device that is absent, or memory or disk that ran out."""

    exit_code = ExitCode.DEVICE


class StoppedError(FishTTSError):
    """Stopped on request with everything finished saved: the same command goes on."""

    exit_code = ExitCode.TRY_AGAIN

"""Sound out of the loudspeaker, by whichever common player the machine has.

The players are other programs that take audio on standard input, so that nothing has to be
installed for it. Knows nothing of where samples come from.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from contextlib import suppress
from types import TracebackType
from typing import IO, Self

from fishtts.audio.encode import to_int16
from fishtts.errors import DeviceError
from fishtts.types import Samples

_PLAYERS = (
    "paplay --raw --format=s16le --channels=1 --rate={rate}",
    "aplay -q -t raw -f S16_LE -c 1 -r {rate} -",
    "play -q -t raw -e signed-integer -b 16 -L -c 1 -r {rate} -",
    "ffplay -v error -nodisp -autoexit -f s16le -ar {rate} -i -",
)
"""Tried in this order. ``play`` is SoX, also on macOS and Windows, as ``ffplay`` is."""


def find_player() -> str:
    """Name the first player found on this machine, or "" if there is none."""
    return next((line.split()[0] for line in _PLAYERS if shutil.which(line.split()[0])), "")


def open_player(sample_rate: int) -> Player:
    """Start a player.

    Raises: ``DeviceError`` where the machine has none.
    """
    for line in _PLAYERS:
        program, *options = line.format(rate=sample_rate).split()
        path = shutil.which(program)
        if path:
            return Player(program, [path, *options])
    names = ", ".join(line.split()[0] for line in _PLAYERS)
    raise DeviceError(
        f"No player was found (looked for {names}).", hint="Write a file instead: -o speech.wav"
    )


class Player:
    """A player that is running: a writer like those of files, which ends when all is heard."""

    def __init__(self, name: str, command: list[str]) -> None:
        self._name = name
        self._messages: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (it lives on)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._messages,
            )
        except OSError as error:
            self._messages.close()
            raise DeviceError(f"The player {name} cannot start: {error.strerror}.") from None
        self._open = True

    def write(self, samples: Samples) -> None:
        """Send samples; waits while the player has enough of them."""
        assert self._process.stdin is not None, "it was opened with a pipe"
        try:
            self._process.stdin.write(to_int16(samples).tobytes())
            self._process.stdin.flush()
        except OSError:
            raise self._failure() from None

    def close(self) -> None:
        """Wait until all has been heard."""
        if not self._open:
            return
        self._close_pipe()
        if self._process.wait() != 0:
            raise self._failure()
        self._open = False
        self._messages.close()

    def abort(self) -> None:
        """Fall silent at once."""
        if not self._open:
            return
        self._open = False
        self._process.kill()
        self._close_pipe()
        self._process.wait()
        self._messages.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def _close_pipe(self) -> None:
        assert self._process.stdin is not None, "it was opened with a pipe"
        with suppress(OSError):
            self._process.stdin.close()

    def _failure(self) -> DeviceError:
        """End the player and tell its own last words."""
        self._open = False
        self._close_pipe()
        self._process.wait()
        self._messages.seek(0)
        lines = self._messages.read().decode(errors="replace").strip().splitlines()
        self._messages.close()
        reason = f": {lines[-1].strip()}" if lines else ""
        return DeviceError(
            f"The player {self._name} stopped{reason}.",
            hint="Write a file instead: -o speech.wav",
        )

"""Players are other programs; here they are small scripts under the players' names."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from fishtts.audio.encode import to_int16
from fishtts.audio.play import find_player, open_player
from fishtts.errors import DeviceError

SAMPLES = np.linspace(-1, 1, 30000, dtype=np.float32)

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the scripts need a POSIX shell")


def install(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_samples_reach_the_player_with_their_rate(folder: Path) -> None:
    install(folder, "aplay", f'echo "$@" > {folder}/options; /bin/cat > {folder}/heard')
    assert find_player() == "aplay"
    with open_player(24000) as player:
        player.write(SAMPLES)
        player.write(SAMPLES)
    assert "-r 24000" in (folder / "options").read_text()
    heard = np.frombuffer((folder / "heard").read_bytes(), "<i2")
    assert np.array_equal(heard, np.tile(to_int16(SAMPLES), 2))


def test_a_machine_without_a_player_says_so(folder: Path) -> None:
    assert find_player() == ""
    with pytest.raises(DeviceError, match="No player"):
        open_player(24000)


def test_a_player_that_fails_is_quoted(folder: Path) -> None:
    install(folder, "paplay", "echo 'Connection refused' >&2; exit 1")
    with pytest.raises(DeviceError, match="paplay stopped: Connection refused"):
        play_for_long()


def play_for_long() -> None:
    with open_player(24000) as player:
        for _ in range(50):
            player.write(SAMPLES)


def test_aborting_ends_the_player_at_once(folder: Path) -> None:
    install(folder, "play", "exec /bin/sleep 60")
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt), open_player(24000):
        raise KeyboardInterrupt
    assert time.monotonic() - started < 10

"""How fast this machine spoke last time, so that a dry run can say how long a script will take.

Owns one small file in the user's cache; losing it loses an estimate and nothing else.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from fishtts.errors import FishTTSError
from fishtts.jobs.manifest import write_whole
from fishtts.jobs.progress import Speed

_LEAST_AUDIO_S = 20.0
"""Shorter runs say more of loading than of speaking."""


def remember(model: str, device: str, speed: Speed) -> None:
    """Keep the speed of a run that was long enough to tell."""
    if speed.audio_s < _LEAST_AUDIO_S:
        return
    path = _path()
    speeds = _read(path)
    speeds[f"{model} on {device}"] = round(speed.rate, 3)
    with suppress(OSError, FishTTSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(speeds, indent=2) + "\n")


def recall(model: str, device: str) -> float | None:
    """Answer seconds of audio a second, if a run was long enough to tell."""
    rate = _read(_path()).get(f"{model} on {device}")
    return rate if isinstance(rate, int | float) and rate > 0 else None


def _path() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("fishtts") / "speeds.json"


def _read(path: Path) -> dict[str, float]:
    try:
        speeds = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return speeds if isinstance(speeds, dict) else {}

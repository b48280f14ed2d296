"""Speech to try cloning with: the built-in voices, decoded. No person's recording is needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from fishtts import TTS
from fishtts.types import Audio

Write = Callable[..., Path]


@pytest.fixture(scope="session")
def voices() -> dict[str, Audio]:
    """What each built-in voice was made from: 5 to 7 s of clean speech."""
    tts = TTS(device="cpu")
    return {name: tts.play_voice(name) for name in ("ada", "edward", "miles")}


@pytest.fixture(scope="session")
def ada(voices: dict[str, Audio]) -> Audio:
    return voices["ada"]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write samples to a sound file; the ending of its name tells the format."""

    def write_file(name: str, samples: np.ndarray, sample_rate: int) -> Path:
        path = tmp_path / name
        soundfile.write(path, samples, sample_rate)
        return path

    return write_file


def repeated(audio: Audio, seconds: float, gap_s: float = 0.5) -> np.ndarray:
    """Repeat speech, with silence between, up to a length."""
    once = np.concatenate([audio.samples, np.zeros(round(gap_s * audio.sample_rate), np.float32)])
    length = round(seconds * audio.sample_rate)
    return np.tile(once, length // len(once) + 1)[:length]

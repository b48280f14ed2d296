"""What a recording must be like to be cloned from, and what becomes of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from fishtts.cloning.reference_audio import encode_reference, read_reference, resample
from fishtts.errors import AudioError
from fishtts.types import Audio
from tests.fakes import CountingCodec

CODEC = CountingCodec()


def tone(seconds: float, sample_rate: int = 16000, hertz: float = 440.0) -> Audio:
    phase = 2 * np.pi * hertz * np.arange(round(seconds * sample_rate)) / sample_rate
    return Audio((0.5 * np.sin(phase)).astype(np.float32), sample_rate)


def write(path: Path, audio: Audio) -> Path:
    soundfile.write(path, audio.samples, audio.sample_rate)
    return path


@pytest.mark.parametrize("ending", ["wav", "flac", "mp3", "ogg"])
def test_a_recording_becomes_codes_at_the_codecs_rate(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"r.{ending}", tone(10))
    reference, warnings = read_reference(path, CODEC, text="Its words.")
    assert reference.text == "Its words."
    assert reference.codes.dtype == np.int64
    assert reference.codes.shape[0] == 2
    assert abs(reference.codes.shape[1] - 200) <= 1  # 10 s at 20 frames a second
    assert warnings == []


def test_resampling_keeps_length_and_pitch() -> None:
    resampled = resample(tone(1, 48000), 8000)
    assert len(resampled) == 8000
    assert np.argmax(np.abs(np.fft.rfft(resampled))) == 440
    assert np.abs(resampled - tone(1, 8000).samples)[500:-500].max() < 0.01
    assert encode_reference(tone(1, 8000), CODEC).codes.shape == (2, 20)


@pytest.mark.parametrize(
    ("audio", "said"),
    [
        (tone(0.5), r"0\.5 s long"),
        (tone(31), r"31\.0 s long; at most 30 s"),
        (Audio(np.full(80000, 1e-4, np.float32), 16000), "silent"),
    ],
)
def test_what_no_voice_can_be_had_from_is_refused(tmp_path: Path, audio: Audio, said: str) -> None:
    with pytest.raises(AudioError, match=said):
        read_reference(write(tmp_path / "r.wav", audio), CODEC)


def test_what_is_poor_is_used_with_a_warning(tmp_path: Path) -> None:
    reference, warnings = read_reference(write(tmp_path / "r.wav", tone(2, 8000)), CODEC)
    assert reference.codes.shape == (2, 40)
    assert len(warnings) == 2
    assert "2.0 s long" in warnings[0]
    assert "8000 Hz" in warnings[1]


def test_what_is_no_recording(tmp_path: Path) -> None:
    (tmp_path / "r.wav").write_bytes(b"not sound")
    with pytest.raises(AudioError):
        read_reference(tmp_path / "r.wav", CODEC)

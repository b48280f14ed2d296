"""Recordings come in as mono samples; bad ones are told apart."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import soundfile

from fishtts.audio.read import read_audio
from fishtts.audio.write import open_file, open_stdout
from fishtts.errors import AudioError

RATE = 16000
TONE = (0.5 * np.sin(2 * np.pi * 220 * np.arange(2 * RATE) / RATE)).astype(np.float32)


def test_channels_are_averaged(tmp_path: Path) -> None:
    path = tmp_path / "stereo.wav"
    soundfile.write(path, np.stack([TONE, np.zeros_like(TONE)], axis=1), RATE, subtype="FLOAT")
    read = read_audio(path)
    assert read.sample_rate == RATE
    assert read.samples.dtype == np.float32
    assert np.allclose(read.samples, TONE / 2, atol=1e-6)


def test_a_flac_without_a_length_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "streamed.flac"
    soundfile.write(path, TONE, RATE)
    data = bytearray(path.read_bytes())
    data[21] &= 0xF0
    data[22:26] = bytes(4)
    path.write_bytes(data)
    with pytest.raises(AudioError, match="does not say how long"):
        read_audio(path)


def test_what_was_streamed_is_read_whole(tmp_path: Path) -> None:
    for name in ("wav", "flac"):
        path = tmp_path / f"streamed.{name}"
        path.write_bytes(b"")
        with (
            path.open("ab") as stream,
            open_stdout(stream, sample_rate=RATE, format_name=name) as writer,
        ):
            writer.write(TONE)
        assert len(read_audio(path).samples) == len(TONE)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("empty.wav", b"", "is empty"),
        ("words.wav", b"These are words, not sounds. " * 9, "is not a sound file"),
        ("film.mp4", b"\0\0\0\x20ftypisom" + bytes(90), r"is a video \(MP4\)"),
        ("film.webm", b"\x1aE\xdf\xa3" + bytes(90), "is a video"),
        ("film.avi", b"RIFF\0\0\0\0AVI LIST" + bytes(90), "is a video"),
        ("memo.m4a", b"\0\0\0\x20ftypM4A " + bytes(90), r"is an AAC \(M4A\) file"),
        ("face.png", b"\x89PNG\r\n\x1a\n" + bytes(90), "is a picture"),
        ("broken.wav", b"RIFF" + bytes(90), "is damaged or cut short"),
    ],
)
def test_what_is_no_recording_is_named(tmp_path: Path, name: str, data: bytes, words: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(AudioError, match=words):
        read_audio(path)


@pytest.mark.parametrize("name", ["wav", "flac", "mp3", "ogg", "opus"])
def test_a_recording_cut_short_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"cut.{name}"
    with open_file(path, sample_rate=RATE) as writer:
        writer.write(TONE)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(AudioError, match="cut short"):
        read_audio(path)


def test_places_without_a_recording_are_named(tmp_path: Path) -> None:
    with pytest.raises(AudioError, match="no recording"):
        read_audio(tmp_path / "gone.wav")
    with pytest.raises(AudioError, match="is a folder"):
        read_audio(tmp_path)
    with pytest.raises(AudioError, match="is not a file"):
        read_audio(Path(os.devnull))


def test_samples_must_be_there_and_be_numbers(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "none.wav", np.zeros(0), RATE)
    with pytest.raises(AudioError, match="holds no sound"):
        read_audio(tmp_path / "none.wav")
    bad = TONE.copy()
    bad[7] = np.nan
    soundfile.write(tmp_path / "nan.wav", bad, RATE, subtype="FLOAT")
    with pytest.raises(AudioError, match="not numbers"):
        read_audio(tmp_path / "nan.wav")

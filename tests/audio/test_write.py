"""Files appear whole or not at all; pipes get a stream that readers understand."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from fishtts.audio.encode import to_int16
from fishtts.audio.read import read_audio
from fishtts.audio.write import (
    FORMATS,
    Writer,
    choose_format,
    format_names,
    open_file,
    open_stdout,
)
from fishtts.errors import DeviceError, ExitCode, OutputError, UsageError
from fishtts.types import Samples

RATE = 24000
TONE: Samples = (0.5 * np.sin(2 * np.pi * 220 * np.arange(RATE) / RATE)).astype(np.float32)
LOSSLESS = ("wav", "flac")
full_disk = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


def write_in_pieces(writer: Writer, samples: Samples = TONE) -> None:
    with writer:
        for start in range(0, len(samples), 5001):
            writer.write(samples[start : start + 5001])


def through_a_pipe(use: Callable[[io.BufferedWriter], None]) -> bytes:
    """Let a test write to a real pipe; answer what came out."""
    reading, writing = os.pipe()
    received: list[bytes] = []

    def drain() -> None:
        with os.fdopen(reading, "rb") as stream:
            received.append(stream.read())

    thread = threading.Thread(target=drain)
    thread.start()
    try:
        with os.fdopen(writing, "wb") as stream:
            use(stream)
    finally:
        thread.join()
    return received[0]


@pytest.mark.parametrize("name", [n for n in format_names() if n != "raw"])
def test_every_format_holds_the_sound(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"tone.{name}"
    write_in_pieces(open_file(path, sample_rate=RATE))
    read = read_audio(path)
    assert read.sample_rate == FORMATS[name].sample_rate(RATE)
    assert read.seconds == pytest.approx(1.0, abs=0.001)
    assert os.listdir(tmp_path) == [path.name]
    if name in LOSSLESS:
        assert np.abs(read.samples - TONE).max() < 1 / 32767


@pytest.mark.parametrize("name", [n for n in format_names() if n != "raw"])
def test_every_format_can_be_piped(tmp_path: Path, name: str) -> None:
    data = through_a_pipe(
        lambda stream: write_in_pieces(open_stdout(stream, sample_rate=RATE, format_name=name))
    )
    path = tmp_path / f"piped.{name}"
    path.write_bytes(data)
    # MP3 has no length on a pipe, so its encoder's delay and padding stay
    assert read_audio(path).seconds == pytest.approx(1.0, abs=0.1 if name == "mp3" else 0.001)


def test_wav_on_a_pipe_is_read_to_its_end_by_the_standard_library() -> None:
    data = through_a_pipe(lambda stream: write_in_pieces(open_stdout(stream, sample_rate=RATE)))
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
        assert len(file.readframes(10 * RATE)) == 2 * len(TONE)


def test_standard_output_sent_to_a_file_has_true_sizes(tmp_path: Path) -> None:
    path = tmp_path / "out.wav"
    with path.open("wb") as stream:
        write_in_pieces(open_stdout(stream, sample_rate=RATE))
    with wave.open(str(path)) as file:
        assert file.getnframes() == len(TONE)
    assert int.from_bytes(path.read_bytes()[4:8], "little") == path.stat().st_size - 8


def test_standard_output_added_to_a_file_leaves_the_start_alone(tmp_path: Path) -> None:
    path = tmp_path / "out.bin"
    path.write_bytes(b"before")
    with path.open("ab") as stream:
        write_in_pieces(open_stdout(stream, sample_rate=RATE))
    data = path.read_bytes()
    assert data.startswith(b"beforeRIFF")
    assert len(data) == 6 + 44 + 2 * len(TONE)


def test_raw_is_whole_samples_and_no_header() -> None:
    data = through_a_pipe(
        lambda stream: write_in_pieces(open_stdout(stream, sample_rate=RATE, format_name="raw"))
    )
    assert np.array_equal(np.frombuffer(data, "<i2"), to_int16(TONE))


def test_loud_samples_are_clipped_not_wrapped() -> None:
    loud = np.array([1.5, -1.5, 1.0, -1.0, 0.0, np.nan], np.float32)
    assert to_int16(loud).tolist() == [32767, -32767, 32767, -32767, 0, 0]


def test_a_terminal_is_refused() -> None:
    with pytest.raises(UsageError, match="terminal"):
        open_stdout(io.BytesIO(), sample_rate=RATE, is_terminal=True)


@pytest.mark.parametrize(
    ("target", "name", "chosen"),
    [
        ("a.wav", None, "wav"),
        ("A.MP3", None, "mp3"),
        ("a.oga", None, "ogg"),
        ("a.opus", None, "opus"),
        ("-", None, "wav"),
        ("-", "flac", "flac"),
        ("noend", "OGG", "ogg"),
        (os.devnull, None, "wav"),
    ],
)
def test_the_format_follows_name_or_wish(target: str, name: str | None, chosen: str) -> None:
    assert choose_format(target, name).name == chosen


@pytest.mark.parametrize(
    ("target", "name", "error"),
    [
        ("a.m4a", None, OutputError),
        ("a", None, OutputError),
        ("a.wav", "m4a", OutputError),
        ("a.wav", "mp3", UsageError),
    ],
)
def test_other_formats_are_refused(
    target: str, name: str | None, error: type[OutputError | UsageError]
) -> None:
    with pytest.raises(error) as caught:
        choose_format(target, name)
    if error is OutputError:
        assert "wav, flac, mp3, ogg, opus, raw" in caught.value.hint


def test_a_file_is_kept_unless_force(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(b"precious")
    with pytest.raises(OutputError, match="exists"):
        open_file(path, sample_rate=RATE)
    assert path.read_bytes() == b"precious"
    write_in_pieces(open_file(path, sample_rate=RATE, force=True))
    assert path.read_bytes().startswith(b"RIFF")


def test_a_file_that_appears_meanwhile_is_kept_too(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    writer = open_file(path, sample_rate=RATE)
    writer.write(TONE)
    path.write_bytes(b"precious")
    with pytest.raises(OutputError, match="exists"):
        writer.close()
    assert os.listdir(tmp_path) == ["a.wav"]
    assert path.read_bytes() == b"precious"


def test_after_an_error_no_half_file_is_left(tmp_path: Path) -> None:
    def interrupted() -> None:
        with open_file(tmp_path / "a.flac", sample_rate=RATE) as out:
            out.write(TONE)
            assert not (tmp_path / "a.flac").exists()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert os.listdir(tmp_path) == []


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.wav"
    link.symlink_to(tmp_path / "real" / "a.wav")
    write_in_pieces(open_file(link, sample_rate=RATE))
    assert link.is_symlink()
    assert soundfile.info(str(tmp_path / "real" / "a.wav")).frames == len(TONE)


def test_places_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder.wav").mkdir()
    for name, words in (
        ("gone/a.wav", "does not exist"),
        ("file/a.wav", "Not a directory"),
        ("folder.wav", "is a folder"),
    ):
        with pytest.raises(OutputError, match=words):
            open_file(tmp_path / name, sample_rate=RATE)


@full_disk
@pytest.mark.parametrize("name", format_names())
def test_a_full_disk_is_a_device_error(name: str) -> None:
    with pytest.raises(DeviceError, match="No space left") as caught:
        write_in_pieces(open_file(Path("/dev/full"), sample_rate=RATE, format_name=name))
    assert caught.value.exit_code is ExitCode.DEVICE


@full_disk
def test_a_full_standard_output_is_a_device_error() -> None:
    stream = io.FileIO("/dev/full", "wb")
    with stream, pytest.raises(DeviceError, match="No space left"):
        write_in_pieces(open_stdout(stream, sample_rate=RATE))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", format_names())
def test_a_closed_pipe_reaches_the_caller(name: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with (
        io.FileIO(writing, "wb") as stream,
        pytest.raises(BrokenPipeError),
    ):
        write_in_pieces(
            open_stdout(stream, sample_rate=RATE, format_name=name)  # type: ignore[arg-type]
        )


def test_the_first_samples_leave_before_the_last_are_made() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as out, os.fdopen(writing, "wb") as stream:
        writer = open_stdout(stream, sample_rate=RATE)
        writer.write(TONE[:1000])
        assert len(out.read(44 + 2000)) == 2044
        writer.close()


def test_importing_the_rooms_loads_nothing_heavy() -> None:
    code = (
        "import sys, fishtts.audio.write, fishtts.audio.read, fishtts.audio.play,"
        " fishtts.audio.tempo, fishtts.audio.join, fishtts.text.split, fishtts.text.read;"
        "print(*{'torch','librosa','soundfile','soxr','scipy','num2words'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""

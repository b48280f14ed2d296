"""A recording of any length, read block by block or a stretch at a time, as mono samples.

What libsndfile does not read (AAC in M4A) goes through PyAV where that is installed, once, into a
temporary file. Owns the memory that reading takes; what may be wrong with a file is said by
``read.py``. Knows nothing of what a recording is for.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fishtts.audio.read import (
    CUT_SHORT,
    check_promises,
    describe_unreadable,
    is_aac,
    promised_frames,
    read_head,
)
from fishtts.errors import AudioError
from fishtts.types import Samples

BLOCK_S = 10.0
MAX_SECONDS = 24 * 3600
SAMPLE_RATES = range(4000, 192001)
MAX_CHANNELS = 64
_LEAD_S = 0.5
"""Read before every piece of an MP3 and thrown away. The file library jumps to where it is after
each read, and the decoder then takes some frames to be right again."""

MAX_LEVEL = 64.0
"""Samples of sound lie within -1 and 1, or a little beyond where a format allows it."""


class Recording:
    """An open recording: what it is, and its samples, with its channels averaged to one."""

    def __init__(self, path: Path, file: Any, promised: int) -> None:
        self.path = path
        self.sample_rate: int = file.samplerate
        self.num_channels: int = file.channels
        self._file = file
        self._promised = promised
        self._lead = round(_LEAD_S * self.sample_rate) if file.format == "MP3" else 0

    def blocks(self) -> Iterator[Samples]:
        """Read all of it in blocks of ``BLOCK_S`` seconds.

        Raises: ``AudioError`` for samples that are none, and at the end for one that was cut short.
        """
        size = round(BLOCK_S * self.sample_rate)
        num_read = 0
        while True:
            block = self._read(num_read, size)
            num_read += len(block)
            if len(block):
                yield block
            if len(block) < size:
                break
        if num_read < CUT_SHORT * self._promised:
            raise AudioError(
                f'"{self.path}" was cut short: it promises {self._promised / self.sample_rate:.1f}'
                f" s of sound but holds {num_read / self.sample_rate:.1f} s.",
                hint="Copy or download it again.",
            )
        if num_read == 0:
            raise AudioError(f'"{self.path}" holds no sound.')

    def stretch(self, start_s: float, end_s: float) -> Samples:
        """Read what lies between two times."""
        start = round(start_s * self.sample_rate)
        return self._read(start, max(0, round(end_s * self.sample_rate) - start))

    def _read(self, start: int, num_frames: int) -> Samples:
        lead = min(start, self._lead)
        if self._file.tell() != start - lead:
            self._file.seek(min(start - lead, self._file.frames))
        samples = self._file.read(lead + num_frames, dtype="float32", always_2d=True)[lead:]
        mono = samples[:, 0] if self.num_channels == 1 else samples.mean(axis=1)
        # Not a number compares false.
        if len(mono) and not np.abs(mono).max() < MAX_LEVEL:
            raise AudioError(f'"{self.path}" is damaged: some of its samples are no sound.')
        return np.ascontiguousarray(mono, dtype=np.float32)


@contextmanager
def open_recording(path: Path) -> Iterator[Recording]:
    """Open a recording.

    Raises: ``AudioError`` saying what is wrong with the file, here or while it is read.
    """
    head = read_head(path)
    if is_aac(head) and importlib.util.find_spec("av") is not None:
        with tempfile.TemporaryDirectory(prefix="fishtts-") as folder:
            decoded = Path(folder) / "decoded.wav"
            _decode(path, decoded)
            with _open(path, decoded, read_head(decoded)) as recording:
                yield recording
        return
    with _open(path, path, head) as recording:
        yield recording


@contextmanager
def _open(path: Path, file_path: Path, head: bytes) -> Iterator[Recording]:
    """Open a file. ``path`` is its name for people."""
    import soundfile

    try:
        with soundfile.SoundFile(file_path) as file:
            if file.samplerate not in SAMPLE_RATES or file.channels > MAX_CHANNELS:
                raise AudioError(
                    f'"{path}" claims {file.samplerate} Hz and {file.channels} channels, which no'
                    " recording has."
                )
            check_promises(path, file.frames, file.samplerate, max_seconds=MAX_SECONDS)
            yield Recording(path, file, promised_frames(file, head))
    except soundfile.LibsndfileError as error:
        raise describe_unreadable(path, head, str(error.error_string)) from None


def _decode(path: Path, target: Path) -> None:
    """Decode the sound of an AAC file to 16-bit WAV, frame by frame."""
    import av
    import soundfile

    try:
        with av.open(str(path)) as container:
            if not container.streams.audio:
                raise AudioError(f'"{path}" holds no sound.')
            rate = container.streams.audio[0].rate
            resampler = av.AudioResampler(format="s16", layout="mono", rate=rate)
            with soundfile.SoundFile(target, "w", rate, 1, "PCM_16") as file:
                for frame in container.decode(audio=0):
                    for mono in resampler.resample(frame):
                        file.write(mono.to_ndarray()[0])
    except (av.error.FFmpegError, ValueError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise AudioError(f'"{path}" is damaged or cut short: {reason}.') from None

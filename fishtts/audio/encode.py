"""Samples to bytes: one encoder a format, all of them streaming.

Knows nothing of files, names or what becomes of errors.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from fishtts.audio.sink import Sink
from fishtts.types import Samples

_UNKNOWN_SIZE = 0xFFFFFFFF
"""What a WAV header says when the end is not known: readers then read on to the end."""

_WAV_HEADER_BYTES = 44
_BLOCK_SAMPLES = 16384
"""libsndfile's Vorbis encoder needs stack space in proportion to one call's samples."""

_HELD_BYTES = 1 << 20


class Encoder(Protocol):
    def write(self, samples: Samples) -> None: ...
    def close(self) -> None: ...


class RawEncoder:
    """Signed 16-bit little-endian samples, nothing else."""

    def __init__(self, sink: Sink, sample_rate: int) -> None:
        self._sink = sink

    def write(self, samples: Samples) -> None:
        self._sink.write(to_int16(samples).tobytes())

    def close(self) -> None:
        """Nothing follows the samples."""


class WavEncoder(RawEncoder):
    """A canonical 44-byte header, then 16-bit samples."""

    def __init__(self, sink: Sink, sample_rate: int) -> None:
        super().__init__(sink, sample_rate)
        self._sample_rate = sample_rate
        sink.write(_wav_header(sample_rate, _UNKNOWN_SIZE))

    def close(self) -> None:
        data_bytes = self._sink.tell() - _WAV_HEADER_BYTES
        if self._sink.seekable() and data_bytes + _WAV_HEADER_BYTES <= _UNKNOWN_SIZE:
            self._sink.seek(0)
            self._sink.write(_wav_header(self._sample_rate, data_bytes))
            self._sink.seek(0, os.SEEK_END)


class SoundFileEncoder:
    """Whatever libsndfile writes."""

    def __init__(
        self, sink: Sink, sample_rate: int, container: str, subtype: str, **options: Any
    ) -> None:
        import soundfile

        self._file = soundfile.SoundFile(
            sink, "w", sample_rate, channels=1, subtype=subtype, format=container, **options
        )

    def write(self, samples: Samples) -> None:
        for start in range(0, len(samples), _BLOCK_SAMPLES):
            self._file.write(samples[start : start + _BLOCK_SAMPLES])

    def close(self) -> None:
        self._file.close()


class Mp3Encoder(SoundFileEncoder):
    """MP3; on a pipe without the frame of lengths at its start, which cannot be filled in later.

    LAME writes that frame first, and alone; left empty, it makes players stop early. Without it
    they reckon the length from the bit rate, which therefore is constant there.
    """

    def __init__(self, sink: Sink, sample_rate: int) -> None:
        options: dict[str, Any] = {}
        if not sink.seekable():
            sink.skip_next_write()
            options = {"bitrate_mode": "CONSTANT", "compression_level": 0.5}
        super().__init__(sink, sample_rate, "MP3", "MPEG_LAYER_III", **options)


class FlacEncoder(SoundFileEncoder):
    """FLAC; for a pipe it is held back until the end, as it is all but useless without a length."""

    def __init__(self, sink: Sink, sample_rate: int) -> None:
        self._pipe = None if sink.seekable() else sink
        if self._pipe is not None:
            self._held = tempfile.SpooledTemporaryFile(_HELD_BYTES)  # noqa: SIM115 (it lives on)
            sink = Sink(self._held, seekable=True, owned=False)
        super().__init__(sink, sample_rate, "FLAC", "PCM_16")

    def write(self, samples: Samples) -> None:
        """Round as for a WAV file (libsndfile scales otherwise), so that both hold the same."""
        for start in range(0, len(samples), _BLOCK_SAMPLES):
            self._file.write(to_int16(samples[start : start + _BLOCK_SAMPLES]))

    def close(self) -> None:
        super().close()
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            self._held.seek(0)
            while block := self._held.read(_HELD_BYTES):
                pipe.write(block)
            self._held.close()


def with_libsndfile(container: str, subtype: str) -> Callable[[Sink, int], Encoder]:
    return lambda sink, sample_rate: SoundFileEncoder(sink, sample_rate, container, subtype)


def to_int16(samples: Samples) -> np.ndarray[Any, np.dtype[np.int16]]:
    """Round to 16 bits; what lies outside -1 to 1 is clipped, never wrapped round."""
    clipped = np.clip(np.nan_to_num(samples), -1.0, 1.0)
    rounded: np.ndarray[Any, np.dtype[np.int16]] = np.rint(clipped * 32767.0).astype("<i2")
    return rounded


def _wav_header(sample_rate: int, data_bytes: int) -> bytes:
    riff_bytes = min(data_bytes + _WAV_HEADER_BYTES - 8, _UNKNOWN_SIZE)
    return (
        struct.pack("<4sI4s", b"RIFF", riff_bytes, b"WAVE")
        + struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, sample_rate, 2 * sample_rate, 2, 16)
        + struct.pack("<4sI", b"data", data_bytes)
    )

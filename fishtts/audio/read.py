"""Any recording that libsndfile reads, as mono samples; for any other, a sentence why not.

Owns what may be wrong with a recording as a file. Knows nothing of what is said in it or what it
is for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fishtts.errors import AudioError
from fishtts.types import Audio

MAX_SECONDS = 3600
"""Longer recordings are refused: nothing here needs them, and they fill the memory."""

CUT_SHORT = 0.98
"""A file that yields less than this share of the samples that it promises was cut short."""

_STREAMING_SIZE = 0x7FFFF000
"""Sizes from here on in a WAV header mean that its writer did not know the length."""

_NO_LENGTH = 2**48
"""libsndfile answers with a number beyond this for a FLAC that does not say its length."""

_HEAD_BYTES = 64
_M4A, _ADTS = "an AAC (M4A) file", "an AAC file"
_MP4_SOUND = (b"M4A ", b"M4B ", b"M4P ")


def read_audio(path: Path) -> Audio:
    """Read a recording; several channels are averaged to one.

    Raises: ``AudioError`` saying what is wrong with the file.
    """
    import soundfile

    head = read_head(path)
    try:
        with soundfile.SoundFile(path) as file:
            sample_rate = file.samplerate
            check_promises(path, file.frames, sample_rate, max_seconds=MAX_SECONDS)
            promised = promised_frames(file, head)
            samples = file.read(dtype="float32", always_2d=True).mean(axis=1)
    except soundfile.LibsndfileError as error:
        raise describe_unreadable(path, head, str(error.error_string)) from None
    if len(samples) < CUT_SHORT * promised:
        raise AudioError(
            f'"{path}" was cut short: it promises {promised / sample_rate:.1f} s of sound but'
            f" holds {len(samples) / sample_rate:.1f} s.",
            hint="Copy or download it again.",
        )
    if len(samples) == 0:
        raise AudioError(f'"{path}" holds no sound.')
    if not np.isfinite(samples).all():
        raise AudioError(f'"{path}" is damaged: some of its samples are not numbers.')
    return Audio(np.ascontiguousarray(samples, dtype=np.float32), sample_rate)


def read_head(path: Path) -> bytes:
    """Read the first bytes of a file.

    Raises: ``AudioError`` where there are none.
    """
    try:
        if path.is_dir():
            raise AudioError(f'"{path}" is a folder, not a recording.')
        if path.exists() and not path.is_file():
            raise AudioError(f'"{path}" is not a file.')
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except FileNotFoundError:
        raise AudioError(f'There is no recording "{path}".') from None
    except OSError as error:
        raise AudioError(f'"{path}" cannot be read: {error.strerror}.') from None
    if not head:
        raise AudioError(f'"{path}" is empty (0 bytes).')
    return head


def check_promises(path: Path, num_frames: int, sample_rate: int, *, max_seconds: int) -> None:
    """Refuse a file by the length that it claims to have."""
    if num_frames >= _NO_LENGTH:
        raise AudioError(
            f'"{path}" does not say how long it is, and is not read for that reason.',
            hint=_conversion(path),
        )
    if num_frames > max_seconds * sample_rate:
        raise AudioError(
            f'"{path}" is {num_frames / sample_rate / 60:.0f} minutes long; at most'
            f" {max_seconds // 60} are read.",
            hint="Cut out the part that is needed.",
        )


def promised_frames(file: Any, head: bytes) -> int:
    """Count the samples that the file claims to have; libsndfile trims a WAV's claim in silence."""
    if head[:4] != b"RIFF" or head[36:40] != b"data":
        return int(file.frames)
    data_bytes = int.from_bytes(head[40:44], "little")
    bytes_a_frame = int.from_bytes(head[32:34], "little")
    if data_bytes >= _STREAMING_SIZE or not bytes_a_frame:
        return int(file.frames)
    return data_bytes // bytes_a_frame


def describe_unreadable(path: Path, head: bytes, reason: str) -> AudioError:
    """Say why libsndfile does not read a file, as far as its first bytes tell."""
    convert = _conversion(path)
    kind = _kind(head)
    if is_aac(head):
        convert = f"{convert} (or: pip install 'fishtts[m4a]')"
    if kind:
        return AudioError(f'"{path}" is {kind}, not a recording that can be read.', hint=convert)
    if head[:4] in (b"RIFF", b"fLaC", b"OggS") or head[:3] == b"ID3":
        return AudioError(f'"{path}" is damaged or cut short: {reason.rstrip(".")}.')
    return AudioError(
        f'"{path}" is not a sound file.', hint=f"WAV, FLAC, MP3 and OGG are. {convert}"
    )


def is_aac(head: bytes) -> bool:
    """Tell sound in AAC, which libsndfile does not read, by the first bytes of its file."""
    return _kind(head) in (_M4A, _ADTS)


def _conversion(path: Path) -> str:
    return f'Turn it into a WAV first: ffmpeg -i "{path}" -vn recording.wav'


def _kind(head: bytes) -> str:
    """Name what a file is by its first bytes, where it is something that people mistake."""
    if head[4:8] == b"ftyp":
        return _M4A if head[8:12] in _MP4_SOUND else "a video (MP4)"
    if head[:4] == b"\x1aE\xdf\xa3":
        return "a video (Matroska or WebM)"
    if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
        return "a video (AVI)"
    if head[:2] in (b"\xff\xf1", b"\xff\xf9"):
        return _ADTS
    if head[:4] == b"0&\xb2u":
        return "a Windows Media file"
    if head[:8] == b"\x89PNG\r\n\x1a\n" or head[:3] == b"\xff\xd8\xff":
        return "a picture"
    if head[:4] == b"%PDF":
        return "a PDF"
    if head[:2] == b"PK":
        return "a ZIP archive"
    return ""

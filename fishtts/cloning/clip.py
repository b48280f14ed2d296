"""A cleaned recording, packed into bytes without loss and unpacked again: FLAC in memory.

Owns what may be in those bytes. Knows nothing of voices or files.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt

from fishtts.types import Audio

MAX_SAMPLES = 60 * 48000
"""A minute at 48 kHz; a reference has half of that at the most."""

SAMPLE_RATES = range(4000, 192001)

_MAGIC = b"fLaC"
_SUBTYPES = ("PCM_16", "PCM_24")
_STEPS_16 = 2**15
_STEPS_24 = 2**23


def pack_clip(clip: Audio) -> bytes:
    """Pack a recording: in 16 bits where they hold it exactly, else rounded to 24.

    What lies outside of -1 to 1 is clipped. Raises: ``ValueError`` for what is no recording.
    """
    import soundfile

    _check(len(clip.samples), clip.sample_rate)
    if clip.samples.ndim != 1 or not np.isfinite(clip.samples).all():
        raise ValueError("a clip holds what is no sound")
    fits_16 = np.array_equal(_on_grid(clip.samples, _STEPS_16) / _STEPS_16, clip.samples)
    steps, subtype = (_STEPS_16, "PCM_16") if fits_16 else (_STEPS_24, "PCM_24")
    # libsndfile takes the upper bits of 32.
    integers = (_on_grid(clip.samples, steps) * (2**31 // steps)).astype(np.int32)
    packed = io.BytesIO()
    soundfile.write(packed, integers, clip.sample_rate, format="FLAC", subtype=subtype)
    return packed.getvalue()


def unpack_clip(packed: bytes) -> Audio:
    """Unpack what ``pack_clip`` packed; sizes are checked before anything is decoded.

    Raises: ``ValueError`` for any other bytes.
    """
    import soundfile

    if packed[:4] != _MAGIC:
        raise ValueError("a clip is not in FLAC")
    try:
        with soundfile.SoundFile(io.BytesIO(packed)) as file:
            return _read(file)
    except soundfile.LibsndfileError as error:
        raise ValueError(f"a clip is damaged ({error.error_string.rstrip('.')})") from None


def _read(file: Any) -> Audio:
    _check(file.frames, file.samplerate)
    if (file.format, file.channels) != ("FLAC", 1) or file.subtype not in _SUBTYPES:
        raise ValueError("a clip is of an unknown kind")
    integers = file.read(file.frames, dtype="int32")
    if len(integers) != file.frames:
        raise ValueError("a clip is cut short")
    return Audio(integers.astype(np.float32) / np.float32(2**31), file.samplerate)


def _check(num_samples: int, sample_rate: int) -> None:
    if not 0 < num_samples <= MAX_SAMPLES:
        raise ValueError(f"a clip has {num_samples} samples, and 1 to {MAX_SAMPLES} are allowed")
    if sample_rate not in SAMPLE_RATES:
        raise ValueError(f"a clip has an impossible rate ({sample_rate} Hz)")


def _on_grid(samples: npt.NDArray[np.floating[Any]], steps: int) -> npt.NDArray[np.float64]:
    grid = np.rint(samples.astype(np.float64) * steps)
    return np.clip(grid, -steps, steps - 1)

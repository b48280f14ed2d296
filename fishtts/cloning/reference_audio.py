"""A recording to a reference: mono, at the codec's rate, neither too short nor too long, encoded.

Owns what a recording must be like to be cloned from. Knows nothing of the language model.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fishtts.audio.read import read_audio
from fishtts.errors import AudioError
from fishtts.types import Audio, Reference, Samples

if TYPE_CHECKING:
    from fishtts.codec import Codec

MIN_SECONDS = 1.0
"""Shorter than this, there is no voice to hear."""

MAX_SECONDS = 30.0
"""Models imitate 10 to 30 s well, and get worse beyond. The recording is not cut here: its
transcript would no longer fit."""

GOOD_SECONDS = 6.0
GOOD_SAMPLE_RATE = 16000
_SILENT_PEAK = 0.01


def read_reference(path: Path, codec: Codec, *, text: str = "") -> tuple[Reference, list[str]]:
    """Read and encode a recording; answer the reference, and what a person should know about it.

    Raises: ``AudioError`` for a recording that cannot be used.
    """
    audio = read_audio(path)
    warnings = check_recording(audio, str(path))
    return encode_reference(audio, codec, text=text), warnings


def encode_reference(audio: Audio, codec: Codec, *, text: str = "") -> Reference:
    """Turn a recording into the codes that a model imitates."""
    import torch

    samples = resample(audio, codec.sample_rate)
    with torch.inference_mode():
        codes = codec.encode(torch.from_numpy(samples))
    return Reference(codes.cpu().numpy().astype(np.int64), text)


def resample(audio: Audio, sample_rate: int) -> Samples:
    """Bring a recording to another rate (soxr, high quality)."""
    if audio.sample_rate == sample_rate:
        return np.ascontiguousarray(audio.samples, dtype=np.float32)
    import soxr

    resampled = soxr.resample(audio.samples, audio.sample_rate, sample_rate, quality="HQ")
    return np.ascontiguousarray(resampled, dtype=np.float32)


def check_recording(audio: Audio, name: str) -> list[str]:
    """Refuse what no voice can be had from; answer warnings about what is only poor."""
    if audio.seconds < MIN_SECONDS:
        raise AudioError(
            f'"{name}" is {audio.seconds:.1f} s long; a voice needs {MIN_SECONDS:.0f} s at the very'
            f" least, better {GOOD_SECONDS:.0f} to {MAX_SECONDS:.0f} s."
        )
    if audio.seconds > MAX_SECONDS:
        raise AudioError(
            f'"{name}" is {audio.seconds:.1f} s long; at most {MAX_SECONDS:.0f} s are used.',
            hint="Cut out a good stretch that starts and ends in silence, and its words.",
        )
    if float(np.abs(audio.samples).max()) < _SILENT_PEAK:
        raise AudioError(f'"{name}" is silent.')
    warnings = []
    if audio.seconds < GOOD_SECONDS:
        warnings.append(
            f'"{name}" is only {audio.seconds:.1f} s long; {GOOD_SECONDS:.0f} s or more are better.'
        )
    if audio.sample_rate < GOOD_SAMPLE_RATE:
        warnings.append(
            f'"{name}" has {audio.sample_rate} Hz only; the voice will sound as dull as it does.'
        )
    return warnings

"""Hundreds of damaged sound files: each is refused in a sentence or gives a right clip."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import soundfile

from fishtts.audio.blocks import open_recording
from fishtts.cloning.prepare import prepare
from fishtts.cloning.reference_audio import resample
from fishtts.errors import FishTTSError
from fishtts.types import Audio

RATE = 16000
MUTATIONS = 120
PREPARED = 6
"""So many of each format go all the way; the others are read, which is where damage shows."""


def mutate(data: bytes, rng: np.random.Generator) -> bytes:
    """Damage a file: flip, cut, repeat, swap or overwrite, in its head as often as in its body."""
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        reach = len(changed) if rng.random() < 0.5 else min(len(changed), 80)
        at = int(rng.integers(0, max(1, reach)))
        length = int(rng.integers(1, 64))
        kind = rng.integers(0, 5)
        if kind == 0:
            changed[at : at + 1] = bytes([int(rng.integers(0, 256))])
        elif kind == 1:
            changed[at : at + length] = b"\xff" * length
        elif kind == 2:
            changed = changed[: max(1, at)]
        elif kind == 3:
            changed[at:at] = changed[at : at + length]
        else:
            changed[at : at + length] = rng.integers(0, 256, length, np.uint8).tobytes()
    return bytes(changed)


@pytest.mark.parametrize("kind", ["wav", "flac", "mp3", "ogg"])
def test_damaged_files_are_refused_or_right(kind: str, tmp_path: Path, ada: Audio) -> None:
    buffer = io.BytesIO()
    soundfile.write(buffer, resample(ada, RATE)[: 4 * RATE], RATE, format=kind)
    whole = buffer.getvalue()
    rng = np.random.default_rng(sum(kind.encode()))
    path = tmp_path / f"r.{kind}"
    refusals = []
    for number in range(MUTATIONS):
        path.write_bytes(mutate(whole, rng))
        try:
            with open_recording(path) as recording:
                for block in recording.blocks():
                    assert np.isfinite(block).all()
            if number % (MUTATIONS // PREPARED) == 0:
                (clip,) = prepare(path).clips
                assert np.isfinite(clip.samples).all()
                assert np.abs(clip.samples).max() <= 1
        except FishTTSError as error:
            refusals.append(error)
    assert all(str(path) in error.message and error.exit_code == 2 for error in refusals)
    assert 5 < len(refusals) < MUTATIONS

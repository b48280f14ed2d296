"""Voices to try files and stores with, and how to tell that two are one."""

from __future__ import annotations

import numpy as np

from fishtts.cloning.voice_checks import all_encodings
from fishtts.types import Audio, Encoding, Reference, Source, Voice


def clip(seconds: float = 0.3, sample_rate: int = 16000, bits: int = 16, seed: int = 0) -> Audio:
    """Make noise that a file of so many bits can hold exactly."""
    steps = 2 ** (bits - 1)
    rng = np.random.default_rng(seed)
    integers = rng.integers(-steps // 4, steps // 4, round(seconds * sample_rate))
    return Audio((integers / steps).astype(np.float32), sample_rate)


def unit(seed: int = 0) -> np.ndarray:
    """Make an embedding: a direction."""
    vector = np.random.default_rng(seed).normal(size=256)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def full_voice(name: str = "mira") -> Voice:
    """Make a voice that has everything a voice can have."""
    codes = np.arange(24, dtype=np.int64).reshape(4, 6)
    return Voice(
        name,
        (Reference(codes, "Grüße — “hello”\nthere."), Reference(codes[:, :2] + 4000, "")),
        codec="abc123",
        language="en",
        description="Warm, a little hoarse.",
        clips=(clip(seed=1), clip(0.2, 24000, bits=24, seed=2)),
        embedding=unit(),
        sources=(Source("0f" * 32, 95.0, 12.5, 40.25, "2026-12-01"), Source("a1" * 32, 8, 0, 8)),
        consent="self",
        model="minnow",
        encoder="e1",
        encodings=(Encoding("def456", (codes[:2], codes[2:]), "s2-pro"),),
    )


def same(one: Voice, other: Voice) -> bool:
    """Tell whether two voices are the same to the last bit."""
    plain = ("name", "language", "description", "sources", "consent", "encoder")
    return (
        all(getattr(one, part) == getattr(other, part) for part in plain)
        and [reference.text for reference in one.references]
        == [reference.text for reference in other.references]
        and len(one.encodings) == len(other.encodings)
        and all(map(_same_encoding, all_encodings(one), all_encodings(other)))
        and len(one.clips) == len(other.clips)
        and all(map(_same_clip, one.clips, other.clips))
        and np.array_equal(
            np.zeros(0) if one.embedding is None else one.embedding,
            np.zeros(0) if other.embedding is None else other.embedding,
        )
    )


def _same_encoding(one: Encoding, other: Encoding) -> bool:
    return (one.codec, one.model, len(one.codes)) == (
        other.codec,
        other.model,
        len(other.codes),
    ) and all(
        a.dtype == b.dtype and np.array_equal(a, b)
        for a, b in zip(one.codes, other.codes, strict=True)
    )


def _same_clip(one: Audio, other: Audio) -> bool:
    return (
        one.sample_rate == other.sample_rate
        and one.samples.dtype == other.samples.dtype
        and np.array_equal(one.samples, other.samples)
    )

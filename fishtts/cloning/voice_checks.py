"""What a voice must be to be written to a file, or to be believed when it was read from one.

Owns the bounds and the checks of every part. Knows no file.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from fishtts.types import Encoding, Source, Voice

MAX_REFERENCES = 16
MAX_CODECS = 16
MAX_CODEBOOKS = 64
MAX_FRAMES = 20_000
MAX_TEXT = 5000
MAX_NOTE = 1000
"""Bounds far beyond any real voice: they only keep a hostile file from taking much."""

EMBEDDING_SIZE = 256

_MAX_CODE = 2**15 - 1
"""Codes are stored in 16 bits; no codec here has codebooks as large."""

_LENGTH_TOLERANCE = 0.01


def all_encodings(voice: Voice) -> tuple[Encoding, ...]:
    """List a voice's codes by codec, the ones of its references first."""
    codes = tuple(reference.codes for reference in voice.references)
    return (Encoding(voice.codec, codes, voice.model), *voice.encodings)


def check_voice(voice: Voice) -> None:
    """Let only a voice through, whether it is to be written or was just read.

    Raises: ``ValueError`` that says what is wrong with it.
    """
    if not 1 <= len(voice.references) <= MAX_REFERENCES:
        raise ValueError("it has no reference" if not voice.references else "too many references")
    for note in (voice.name, voice.language, voice.description, voice.consent):
        check_note(note)
    for mark in (voice.encoder, *(e.codec for e in voice.encodings), voice.codec, voice.model):
        check_note(mark)
    for reference in voice.references:
        _check_transcript(reference.text)
    encodings = all_encodings(voice)
    if len(encodings) > MAX_CODECS or len({e.codec for e in encodings}) != len(encodings):
        raise ValueError("its codecs are too many, or one is there twice")
    for encoding in encodings:
        check_note(encoding.model)
        _check_encoding(encoding, len(voice.references))
    if len(voice.clips) not in (0, len(voice.references)):
        raise ValueError("its clips and its references do not belong together")
    _check_embedding(voice.embedding)
    if len(voice.sources) > MAX_REFERENCES:
        raise ValueError("it has too many sources")
    for source in voice.sources:
        _check_source(source)


def _check_encoding(encoding: Encoding, num_references: int) -> None:
    if len(encoding.codes) != num_references:
        raise ValueError("its codes and its references do not belong together")
    for codes in encoding.codes:
        if (
            codes.ndim != 2
            or not 1 <= codes.shape[0] <= MAX_CODEBOOKS
            or not 1 <= codes.shape[1] <= MAX_FRAMES
            or not np.issubdtype(codes.dtype, np.integer)
            or codes.min() < 0
            or codes.max() > _MAX_CODE
        ):
            raise ValueError("its codes are not codes")
    if len({codes.shape[0] for codes in encoding.codes}) != 1:
        raise ValueError("its codes do not belong to one codec")


def _check_embedding(embedding: npt.NDArray[Any] | None) -> None:
    if embedding is None:
        return
    if embedding.shape != (EMBEDDING_SIZE,) or embedding.dtype != np.float32:
        raise ValueError("its embedding is of the wrong size")
    is_small = np.isfinite(embedding).all() and np.abs(embedding).max() < 2  # so that no sum is off
    if not is_small or abs(float(np.linalg.norm(embedding)) - 1.0) > _LENGTH_TOLERANCE:
        raise ValueError("its embedding is none")


def _check_source(source: Source) -> None:
    times = (source.seconds, source.kept_from_s, source.kept_to_s)
    if not re.fullmatch(r"[0-9a-f]{64}", source.sha256):
        raise ValueError("a source has no hash")
    if not all(math.isfinite(time) and time >= 0 for time in times):
        raise ValueError("a source has times that are none")
    if source.kept_from_s > source.kept_to_s:
        raise ValueError("a source was kept from later than to")
    if not re.fullmatch(r"([0-9]{4}-[0-9]{2}-[0-9]{2})?", source.date):
        raise ValueError("a source has a date that is none")


def check_note(text: str) -> None:
    """Let only one line of plain text through: it is shown on terminals as it stands.

    Raises: ``ValueError`` for control characters and what is too long.
    """
    if len(text) > MAX_NOTE or not all(map(_is_plain, text)):
        raise ValueError(f'"{text[:40]!a}" is not a line of text')


def _check_transcript(text: Any) -> None:
    if not isinstance(text, str):
        raise ValueError("the words of a reference are not text")
    if len(text) > MAX_TEXT or not all(_is_plain(sign) or sign in "\n\t\r" for sign in text):
        raise ValueError("the words of a reference are not text, or too long")


def _is_plain(sign: str) -> bool:
    """Tell text from control characters and halves of surrogate pairs."""
    return not (sign < " " or "\x7f" <= sign <= "\x9f" or "\ud800" <= sign <= "\udfff")

"""A voice for whatever codec a model brings: its codes, or its clips encoded anew and kept.

Owns the cache of codes. The voice's own file is never changed. Knows no model.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fishtts.cloning.reference_audio import encode_reference
from fishtts.cloning.voice_checks import all_encodings
from fishtts.cloning.voice_file import SUFFIX, read_voice, write_voice
from fishtts.errors import DeviceError, ModelError, OutputError
from fishtts.types import Audio, Codes, Reference, Voice

if TYPE_CHECKING:
    from fishtts.codec import Codec


def cache_folder() -> Path:
    """Say where codes that were made anew are kept. Deleting it only costs time."""
    from platformdirs import user_cache_path

    return user_cache_path("fishtts", appauthor=False) / "codes"


def references_for(
    voice: Voice, codec: Codec, *, cache: Path | None = None
) -> tuple[Reference, ...]:
    """Get a voice's references in the codes of a codec.

    Where the voice has none for it, its clips are encoded; ``cache`` (``cache_folder()``) keeps the
    result. Codes that do not say whose they are count as the codec's if they can be.
    Raises: ``ModelError`` for a voice with neither, saying what to do.
    """
    texts = [reference.text for reference in voice.references]
    for encoding in all_encodings(voice):
        fits = all(_fit(codes, codec) for codes in encoding.codes)
        if encoding.codec == codec.identity and not fits:
            raise ModelError(
                f'The voice "{voice.name}" is damaged: its codes are not those of its codec.'
            )
        if encoding.codec in ("", codec.identity) and fits:
            return tuple(map(Reference, encoding.codes, texts))
    if not voice.clips:
        made_for = f" ({voice.model})" if voice.model else ""
        raise ModelError(
            f'The voice "{voice.name}" was made for another model{made_for}, and its recording is'
            " not in it.",
            hint="Make it anew from the recording, for this model or with its clip.",
        )
    folder = cache or cache_folder()
    codes = [_encoded(clip, codec, folder) for clip in voice.clips]
    return tuple(map(Reference, codes, texts))


def voice_for(voice: Voice, codec: Codec, *, cache: Path | None = None) -> Voice:
    """Get a voice whose references are in the codes of a codec; all else in it stays.

    Raises: as ``references_for`` does.
    """
    references = references_for(voice, codec, cache=cache)
    encodings = all_encodings(voice)
    model = next((e.model for e in encodings if e.codec == codec.identity), "")
    others = tuple(e for e in encodings if e.codec not in ("", codec.identity))
    return replace(
        voice, references=references, codec=codec.identity, model=model, encodings=others
    )


def _fit(codes: Codes, codec: Codec) -> bool:
    """Tell whether codes can be a codec's: as many rows as it has codebooks, none out of range."""
    if codes.shape[0] != codec.num_codebooks:
        return False
    return bool((codes.max(axis=1) < np.array(codec.codebook_sizes)).all())


def _encoded(clip: Audio, codec: Codec, folder: Path) -> Codes:
    """Encode a clip, or find that this was done before; a damaged entry is made anew."""
    samples = np.ascontiguousarray(clip.samples, dtype="<f4")
    key = hashlib.sha256(f"{clip.sample_rate}\0{codec.identity}\0".encode() + samples.tobytes())
    entry = folder / f"{key.hexdigest()}{SUFFIX}"
    try:
        kept = read_voice(entry)
        if kept.codec == codec.identity and _fit(kept.references[0].codes, codec):
            return kept.references[0].codes
    except ModelError:
        pass  # not there, or damaged
    reference = encode_reference(clip, codec)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_voice(Voice("", (reference,), codec.identity), entry)
    except (OSError, OutputError, DeviceError):
        pass  # a cache that cannot be written to costs time, and nothing else
    return reference.codes

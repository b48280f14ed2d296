"""Clips and a codec to a voice: the second step of cloning.

Knows nothing of how the clips were chosen, or where the voice goes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fishtts.cloning.prepare import Prepared
from fishtts.cloning.reference_audio import encode_reference
from fishtts.cloning.speaker_encoder import identity
from fishtts.types import Voice

if TYPE_CHECKING:
    from fishtts.codec import Codec


def assemble(
    prepared: Prepared, codec: Codec, *, name: str, model: str, consent: str = ""
) -> Voice:
    """Encode the clips and put all that is known of them into a voice. ``model`` has the codec."""
    references = [
        encode_reference(clip, codec, text=text)
        for clip, text in zip(prepared.clips, prepared.texts, strict=True)
    ]
    return Voice(
        name,
        tuple(references),
        codec=codec.identity,
        clips=prepared.clips,
        embedding=prepared.embedding,
        sources=prepared.sources,
        consent=consent,
        model=model,
        encoder=identity(),
    )

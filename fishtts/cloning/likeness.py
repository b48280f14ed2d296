"""How a voice sounds, and how much speech sounds like it: what a drift alarm listens to.

Knows nothing of lines, and not from when on a difference matters: ``SAME_SPEAKER`` of the speaker
encoder tells one person from another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from fishtts.cloning.reencode import references_for
from fishtts.cloning.reference_audio import resample
from fishtts.cloning.speaker_encoder import Embedding, embed, identity
from fishtts.types import Audio, Samples, Voice

if TYPE_CHECKING:
    from fishtts.codec import Codec


def decoded(voice: Voice, codec: Codec) -> Audio:
    """Decode the references of a voice, one after the other."""
    import torch

    codes = np.concatenate([r.codes for r in references_for(voice, codec)], axis=1)
    with torch.inference_mode():
        samples = codec.decode(torch.from_numpy(codes)).float().cpu().numpy()
    return Audio(samples, codec.sample_rate)


def heard(voice: Voice, codec: Callable[[], Codec]) -> Audio:
    """Hear a voice: its clips, or what its codes sound like. ``codec`` is asked for only then."""
    if not voice.clips:
        return decoded(voice, codec())
    sample_rate = max(clip.sample_rate for clip in voice.clips)
    return Audio(np.concatenate([resample(c, sample_rate) for c in voice.clips]), sample_rate)


def describe(voice: Voice, codec: Callable[[], Codec]) -> Embedding | None:
    """Say who speaks in a voice: as its file has it if the encoder is the one that is here, else
    from what is heard. ``None`` where there is no sound to know a speaker by."""
    if voice.embedding is not None and voice.encoder == identity():
        return voice.embedding
    audio = heard(voice, codec)
    try:
        return embed(audio.samples, audio.sample_rate)
    except ValueError:
        return None


def likeness(samples: Samples, sample_rate: int, embedding: Embedding) -> float:
    """Compare speech with a voice's embedding: 1 is the same, 0.0 where nothing is to be heard.

    Short lines say little: below some 2 s of speech the figure wavers.
    """
    if not len(samples) or not samples.any():
        return 0.0
    return float(np.clip(embed(samples, sample_rate) @ embedding, 0.0, 1.0))

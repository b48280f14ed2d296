"""How a voice sounds, and how much speech sounds like it: what a drift alarm listens to.

Knows nothing of lines, and not from when on a difference matters: ``SAME_SPEAKER`` of the speaker
encoder tells one person from another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fishtts.cloning.speaker_encoder import Embedding, embed, identity
from fishtts.types import Samples, Voice

if TYPE_CHECKING:
    from fishtts.codec import Codec


def describe(voice: Voice, codec: Codec) -> Embedding | None:
    """Say who speaks in a voice: as its file has it, else from its clips, else from what its codes
    sound like. ``None`` where there is no sound to know a speaker by."""
    if voice.embedding is not None and voice.encoder == identity():
        return voice.embedding
    if voice.clips:
        samples = np.concatenate([clip.samples for clip in voice.clips])
        sample_rate = voice.clips[0].sample_rate
    else:
        import torch

        codes = np.concatenate([reference.codes for reference in voice.references], axis=1)
        samples = codec.decode(torch.from_numpy(codes)).float().cpu().numpy()
        sample_rate = codec.sample_rate
    try:
        return embed(samples, sample_rate)
    except ValueError:
        return None


def likeness(samples: Samples, sample_rate: int, embedding: Embedding) -> float:
    """Compare speech with a voice's embedding: 1 is the same, 0.0 where nothing is to be heard.

    Short lines say little: below some 2 s of speech the figure wavers.
    """
    if not len(samples) or not samples.any():
        return 0.0
    return float(np.clip(embed(samples, sample_rate) @ embedding, 0.0, 1.0))

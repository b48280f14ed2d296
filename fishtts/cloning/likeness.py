"""How much speech sounds like a voice: what a drift alarm listens to.

Knows nothing of lines, and not from when on a difference matters: ``SAME_SPEAKER`` of the speaker
encoder tells one person from another.
"""

from __future__ import annotations

import numpy as np

from fishtts.cloning.speaker_encoder import Embedding, embed
from fishtts.types import Samples


def likeness(samples: Samples, sample_rate: int, embedding: Embedding) -> float:
    """Compare speech with a voice's embedding: 1 is the same, 0.0 where nothing is to be heard.

    Short lines say little: below some 2 s of speech the figure wavers.
    """
    if not len(samples) or not samples.any():
        return 0.0
    return float(np.clip(embed(samples, sample_rate) @ embedding, 0.0, 1.0))

"""Does a line still sound like its voice? An alarm for lines that another speaker seems to speak.

Owns when a difference is one. Knows no model: a codec tells what a voice sounds like, and a speaker
encoder compares.
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fishtts.jobs.plan import Job
from fishtts.types import Samples, Voice

if TYPE_CHECKING:
    from fishtts.cloning.speaker_encoder import Embedding
    from fishtts.codec import Codec

_LEAST_S = 2.0
"""Of shorter speech the encoder's figure wavers by more than what is looked for."""

_HEARD_S = 6.0
"""The end of a line is listened to, where a voice that drifts has drifted."""

_ENOUGH_LINES = 8
_STRANGE = 0.15
"""Lines of one voice lie within some 0.05 around their middle; another voice of the same model is
0.1 to 0.4 away. The middle of a voice's own lines is the measure, and not its recording: how like
the recording a model can be differs by voice."""


@dataclass(slots=True)
class Drift:
    """Knows how the voices of a run sound, and how like them their lines have been.

    ``makes_anew`` says whether a stranger may be tried again. What is strange depends on the other
    lines, so that a run which promises the same bytes in any company must only tell.
    """

    makes_anew: bool = True
    _embeddings: dict[str, Embedding | None] = field(default_factory=dict)
    _seen: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def learn(self, identity: str, voice: Voice | None, codec: Codec) -> None:
        """Get to know a voice."""
        from fishtts.cloning.likeness import describe

        if identity not in self._embeddings:
            self._embeddings[identity] = None if voice is None else describe(voice, lambda: codec)

    def likeness(self, job: Job, samples: Samples, sample_rate: int) -> float | None:
        """Say how like its voice a line is, from 0 to 1; None for short lines and dialogues."""
        embedding = self._embeddings.get(job.voice.identity)
        is_dialogue = job.plan is not None and any(job.plan.voices)
        if embedding is None or is_dialogue or len(samples) < _LEAST_S * sample_rate:
            return None
        from fishtts.cloning.likeness import likeness

        end = samples[-round(_HEARD_S * sample_rate) :]
        return round(likeness(end, sample_rate, embedding), 3)

    def alarm(self, job: Job, found: float | None) -> str:
        """Say so if a line is less like its voice than the others of that voice; "" if not."""
        if found is None:
            return ""
        seen = self._seen[job.voice.identity]
        middle = seen[len(seen) // 2] if seen else 0.0
        if len(seen) >= _ENOUGH_LINES and found < middle - _STRANGE:
            return (
                f"It may sound like somebody else: {found:.2f} like the voice, where its other"
                f" lines are {middle:.2f}."
            )
        insort(seen, found)
        return ""

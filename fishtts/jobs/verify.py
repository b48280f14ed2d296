"""Is what was said what was to be said? Judged by a recogniser.

Knows neither which recogniser nor what becomes of a line that fails.
"""

from __future__ import annotations

from dataclasses import dataclass

from fishtts.asr.recogniser import Recogniser
from fishtts.asr.words import Comparison, compare
from fishtts.config import DEFAULT_MAX_WER
from fishtts.jobs.plan import Job
from fishtts.types import Samples


@dataclass(frozen=True, slots=True)
class Verifier:
    """Listens to finished lines. ``language`` is "" where it is to be guessed."""

    recogniser: Recogniser
    max_wer: float = DEFAULT_MAX_WER
    language: str = "en"

    def judge(self, job: Job, samples: Samples, sample_rate: int) -> Comparison:
        """Compare what is heard with what the model was given."""
        heard = self.recogniser.transcribe(samples, sample_rate, self.language)
        return compare(job.model_text, heard, self.language)

    def passes(self, wer: float) -> bool:
        """Tell whether a share of wrong words is small enough."""
        return passes(wer, self.max_wer)


def passes(wer: float | None, max_wer: float) -> bool:
    """Tell whether a share of wrong words is small enough; one that is not known is not."""
    return wer is not None and wer <= max_wer

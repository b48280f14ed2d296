"""Speech to text, by an optional library: pip install 'fishtts[asr]'

Owns the library and its ways. Knows nothing of why somebody wants to know what was said.
"""

from __future__ import annotations

import importlib.util
from typing import Any, Protocol

import numpy as np

from fishtts.config import DEFAULT_ASR_MODEL
from fishtts.errors import ModelError, UsageError
from fishtts.types import Samples

_SAMPLE_RATE = 16000
"""What Whisper listens to, in Hz."""


class Recogniser(Protocol):
    """Whatever writes down what it hears."""

    def transcribe(self, samples: Samples, sample_rate: int, language: str) -> str:
        """Write down what is said; an empty language is to be guessed."""
        ...


def check_installed() -> None:
    """Find out that the library is missing before anything else is done.

    Raises: ``UsageError`` with the line that installs it.
    """
    if importlib.util.find_spec("faster_whisper") is None:
        raise UsageError(
            "Listening to what was said needs an optional part that is not installed.",
            hint="Install it: pip install 'fishtts[asr]'",
        )


class Whisper:
    """faster-whisper with any of its models: a name on the hub, or a folder."""

    def __init__(
        self, model: str = DEFAULT_ASR_MODEL, *, device: str = "cpu", offline: bool = False
    ) -> None:
        check_installed()
        from faster_whisper import WhisperModel

        on_gpu = device.startswith("cuda")
        try:
            self._model: Any = WhisperModel(
                model,
                device="cuda" if on_gpu else "cpu",
                compute_type="float16" if on_gpu else "float32",
                local_files_only=offline,
            )
        except (RuntimeError, ValueError, OSError) as error:
            reason = str(error).split("\n")[0].split(", expected")[0].rstrip(".")
            raise ModelError(
                f'The recogniser "{model}" cannot be loaded: {reason}.',
                hint="Name a faster-whisper model or its folder: --asr-model small",
            ) from None

    def transcribe(self, samples: Samples, sample_rate: int, language: str) -> str:
        import soxr

        if sample_rate != _SAMPLE_RATE:
            samples = soxr.resample(samples, sample_rate, _SAMPLE_RATE, quality="HQ")
        heard, _ = self._model.transcribe(
            np.ascontiguousarray(samples, np.float32),
            language=language or None,
            beam_size=5,
            temperature=0.0,
            condition_on_previous_text=False,
        )
        return " ".join(segment.text.strip() for segment in heard)

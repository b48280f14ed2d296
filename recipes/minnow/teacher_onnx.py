"""The teacher as its publisher ships it: an int8 graph, one of its stock voices, espeak's phonemes.

The anchor that `minnow` is measured against. Owns the way from a sentence to the graph's inputs.
Training does not use it (``teacher.py`` is the same network in floating point, batched).
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from recipes.minnow.gather import PHONEMES, espeak
from recipes.minnow.languages import LANGUAGES, to_teacher

SAMPLE_RATE = 24000
MAX_TOKENS = 510
_ACCENTS = {
    "a": "en-us",
    "b": "en-gb",
    **{code[0]: language.espeak for code, language in LANGUAGES.items()},
}
"""espeak's name of a voice's accent, by the first letter of the voice."""
_BRITISH = (
    ("eə", "ɛː"), ("iə", "ɪə"), ("əʊ", "Q"),
    *((old, new) for old, new in PHONEMES if old not in ("ɜːɹ", "ɜː", "ɪə", "ː", "oʊ")),
)  # fmt: skip


class Teacher:
    """The teacher's graph and its stock voices, from the folder that ``judges.py`` made."""

    def __init__(self, folder: Path, *, threads: int = 2) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            str(folder / "kokoro.onnx"), options, providers=["CPUExecutionProvider"]
        )
        self._symbols: dict[str, int] = json.loads((folder / "vocab.json").read_bytes())["vocab"]
        self._voices = folder / "voices"

    @property
    def voices(self) -> tuple[str, ...]:
        """The stock voices."""
        return tuple(sorted(path.stem for path in self._voices.glob("*.bin")))

    def styles(self, voice: str) -> npt.NDArray[np.float32]:
        """A voice's style for each number of phonemes. Shape [MAX_TOKENS, 256].

        A mixture names its stock voices with their shares: ``af_bella:0.6+af_nova:0.4``.
        """
        table = np.zeros((MAX_TOKENS, 256), np.float32)
        for part in voice.split("+"):
            name, _, share = part.partition(":")
            stock = np.fromfile(self._voices / f"{name}.bin", "<f4").reshape(MAX_TOKENS, 256)
            table += float(share or 1) * stock
        return table

    def speak(self, text: str, voice: str) -> npt.NDArray[np.float32]:
        """Say a text of at most ``MAX_TOKENS`` phonemes in a stock voice or a mixture of some, at
        ``SAMPLE_RATE``. The first voice of a mixture tells the accent."""
        phonemes = phonemise(text, _ACCENTS[voice[0]])
        tokens = [self._symbols[symbol] for symbol in phonemes if symbol in self._symbols]
        if not 0 < len(tokens) <= MAX_TOKENS:
            raise ValueError(f"{len(tokens)} phonemes, from: {text}")
        inputs = {
            "tokens": np.array([[0, *tokens, 0]], np.int64),
            "style": self.styles(voice)[len(tokens) - 1][None],
            "speed": np.ones(1, np.float32),
        }
        audio: npt.NDArray[np.float32] = self._session.run(None, inputs)[0].reshape(-1)
        return audio


def phonemise(text: str, accent: str) -> str:
    """Write a text in the teacher's phonemes; its punctuation stays."""
    phonemes: str = _espeak(accent).phonemize([text])[0]
    if accent not in ("en-us", "en-gb"):
        return to_teacher(phonemes)
    for old, new in PHONEMES if accent == "en-us" else _BRITISH:
        phonemes = phonemes.replace(old, new)
    return phonemes.strip()


@lru_cache
def _espeak(accent: str):  # type: ignore[no-untyped-def]  # its package has no types
    return espeak(accent)

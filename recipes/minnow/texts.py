"""The sentences of a pack, with the teacher's tokens and which characters each token speaks."""

from __future__ import annotations

import io
import lzma
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FILE = "texts.npz.xz"


@dataclass(frozen=True, slots=True)
class Texts:
    """All sentences, flat. ``first``/``last`` are positions of bytes a token, -1 where unknown;
    ``language`` counts in ``languages.CODES``."""

    characters: np.ndarray
    character_at: np.ndarray
    token_ids: np.ndarray
    first: np.ndarray
    last: np.ndarray
    token_at: np.ndarray
    is_training: np.ndarray
    language: np.ndarray

    @classmethod
    def load(cls, pack: Path) -> Texts:
        """Read the texts of a pack folder."""
        with np.load(io.BytesIO(lzma.decompress((pack / FILE).read_bytes()))) as data:
            first = np.cumsum(data["first_step"], dtype=np.int16)
            return cls(
                data["characters"],
                np.concatenate(([0], np.cumsum(data["num_characters"].astype(np.int64)))),
                data["token_ids"],
                first,
                first + data["reach"],
                np.concatenate(([0], np.cumsum(data["num_tokens"].astype(np.int64)))),
                data["is_training"],
                data["language"],
            )

    @staticmethod
    def write(pack: Path, first: np.ndarray, last: np.ndarray, **arrays: np.ndarray) -> None:
        """Write the texts of a pack folder: a pack must travel, so they are packed tightly."""
        file = io.BytesIO()
        steps = np.diff(first, prepend=np.int16(0)).astype(np.int16)
        np.savez(file, first_step=steps, reach=(last - first).astype(np.int16), **arrays)
        (pack / FILE).write_bytes(lzma.compress(file.getvalue()))

    def __len__(self) -> int:
        return len(self.is_training)

    def text(self, index: int) -> bytes:
        """The sentence, in UTF-8."""
        span = slice(self.character_at[index], self.character_at[index + 1])
        return self.characters[span].tobytes()

    def tokens(self, index: int) -> np.ndarray:
        """The teacher's tokens, silence at both ends. uint8 [n]."""
        return self.token_ids[self.token_at[index] : self.token_at[index + 1]]

    def spans(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """First and last byte that each token may speak. int16 [n] each."""
        span = slice(self.token_at[index], self.token_at[index + 1])
        return self.first[span], self.last[span]

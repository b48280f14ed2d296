"""Training examples of the language model: codes and texts in S2's prompt format, batched.

Runs in loader processes, on numpy alone. The prompt it writes is the one that the model family's
``prompt.py`` builds; tests/recipes/test_layout.py holds the two together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file
from torch.utils.data import IterableDataset, get_worker_info

from recipes.minnow.layout import (
    END_ID,
    NUM_CODEBOOKS,
    NUM_SEMANTIC,
    PHRASE_ID,
    SEMANTIC_BEGIN,
    SPECIAL_ID,
)
from recipes.minnow.texts import Texts

LENGTHS = (192, 256, 320, 384, 448, 512, 640, 768, 896)
IGNORE = -100
END_TARGET = NUM_SEMANTIC
NEWLINE = 10
PLAIN = PHRASE_ID["convert the provided text to speech"]
WITH_REFERENCE = PHRASE_ID[
    "convert the provided text to speech reference to the following:\n\nText:\n"
]
SPEECH = PHRASE_ID["\n\nSpeech:\n"]
SPEAKER_TAG = list(b"<|speaker:0|>")
# Share of the lines with a reference, of those with two recordings joined to a longer one, and of
# references whose words are given.
REFERENCES, JOINED, WITH_WORDS = 0.85, 0.3, 0.65


@dataclass(frozen=True, slots=True)
class Spoken:
    """One utterance as codes. ``first``/``last`` are positions of bytes a frame, -1 unknown. A poor
    recording is only ever a reference."""

    codes: np.ndarray
    text: bytes
    speaker: int
    first: np.ndarray
    last: np.ndarray
    is_poor: bool = False


class Corpus:
    """All code files that exist so far, with utterances by speaker."""

    def __init__(self, folder: Path, texts: Texts) -> None:
        self.folder, self.texts = folder, texts
        self.seen: set[Path] = set()
        self.training: list[Spoken] = []
        self.held_out: list[Spoken] = []
        self.by_speaker: dict[int, list[Spoken]] = {}

    def refresh(self) -> None:
        for path in sorted(self.folder.glob("codes_*.safetensors")):
            if path not in self.seen:
                self.seen.add(path)
                self._add(load_file(path))

    def _add(self, shard: dict[str, np.ndarray]) -> None:
        at = 0
        for i, frames in enumerate(shard["num_frames"]):
            span = slice(at, at + int(frames))
            at += int(frames)
            text_id = int(shard["text_id"][i])
            spoken = Spoken(
                shard["codes"][:, span],
                self.texts.text(text_id),
                int(shard["speaker_id"][i]),
                shard["first"][span],
                shard["last"][span],
                bool(shard["is_poor"][i]),
            )
            if self.texts.is_training[text_id]:
                self.by_speaker.setdefault(spoken.speaker, []).append(spoken)
                if not spoken.is_poor:
                    self.training.append(spoken)
            elif not spoken.is_poor:
                self.held_out.append(spoken)


class Builder:
    """Grows one example: token ids, codes, targets, weights and attention spans."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.audio: list[tuple[int, np.ndarray]] = []
        self.targets: list[tuple[int, Spoken, np.ndarray, float, int]] = []

    def speak(self, spoken: Spoken, codes: np.ndarray, weight: float, text_at: int) -> None:
        """Append audio; with ``weight`` it is also what the positions before must predict."""
        if weight > 0:
            self.targets.append((len(self.ids) - 1, spoken, codes, weight, text_at))
        self.audio.append((len(self.ids), codes))
        self.ids.extend((SEMANTIC_BEGIN + codes[0].astype(np.int64)).tolist())

    def finish(self) -> dict[str, np.ndarray]:
        length = len(self.ids)
        rows = np.zeros((1 + NUM_CODEBOOKS, length), np.int16)
        rows[0] = self.ids
        target = np.full(length, IGNORE, np.int16)
        weight = np.zeros(length, np.float32)
        first = np.full(length, -1, np.int16)
        last = np.full(length, -1, np.int16)
        for at, codes in self.audio:
            rows[1:, at : at + codes.shape[1]] = codes
        for at, spoken, codes, w, text_at in self.targets:
            span = slice(at, at + codes.shape[1])
            target[span] = codes[0]
            weight[span] = w
            if text_at >= 0:
                known = spoken.first >= 0
                first[span] = np.where(known, spoken.first + text_at, -1)
                last[span] = np.where(known, spoken.last + text_at, -1)
        target[length - 1] = END_TARGET
        weight[length - 1] = 1.0
        return {"rows": rows, "target": target, "weight": weight, "first": first, "last": last}


def joined(one: Spoken, other: Spoken) -> Spoken:
    """Two recordings of a speaker as one longer recording."""
    after = len(one.text) + 1
    known = other.first >= 0
    return Spoken(
        np.concatenate((one.codes, other.codes), 1),
        one.text + b" " + other.text,
        one.speaker,
        np.concatenate((one.first, np.where(known, other.first + after, -1))),
        np.concatenate((one.last, np.where(known, other.last + after, -1))),
        one.is_poor or other.is_poor,
    )


def add_reference(builder: Builder, spoken: Spoken, rng: np.random.Generator) -> None:
    """A reference in the system message: with its words, or a cut of it without."""
    builder.ids += [WITH_REFERENCE, *SPEAKER_TAG]
    if rng.random() < WITH_WORDS:
        text_at = len(builder.ids)
        builder.ids += [*spoken.text, SPEECH]
        # Nobody should learn to speak as a poor recording sounds.
        builder.speak(spoken, spoken.codes, 0.0 if spoken.is_poor else 0.5, text_at)
        return
    builder.ids.append(SPEECH)
    codes = spoken.codes
    if rng.random() < 0.6 and codes.shape[1] > 40:
        size = int(rng.integers(30, codes.shape[1]))
        start = int(rng.integers(0, codes.shape[1] - size + 1))
        codes = codes[:, start : start + size]
    builder.speak(spoken, codes, 0.0, -1)


def build(
    spoken: Spoken, reference: Spoken | None, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """One whole conversation: system, user, assistant."""
    builder = Builder()
    start, end = SPECIAL_ID["<|im_start|>"], [END_ID, NEWLINE]
    builder.ids += [start, PHRASE_ID["system\n"]]
    if reference is None:
        builder.ids.append(PLAIN)
    else:
        add_reference(builder, reference, rng)
    builder.ids += [*end, start, PHRASE_ID["user\n"]]
    text_at = len(builder.ids)
    builder.ids += [*spoken.text, *end, start, PHRASE_ID["assistant\n"], SPECIAL_ID["<|voice|>"]]
    builder.speak(spoken, spoken.codes, 1.0, text_at)
    return builder.finish()


def collate(
    examples: list[dict[str, np.ndarray]], length: int, rng: np.random.Generator, num_fast: int
) -> dict[str, torch.Tensor]:
    """Pad to ``length`` and choose ``num_fast`` frames for the fast transformer's loss."""
    batch = len(examples)
    rows = np.zeros((batch, 1 + NUM_CODEBOOKS, length), np.int16)
    rows[:, 0] = SPECIAL_ID["<|pad|>"]
    out = {
        "target": np.full((batch, length), IGNORE, np.int16),
        "weight": np.zeros((batch, length), np.float32),
        "first": np.full((batch, length), -1, np.int16),
        "last": np.full((batch, length), -1, np.int16),
    }
    for i, example in enumerate(examples):
        size = example["rows"].shape[1]
        rows[i, :, :size] = example["rows"]
        for name, array in out.items():
            array[i, :size] = example[name]
    where = np.flatnonzero((out["target"] >= 0) & (out["target"] < END_TARGET))
    pick = where[rng.integers(0, len(where), num_fast)]
    row, at = np.divmod(pick, length)
    out["rows"] = rows
    out["fast_at"] = pick.astype(np.int32)
    out["fast_codes"] = rows[row, 1:, at + 1]
    return {name: torch.from_numpy(array) for name, array in out.items()}


class Batches(IterableDataset):  # type: ignore[type-arg]
    """Endless batches of about ``tokens`` positions, grouped by length."""

    def __init__(self, folder: Path, pack: Path, tokens: int, num_fast: int, seed: int) -> None:
        self.folder, self.pack = folder, pack
        self.tokens, self.num_fast, self.seed = tokens, num_fast, seed

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        info = get_worker_info()
        rng = np.random.default_rng((self.seed, info.id if info else 0))
        corpus = Corpus(self.folder, Texts.load(self.pack))
        waiting: dict[int, list[dict[str, np.ndarray]]] = {n: [] for n in LENGTHS}
        while True:
            corpus.refresh()
            if not corpus.training:
                raise ValueError(f'"{self.folder}" holds no codes to train on')
            for index in rng.permutation(len(corpus.training))[:20000]:
                example = self._example(corpus, corpus.training[index], rng)
                length = next((n for n in LENGTHS if n >= example["rows"].shape[1]), None)
                if length is None:
                    continue
                waiting[length].append(example)
                if len(waiting[length]) >= max(1, self.tokens // length):
                    yield collate(waiting[length], length, rng, self.num_fast)
                    waiting[length] = []

    @staticmethod
    def _example(corpus: Corpus, spoken: Spoken, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """One line after a recording of the same speaker, of two, or of nobody."""
        if rng.random() >= REFERENCES:
            return build(spoken, None, rng)
        pool = corpus.by_speaker[spoken.speaker]
        first, second = (pool[int(i)] for i in rng.integers(0, len(pool), 2))
        if first.text == spoken.text:
            return build(spoken, None, rng)
        if rng.random() < JOINED and second.text != spoken.text:
            first = joined(first, second)
        return build(spoken, first, rng)


def held_out_batches(
    folder: Path, pack: Path, tokens: int, num_fast: int
) -> list[dict[str, torch.Tensor]]:
    """A fixed set of batches of unseen texts, without references."""
    rng = np.random.default_rng(1)
    corpus = Corpus(folder, Texts.load(pack))
    corpus.refresh()
    waiting: dict[int, list[dict[str, np.ndarray]]] = {n: [] for n in LENGTHS}
    for spoken in corpus.held_out:
        example = build(spoken, None, rng)
        length = next((n for n in LENGTHS if n >= example["rows"].shape[1]), None)
        if length is not None:
            waiting[length].append(example)
    return [
        collate(found[: max(1, tokens // length)], length, rng, num_fast)
        for length, found in waiting.items()
        if found
    ]

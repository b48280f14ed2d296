"""Teacher audio on the training device: shards in, random segments out. Knows no model.

Utterances lie end to end, each padded to whole code frames. Batches are drawn with device tensors
only (no host synchronisation), so drawing can be part of a captured step while the pool grows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file
from torch import Tensor

from recipes.minnow.perturb import recordings
from recipes.minnow.texts import Texts

SAMPLE_RATE = 24000
FRAME = 1200
LABEL = 600
NO_LABEL = 255


def phoneme_labels(
    durations: np.ndarray, tokens: np.ndarray, time_scale: float, num_samples: int
) -> np.ndarray:
    """The teacher's phoneme at the middle of every label interval. uint8 [ceil(n / LABEL)]."""
    ends = np.cumsum(durations.astype(np.int64)) * LABEL * time_scale
    middles = np.arange(-(-num_samples // LABEL)) * LABEL + LABEL // 2
    index = np.searchsorted(ends, middles, side="right").clip(max=len(tokens) - 1)
    return tokens[index].astype(np.uint8)


@dataclass(frozen=True, slots=True)
class Utterance:
    """One line of a shard, as numpy views."""

    audio: np.ndarray
    text_id: int
    speaker_id: int
    durations: np.ndarray
    time_scale: float


def read_shard(path: Path) -> list[Utterance]:
    """All utterances of one shard file."""
    shard = load_file(path)
    audio_at = np.concatenate(([0], np.cumsum(shard["num_samples"].astype(np.int64))))
    token_at = np.concatenate(([0], np.cumsum(shard["num_tokens"].astype(np.int64))))
    return [
        Utterance(
            shard["audio"][audio_at[i] : audio_at[i + 1]],
            int(shard["text_id"][i]),
            int(shard["speaker_id"][i]),
            shard["durations"][token_at[i] : token_at[i + 1]],
            float(shard["time_scale"][i]),
        )
        for i in range(len(shard["num_samples"]))
    ]


class AudioPool:
    """A growing store of audio and phoneme labels with room for ``hours``."""

    def __init__(self, texts: Texts, hours: float, device: torch.device) -> None:
        frames = int(hours * 3600 * SAMPLE_RATE / FRAME)
        self.texts = texts
        self.device = device
        self.audio = torch.zeros(frames * FRAME, dtype=torch.int16, device=device)
        self.labels = torch.full((frames * 2,), NO_LABEL, dtype=torch.uint8, device=device)
        self.starts = torch.zeros(frames // 8, dtype=torch.int64, device=device)
        self.lengths = torch.zeros(frames // 8, dtype=torch.int64, device=device)
        self.count = torch.zeros((), dtype=torch.int64, device=device)
        self.used = 0
        self.num_utterances = 0
        self.seen: set[Path] = set()

    @property
    def hours(self) -> float:
        return self.used * FRAME / SAMPLE_RATE / 3600

    def poll(self, folder: Path, pattern: str = "s*.safetensors") -> bool:
        """Take in one new shard, if there is one and it fits. Whether something came."""
        for path in sorted(folder.glob(pattern)):
            if path not in self.seen:
                self.seen.add(path)
                return self._add(read_shard(path))
        return False

    def _add(self, utterances: list[Utterance]) -> bool:
        audio, labels, starts, lengths = [], [], [], []
        at = self.used
        for u in utterances:
            frames = -(-len(u.audio) // FRAME)
            if frames < 8 or not self.texts.is_training[u.text_id]:
                continue
            if at + frames > len(self.audio) // FRAME:
                break
            audio.append(np.pad(u.audio, (0, frames * FRAME - len(u.audio))))
            tokens = self.texts.tokens(u.text_id)
            labels.append(phoneme_labels(u.durations, tokens, u.time_scale, frames * FRAME))
            starts.append(at)
            lengths.append(frames)
            at += frames
        if not audio:
            return False
        self.audio[self.used * FRAME : at * FRAME] = torch.from_numpy(np.concatenate(audio))
        self.labels[self.used * 2 : at * 2] = torch.from_numpy(np.concatenate(labels))
        n = self.num_utterances
        self.starts[n : n + len(starts)] = torch.tensor(starts)
        self.lengths[n : n + len(starts)] = torch.tensor(lengths)
        self.num_utterances += len(starts)
        self.used = at
        self.count.fill_(self.num_utterances)
        return True

    def draw(self, batch: int, frames: int, poor: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Random segments at random gain.

        (heard, wanted, labels): float32 [B, N] twice, int64 [B, 2 * frames]. The first ``poor`` are
        heard as poor recordings and wanted as good ones; of the others the two are the same.
        """
        device = self.device
        which = (torch.rand(batch, device=device) * self.count).long()
        length, start = self.lengths[which], self.starts[which]
        room = (length - frames).clamp(min=0)
        # A quarter starts at the beginning, where a decoder has no context yet.
        begins = torch.rand(batch, device=device) < 0.25
        offset = (torch.rand(batch, device=device) * (room + 1)).long().clamp(max=room)
        offset = torch.where(begins, torch.zeros_like(offset), offset)
        at = torch.arange(frames * FRAME, device=device)[None]
        inside = offset[:, None] * FRAME + at < length[:, None] * FRAME
        index = ((start + offset)[:, None] * FRAME + at).clamp(max=len(self.audio) - 1)
        gain = torch.rand(batch, 1, device=device) * 0.75 + 0.5
        wave = self.audio[index].float() / 32768 * inside * gain
        heard = wanted = wave
        if poor:
            bad, good = recordings(wave[:poor], SAMPLE_RATE)
            heard, wanted = torch.cat((bad, wave[poor:])), torch.cat((good, wave[poor:]))
        at = torch.arange(frames * 2, device=device)[None]
        inside = offset[:, None] * 2 + at < length[:, None] * 2
        labels = self.labels[((start + offset)[:, None] * 2 + at).clamp(max=len(self.labels) - 1)]
        return heard, wanted, torch.where(inside, labels.long(), NO_LABEL)

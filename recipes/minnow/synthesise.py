"""Teacher speech on a GPU: thousands of lines by hundreds of speakers.

    python -m recipes.minnow.synthesise --pack PACK --out DIR --hours 60 --shard 0/2 --seed 0

Writes shards of about an hour (``s0_000.safetensors`` ...), the first a small one so that a
consumer can begin at once. Shard 0 of n also speaks the held-out sentences.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file
from torch import Tensor

from recipes.minnow.masked_norm import check
from recipes.minnow.teacher import FRAME, Teacher
from recipes.minnow.teacher_weights import read_packed
from recipes.minnow.texts import Texts

SAMPLE_RATE = 24000
HELD_OUT_VOICES = ("af_sky", "am_puck", "bf_lily", "bm_fable")
# Stock voices that the built-in ones come from; they speak a third of everything.
LEADING = (
    "af_heart", "af_bella", "af_nova", "af_sarah", "am_michael", "am_fenrir", "am_adam", "am_eric",
    "bf_emma", "bf_isabella", "bm_george", "bm_lewis",
)  # fmt: skip
LEADING_SHARE = 0.35
NUM_SPEAKERS = 512
# Numerator and denominator of the resampling that shifts pitch and formants.
SHIFTS = ((8, 9), (9, 10), (10, 11), (13, 12), (11, 10), (10, 9), (9, 8), (12, 13))
LEAD_FRAMES, TAIL_FRAMES = 4, 6


@dataclass(frozen=True, slots=True)
class Speaker:
    """A mixture of stock voices, resampled by ``shift`` and spoken at ``speed``."""

    mixture: dict[str, float]
    shift: tuple[int, int]
    speed: float


def make_speakers(names: list[str]) -> list[Speaker]:
    """Stock English voices first (as they are), then mixtures. The same list on every machine."""
    rng = np.random.default_rng(5)
    english = [n for n in names if n[0] in "ab" and n not in HELD_OUT_VOICES]
    stock = [*LEADING, *[n for n in english if n not in LEADING]]
    speakers = [Speaker({name: 1.0}, (1, 1), 1.0) for name in stock]
    usable = [n for n in names if n not in HELD_OUT_VOICES]
    while len(speakers) < NUM_SPEAKERS:
        sex = "f" if rng.random() < 0.5 else "m"
        pool = [n for n in usable if n[1] == sex] if rng.random() < 0.9 else usable
        chosen = [str(rng.choice([n for n in pool if n in english]))]
        chosen += [str(n) for n in rng.choice(pool, int(rng.choice((1, 1, 2))), replace=False)]
        weights = np.sort(rng.dirichlet([1.2] * len(chosen)))[::-1]
        mixture: dict[str, float] = {}
        for name, weight in zip(chosen, weights, strict=True):
            mixture[name] = mixture.get(name, 0.0) + float(weight)
        shift = (1, 1) if rng.random() < 0.5 else SHIFTS[rng.integers(len(SHIFTS))]
        speakers.append(Speaker(mixture, shift, float(rng.uniform(0.87, 1.15))))
    return speakers


def resample(wave: Tensor, shift: tuple[int, int]) -> Tensor:
    """Change the length to ``n * a / b`` by cutting or padding the spectrum. [B, n]."""
    a, b = shift
    if a == b:
        return wave
    size = -(-wave.shape[1] // b) * b
    spectrum = torch.fft.rfft(F.pad(wave, (0, size - wave.shape[1])))
    target = size * a // b
    keep = min(target // 2 + 1, spectrum.shape[1])
    shifted = spectrum.new_zeros(wave.shape[0], target // 2 + 1)
    shifted[:, :keep] = spectrum[:, :keep]
    return torch.fft.irfft(shifted, n=target) * (a / b)


@dataclass(slots=True)
class Spoken:
    """One finished line."""

    audio: np.ndarray
    text_id: int
    speaker_id: int
    durations: np.ndarray
    time_scale: float


@dataclass(slots=True)
class Synthesiser:
    """The teacher with all speakers' styles on the device."""

    pack: Path
    device: torch.device
    texts: Texts = field(init=False)
    speakers: list[Speaker] = field(init=False)
    styles: Tensor = field(init=False)
    teacher: Teacher = field(init=False)

    def __post_init__(self) -> None:
        self.texts = Texts.load(self.pack)
        with np.load(self.pack / "voices.npz") as voices:
            names = [str(n) for n in voices["names"]]
            tables = dict(zip(names, voices["tables"].astype(np.float32), strict=True))
        self.speakers = make_speakers(names)
        mixed = [
            sum(weight * tables[name] for name, weight in s.mixture.items()) for s in self.speakers
        ]
        self.styles = torch.from_numpy(np.stack(mixed)).to(self.device)  # type: ignore[arg-type]
        self.teacher = Teacher(read_packed(self.pack), self.device)

    def speak(
        self, text_ids: np.ndarray, speaker_ids: np.ndarray, pace: np.ndarray
    ) -> list[Spoken]:
        """Lines of similar length, whose speakers share one ``shift``."""
        tokens = [self.texts.tokens(int(i)) for i in text_ids]
        lengths = torch.tensor([len(t) for t in tokens], device=self.device)
        ids = torch.zeros(len(tokens), int(lengths.max()), dtype=torch.int64)
        for row, t in enumerate(tokens):
            ids[row, : len(t)] = torch.from_numpy(t.astype(np.int64))
        ids = ids.to(self.device)
        # Tables hold every eighth row from row 3; the teacher's row is its spoken tokens less one.
        row = ((lengths - 3 - 3).float() / 8).round().long().clamp(0, self.styles.shape[1] - 1)
        who = torch.from_numpy(speaker_ids).to(self.device)
        style = self.styles[who, row]
        shift = self.speakers[int(speaker_ids[0])].shift
        ratio = shift[0] / shift[1]
        speed = torch.tensor(
            [
                self.speakers[int(s)].speed * p * ratio
                for s, p in zip(speaker_ids, pace, strict=True)
            ],
            device=self.device,
            dtype=torch.float32,
        )
        frames, prosody, text = self.teacher.durations(ids, lengths, style, speed)
        wave, counts = self.teacher.speak(frames, prosody, text, style)
        lead, frames, counts = trim(frames, lengths, counts)
        wave = resample(wave.float(), shift)
        good = torch.isfinite(wave).all(1) & (wave.abs().amax(1) > 0.02)
        audio = (wave.nan_to_num().clamp(-1, 1) * 32767).round().to(torch.int16).cpu().numpy()
        starts = (lead * ratio).round().long().tolist()
        sizes = (counts * ratio).floor().long().tolist()
        spans = frames.clamp(max=255).to(torch.uint8).cpu().numpy()
        return [
            Spoken(
                audio[i, starts[i] : starts[i] + sizes[i]].copy(),
                int(text_ids[i]),
                int(speaker_ids[i]),
                spans[i, : len(tokens[i])].copy(),
                ratio,
            )
            for i in range(len(tokens))
            if bool(good[i])
        ]


def trim(frames: Tensor, lengths: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Shorten the silence at both ends: (samples cut at the front, durations, sample counts)."""
    frames = frames.clone()
    last_at = (lengths - 1)[:, None]
    last = frames.gather(1, last_at)[:, 0]
    lead = (frames[:, 0] - LEAD_FRAMES).clamp(min=0)
    tail = (last - TAIL_FRAMES).clamp(min=0)
    frames[:, 0] -= lead
    frames.scatter_(1, last_at, (last - tail)[:, None])
    return lead * FRAME, frames, counts - (lead + tail) * FRAME


def batches(
    maker: Synthesiser, part: int, parts: int, size: int, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Endless (texts, speakers, pace) batches of similar length, one pitch shift each."""
    rng = np.random.default_rng((seed, part))
    texts, speakers = maker.texts, maker.speakers
    num_tokens = np.diff(texts.token_at)
    by_shift: dict[tuple[int, int], list[int]] = {}
    for i, s in enumerate(speakers):
        by_shift.setdefault(s.shift, []).append(i)
    shifts = list(by_shift)
    shares = np.array([len(by_shift[s]) for s in shifts], float)

    def drawn(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if rng.random() < LEADING_SHARE:
            who = rng.integers(0, len(LEADING), len(ids))
        else:
            pool = by_shift[shifts[rng.choice(len(shifts), p=shares / shares.sum())]]
            who = rng.choice(np.array(pool), len(ids))
        return ids, who, rng.uniform(0.95, 1.05, len(ids))

    held_out = np.flatnonzero(~texts.is_training)
    if part == 0:
        held_out = held_out[np.argsort(num_tokens[held_out])]
        for at in range(0, len(held_out), 64):
            yield drawn(held_out[at : at + 64])
    training = np.flatnonzero(texts.is_training)
    while True:
        order = rng.permutation(training)
        # Each process begins elsewhere, so that two of them do not speak the same lines first.
        order = np.roll(order, -part * len(order) // parts)
        for at in range(0, len(order), size * 40):
            block = order[at : at + size * 40]
            block = block[np.argsort(num_tokens[block])]
            groups = [block[i : i + size] for i in range(0, len(block), size)]
            for index in rng.permutation(len(groups)):
                # Long lines in smaller batches, so that memory stays level.
                pieces = max(1, -(-int(num_tokens[groups[index]].max()) // 100))
                for ids in np.array_split(groups[index], pieces):
                    if len(ids):
                        yield drawn(ids)


def write_shard(spoken: list[Spoken], path: Path) -> None:
    """Write beside, rename into place."""
    tensors = {
        "audio": np.concatenate([s.audio for s in spoken]),
        "num_samples": np.array([len(s.audio) for s in spoken], np.int32),
        "text_id": np.array([s.text_id for s in spoken], np.int32),
        "speaker_id": np.array([s.speaker_id for s in spoken], np.int32),
        "durations": np.concatenate([s.durations for s in spoken]),
        "num_tokens": np.array([len(s.durations) for s in spoken], np.int32),
        "time_scale": np.array([s.time_scale for s in spoken], np.float32),
    }
    save_file(tensors, path.with_suffix(".tmp"))
    path.with_suffix(".tmp").rename(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--pack", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--hours", type=float, required=True)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=192)
    parser.add_argument("--shard-hours", type=float, default=1.0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    started = time.monotonic()
    part, parts = map(int, args.shard.split("/"))
    torch.manual_seed(args.seed * 1000 + part)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    device = torch.device(args.device)
    if device.type == "cuda":
        print(f"masked norm: kernel against plain {check(device):.4f}", flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    maker = Synthesiser(args.pack, device)
    described = [{"mixture": s.mixture, "shift": s.shift, "speed": s.speed} for s in maker.speakers]
    (args.out / "speakers.json").write_text(json.dumps(described))
    print(f"ready after {time.monotonic() - started:.1f} s", flush=True)
    made, done, index = [], 0.0, len(list(args.out.glob(f"s{part}_*.safetensors")))
    begun = time.monotonic()
    for text_ids, speaker_ids, pace in batches(maker, part, parts, args.batch, args.seed + index):
        made += maker.speak(text_ids, speaker_ids, pace)
        held = sum(len(s.audio) for s in made) / SAMPLE_RATE / 3600
        spent = time.monotonic() - started
        over = done + held >= args.hours or spent > args.seconds
        if held >= (args.shard_hours if done else args.shard_hours * 0.4) or over:
            write_shard(made, args.out / f"s{part}_{index:03d}.safetensors")
            done, made, index = done + held, [], index + 1
            pace_now = done * 3600 / (time.monotonic() - begun)
            print(f"shard {index}: {done:.2f} h, {pace_now:.0f} times real time", flush=True)
        if over:
            break


if __name__ == "__main__":
    main()

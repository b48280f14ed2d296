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
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file
from torch import Tensor

from recipes.minnow.languages import CODES, LANGUAGES
from recipes.minnow.masked_norm import check
from recipes.minnow.teacher import FRAME, Teacher
from recipes.minnow.teacher_weights import read_packed
from recipes.minnow.texts import Texts

SAMPLE_RATE = 24000
HELD_OUT_VOICES = ("af_sky", "am_puck", "bf_lily", "bm_fable")
# Stock voices that the built-in ones come from; they speak a third of everything.
LEADING = (
    "af_heart", "af_river", "af_nova", "af_sarah", "am_michael", "am_fenrir", "am_liam", "am_eric",
    "bf_emma", "bf_isabella", "bm_george", "bm_daniel",
)  # fmt: skip
LEADING_SHARE = 0.25
NUM_SPEAKERS = 3000
# How much of the speech is in each language; a pack without a language leaves its share to English.
SHARES = {"en": 0.8, "es": 0.05, "fr": 0.05, "it": 0.05, "pt": 0.05}
# Share of the mixtures that are built around a voice of another language than English.
FOREIGN = 0.25
# Numerator and denominator of the resampling that shifts pitch and formants.
SHIFTS = ((8, 9), (9, 10), (10, 11), (13, 12), (11, 10), (10, 9), (9, 8), (12, 13))
LEAD_FRAMES, TAIL_FRAMES = 4, 6
Lines = Iterator[np.ndarray]
"""Groups of text ids."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """Mixtures of stock voices, one for the sound of the voice and one for its melody, resampled by
    ``shift`` (pitch and formants), with the pitch scaled by ``pitch`` (formants stay)."""

    timbre: dict[str, float]
    melody: dict[str, float]
    languages: tuple[str, ...]
    shift: tuple[int, int] = (1, 1)
    speed: float = 1.0
    pitch: float = 1.0


def make_speakers(names: list[str]) -> list[Speaker]:
    """Stock voices first (as they are), then mixtures. The same list on every machine."""
    rng = np.random.default_rng(11)
    english = [n for n in names if n[0] in "ab" and n not in HELD_OUT_VOICES]
    at_home = {voice: code for code, rule in LANGUAGES.items() for voice in rule.voices}
    foreign = [n for n in names if n in at_home]
    stock = [*LEADING, *[n for n in english if n not in LEADING]]
    speakers = [Speaker({n: 1.0}, {n: 1.0}, ("en",)) for n in stock]
    speakers += [Speaker({n: 1.0}, {n: 1.0}, (at_home[n],)) for n in foreign]
    usable = [n for n in names if n not in HELD_OUT_VOICES]
    while len(speakers) < NUM_SPEAKERS:
        sex = "f" if rng.random() < 0.5 else "m"
        pool = [n for n in usable if n[1] == sex] if rng.random() < 0.9 else usable
        mains = foreign if rng.random() < FOREIGN else english
        main = str(rng.choice([n for n in mains if n in pool] or mains))
        timbre = mixture(main, pool, rng)
        melody = timbre if rng.random() < 0.6 else mixture(main, pool, rng)
        speakers.append(
            Speaker(
                timbre,
                melody,
                (at_home[main], "en") if main in at_home else ("en",),
                (1, 1) if rng.random() < 0.5 else SHIFTS[rng.integers(len(SHIFTS))],
                float(rng.uniform(0.87, 1.15)),
                1.0 if rng.random() < 0.5 else float(rng.uniform(0.85, 1.2)),
            )
        )
    return speakers


def mixture(main: str, pool: list[str], rng: np.random.Generator) -> dict[str, float]:
    """A voice with the largest share, and one or two others."""
    chosen = [main, *(str(n) for n in rng.choice(pool, int(rng.choice((1, 1, 2))), replace=False))]
    weights = np.sort(rng.dirichlet([1.2] * len(chosen)))[::-1]
    shares: dict[str, float] = {}
    for name, weight in zip(chosen, weights, strict=True):
        shares[name] = shares.get(name, 0.0) + float(weight)
    return shares


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
            np.concatenate((blend(s.timbre, tables)[:, :128], blend(s.melody, tables)[:, 128:]), 1)
            for s in self.speakers
        ]
        self.styles = torch.from_numpy(np.stack(mixed)).to(self.device)
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
        pitch = torch.tensor([self.speakers[int(s)].pitch for s in speaker_ids])
        wave, counts = self.teacher.speak(frames, prosody, text, style, pitch.to(self.device))
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


def blend(shares: dict[str, float], tables: dict[str, np.ndarray]) -> np.ndarray:
    """A mixture of style tables. Shape [rows, 256]."""
    return sum(share * tables[name] for name, share in shares.items())  # type: ignore[return-value]


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


Batch = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Text ids, speaker ids, pace."""


class Casting:
    """Who says what: speakers by language and by pitch shift, the leading voices more often."""

    def __init__(self, speakers: list[Speaker], rng: np.random.Generator) -> None:
        self.speakers, self.rng = speakers, rng
        self.leading: dict[str, list[int]] = {code: [] for code in CODES}
        self.by_shift: dict[str, dict[tuple[int, int], list[int]]] = {code: {} for code in CODES}
        for i, s in enumerate(speakers):
            for code in s.languages:
                self.by_shift[code].setdefault(s.shift, []).append(i)
            if len(s.timbre) == 1 and s.shift == (1, 1) and s.speed == 1.0:
                self.leading[s.languages[0]].append(i)
        self.leading["en"] = list(range(len(LEADING)))

    def cast(self, ids: np.ndarray, language: str) -> Batch:
        """Speakers for lines of one language; they share one shift."""
        rng, by_shift = self.rng, self.by_shift[language]
        if rng.random() < LEADING_SHARE:
            pool = self.leading[language]
        else:
            sizes = np.array([len(pool) for pool in by_shift.values()], float)
            pool = list(by_shift.values())[rng.choice(len(sizes), p=sizes / sizes.sum())]
        return ids, rng.choice(np.array(pool), len(ids)), rng.uniform(0.95, 1.05, len(ids))


def groups(texts: Texts, language: str, part: str, size: int, rng: np.random.Generator) -> Lines:
    """Endless groups of lines of similar length of one language."""
    index, parts = map(int, part.split("/"))
    num_tokens = np.diff(texts.token_at)
    training = np.flatnonzero(texts.is_training & (texts.language == CODES.index(language)))
    while len(training):
        order = rng.permutation(training)
        # Each process begins elsewhere, so that two of them do not speak the same lines first.
        order = np.roll(order, -index * len(order) // parts)
        for at in range(0, len(order), size * 40):
            block = order[at : at + size * 40]
            block = block[np.argsort(num_tokens[block])]
            found = [block[i : i + size] for i in range(0, len(block), size)]
            for which in rng.permutation(len(found)):
                # Long lines in smaller batches, so that memory stays level.
                pieces = max(1, -(-int(num_tokens[found[which]].max()) // 100))
                yield from (ids for ids in np.array_split(found[which], pieces) if len(ids))


def batches(maker: Synthesiser, part: str, size: int, seed: int) -> Iterator[Batch]:
    """Endless batches of similar length, each of one language and one pitch shift. Part 0 begins
    with the held-out lines."""
    rng = np.random.default_rng((seed, int(part.split("/")[0])))
    texts, casting = maker.texts, Casting(maker.speakers, rng)
    spoken = [code for code in CODES if (texts.language == CODES.index(code)).any()]
    if part.startswith("0/"):
        for code in spoken:
            held_out = ~texts.is_training & (texts.language == CODES.index(code))
            ids = np.flatnonzero(held_out)
            ids = ids[np.argsort(np.diff(texts.token_at)[ids])]
            for at in range(0, len(ids), min(size, 64)):
                yield casting.cast(ids[at : at + min(size, 64)], code)
    shares = np.array([SHARES[code] for code in spoken])
    sources = [groups(texts, code, part, size, rng) for code in spoken]
    while True:
        which = int(rng.choice(len(spoken), p=shares / shares.sum()))
        yield casting.cast(next(sources[which]), spoken[which])


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
    part = int(args.shard.split("/")[0])
    torch.manual_seed(args.seed * 1000 + part)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    device = torch.device(args.device)
    if device.type == "cuda":
        print(f"masked norm: kernel against plain {check(device):.4f}", flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    maker = Synthesiser(args.pack, device)
    (args.out / "speakers.json").write_text(json.dumps([asdict(s) for s in maker.speakers]))
    print(f"ready after {time.monotonic() - started:.1f} s", flush=True)
    made, done, index = [], 0.0, len(list(args.out.glob(f"s{part}_*.safetensors")))
    begun = time.monotonic()
    for text_ids, speaker_ids, pace in batches(maker, args.shard, args.batch, args.seed + index):
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

"""Turn teacher audio into codes, with the characters that each frame speaks.

    python -m recipes.minnow.encode --shards DIR --pack PACK --codec FILE --out DIR --part 0/2

Writes one ``codes_*.safetensors`` a shard; shards already done are skipped. A share of the lines is
encoded once more as a poor recording (``perturb.py``): references only, never what is to be said.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from safetensors.torch import load_file

from fishtts.codec.spectral import SpectralCodec, SpectralConfig
from recipes.minnow.perturb import perturb
from recipes.minnow.pool import FRAME, LABEL, SAMPLE_RATE, Utterance, read_shard
from recipes.minnow.texts import Texts

MAX_BATCH_SAMPLES = 24000 * 1600
PERTURBED = 0.35


def frame_spans(u: Utterance, texts: Texts, frames: int) -> tuple[np.ndarray, np.ndarray]:
    """First and last character that each frame may be speaking, -1 where unknown. int16 [F]."""
    ends = np.cumsum(u.durations.astype(np.int64)) * LABEL * u.time_scale
    middles = np.arange(frames) * FRAME + FRAME // 2
    index = np.searchsorted(ends, middles, side="right").clip(max=len(u.durations) - 1)
    first, last = texts.spans(u.text_id)
    return first[index], last[index]


@torch.inference_mode()
def encode_batch(
    codec: SpectralCodec, utterances: list[Utterance], *, poorly: bool = False
) -> list[np.ndarray]:
    """Codes of utterances of similar length, or of poor recordings of them. int16 [C, F] each."""
    device = next(codec.parameters()).device
    counts = [-(-len(u.audio) // FRAME) for u in utterances]
    wave = np.zeros((len(utterances), max(counts) * FRAME), np.int16)
    for row, u in enumerate(utterances):
        wave[row, : len(u.audio)] = u.audio
    samples = torch.from_numpy(wave).to(device).float() / 32768
    if poorly:
        samples = perturb(samples, SAMPLE_RATE)
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
        z = codec.encoder(samples)
    codes = codec.quantizer.encode(z.float().transpose(1, 2)).to(torch.int16).cpu().numpy()
    return [codes[row, :, :n] for row, n in enumerate(counts)]


def encode_all(
    codec: SpectralCodec, utterances: list[Utterance], *, poorly: bool = False
) -> list[np.ndarray]:
    """Codes of utterances sorted by length, in batches that fit."""
    codes: list[np.ndarray] = []
    at = 0
    while at < len(utterances):
        size = 1
        while (
            at + size < len(utterances)
            and size < 512
            and len(utterances[at + size].audio) * (size + 1) < MAX_BATCH_SAMPLES
        ):
            size += 1
        codes += encode_batch(codec, utterances[at : at + size], poorly=poorly)
        at += size
    return codes


def encode_shard(codec: SpectralCodec, texts: Texts, path: Path, out: Path) -> int:
    """Encode one shard file; the number of frames."""
    clean = sorted(read_shard(path), key=lambda u: len(u.audio))
    clean = [u for u in clean if len(u.audio) > 8 * FRAME]
    chance = np.random.default_rng(len(clean)).random(len(clean))
    poor = [u for u, c in zip(clean, chance, strict=True) if c < PERTURBED]
    codes = encode_all(codec, clean) + encode_all(codec, poor, poorly=True)
    utterances = clean + poor
    spans = [frame_spans(u, texts, c.shape[1]) for u, c in zip(utterances, codes, strict=True)]
    tensors = {
        "codes": np.ascontiguousarray(np.concatenate(codes, 1)),
        "num_frames": np.array([c.shape[1] for c in codes], np.int32),
        "text_id": np.array([u.text_id for u in utterances], np.int32),
        "speaker_id": np.array([u.speaker_id for u in utterances], np.int32),
        "is_poor": np.arange(len(utterances)) >= len(clean),
        "first": np.concatenate([s[0] for s in spans]).astype(np.int16),
        "last": np.concatenate([s[1] for s in spans]).astype(np.int16),
    }
    target = out / f"codes_{path.stem}.safetensors"
    save_file(tensors, target.with_suffix(".tmp"))
    target.with_suffix(".tmp").rename(target)
    return tensors["codes"].shape[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--shards", "--pack", "--codec", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    index, parts = map(int, args.part.split("/"))
    args.out.mkdir(parents=True, exist_ok=True)
    codec = SpectralCodec(SpectralConfig()).to(args.device).eval()
    codec.load_state_dict(load_file(args.codec))
    texts = Texts.load(args.pack)
    started, frames = time.monotonic(), 0
    for path in sorted(args.shards.glob("s*.safetensors"))[index::parts]:
        if not (args.out / f"codes_{path.stem}.safetensors").exists():
            frames += encode_shard(codec, texts, path, args.out)
    hours = frames * FRAME / 24000 / 3600
    print(f"encoded {hours:.1f} h in {time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()

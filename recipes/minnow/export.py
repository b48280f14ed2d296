"""Put a trained model together as a folder that the package ships.

    python -m recipes.minnow.export --model FILE --codec FILE --work DIR --pack PACK --out FOLDER

Weights in half precision, configs, tokenizer, card, and the built-in voices: each a short reference
clip that the teacher speaks, as codes with its words.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from fishtts.cloning.voice_file import write_voice
from fishtts.codec.spectral import SpectralCodec, SpectralConfig
from fishtts.types import Reference, Voice
from recipes.minnow.gather import align, phonemise, symbols
from recipes.minnow.layout import model_config, write_tokenizer
from recipes.minnow.teacher import Teacher
from recipes.minnow.teacher_weights import read_packed

# name -> (the teacher's voice, what it is like)
VOICES = {
    "ada": ("af_heart", "American woman, warm"),
    "nora": ("af_bella", "American woman, lively"),
    "miles": ("am_michael", "American man, calm"),
    "finn": ("am_fenrir", "American man, deep"),
    "clara": ("bf_emma", "British woman, clear"),
    "edward": ("bm_george", "British man, measured"),
}
REFERENCE = (
    "The morning was quiet, and a thin mist lay over the fields beyond the old stone bridge."
)
CARD = {
    "name": "minnow",
    "description": "A small English voice that works offline on any machine.",
    "licence": "Apache-2.0",
    "languages": ["en"],
    "scripts": ["Latin"],
    "normalise": True,
    "needs_transcript": False,
    "default_voice": "ada",
    "reference_s": 20.0,
    "unit_chars": 180,
    "sampling": {"temperature": 0.7, "top_p": 0.8, "top_k": 30},
    "trained_on": (
        "157 hours of synthetic English speech by Kokoro-82M (Apache-2.0), 512 synthetic speakers:"
        " WordNet examples, novels of Jane Austen, word lists and templates. No recording of a"
        " person."
    ),
    "not_for": (
        "Languages other than English; passing off as a real person; any use where a wrong or"
        " missing word does harm. Voices of real people are imitated poorly."
    ),
}  # fmt: skip


def write_codec(weights: Path, out: Path) -> SpectralCodec:
    """fp16 weights and the config; returns the codec as users will load it."""
    config = SpectralConfig()
    half = {k: v.half().contiguous() for k, v in load_file(weights).items()}
    save_file(half, out / "codec.safetensors")
    described = {"codec": "spectral", **asdict(config)}
    (out / "codec_config.json").write_text(json.dumps(described, indent=1) + "\n")
    codec = SpectralCodec(config)
    codec.load_state_dict({k: v.float() for k, v in half.items()})
    return codec.eval()


def reference_clip(teacher: Teacher, table: np.ndarray, tokens: list[int]) -> torch.Tensor:
    """The reference sentence by one stock voice. float32 [N] at 24 kHz."""
    style = torch.from_numpy(table[len(tokens) - 3 : len(tokens) - 2].copy())
    lengths = torch.tensor([len(tokens)])
    frames, prosody, text = teacher.durations(torch.tensor([tokens]), lengths, style, torch.ones(1))
    wave, counts = teacher.speak(frames, prosody, text, style)
    return wave[0, : int(counts[0])]


def write_voices(codec: SpectralCodec, identity: str, args: argparse.Namespace) -> None:
    """All built-in voices."""
    import tarfile

    torch.manual_seed(0)
    (tokens, _, _) = align(REFERENCE, phonemise([REFERENCE])[0], symbols(args.work))
    teacher = Teacher(read_packed(args.pack), torch.device("cpu"))
    folder = args.out / "voices"
    folder.mkdir(exist_ok=True)
    with tarfile.open(next(args.work.glob("kokoro-js-*.tgz"))) as archive:
        for name, (stock, description) in VOICES.items():
            file = archive.extractfile(f"package/voices/{stock}.bin")
            assert file is not None
            table = np.frombuffer(file.read(), "<f4").reshape(510, 256)
            codes = codec.encode(reference_clip(teacher, table, tokens)).numpy()
            voice = Voice(name, (Reference(codes, REFERENCE),), identity, "en", description)
            write_voice(voice, folder / f"{name}.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--model", "--codec", "--work", "--pack", "--out"):
        parser.add_argument(name, type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    save_file(
        {k: v.bfloat16().contiguous() for k, v in load_file(args.model).items()},
        args.out / "model.safetensors",
    )
    codec = write_codec(args.codec, args.out)
    (args.out / "config.json").write_text(json.dumps(model_config(), indent=1) + "\n")
    write_tokenizer(args.out)
    (args.out / "fishtts.json").write_text(json.dumps(CARD, indent=1) + "\n")
    digest = hashlib.sha256((args.out / "codec.safetensors").read_bytes()).hexdigest()
    write_voices(codec, digest[:16], args)


if __name__ == "__main__":
    main()

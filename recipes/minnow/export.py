"""Put a trained model together as a folder that the package ships.

    python -m recipes.minnow.export --model FILE --codec FILE --work DIR --out FOLDER

Weights in half precision, configs, tokenizer, card, and the built-in voices (``voices.py``).
``DIR`` is what ``judges.py`` made.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from safetensors.torch import load_file, save_file

from fishtts.codec.spectral import SpectralConfig
from recipes.minnow.layout import model_config, write_tokenizer
from recipes.minnow.teacher_onnx import Teacher
from recipes.minnow.voices import write_voices

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


def write_codec(weights: Path, out: Path) -> None:
    """fp16 weights and the config."""
    half = {k: v.half().contiguous() for k, v in load_file(weights).items()}
    save_file(half, out / "codec.safetensors")
    described = {"codec": "spectral", **asdict(SpectralConfig())}
    (out / "codec_config.json").write_text(json.dumps(described, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--model", "--codec", "--work", "--out"):
        parser.add_argument(name, type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    save_file(
        {k: v.bfloat16().contiguous() for k, v in load_file(args.model).items()},
        args.out / "model.safetensors",
    )
    write_codec(args.codec, args.out)
    (args.out / "config.json").write_text(json.dumps(model_config(), indent=1) + "\n")
    write_tokenizer(args.out)
    (args.out / "fishtts.json").write_text(json.dumps(CARD, indent=1) + "\n")
    write_voices(args.out, Teacher(args.work / "teacher"))


if __name__ == "__main__":
    main()

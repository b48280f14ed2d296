"""Put a trained model together as a folder that the package ships.

    python -m recipes.minnow.export --model FILE --codec FILE --work DIR --out FOLDER
    python -m recipes.minnow.export --start FOLDER --codec FILE --out FOLDER

The language model's matrices in int8 by rows and the codec in half precision; configs, tokenizer,
card, and the built-in voices (``voices.py``). With ``--start``, the folder that the decoder was
trained from: all but the codec is that folder's.
``DIR`` is what ``judges.py`` made.
"""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from fishtts.codec.spectral import SpectralConfig
from recipes.minnow.layout import model_config, write_tokenizer
from recipes.minnow.teacher_onnx import Teacher
from recipes.minnow.voices import keep_voices, write_voices

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


_CLIPS = (1.0, 0.95, 0.9, 0.85)
"""Shares of a row's largest value that the largest code may stand for."""


def write_model(weights: Path, out: Path) -> None:
    """Matrices in int8 by rows, vectors in bfloat16, as ``fishtts.weights`` reads them."""
    tensors: dict[str, Tensor] = {}
    for name, tensor in load_file(weights).items():
        if tensor.ndim == 2:
            tensors[name], tensors[f"{name}_scale"] = int8_rows(tensor)
        else:
            tensors[name] = tensor.bfloat16().contiguous()
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})


def int8_rows(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Codes int8 [N, K] and scales float32 [N, 1] of a matrix [N, K].

    Of a few scales a row, the one with the smallest squared error.
    """
    weight = weight.float()
    largest = weight.abs().amax(1, keepdim=True).clamp(min=1e-30)
    best = torch.full_like(largest, torch.inf)
    codes, scale = torch.zeros_like(weight), largest
    for clip in _CLIPS:
        step = largest * clip / 127
        rounded = (weight / step).round().clamp(-127, 127)
        error = (rounded * step - weight).square().sum(1, keepdim=True)
        codes = torch.where(error < best, rounded, codes)
        scale = torch.where(error < best, step, scale)
        best = torch.minimum(error, best)
    return codes.to(torch.int8), scale


def write_codec(weights: Path, out: Path) -> None:
    """fp16 weights and the config."""
    half = {k: v.half().contiguous() for k, v in load_file(weights).items()}
    save_file(half, out / "codec.safetensors")
    described = {"codec": "spectral", **asdict(SpectralConfig())}
    (out / "codec_config.json").write_text(json.dumps(described, indent=1) + "\n")


def export(model: Path, codec: Path, work: Path, out: Path) -> None:
    """Write the folder from newly trained weights, with new clips for the voices."""
    write_model(model, out)
    write_codec(codec, out)
    (out / "config.json").write_text(json.dumps(model_config(), indent=1) + "\n")
    write_tokenizer(out)
    (out / "fishtts.json").write_text(json.dumps(CARD, indent=1) + "\n")
    write_voices(out, Teacher(work / "teacher"))


def export_codec(codec: Path, start: Path, out: Path) -> None:
    """Write the folder ``start`` with a codec whose decoder alone was trained: its voices stay."""
    for path in start.iterdir():
        if path.is_file():
            shutil.copy(path, out)
    write_codec(codec, out)
    keep_voices(start, out)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("--codec", "--out"):
        parser.add_argument(name, type=Path, required=True)
    for name in ("--model", "--work", "--start"):
        parser.add_argument(name, type=Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.start:
        export_codec(args.codec, args.start, args.out)
    elif args.model and args.work:
        export(args.model, args.codec, args.work, args.out)
    else:
        parser.error("--model and --work are needed, or --start")


if __name__ == "__main__":
    main()

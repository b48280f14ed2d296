"""Shipped weights: int8 by rows is near and read by the product; voices outlive a new decoder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from fishtts.cloning.voice_file import read_voice, write_voice
from fishtts.codec import load_codec
from fishtts.codec.spectral import SpectralCodec, SpectralConfig
from fishtts.types import Reference, Voice
from fishtts.weights import read_tensors
from recipes.minnow.export import int8_rows, write_model
from recipes.minnow.voices import VOICES, keep_voices

SIZES = {"encoder_dim": 16, "encoder_layers": 1, "decoder_dim": 16, "decoder_layers": 1}


def test_int8_rows_are_no_further_off_than_by_rounding_to_the_largest_value() -> None:
    torch.manual_seed(0)
    weight = torch.randn(64, 256) * torch.logspace(-4, 2, 64)[:, None]
    codes, scale = int8_rows(weight)
    assert codes.dtype == torch.int8
    assert scale.shape == (64, 1)
    error = codes.float() * scale - weight
    step = weight.abs().amax(1, keepdim=True) / 127
    rounded = (weight / step).round() * step - weight
    assert (error.square().sum(1) <= rounded.square().sum(1)).all()
    assert (rounded.abs() <= 0.501 * step).all()


def test_a_row_of_zeros_stays_so() -> None:
    codes, scale = int8_rows(torch.zeros(2, 8))
    assert not codes.any()
    assert scale.isfinite().all()


def test_the_products_reader_gets_matrices_in_int8_and_vectors_as_they_are(tmp_path: Path) -> None:
    torch.manual_seed(0)
    tensors = {"a.weight": torch.randn(6, 128).bfloat16(), "norm": torch.randn(128).bfloat16()}
    save_file(tensors, tmp_path / "trained.safetensors")
    write_model(tmp_path / "trained.safetensors", tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert stored["a.weight"].dtype == torch.int8
    read = read_tensors(tmp_path / "model.safetensors")
    assert read.keys() == tensors.keys()
    assert torch.equal(read["norm"], tensors["norm"])
    assert torch.equal(read["a.weight"], stored["a.weight"].float() * stored["a.weight_scale"])
    assert (read["a.weight"] - tensors["a.weight"].float()).abs().max() < 0.1


def folder_with_codec(folder: Path, seed: int, change: str) -> Path:
    """A folder with a small codec; parameters whose names begin with ``change`` are of ``seed``."""
    folder.mkdir()
    weights = {}
    for number in (0, seed):
        torch.manual_seed(number)
        state = SpectralCodec(SpectralConfig(**SIZES)).state_dict()
        weights |= {n: t for n, t in state.items() if number == 0 or n.startswith(change)}
    save_file(weights, folder / "codec.safetensors")
    (folder / "codec_config.json").write_text(json.dumps({"codec": "spectral", **SIZES}))
    return folder


def test_voices_keep_their_codes_when_only_the_decoder_is_new(tmp_path: Path) -> None:
    old = folder_with_codec(tmp_path / "old", 0, "")
    (old / "voices").mkdir()
    codes = np.arange(8 * 30).reshape(8, 30)
    for name in VOICES:
        voice = Voice(name, (Reference(codes, "Hello."),), load_codec(old).identity, "en", "calm")
        write_voice(voice, old / "voices" / f"{name}.safetensors")
    new = folder_with_codec(tmp_path / "new", 1, "decoder.")
    keep_voices(old, new)
    kept = read_voice(new / "voices" / "ada.safetensors")
    assert kept.codec == load_codec(new).identity != load_codec(old).identity
    assert np.array_equal(kept.references[0].codes, codes)
    assert (kept.references[0].text, kept.description) == ("Hello.", "calm")
    other = folder_with_codec(tmp_path / "other", 1, "encoder.")
    with pytest.raises(SystemExit, match="do not make the same codes"):
        keep_voices(old, other)

"""Codec files: every spelling that exists is read, and nothing else."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from fishtts.codec import codec_names, load_codec
from fishtts.codec.spectral import SpectralCodec, SpectralConfig
from fishtts.errors import ModelError
from tests.fakes import GOLDEN

PARAMETRIZED = (".parametrizations.weight.original0", ".parametrizations.weight.original1")
PLAIN = (".weight_g", ".weight_v")
STALE = [
    f"{name}.{buffer}"
    for name in ("encoder.block.4.block.5", "quantizer.pre_module", "quantizer.post_module")
    for buffer in ("freqs_cis", "causal_mask")
]
FIRST = "decoder.model.0.conv"


@pytest.fixture
def tensors() -> dict[str, Tensor]:
    return load_file(GOLDEN / "codec.safetensors")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(GOLDEN / "codec_config.json", tmp_path)
    return tmp_path


def weights(folder: Path) -> dict[str, Tensor]:
    codec = load_codec(folder)
    assert isinstance(codec, nn.Module)
    return codec.state_dict()


def assert_same(found: dict[str, Tensor]) -> None:
    expected = weights(GOLDEN)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def respelled(tensors: dict[str, Tensor], old: tuple[str, str], new: tuple[str, str]) -> Any:
    names = {name: name.replace(old[0], new[0]).replace(old[1], new[1]) for name in tensors}
    return {names[name]: tensor for name, tensor in tensors.items()}


def test_weight_norm_has_two_spellings(folder: Path, tensors: dict[str, Tensor]) -> None:
    for old, new in ((PARAMETRIZED, PLAIN), (PLAIN, PARAMETRIZED)):
        changed = respelled(tensors, old, new)
        assert changed.keys() != tensors.keys()
        save_file(changed, folder / "codec.safetensors")
        assert_same(weights(folder))


def test_weights_may_come_folded(folder: Path) -> None:
    save_file(weights(GOLDEN), folder / "codec.safetensors")
    assert_same(weights(folder))


def with_stale_buffers(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    buffers = {
        name: torch.zeros(4, 2, 2, dtype=torch.bfloat16)
        if name.endswith("freqs_cis")
        else torch.ones(4, 4, dtype=torch.bool)
        for name in STALE
    }
    return {**tensors, **buffers}


def test_torch_file_with_its_six_stale_buffers(folder: Path, tensors: dict[str, Tensor]) -> None:
    torch.save(with_stale_buffers(tensors), folder / "codec.pth")
    assert_same(weights(folder))


def test_torch_file_of_a_training_run(folder: Path, tensors: dict[str, Tensor]) -> None:
    wrapped = {f"generator.{name}": t for name, t in with_stale_buffers(tensors).items()}
    content = {"state_dict": {**wrapped, "discriminator.weight": torch.zeros(3)}, "step": 7}
    torch.save(content, folder / "codec.pth")
    assert_same(weights(folder))


def test_identity_follows_from_the_weights_file(folder: Path, tensors: dict[str, Tensor]) -> None:
    torch.save(tensors, folder / "codec.pth")
    digest = hashlib.sha256((folder / "codec.pth").read_bytes()).hexdigest()
    assert digest.startswith(load_codec(folder).identity)
    assert len(load_codec(folder).identity) == 16
    assert load_codec(folder).identity != load_codec(GOLDEN).identity


def without(tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key: tensor for key, tensor in tensors.items() if key != name}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda t: without(t, f"{FIRST}.bias"), rf'"{FIRST}.bias" is missing'),
        (lambda t: without(t, FIRST + PARAMETRIZED[0]), rf'"{FIRST}.weight" is half missing'),
        (lambda t: {**t, f"{FIRST}.weight": torch.zeros(1)}, rf'"{FIRST}.weight" is there twice'),
        (lambda t: {**t, "decoder.extra": torch.zeros(1)}, '"decoder.extra" does not belong'),
        (lambda t: {**t, "decoder.freqs_cis": torch.zeros(1)}, '"decoder.freqs_cis" does not'),
        (lambda t: {**t, f"{FIRST}.bias": torch.zeros(3)}, r"has the shape \[3\], not \[64\]"),
        (lambda t: {**t, FIRST + PARAMETRIZED[0]: torch.ones(64)}, r"magnitudes of shape \[64\]"),
    ],
)
def test_every_tensor_must_fit(
    folder: Path, tensors: dict[str, Tensor], change: Any, complaint: str
) -> None:
    save_file(change(tensors), folder / "codec.safetensors")
    with pytest.raises(ModelError, match=complaint) as caught:
        load_codec(folder)
    assert "codec.safetensors" in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("name", ["codec.safetensors", "codec.pth"])
def test_a_file_that_is_cut_short_is_refused(
    folder: Path, tensors: dict[str, Tensor], name: str
) -> None:
    path = folder / name
    if path.suffix == ".pth":
        torch.save(tensors, path)
    else:
        save_file(tensors, path)
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ModelError, match=name):
        load_codec(folder)


def test_no_codec(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"codec\.safetensors or codec\.pth is missing"):
        load_codec(folder)


def test_without_a_description_it_is_the_full_size(
    tmp_path: Path, tensors: dict[str, Tensor]
) -> None:
    save_file(tensors, tmp_path / "codec.safetensors")
    with pytest.raises(ModelError, match=r"not \[64, 1, 7\]|is missing"):
        load_codec(tmp_path)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"codec": "tin can"}, '"tin can" is unknown; known are dac, spectral'),
        ({"colour": 3}, 'the key "colour" is unknown'),
        ({"quantizer": {"colour": 3}}, r'the key "quantizer\.colour" is unknown'),
        ({"encoder_dim": "wide"}, '"encoder_dim" is not of the right kind'),
        ({"encoder_dim": True}, '"encoder_dim" is not of the right kind'),
        ({"encoder_dim": -1}, '"encoder_dim" is not of the right kind'),
        ({"encoder_rates": 2}, '"encoder_rates" is not of the right kind'),
        ({"encoder_rates": [2, 4, 8, 4]}, "do not give the same frame"),
        ({"encoder_transformer_layers": [1]}, "differ in length"),
        ({"encoder_dim": 16}, r"encoder_transformer\.dim is not"),
        ({"latent_dim": 64}, "latent_dim is not"),
    ],
)
def test_a_description_must_make_sense(
    folder: Path, tensors: dict[str, Tensor], change: dict[str, Any], complaint: str
) -> None:
    save_file(tensors, folder / "codec.safetensors")
    path = folder / "codec_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ModelError, match=complaint) as caught:
        load_codec(folder)
    assert "codec_config.json" in caught.value.message


@pytest.mark.parametrize("content", ["{", "[]"])
def test_a_description_must_be_a_table(
    folder: Path, tensors: dict[str, Tensor], content: str
) -> None:
    save_file(tensors, folder / "codec.safetensors")
    (folder / "codec_config.json").write_text(content)
    with pytest.raises(ModelError, match=r"codec_config\.json cannot be used"):
        load_codec(folder)


def small_spectral(folder: Path) -> SpectralCodec:
    """Write a small codec of minnow's kind, and answer it."""
    sizes = {"encoder_dim": 16, "encoder_layers": 1, "decoder_dim": 16, "decoder_layers": 1}
    torch.manual_seed(0)
    codec = SpectralCodec(SpectralConfig(**sizes))
    save_file(codec.state_dict(), folder / "codec.safetensors")
    (folder / "codec_config.json").write_text(json.dumps({"codec": "spectral", **sizes}))
    return codec


def test_the_description_picks_the_architecture(tmp_path: Path) -> None:
    codec = small_spectral(tmp_path)
    loaded = load_codec(tmp_path)
    assert isinstance(loaded, SpectralCodec)
    samples = torch.randn(5000)
    assert torch.equal(loaded.encode(samples), codec.encode(samples))
    assert codec_names() == ["dac", "spectral"]


def test_minnows_codec_stays_in_float32_whatever_is_asked_for(tmp_path: Path) -> None:
    codec = small_spectral(tmp_path)
    codes = torch.randint(0, 1024, (8, 20))
    loaded = load_codec(tmp_path, dtype=torch.bfloat16)
    assert torch.equal(loaded.decode(codes), codec.decode(codes))

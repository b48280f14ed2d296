"""A quantised copy of a folder: whole or not there, resumed where it stopped, strictly read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from fishtts.errors import ModelError, OutputError
from fishtts.models import load_model, quantize_folder
from fishtts.models.dual_ar.net import DualAR
from fishtts.models.quantized import FORMATS, quantize_net
from tests.fakes import GOLDEN
from tests.goldens import random_net
from tests.models.test_quantized import fitting_values, narrow_values

quantize = quantize_folder.quantize_folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A small model's folder, with a codec, and a voice's folder."""
    return model_folder(tmp_path / "source", fitting_values())


def model_folder(folder: Path, values: dict[str, Any]) -> Path:
    folder.mkdir()
    for name in ("tokenizer.json", "codec.safetensors", "codec_config.json"):
        shutil.copy(GOLDEN / name, folder / name)
    (folder / "config.json").write_text(json.dumps(values))
    state = random_net(values).bfloat16().state_dict()
    save_file({name: t.contiguous() for name, t in state.items()}, folder / "model.safetensors")
    (folder / "voices").mkdir()
    (folder / "voices" / "ada.safetensors").write_bytes(b"a voice")
    return folder


@pytest.mark.parametrize("form", FORMATS)
def test_a_copy_loads_as_what_quantising_in_memory_gives(
    source: Path, tmp_path: Path, form: str
) -> None:
    made = quantize(source, tmp_path / "copy", form)
    assert made.bytes_after < made.bytes_before
    assert list(made.layers) == [form]
    loaded = load_model(tmp_path / "copy", device="cpu", dtype=torch.bfloat16).net
    wanted = load_model(source, device="cpu", dtype=torch.bfloat16).net
    assert isinstance(loaded, DualAR)
    assert isinstance(wanted, DualAR)
    quantize_net(wanted, form)
    ours, theirs = loaded.state_dict(), wanted.state_dict()
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype
        assert torch.equal(ours[name].view(torch.uint8), tensor.view(torch.uint8)), name
    rows = torch.arange(5)[None, None].repeat(1, 1 + loaded.config.num_codebooks, 1)
    with torch.inference_mode():
        logits = [
            net.full_logits(net.hidden(rows, net.new_cache(1, 8))) for net in (loaded, wanted)
        ]
    assert torch.equal(*logits)
    assert (tmp_path / "copy" / "voices" / "ada.safetensors").read_bytes() == b"a voice"
    assert not (tmp_path / "copy.partial").exists()


def test_an_interrupted_run_goes_on_and_ends_the_same(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantize_folder, "_SHARD_BYTES", 100_000)
    whole = quantize(source, tmp_path / "whole", "bsfp8").folder
    files = sorted(path.name for path in whole.glob("model-*.safetensors"))
    assert len(files) > 2
    target, partial = tmp_path / "copy", tmp_path / "copy.partial"
    seen: list[int] = []

    def interrupt(done: int, total: int) -> None:
        seen.append(done)
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize(source, target, "bsfp8", progress=interrupt)
    assert not target.exists()
    kept = {path.name: path.stat().st_mtime_ns for path in partial.glob("model-*.safetensors")}
    assert 0 < len(kept) < len(files)
    resumed: list[tuple[int, int]] = []
    quantize(source, target, "bsfp8", progress=lambda *p: resumed.append(p))
    assert resumed[-1][0] == resumed[-1][1]
    for name, written in kept.items():
        assert (target / name).stat().st_mtime_ns == written
    for name in files:
        assert (target / name).read_bytes() == (whole / name).read_bytes()
    assert sorted(p.name for p in target.iterdir()) == sorted(p.name for p in whole.iterdir())


def test_what_was_begun_with_other_wishes_is_begun_anew(source: Path, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize(source, tmp_path / "copy", "bsfp8", progress=stop)
    quantize(source, tmp_path / "copy", "mxfp8")
    assert load_model(tmp_path / "copy", device="cpu", dtype=torch.float32)


def test_a_folder_in_the_way_is_left_alone(source: Path, tmp_path: Path) -> None:
    target, partial = tmp_path / "copy", tmp_path / "copy.partial"
    target.mkdir()
    (target / "mine").touch()
    with pytest.raises(OutputError, match="exists"):
        quantize(source, target, "bsfp8")
    partial.mkdir()
    (partial / "mine").touch()
    with pytest.raises(OutputError, match="in the way"):
        quantize(source, target, "bsfp8", is_forced=True)
    assert (target / "mine").exists()
    assert (partial / "mine").exists()
    shutil.rmtree(partial)
    quantize(source, target, "bsfp8", is_forced=True)
    assert not (target / "mine").exists()
    assert not (tmp_path / "copy.old").exists()


def test_sources_that_cannot_be_quantised_are_refused(source: Path, tmp_path: Path) -> None:
    quantize(source, tmp_path / "copy", "bsfp8")
    with pytest.raises(ModelError, match="already"):
        quantize(tmp_path / "copy", tmp_path / "again", "bsfp8")
    tiny = model_folder(tmp_path / "tiny", narrow_values())
    with pytest.raises(ModelError, match="multiple of 128"):
        quantize(tiny, tmp_path / "never", "bsfp8")
    whole = (source / "model.safetensors").read_bytes()
    (source / "model.safetensors").write_bytes(whole[:-100])
    with pytest.raises(ModelError, match="cut short"):
        quantize(source, tmp_path / "never", "bsfp8")
    assert not (tmp_path / "never").exists()
    assert not (tmp_path / "never.partial").exists()


@pytest.mark.parametrize("damage", ["type", "missing", "table"])
def test_a_copy_that_does_not_fit_its_config_is_named(
    source: Path, tmp_path: Path, damage: str
) -> None:
    folder = quantize(source, tmp_path / "copy", "bsfp8").folder
    name = "text_model.model.layers.0.attention.wo.scale"
    path = next(folder.glob("model-*.safetensors"))
    tensors = load_file(path)
    if damage == "type":
        tensors[name] = tensors[name].half()
    elif damage == "missing":
        del tensors[name]
    else:
        config = json.loads((folder / "config.json").read_bytes())
        name = "text_model.model.layers.0.attention.wo"
        del config["quantization_config"]["formats"][name]
        (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, path)
    with pytest.raises(ModelError, match=name):
        load_model(folder, device="cpu", dtype=torch.float32)

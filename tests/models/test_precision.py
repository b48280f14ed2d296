"""``--dtype``: types, formats that quantise on load, and what ``auto`` takes and when."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import torch

from fishtts.errors import ModelError, UsageError
from fishtts.models import LoadedModel, accepted, load_model
from fishtts.models.dual_ar.net import DualAR
from fishtts.models.precision import load_in, take_accepted
from fishtts.models.quantize_folder import quantize_folder
from fishtts.models.quantized import choose, format_of, quantize_net
from fishtts.verify.command import Request, settle, verify
from fishtts.weights import model_files
from tests.models.test_quantize_folder import model_folder
from tests.models.test_quantized import fitting_values, narrow_values

GPU = "NVIDIA Made Up 1"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return model_folder(tmp_path / "model", fitting_values())


def net_of(model: LoadedModel) -> DualAR:
    assert isinstance(model.net, DualAR)
    return model.net


def loaded(folder: Path) -> LoadedModel:
    return load_model(folder, device="cpu", dtype=torch.bfloat16)


def accept(folder: Path, form: str = "w8a16", gpu: str = GPU) -> Path:
    net = net_of(loaded(folder))
    return accepted.accept(model_files(folder), gpu, choose(net, form, {"audio_decoder.*": "bf16"}))


def test_types_are_taken_as_they_are_and_auto_is_float32_on_a_cpu(folder: Path) -> None:
    accept(folder, gpu="cpu")
    for wish, dtype in (
        ("auto", torch.float32),
        ("float32", torch.float32),
        ("bfloat16", torch.bfloat16),
        ("float16", torch.float16),
    ):
        model = load_in(folder, device="cpu", wish=wish)
        assert model.dtype == dtype
        assert net_of(model).slow.norm.weight.dtype == dtype
        assert format_of(net_of(model)) == "bf16", wish


@pytest.mark.parametrize("form", ["bsfp8", "mxfp8", "w8a16"])
def test_a_format_quantises_on_load(folder: Path, form: str) -> None:
    model = load_in(folder, device="cpu", wish=form)
    assert model.dtype == torch.float32
    wanted = net_of(load_model(folder, device="cpu", dtype=torch.float32))
    quantize_net(wanted, form)
    theirs = wanted.state_dict()
    for name, tensor in net_of(model).state_dict().items():
        assert torch.equal(tensor.view(torch.uint8), theirs[name].view(torch.uint8)), name


def test_what_cannot_be_quantised_on_load_is_refused(folder: Path, tmp_path: Path) -> None:
    quantize_folder(folder, tmp_path / "copy", "bsfp8")
    with pytest.raises(UsageError, match="already"):
        load_in(tmp_path / "copy", device="cpu", wish="w8a16")
    narrow = model_folder(tmp_path / "narrow", narrow_values())
    with pytest.raises(ModelError, match="multiple of 128"):
        load_in(narrow, device="cpu", wish="w8a16")


def test_what_was_accepted_is_taken_with_its_mix_of_layers(folder: Path) -> None:
    model = loaded(folder)
    take_accepted(model, GPU)
    assert format_of(net_of(model)) == "bf16"
    accept(folder)
    take_accepted(model, GPU)
    wanted = net_of(loaded(folder))
    quantize_net(wanted, "w8a16", {"audio_decoder.*": "bf16"})
    assert net_of(model).state_dict().keys() == wanted.state_dict().keys()


@pytest.mark.parametrize("change", ["weights", "copy", "gpu", "kernels", "damaged", "withdrawn"])
def test_what_was_accepted_of_something_else_is_not_taken(
    folder: Path, tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, gpu = accept(folder), GPU
    if change == "weights":
        file = folder / "model.safetensors"
        stat = file.stat()
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1_000_000))
    elif change == "copy":
        folder = shutil.copytree(folder, tmp_path / "other")
    elif change == "gpu":
        gpu = "NVIDIA Made Up 2"
    elif change == "kernels":
        monkeypatch.setattr(accepted, "_program", lambda: "another")
    elif change == "damaged":
        path.write_bytes(path.read_bytes()[:20])
    else:
        accepted.withdraw(model_files(folder), GPU)
        accepted.withdraw(model_files(folder), GPU)
    model = loaded(folder)
    take_accepted(model, gpu)
    assert format_of(net_of(model)) == "bf16"


def test_files_of_the_hubs_cache_go_by_their_hash(folder: Path, tmp_path: Path) -> None:
    """The same blob under another snapshot, fetched anew, is the same model."""
    weights = folder / "model.safetensors"
    blob = tmp_path / ("ab" * 32)
    shutil.move(weights, blob)
    weights.symlink_to(blob)
    accept(folder)
    os.utime(blob, ns=(0, 0))
    snapshot = shutil.copytree(folder, tmp_path / "snapshot", symlinks=True)
    model = loaded(snapshot)
    take_accepted(model, GPU)
    assert format_of(net_of(model)) == "mixed"


def test_a_quantised_copy_stays_what_it_is(folder: Path, tmp_path: Path) -> None:
    copy = quantize_folder(folder, tmp_path / "copy", "bsfp8").folder
    quantization = choose(net_of(loaded(folder)), "w8a16")
    accepted.accept(model_files(copy), GPU, quantization)
    model = loaded(copy)
    take_accepted(model, GPU)
    assert format_of(net_of(model)) == "bsfp8"


def test_a_gate_settles_what_auto_takes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = Request("a-model", ("w8a16",), keep={"audio_decoder.*": "bf16"}, accept=True)
    settle(request, loaded(folder), True, GPU)
    assert "--dtype auto now takes w8a16 for a-model" in capsys.readouterr().err
    files = model_files(folder)
    wanted = choose(net_of(loaded(folder)), "w8a16", request.keep)
    assert accepted.accepted(files, GPU) == wanted
    settle(request, loaded(folder), False, GPU)
    assert accepted.accepted(files, GPU) is None


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request("minnow", ("w8a16",), accept=True, device="cpu"), "for GPUs"),
        (Request("minnow", (), accept=True), "one --format"),
        (Request("minnow", ("w8a16", "bsfp8"), accept=True), "one --format"),
        (Request("minnow", ("w8a16",), random=True, accept=True), "own weights"),
    ],
)
def test_what_cannot_be_accepted_is_refused(request_: Request, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        verify(request_)


@pytest.mark.gpu
def test_auto_on_a_gpu_is_bf16_until_a_format_was_accepted(folder: Path) -> None:
    gpu = torch.cuda.get_device_name()
    model = load_in(folder, device="cuda", wish="auto")
    assert model.dtype == torch.bfloat16
    assert format_of(net_of(model)) == "bf16"
    accept(folder, gpu=gpu)
    assert format_of(net_of(load_in(folder, device="cuda", wish="auto"))) == "mixed"
    assert format_of(net_of(load_in(folder, device="cuda", wish="bfloat16"))) == "bf16"

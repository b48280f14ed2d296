"""What a parcel promises: weights come back bit for bit, in files that are small enough."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from recipes.minnow.parcel import pack, unpack, wait


def weights(root: Path, name: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    tensors = {"a": torch.randn(300, 7).to(dtype), "b.c": torch.randn(()).to(dtype)}
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, root / name, metadata={"seconds": "61.5"})
    return tensors


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_of_sixteen_bits_come_back_as_they_were(tmp_path: Path, dtype: torch.dtype) -> None:
    there, parts, here = (tmp_path / name for name in ("there", "parts", "here"))
    tensors = weights(there, "ar/model.safetensors", dtype)
    (there / "log").mkdir()
    (there / "log" / "ar.log").write_text("step 1\n")
    count = pack(there, ["ar/model.safetensors", "log/*.log", "not/there.yet"], parts, 1000)
    sizes = [path.stat().st_size for path in parts.iterdir()]
    assert len(sizes) == count > 1
    assert max(sizes) <= 1000
    unpack(parts, here)
    back = load_file(here / "ar/model.safetensors")
    assert {k: v.dtype for k, v in back.items()} == dict.fromkeys(tensors, dtype)
    assert all(torch.equal(back[k], v) for k, v in tensors.items())
    with safe_open(here / "ar/model.safetensors", framework="pt") as file:
        assert file.metadata() == {"seconds": "61.5"}
    assert (here / "log/ar.log").read_text() == "step 1\n"


def test_the_command_takes_the_files_after_its_options(tmp_path: Path) -> None:
    weights(tmp_path, "decoder/codec.safetensors", torch.float16)
    (tmp_path / "drive.log").write_text("all done\n")
    (tmp_path / "done").touch()
    program = [sys.executable, "-m", "recipes.minnow.parcel"]
    waiting = ["--wait", "60", "--until", "done,failed"]
    parts = str(tmp_path / "parts")
    ends = ["--out", parts, "decoder/codec.safetensors", "drive.log", "log/*.log"]
    subprocess.run([*program, "pack", "--root", str(tmp_path), *waiting, *ends], check=True)
    here = tmp_path / "here"
    subprocess.run([*program, "unpack", "--parts", parts, "--root", str(here)], check=True)
    assert (here / "decoder/codec.safetensors").exists()
    assert (here / "drive.log").read_text() == "all done\n"


def test_float32_weights_are_rounded_to_float16(tmp_path: Path) -> None:
    tensors = weights(tmp_path, "codec.safetensors", torch.float32)
    pack(tmp_path, ["codec.safetensors"], tmp_path / "parts", 10**6)
    unpack(tmp_path / "parts", tmp_path / "here")
    back = load_file(tmp_path / "here/codec.safetensors")
    assert all(torch.equal(back[k], v.half()) for k, v in tensors.items())


def test_bfloat16_weights_of_a_net_shrink_by_a_quarter_or_more(tmp_path: Path) -> None:
    torch.manual_seed(0)
    save_file({"w": (torch.randn(512, 512) * 0.04).bfloat16()}, tmp_path / "w.safetensors")
    pack(tmp_path, ["w.safetensors"], tmp_path / "parts", 10**7)
    packed = sum(path.stat().st_size for path in (tmp_path / "parts").iterdir())
    assert packed < 0.75 * (tmp_path / "w.safetensors").stat().st_size


def test_a_parcel_never_writes_outside_of_its_folder(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        data = zlib.compress(b"bad")
        member = tarfile.TarInfo("../outside.log")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "part_000.bin").write_bytes(stream.getvalue())
    with pytest.raises(SystemExit, match="no file of ours"):
        unpack(tmp_path / "parts", tmp_path / "root")
    assert not (tmp_path / "outside.log").exists()


def test_waiting_ends_when_the_file_is_there(tmp_path: Path) -> None:
    (tmp_path / "failed").touch()
    wait(tmp_path, ["done", "failed"], 60.0)
    wait(tmp_path, ["done"], 0.0)

"""Weight files: whatever is wrong with one is said with its name, and nothing else is ever run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from fishtts.errors import ModelError
from fishtts.weights import identity, load_into, model_files, read_tensors, tensor_source

INDEX = "model.safetensors.index.json"


def tensors() -> dict[str, Tensor]:
    return {"weight": torch.arange(6.0).view(2, 3), "bias": torch.ones(2)}


def module() -> nn.Module:
    with torch.device("meta"):
        return nn.Linear(3, 2)


def load(*files: Path, dtype: torch.dtype = torch.float32) -> nn.Module:
    net = module()
    load_into(net, files, device="cpu", dtype=dtype)
    return net


def save(folder: Path, kind: str, content: dict[str, Tensor]) -> Path:
    path = folder / f"model.{kind}"
    if kind == "safetensors":
        save_file(content, path)
    else:
        torch.save(content, path)
    return path


both = pytest.mark.parametrize("kind", ["safetensors", "pth"])


@both
def test_a_file_fills_a_module(tmp_path: Path, kind: str) -> None:
    path = save(tmp_path, kind, tensors())
    assert model_files(tmp_path) == [path]
    net = load(path, dtype=torch.bfloat16)
    assert torch.equal(net.weight, tensors()["weight"].bfloat16())
    assert torch.equal(net.bias, tensors()["bias"].bfloat16())


def test_parts_come_before_one_file_and_that_before_a_torch_file(tmp_path: Path) -> None:
    torch_file = save(tmp_path, "pth", tensors())
    assert model_files(tmp_path) == [torch_file]
    one = save(tmp_path, "safetensors", tensors())
    assert model_files(tmp_path) == [one]
    parts = [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    for path, (name, tensor) in zip(parts, tensors().items(), strict=True):
        save_file({name: tensor}, path)
    places = {"weight": "a.safetensors", "bias": "b.safetensors"}
    (tmp_path / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    assert model_files(tmp_path) == parts
    assert torch.equal(load(*parts).weight, tensors()["weight"])


def test_no_weights_at_all(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="holds no weights") as caught:
        model_files(tmp_path)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ("{", "lists no weights"),
        ("{}", "lists no weights"),
        ('{"weight_map": ["a"]}', "lists no weights"),
        ('{"weight_map": {"a": "gone.safetensors"}}', r"gone\.safetensors is missing"),
        ('{"weight_map": {"a": "../outside.safetensors"}}', "outside of its folder"),
    ],
)
def test_an_index_that_cannot_be_followed(tmp_path: Path, index: str, said: str) -> None:
    (tmp_path / INDEX).write_text(index)
    with pytest.raises(ModelError, match=said):
        model_files(tmp_path)


Change = Callable[[dict[str, Tensor]], object]


@both
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.pop("bias"), 'lacks the tensor "bias"'),
        (lambda t: t.update(more=torch.ones(1)), 'more than this model has: the tensor "more"'),
        (lambda t: t.update(bias=torch.ones(3)), r'"bias" has the shape \[3\], and not \[2\]'),
        (lambda t: t.clear() or t.update(x=torch.ones(1)), '"x"'),
    ],
)
def test_tensors_that_do_not_fit(tmp_path: Path, kind: str, change: Change, said: str) -> None:
    content = tensors()
    change(content)
    path = save(tmp_path, kind, content)
    with pytest.raises(ModelError, match=said) as caught:
        load(path)
    assert str(path) in caught.value.message
    assert caught.value.hint


def test_many_missing_tensors_are_counted(tmp_path: Path) -> None:
    path = save(tmp_path, "safetensors", {})
    net = nn.Sequential(*[nn.Linear(1, 1) for _ in range(5)])
    with pytest.raises(ModelError, match=r'the 10 tensors "0\.weight", .* \.\.\.'):
        load_into(net, [path], device="cpu", dtype=torch.float32)


def test_a_tensor_in_two_parts_is_refused(tmp_path: Path) -> None:
    one, two = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    save_file(tensors(), one)
    save_file({"bias": torch.zeros(2)}, two)
    with pytest.raises(ModelError, match=r'"bias" is in .*a\.safetensors and again in'):
        load(one, two)


@both
@pytest.mark.parametrize("kept", [0, 7, 30, 100, -1, -9])
def test_a_file_cut_short_anywhere(tmp_path: Path, kind: str, kept: int) -> None:
    path = save(tmp_path, kind, tensors())
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ModelError, match=rf"model\.{kind} .*(cut short|damaged)") as caught:
        load(path)
    assert caught.value.hint


@both
def test_a_file_of_something_else(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"model.{kind}"
    path.write_bytes(b"<html>404 Not Found</html>" * 100)
    with pytest.raises(ModelError, match=rf"model\.{kind}"):
        load(path)


class Trap:
    """Would make a file if it were unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_nothing_in_a_torch_file_is_run(tmp_path: Path) -> None:
    path, sign = tmp_path / "model.pth", tmp_path / "sprung"
    torch.save({"weight": torch.ones(1), "trap": Trap(sign)}, path)
    with pytest.raises(ModelError, match="something else than tensors"):
        load(path)
    assert not sign.exists()


@pytest.mark.parametrize("content", [[torch.ones(1)], {"weight": 3}, torch.ones(2)])
def test_a_torch_file_without_names_for_its_tensors(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "model.pth")
    with pytest.raises(ModelError, match="something else than tensors by name"):
        read_tensors(tmp_path / "model.pth")


@pytest.mark.parametrize("zipped", [True, False])
def test_torch_files_of_both_formats_and_with_a_state_dict(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "model.pth"
    torch.save({"state_dict": tensors()}, path, _use_new_zipfile_serialization=zipped)
    read = read_tensors(path)
    assert read.keys() == tensors().keys()
    assert all(torch.equal(read[name], tensor) for name, tensor in tensors().items())


@both
def test_what_was_loaded_outlives_its_file(tmp_path: Path, kind: str) -> None:
    path = save(tmp_path, kind, tensors())
    net, read = load(path), read_tensors(path)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.write(b"\xff" * size)
    assert torch.equal(net.weight, tensors()["weight"])
    assert torch.equal(read["weight"], tensors()["weight"])


def test_counts_and_flags_keep_their_dtype(tmp_path: Path) -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("steps", torch.zeros(2, dtype=torch.int64))

    net = Counter()
    path = save(tmp_path, "safetensors", {"steps": torch.tensor([2**40 + 1, 3])})
    load_into(net, [path], device="cpu", dtype=torch.bfloat16)
    assert net.steps.tolist() == [2**40 + 1, 3]


def int8_tensors() -> dict[str, Tensor]:
    codes = torch.tensor([[-127, 0, 64], [1, 2, 127]], dtype=torch.int8)
    return {"weight": codes, "weight_scale": torch.tensor([[0.5], [2.0]]), "bias": torch.ones(2)}


@both
def test_int8_rows_are_their_product_with_the_scales(tmp_path: Path, kind: str) -> None:
    path = save(tmp_path, kind, int8_tensors())
    expected = torch.tensor([[-63.5, 0.0, 32.0], [2.0, 4.0, 254.0]])
    assert torch.equal(load(path).weight, expected)
    assert load(path, dtype=torch.bfloat16).weight.dtype == torch.bfloat16
    read = read_tensors(path)
    assert sorted(read) == ["bias", "weight"]
    assert torch.equal(read["weight"], expected)
    assert torch.equal(tensor_source(module(), [path])("weight"), expected)


@both
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t.pop("weight_scale"), r'"weight" is torch.int8 without "weight_scale"'),
        (lambda t: t.update(weight_scale=torch.ones(3, 1)), r'"weight_scale" is .* \[3, 1\]'),
        (lambda t: t.update(weight_scale=torch.ones(2)), r"and not float32 \[2, 1\]"),
        (lambda t: t.update(weight_scale=torch.ones(2, 1).half()), "is torch.float16"),
        (lambda t: t.update(weight=torch.ones(2, 3)), 'more than this model .* "weight_scale"'),
        (lambda t: t.pop("weight"), 'more than this model has: the tensor "weight_scale"'),
    ],
)
def test_int8_rows_that_make_no_sense(tmp_path: Path, kind: str, change: Change, said: str) -> None:
    content = int8_tensors()
    change(content)
    path = save(tmp_path, kind, content)
    with pytest.raises(ModelError, match=said) as caught:
        load(path)
    assert str(path) in caught.value.message


def test_identity_is_the_content(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"abc")
    two.write_bytes(b"abc")
    assert identity([one]) == identity([two]) == "ba7816bf8f01cfea"
    two.write_bytes(b"abd")
    assert identity([one]) != identity([two])
    assert identity([one, two]) != identity([two, one])
    with pytest.raises(ModelError, match="cannot be read"):
        identity([tmp_path / "gone"])

"""A quantised copy of a model's folder, made offline and in bounded memory.

Owns the order of the work and what is on disk meanwhile: files of weights are written one by one
into a folder beside the target, which is renamed when it is whole; what is there after an
interruption is kept. Knows no number format.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from fishtts.errors import DeviceError, ModelError, OutputError
from fishtts.model_folder import faults
from fishtts.models.dual_ar import empty_net
from fishtts.models.quantized import (
    Quantization,
    choose,
    quantize_unit,
    units,
    weights_of,
)
from fishtts.weights import model_files, tensor_source

_SHARD_BYTES = 500_000_000
"""Weights, as they are read, that are gathered before a file is written."""
_STATE = "quantize.json"
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "model.pth")
Progress = Callable[[int, int], None]
"""Called with the bytes of weights that are done, and with all."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What is read and written together: a unit, or a tensor that stays as it is."""

    name: str
    sources: tuple[str, ...]
    form: str
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Summary:
    """What was made: the folder, bytes of weights before and after, layers in each format."""

    folder: Path
    bytes_before: int
    bytes_after: int
    layers: dict[str, int]


def quantize_folder(
    source: Path,
    target: Path,
    form: str,
    *,
    keep: Mapping[str, str] | None = None,
    is_forced: bool = False,
    progress: Progress = lambda done, total: None,
) -> Summary:
    """Write ``target``, a copy of the model in ``source`` whose layers are FP8.

    ``keep`` is as in ``quantized.choose``. What an interrupted run with the same source and the
    same wishes has left is used.

    Raises: ``ModelError`` for a source that is damaged or quantised already, ``OutputError`` for a
    target that exists or cannot be written, ``DeviceError`` when the disk is full.
    """
    if target.exists() and not is_forced:
        raise OutputError(f"{target} exists.", hint="Choose another folder, or add --force.")
    values = _read_config(source)
    net = empty_net(values)
    quantization = choose(net, form, keep)
    read = tensor_source(net, files := model_files(source))
    shards = _shards(_pieces(net, quantization))
    values["quantization_config"] = quantization.as_dict()
    partial = target.with_name(target.name + ".partial")
    with _writable(target):
        _prepare(partial, _state(files, quantization))
        index = _write_weights(partial, shards, net, read, progress)
        _copy_rest(source, partial)
        _write_json(partial / "model.safetensors.index.json", index)
        _write_json(partial / "config.json", values)
        (partial / _STATE).unlink()
        _put_in_place(partial, target)
    for _, fault in faults(target):
        raise OutputError(f"{target} was not written well: {fault}.")
    return _summary(target, sum(path.stat().st_size for path in files), index, quantization)


def _read_config(source: Path) -> dict[str, Any]:
    for _, fault in faults(source):
        raise ModelError(f"The model cannot be quantised: {fault}.")
    values: dict[str, Any] = json.loads((source / "config.json").read_bytes())
    if "quantization_config" in values:
        raise ModelError(
            f"The model in {source} is quantised already.", hint="Quantise the original."
        )
    return values


def _pieces(net: nn.Module, quantization: Quantization) -> Iterator[Piece]:
    """Every tensor of the net once, in its order; those of a quantised unit together."""
    state = net.state_dict()
    parts: dict[str, Piece] = {}
    for name, module in units(net):
        if form := quantization.formats.get(name):
            sources = tuple(f"{name}.{part}" for part in weights_of(module))
            piece = Piece(name, sources, form, sum(_bytes_of(state[s]) for s in sources))
            parts |= dict.fromkeys(sources, piece)
    for name, tensor in state.items():
        piece = parts.get(name) or Piece(name, (name,), "", _bytes_of(tensor))
        if name == piece.sources[0]:
            yield piece


def _bytes_of(tensor: Tensor) -> int:
    """Bytes of a tensor in 16 bits, as models are published."""
    return 2 * tensor.numel()


def _shards(pieces: Iterator[Piece]) -> list[list[Piece]]:
    """Gather pieces into files of a bounded size."""
    shards: list[list[Piece]] = [[]]
    size = 0
    for piece in pieces:
        if shards[-1] and size + piece.num_bytes > _SHARD_BYTES:
            shards.append([])
            size = 0
        shards[-1].append(piece)
        size += piece.num_bytes
    return shards


def _state(files: list[Path], quantization: Quantization) -> dict[str, Any]:
    """What a run depends on: if it is the same, what lies there may be used."""
    stats = [path.stat() for path in files]
    sources = [
        [path.name, stat.st_size, stat.st_mtime_ns] for path, stat in zip(files, stats, strict=True)
    ]
    return {"sources": sources, "shard_bytes": _SHARD_BYTES, **quantization.as_dict()}


def _prepare(partial: Path, state: dict[str, Any]) -> None:
    """Make the folder of the work, or keep it where it is of the same work."""
    path = partial / _STATE
    if partial.exists():
        try:
            is_same = json.loads(path.read_bytes()) == state
        except (OSError, ValueError):
            raise OutputError(
                f"{partial} is in the way, and not of an interrupted run.", hint="Take it away."
            ) from None
        if is_same:
            return
        shutil.rmtree(partial)
    partial.mkdir(parents=True)
    _write_json(path, state)


def _write_weights(
    partial: Path,
    shards: list[list[Piece]],
    net: nn.Module,
    read: Callable[[str], Tensor],
    progress: Progress,
) -> dict[str, Any]:
    """Write the files that are not there yet; answer their index."""
    total = sum(piece.num_bytes for shard in shards for piece in shard)
    done, places, size = 0, {}, 0
    for number, shard in enumerate(shards, start=1):
        path = partial / f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        if not path.exists():
            tensors: dict[str, Tensor] = {}
            for piece in shard:
                tensors |= _converted(piece, net, read)
                done += piece.num_bytes
                progress(done, total)
            # Named last, so that a file with this name is whole.
            beside = path.with_suffix(".writing")
            save_file(tensors, beside, metadata={"format": "pt"})
            # The library makes files that nobody else may read.
            shutil.copymode(partial / _STATE, beside)
            os.replace(beside, path)
            del tensors
        else:
            done += sum(piece.num_bytes for piece in shard)
            progress(done, total)
        places |= dict.fromkeys(_names(path), path.name)
        size += path.stat().st_size
    return {"metadata": {"total_size": size}, "weight_map": places}


def _names(path: Path) -> list[str]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return list(file.keys())


def _converted(piece: Piece, net: nn.Module, read: Callable[[str], Tensor]) -> dict[str, Tensor]:
    """Read a piece, and quantise it if it is a unit."""
    if not piece.form:
        return {piece.name: read(piece.name).clone()}
    with torch.no_grad():
        dense = net.get_submodule(piece.name)
        state = {part: read(f"{piece.name}.{part}") for part in weights_of(dense)}
        dense.load_state_dict(state, strict=True, assign=True)
        quantized = quantize_unit(dense, piece.form)
        # Nothing of it is needed any more.
        dense.to("meta")
    return {f"{piece.name}.{name}": t for name, t in quantized.state_dict().items()}


def _copy_rest(source: Path, partial: Path) -> None:
    """Copy what is not weights: tokenizer, codec, card, voices."""
    weights = {path.name for path in model_files(source)} | {*_WEIGHTS, "config.json"}
    for path in sorted(source.iterdir()):
        if path.name in weights or path.name.startswith("."):
            continue
        if path.is_dir():
            shutil.copytree(path, partial / path.name, dirs_exist_ok=True)
        else:
            shutil.copy2(path, partial / path.name)


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def _put_in_place(partial: Path, target: Path) -> None:
    """Rename the finished folder; one that is replaced goes only then."""
    old = target.with_name(target.name + ".old")
    if target.exists():
        os.replace(target, old)
    os.replace(partial, target)
    if old.exists():
        shutil.rmtree(old)


def _summary(
    target: Path, bytes_before: int, index: Mapping[str, Any], quantization: Quantization
) -> Summary:
    forms = list(quantization.formats.values())
    layers = {form: forms.count(form) for form in sorted(set(forms))}
    return Summary(target, bytes_before, index["metadata"]["total_size"], layers)


@contextmanager
def _writable(target: Path) -> Iterator[None]:
    """Turn what goes wrong with the disk into words."""
    try:
        yield
    except SafetensorError as error:
        raise OutputError(f"The weights for {target} cannot be written: {error}.") from None
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DeviceError(
                f"The disk is full: {target} is not finished.",
                hint="Free some space and run the command again; what is done is kept.",
            ) from None
        raise OutputError(f"{target} cannot be written: {error.strerror or error}.") from None

"""Codecs: codes <-> samples. Owns what every codec can do, the table of codecs, and their loading.

Does not know how a codec works, nor text, voices or the engine.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Protocol, cast, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn

from fishtts.codec.batched import StepDecoder
from fishtts.errors import ModelError
from fishtts.weights import identity, read_tensors


class CodecStream(Protocol):
    """One signal being decoded. All calls together give ``frames * samples_per_frame`` samples."""

    def push(self, codes: Tensor) -> Tensor:
        """Decode further frames; answers what is final. int64 [C, f] -> float32 [n]."""
        ...

    def finish(self) -> Tensor:
        """End the signal. Answers the samples that were held back."""
        ...


class Codec(Protocol):
    """Turns recordings into codes and codes into samples. Tensors it answers lie on the CPU.

    ``identity`` tells codecs with different weights apart; codes go with one codec only.
    """

    sample_rate: int
    samples_per_frame: int
    num_codebooks: int
    codebook_sizes: tuple[int, ...]
    identity: str

    def encode(self, samples: Tensor) -> Tensor:
        """float32 [N] at ``sample_rate`` -> int64 [C, ceil(N / samples_per_frame)]."""
        ...

    def decode(self, codes: Tensor) -> Tensor:
        """int64 [C, F] -> float32 [F * samples_per_frame], as one stream. Codes are not changed."""
        ...

    def stream(self) -> CodecStream:
        """Begin a signal."""
        ...

    def steps(self, num_slots: int) -> StepDecoder | None:
        """Make a decoder of so many signals beside each other, on the codec's device. ``None``
        where signals are best decoded one by one."""
        ...


@dataclass(frozen=True, slots=True)
class _Kind:
    """Where an architecture lives. ``castable`` names the parts that may run in half precision,
    ``stale`` the tensors that old checkpoints hold and nobody needs."""

    module: str
    codec: str
    config: str
    castable: tuple[str, ...]
    stale: frozenset[str] = frozenset()


_KINDS = {
    "dac": _Kind(
        "fishtts.codec.dac",
        "DacCodec",
        "DacConfig",
        castable=("quantizer.post_module", "quantizer.upsample", "decoder"),
        stale=frozenset(
            f"{transformer}.{buffer}"
            for transformer in (
                "encoder.block.4.block.5",
                "quantizer.pre_module",
                "quantizer.post_module",
            )
            for buffer in ("freqs_cis", "causal_mask")
        ),
    ),
    # Nothing of it is cast: bfloat16 is noise at -38 dB of the signal, and would save 33 MB.
    "spectral": _Kind("fishtts.codec.spectral", "SpectralCodec", "SpectralConfig", castable=()),
}

_WEIGHT_NORM = (
    (".parametrizations.weight.original0", ".parametrizations.weight.original1"),
    (".weight_g", ".weight_v"),
)


def codec_names() -> list[str]:
    """List the architectures that can be loaded."""
    return sorted(_KINDS)


def load_codec(
    folder: Path, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> Codec:
    """Load the codec of a model folder. ``dtype`` is for decoding, where the architecture
    can be cast; encoding is always in float32.

    Raises: ``ModelError`` for files that are missing, damaged, or not what their description says.
    """
    path = next(
        (folder / name for name in ("codec.safetensors", "codec.pth") if (folder / name).is_file()),
        None,
    )
    if path is None:
        raise ModelError(
            f"There is no codec in {folder}: codec.safetensors or codec.pth is missing.",
            hint="Get the model anew, or name another folder.",
        )
    kind, config = _read_description(folder / "codec_config.json")
    codec = cast(nn.Module, getattr(importlib.import_module(kind.module), kind.codec)(config))
    tensors = _without_prefix(read_tensors(path))
    tensors = {name: tensor for name, tensor in tensors.items() if name not in kind.stale}
    _fill(codec, fold_weight_norm(tensors, path), path)
    for part in kind.castable:
        codec.get_submodule(part).to(dtype)
    codec.to(device)
    loaded = cast(Codec, codec)
    loaded.identity = identity([path])
    return loaded


def _read_description(path: Path) -> tuple[_Kind, Any]:
    """Read which architecture and which sizes; without a file, those of S2 Pro."""
    values: Any = {}
    try:
        if path.is_file():
            values = json.loads(path.read_bytes())
        if not isinstance(values, dict):
            raise ValueError("it is not a table of names and values")
        name = values.pop("codec", "dac")
        if name not in _KINDS:
            raise ValueError(f'the codec "{name}" is unknown; known are {", ".join(codec_names())}')
        kind = _KINDS[name]
        config = getattr(importlib.import_module(kind.module), kind.config)
        return kind, read_config(config, values)
    except (ValueError, OSError) as error:
        raise ModelError(
            f"The codec's description {path} cannot be used: {error}.",
            hint="Get the model anew; a newer version may know it.",
        ) from None


def read_config(config: type[Any], values: Mapping[str, Any], where: str = "") -> Any:
    """Fill a frozen record of sizes from JSON values, strictly: known names, numbers of their kind.

    Raises: ``ValueError`` that names the value. The record's own checks raise the same.
    """
    unknown = sorted(set(values) - {entry.name for entry in fields(config)})
    if unknown:
        raise ValueError(f'the key "{where}{unknown[0]}" is unknown')
    hints = get_type_hints(config)
    return config(
        **{key: _config_value(hints[key], value, where + key) for key, value in values.items()}
    )


def _config_value(kind: Any, value: Any, where: str) -> Any:
    if is_dataclass(kind) and isinstance(value, dict):
        return read_config(cast(type[Any], kind), value, f"{where}.")
    if get_origin(kind) is tuple and isinstance(value, list):
        return tuple(_config_value(get_args(kind)[0], item, where) for item in value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is float and is_number and value > 0:
        return value
    # A count may be zero: some stages have no layers.
    if kind is int and is_number and isinstance(value, int) and value >= 0:
        return value
    raise ValueError(f'the value of "{where}" is not of the right kind')


def _without_prefix(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Undo how training wraps a codec: its tensors are named ``generator.*``, among others'."""
    prefix = "generator."
    inner = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
    return inner or tensors


def fold_weight_norm(tensors: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Replace magnitude g and direction v, in either spelling, by the weight g * v / |v|.

    In float32; the norm runs over all axes but the first.

    Raises: ``ModelError`` for half a pair, or a weight that is there already.
    """
    folded = {name: tensor.float() for name, tensor in tensors.items()}
    for magnitude_end, direction_end in _WEIGHT_NORM:
        ends = (magnitude_end, direction_end)
        stems = {name.removesuffix(end) for name in tensors for end in ends if name.endswith(end)}
        for stem in sorted(stems):
            halves = [folded.pop(stem + end, None) for end in ends]
            name = f"{stem}.weight"
            if name in folded:
                raise _misfit(path, name, "is there twice")
            folded[name] = _product(path, stem, *halves)
    return folded


def _product(path: Path, stem: str, magnitude: Tensor | None, direction: Tensor | None) -> Tensor:
    if magnitude is None or direction is None:
        raise _misfit(
            path, f"{stem}.weight", "is half missing: it comes as magnitude and direction"
        )
    if magnitude.shape != (direction.shape[0], *[1] * (direction.ndim - 1)):
        raise _misfit(path, f"{stem}.weight", f"has magnitudes of shape {list(magnitude.shape)}")
    axes = tuple(range(1, direction.ndim))
    length: Tensor = torch.linalg.vector_norm(direction, dim=axes, keepdim=True)
    return direction * (magnitude / length)


def _fill(codec: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Give a codec its weights: each that it has, and no other."""
    expected = codec.state_dict()
    for name in expected:
        if name not in tensors:
            raise _misfit(path, name, "is missing")
    for name, tensor in tensors.items():
        if name not in expected:
            raise _misfit(path, name, "does not belong to this codec")
        if tensor.shape != expected[name].shape:
            shapes = f"has the shape {list(tensor.shape)}, not {list(expected[name].shape)}"
            raise _misfit(path, name, shapes)
    codec.load_state_dict(tensors, assign=True)
    codec.requires_grad_(False).eval()


def _misfit(path: Path, name: str, fault: str) -> ModelError:
    return ModelError(
        f'The codec {path} does not fit its description: the tensor "{name}" {fault}.',
        hint="Get the model anew; codec_config.json and the weights must be from one model.",
    )

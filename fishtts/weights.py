"""Weight files: which to read, their tensors, strict loading, identity.

Knows no architecture: what a file must hold is the module that it is loaded into.

A tensor may be stored in int8 by rows: ``<name>`` int8 [N, ...] and ``<name>_scale`` float32
[N, 1, ...]. Whoever reads ``<name>`` gets their product, float32, and never sees the scale.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from fishtts.errors import ModelError

_REMEDY = "Download or copy the model again."
_INDEX = "model.safetensors.index.json"
_MAX_NAMED = 3
"""How many tensors an error lists before it counts the rest."""
_SCALE = "_scale"


def model_files(folder: Path) -> list[Path]:
    """Find the weights of a language model: index with its parts, one file, or a torch file.

    Raises: ``ModelError`` where there are none, or a part is missing.
    """
    index = folder / _INDEX
    if index.is_file():
        return _parts(index)
    for name in ("model.safetensors", "model.pth"):
        if (folder / name).is_file():
            return [folder / name]
    raise ModelError(
        f"{folder} holds no weights: neither {_INDEX} nor model.safetensors nor model.pth.",
        hint=_REMEDY,
    )


def _parts(index: Path) -> list[Path]:
    try:
        places = json.loads(index.read_bytes())["weight_map"]
        names = sorted(set(places.values()))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ModelError(f"{index} is damaged: it lists no weights.", hint=_REMEDY) from None
    for name in names:
        if Path(name).name != name:
            raise ModelError(f'{index} names a file outside of its folder: "{name}".')
        if not (index.parent / name).is_file():
            raise ModelError(f"{index.parent / name} is missing.", hint=_REMEDY)
    return [index.parent / name for name in names]


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read all tensors of one file. They are copies: the file may be replaced afterwards.

    Raises: ``ModelError`` for a file that is cut short, damaged, or holds something else.
    """
    return {name: tensor.clone() for name, tensor in _Reader(path).tensors()}


def load_into(
    module: nn.Module,
    files: Sequence[Path],
    *,
    device: torch.device | str,
    dtype: torch.dtype,
) -> None:
    """Fill a module, which may be on the meta device, with exactly the tensors of the files.

    Shapes and names are checked before the first tensor is read. Floating-point parameters become
    ``dtype``; buffers (the codes and scales of quantised weights) have types of their own.

    Raises: ``ModelError`` naming the file and the tensor that is missing, unknown, of another
    shape, or unreadable.
    """
    readers = _matching(module, files)
    state: dict[str, Tensor] = {}
    kinds = {name: buffer.dtype for name, buffer in module.named_buffers()}
    for name, reader in readers.items():
        tensor = reader.read(name)
        if name in kinds:
            reader.check_dtype(name, tensor, kinds[name])
            state[name] = tensor.to(device=device, copy=True)
        else:
            reader.check_is_float(name, tensor)
            state[name] = tensor.to(device=device, dtype=dtype, copy=True)
    module.load_state_dict(state, strict=True, assign=True)


def tensor_source(module: nn.Module, files: Sequence[Path]) -> Callable[[str], Tensor]:
    """Open files that hold exactly the tensors of a module, to read them one at a time by name.

    A tensor may be a view of the mapped file.

    Raises: as ``load_into``.
    """
    readers = _matching(module, files)
    return lambda name: readers[name].read(name)


def _matching(module: nn.Module, files: Sequence[Path]) -> dict[str, _Reader]:
    """Find the file of each tensor of a module; there must be one for each, and no others."""
    shapes = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    seen: dict[str, _Reader] = {}
    for reader in [_Reader(path) for path in files]:
        reader.check(shapes)
        for name in reader.names:
            if name in seen:
                raise ModelError(
                    f'The tensor "{name}" is in {seen[name].path} and again in {reader.path}.'
                )
            seen[name] = reader
    if missing := [name for name in shapes if name not in seen]:
        where = files[0] if len(files) == 1 else files[0].parent
        raise ModelError(f"{where} lacks the {_listed(missing)}.", hint=_REMEDY)
    return seen


def identity(files: Sequence[Path]) -> str:
    """Name the content of files: 16 hexadecimal digits of its SHA-256."""
    digest = hashlib.sha256()
    for path in files:
        with _readable(path), path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()[:16]


class _Reader:
    """One file of weights, safetensors or torch. Its tensors may be views of the mapped file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _readable(path):
            self._file: Any = _open(path)
            stored = dict.fromkeys(self._file.keys())
        self._scaled = {n for n in stored if n + _SCALE in stored and self._is_int8(n)}
        scales = {name + _SCALE for name in self._scaled}
        self.names: list[str] = [name for name in stored if name not in scales]

    def check(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Compare names and shapes with those that are expected."""
        if unknown := [name for name in self.names if name not in shapes]:
            raise ModelError(
                f"{self.path} holds more than this model has: the {_listed(unknown)}.",
                hint="Is it the weights file of another model?",
            )
        for name in self.names:
            shape = self._shape(name)
            if shape != shapes[name]:
                raise ModelError(
                    f'{self.path}: the tensor "{name}" has the shape {list(shape)}, and not'
                    f" {list(shapes[name])} as its config says.",
                    hint=_REMEDY,
                )

    def check_dtype(self, name: str, tensor: Tensor, dtype: torch.dtype) -> None:
        """Compare the type of a buffer with the one that is expected."""
        if tensor.dtype != dtype:
            raise ModelError(
                f'{self.path}: the tensor "{name}" is {tensor.dtype}, and not {dtype}.',
                hint=_REMEDY,
            )

    def check_is_float(self, name: str, tensor: Tensor) -> None:
        """Refuse whole numbers where weights are expected."""
        if not tensor.is_floating_point():
            raise ModelError(
                f'{self.path}: the tensor "{name}" is {tensor.dtype} without "{name}{_SCALE}".',
                hint=_REMEDY,
            )

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Read one after another."""
        for name in self.names:
            yield name, self.read(name)

    def read(self, name: str) -> Tensor:
        """Read one, in float32 if it is stored in int8."""
        tensor = self._stored(name)
        if name not in self._scaled:
            return tensor
        scale = self._stored(name + _SCALE)
        rows = (tensor.shape[0], *[1] * (tensor.ndim - 1)) if tensor.ndim else ()
        if scale.dtype != torch.float32 or scale.shape != rows:
            raise ModelError(
                f'{self.path}: the tensor "{name}{_SCALE}" is {scale.dtype} {list(scale.shape)},'
                f" and not float32 {list(rows)}.",
                hint=_REMEDY,
            )
        return tensor.float().mul_(scale)

    def _stored(self, name: str) -> Tensor:
        with _readable(self.path, name):
            tensor: Tensor = self._file[name] if self._is_dict else self._file.get_tensor(name)
        return tensor

    def _is_int8(self, name: str) -> bool:
        with _readable(self.path, name):
            if self._is_dict:
                return bool(self._file[name].dtype == torch.int8)
            return bool(self._file.get_slice(name).get_dtype() == "I8")

    @property
    def _is_dict(self) -> bool:
        return isinstance(self._file, dict)

    def _shape(self, name: str) -> tuple[int, ...]:
        with _readable(self.path, name):
            if self._is_dict:
                return tuple(self._file[name].shape)
            return tuple(self._file.get_slice(name).get_shape())


def _open(path: Path) -> Any:
    """Open a file; nothing in a torch file but tensors is ever unpickled."""
    if path.suffix == ".safetensors":
        return safe_open(path, framework="pt")
    content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    content = content.get("state_dict", content) if isinstance(content, dict) else content
    if not isinstance(content, dict) or not all(torch.is_tensor(t) for t in content.values()):
        raise ModelError(f"{path} holds something else than tensors by name.")
    return dict(content)


@contextmanager
def _readable(path: Path, key: str = "") -> Iterator[None]:
    """Turn what the readers raise for a damaged file into one sentence."""
    where = f'{path}, tensor "{key}",' if key else str(path)
    try:
        yield
    except pickle.UnpicklingError:
        raise ModelError(
            f"{where} cannot be read: it is damaged, or holds something else than tensors.",
            hint=_REMEDY,
        ) from None
    except (SafetensorError, RuntimeError, EOFError, ValueError, KeyError):
        raise ModelError(f"{where} is cut short or damaged.", hint=_REMEDY) from None
    except OSError as error:
        raise ModelError(f"{where} cannot be read: {error.strerror or error}.") from None


def _listed(names: Sequence[str]) -> str:
    """Count tensors and name the first few."""
    shown = ", ".join(f'"{name}"' for name in names[:_MAX_NAMED])
    if len(names) == 1:
        return f"tensor {shown}"
    more = " ..." if len(names) > _MAX_NAMED else ""
    return f"{len(names)} tensors {shown}{more}"

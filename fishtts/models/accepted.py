"""In which format a model was found to hold on a GPU of this machine: what ``auto`` goes by.

Owns the files that remember it, one a model and GPU, and what makes one out of date: other weights,
another GPU, other kernels. Knows nothing of how a model is verified.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from fishtts import kernels
from fishtts.errors import ModelError
from fishtts.models import quantized
from fishtts.models.quantized import Quantization

_HASH_LENGTH = 64


def accept(files: Sequence[Path], gpu: str, quantization: Quantization) -> Path:
    """Remember which layers of the model in ``files`` may be what on a GPU; answers the file."""
    path = _path(files, gpu)
    path.parent.mkdir(parents=True, exist_ok=True)
    values = {"gpu": gpu, "quantization_config": quantization.as_dict()}
    beside = path.with_suffix(f".{os.getpid()}")
    beside.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    os.replace(beside, path)
    return path


def withdraw(files: Sequence[Path], gpu: str) -> None:
    """Forget what was accepted, if anything was."""
    _path(files, gpu).unlink(missing_ok=True)


def accepted(files: Sequence[Path], gpu: str) -> Quantization | None:
    """What was accepted of a model with just these weights, on such a GPU, by this program."""
    try:
        values = json.loads(_path(files, gpu).read_bytes())
        return Quantization.from_dict(values)
    except (OSError, ValueError, AttributeError, ModelError):
        return None  # a file that is not there, or not whole, accepts nothing


def _path(files: Sequence[Path], gpu: str) -> Path:
    from platformdirs import user_cache_path

    digest = hashlib.sha256(f"{gpu}\0{_program()}\0".encode())
    for path in files:
        digest.update(_mark(path).encode())
    return user_cache_path("fishtts", appauthor=False) / "accepted" / f"{digest.hexdigest()}.json"


def _mark(path: Path) -> str:
    """Tell a file's content apart without reading it, which takes seconds at every start: a file
    of the hub's cache is named after its hash, another is told by name, size and time."""
    whole = path.resolve()
    if len(whole.name) == _HASH_LENGTH and set(whole.name) <= set("0123456789abcdef"):
        return f"{path.name}\0{whole.name}\0"
    facts = whole.stat()
    return f"{whole}\0{facts.st_size}\0{facts.st_mtime_ns}\0"


@cache
def _program() -> str:
    """The hash of all that multiplies: whoever changes it has to verify anew."""
    sources = sorted(Path(kernels.__file__).parent.glob("*.py"))
    digest = hashlib.sha256()
    for path in (*sources, Path(quantized.__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()

"""How kernels are run in tests: compiled where there is a CUDA device, else interpreted on the CPU.

The interpreter is chosen before Triton is imported for the first time, which is here: kernels are
what they are from the moment their file is read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from tests.kernels.interpreter import mended

HAS_TRITON = find_spec("triton") is not None
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
IS_INTERPRETED = HAS_TRITON and DEVICE == "cpu"

if IS_INTERPRETED and os.environ.get("TRITON_INTERPRET") != "1":
    assert "triton" not in sys.modules, "imported before the tests could choose its interpreter"
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(scope="session", autouse=True)
def _mended_interpreter() -> Iterator[None]:
    """Let interpreted kernels round like a GPU."""
    with mended() if IS_INTERPRETED else nullcontext():
        yield


@pytest.fixture
def device() -> str:
    """Where kernels run: a CUDA device, or the CPU in Triton's interpreter."""
    return DEVICE


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill what ``torch.empty`` gives with NaN (bytes with 0x7F), so that a gap cannot hide."""
    empty = torch.empty

    def fill(*args: Any, **kwargs: Any) -> torch.Tensor:
        tensor = empty(*args, **kwargs)
        if tensor.dtype.is_floating_point and tensor.dtype.itemsize > 1:
            return tensor.fill_(float("nan"))
        tensor.view(torch.uint8).fill_(0x7F)
        return tensor

    monkeypatch.setattr(torch, "empty", fill)

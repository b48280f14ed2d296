"""How kernels are run in tests: compiled where there is a CUDA device, else interpreted on the CPU.

The interpreter is chosen before Triton is imported for the first time, which is here: kernels are
what they are from the moment their file is read. Its cast to FP8 is replaced by torch's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import torch

HAS_TRITON = find_spec("triton") is not None
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

if HAS_TRITON and DEVICE == "cpu":
    assert "triton" not in sys.modules, "imported before the tests could choose its interpreter"
    os.environ["TRITON_INTERPRET"] = "1"


def saturating_cast(convert: Callable[..., Any]) -> Callable[..., Any]:
    """Mend the interpreter's cast of float32 to E4M3.

    It forgets to carry from the mantissa into the exponent (124.3 became 64) and wraps instead of
    saturating; torch's cast after a clamp does what the hardware does, for every value.
    """
    import triton.language as tl

    def cast(values: Any, source: Any, target: Any, rounding: Any) -> Any:
        if source != tl.float32 or target != tl.float8e4nv:
            return convert(values, source, target, rounding)
        exact = torch.from_numpy(values.copy()).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)
        return exact.view(torch.uint8).numpy()

    return cast


@pytest.fixture(scope="session", autouse=True)
def _exact_fp8_cast() -> Iterator[None]:
    """Let interpreted kernels store FP8 like a GPU."""
    if not HAS_TRITON or DEVICE != "cpu":
        yield
        return
    from triton.runtime import interpreter

    before = interpreter._convert_float
    interpreter._convert_float = saturating_cast(before)
    yield
    interpreter._convert_float = before


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

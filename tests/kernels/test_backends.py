"""The names of the ops, the choice of a backend, and that backends look alike."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest
import torch

from fishtts import kernels
from fishtts.kernels import reference


def test_importing_the_room_imports_no_torch() -> None:
    code = (
        "import sys; from fishtts import kernels; dir(kernels); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", kernels.OPS)
def test_every_backend_has_the_signature_of_the_reference(name: str) -> None:
    backend = pytest.importorskip("fishtts.kernels.triton_backend")
    assert inspect.signature(getattr(backend, name)) == inspect.signature(getattr(reference, name))


def test_no_op_is_hidden_by_a_file_of_its_name() -> None:
    """An imported module becomes an attribute of its package, before ``__getattr__`` is asked."""
    code = (
        "from fishtts import kernels; from fishtts.kernels import backend\n"
        "backend('cuda', 'triton')\n"
        "assert all(callable(getattr(kernels, name)) for name in kernels.OPS)"
    )
    pytest.importorskip("triton")
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_cpu_runs_the_reference_and_names_are_checked() -> None:
    assert kernels.backend("cpu") is reference
    assert kernels.backend(torch.device("cpu")) is reference
    assert kernels.backend("cuda:0", "reference") is reference
    with pytest.raises(ValueError, match="auto, reference, triton"):
        kernels.backend("cpu", "fastest")
    with pytest.raises(AttributeError, match="no_such_op"):
        _ = kernels.no_such_op


def test_an_op_by_name_is_the_reference_on_a_cpu() -> None:
    x = torch.randn(3, 256)
    ours, theirs = kernels.quantize_1x128(x), reference.quantize_1x128(x)
    assert all(torch.equal(a.float(), b.float()) for a, b in zip(ours, theirs, strict=True))
    assert set(kernels.OPS) <= set(dir(kernels))

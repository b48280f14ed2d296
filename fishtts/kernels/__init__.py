"""The ops on FP8 tensors, and which backend runs them: ``from fishtts import kernels``.

Owns the names of the ops (``reference.py`` says what each is) and the choice between the reference
and Triton. Knows no model, no configuration and no environment variable. Loaded when first used:
importing this imports no torch.
"""

from __future__ import annotations

from functools import cache, wraps
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

OPS = (
    "quantize_1x128",
    "quantize_1x32",
    "quantize_128x128",
    "silu_mul",
    "silu_mul_quantize",
    "bsgemm",
    "w8a16_linear",
    "w8a16_swiglu",
    "mxfp8_linear",
    "prev_tokens_shift_",
    "causal_attention",
    "paged_prefill",
    "paged_decode",
    "norm_rope_store",
    "residual_rms_norm",
    "residual_rms_norm_quantize",
    "draw_codes",
    "snake",
    "causal_conv",
    "carry_context_",
    "residual_unit",
    "depthwise_norm",
    "window_attention_",
)
"""Functions that every backend has, with the signatures of ``reference.py``."""

_BACKENDS = {"reference": "fishtts.kernels.reference", "triton": "fishtts.kernels.triton_backend"}


def backend(device: torch.device | str, name: str = "auto") -> ModuleType:
    """Get the module whose functions run the ops on a device.

    ``name`` is auto, reference or triton; auto is Triton on an NVIDIA GPU that computes in FP8
    (Ada, Hopper, Blackwell and later), else the reference.

    Raises: ``ValueError`` for another name, ``ImportError`` where Triton is not installed.
    """
    if name == "auto":
        name = "triton" if has_triton(device) else "reference"
    if name not in _BACKENDS:
        raise ValueError(f'There is no backend "{name}"; there are: auto, {", ".join(_BACKENDS)}.')
    return import_module(_BACKENDS[name])


def has_triton(device: torch.device | str) -> bool:
    """Tell whether a device is a GPU that the Triton kernels run on."""
    return _has_fp8(str(device))


@cache
def _has_fp8(device: str) -> bool:
    if not device.startswith("cuda"):
        return False
    import torch

    return torch.version.cuda is not None and torch.cuda.get_device_capability(device) >= (8, 9)


def __getattr__(name: str) -> Any:
    """An op by name: it runs on the backend of the device that its first tensor is on."""
    if name not in OPS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    specification = getattr(import_module(_BACKENDS["reference"]), name)

    @wraps(specification)
    def op(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return getattr(backend(tensor.device), name)(tensor, *args, **kwargs)

    globals()[name] = op
    return op


def __dir__() -> list[str]:
    return sorted({*globals(), *OPS})

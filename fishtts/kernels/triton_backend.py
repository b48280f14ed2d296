"""The launchers of the Triton kernels under the names of ``reference.py``.

Owns nothing but the list. Imports Triton: only where it is installed.
"""

from __future__ import annotations

from fishtts.kernels.bsgemm import bsgemm, w8a16_linear
from fishtts.kernels.mxfp8 import mxfp8_linear
from fishtts.kernels.prev_tokens_triton import prev_tokens_shift_
from fishtts.kernels.quantize import (
    quantize_1x32,
    quantize_1x128,
    quantize_128x128,
    silu_mul_quantize,
)

__all__ = [
    "bsgemm",
    "mxfp8_linear",
    "prev_tokens_shift_",
    "quantize_1x32",
    "quantize_1x128",
    "quantize_128x128",
    "silu_mul_quantize",
    "w8a16_linear",
]

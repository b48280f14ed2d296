"""The launchers of the Triton kernels under the names of ``reference.py``.

Owns nothing but the list. Imports Triton: only where it is installed.
"""

from __future__ import annotations

from fishtts.kernels.block_scaled import bsgemm, w8a16_linear, w8a16_swiglu
from fishtts.kernels.convolution import causal_conv, residual_unit
from fishtts.kernels.flash_attention import causal_attention, paged_prefill
from fishtts.kernels.flash_decode import paged_decode
from fishtts.kernels.mxfp8 import mxfp8_linear
from fishtts.kernels.prev_tokens_triton import prev_tokens_shift_
from fishtts.kernels.quantize import (
    quantize_1x32,
    quantize_1x128,
    quantize_128x128,
    silu_mul,
    silu_mul_quantize,
)
from fishtts.kernels.rms_norm import residual_rms_norm, residual_rms_norm_quantize
from fishtts.kernels.sampling import draw_codes
from fishtts.kernels.signals import carry_context_, depthwise_norm, snake
from fishtts.kernels.store_kv import norm_rope_store
from fishtts.kernels.window_attention import window_attention_

__all__ = [
    "bsgemm",
    "carry_context_",
    "causal_attention",
    "causal_conv",
    "depthwise_norm",
    "draw_codes",
    "mxfp8_linear",
    "norm_rope_store",
    "paged_decode",
    "paged_prefill",
    "prev_tokens_shift_",
    "quantize_1x32",
    "quantize_1x128",
    "quantize_128x128",
    "residual_rms_norm",
    "residual_rms_norm_quantize",
    "residual_unit",
    "silu_mul",
    "silu_mul_quantize",
    "snake",
    "w8a16_linear",
    "w8a16_swiglu",
    "window_attention_",
]

"""What the compile gates compile of a convolutional decoder, for each kind of GPU.

Run as a program (``python -m tests.kernels.convolution_variants``) it compiles all of them and
prints a JSON object of reports by name.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from tests.kernels.attention_variants import SHARED_BYTES
from tests.kernels.compiling import Variant, compile_variant
from tests.kernels.variants import BLACKWELL, HOPPER

LAYERS = {
    "first": (1536, 1024, 7, 1),
    "up": (6144, 1536, 2, 8),
    "wide": (768, 768, 7, 1),
    "wide384": (384, 384, 7, 1),
    "pointwise": (384, 384, 1, 1),
    "last_up": (192, 192, 2, 2),
    "wide96": (96, 96, 7, 1),
    "last": (1, 96, 7, 1),
    "product": (1024, 3072, 1, 1),
}
"""Channels out and in, taps, stride of S2's decoder: each tile of the plans once."""
_SIZES = dict.fromkeys(("num_rows", "signal_length", "length", "wave_stride", "dilation"), "i32")
_ODD = ("num_rows", "signal_length", "length", "dilation")


def variants() -> Iterator[Variant]:
    """Every variant; names end in the compute capability."""
    for capability in (HOPPER, BLACKWELL):
        for layer in LAYERS:
            yield _conv(capability, layer)
        for channels in (192, 96):
            yield from _unit(capability, channels)
        yield _window(capability)
        yield _depthwise(capability)


def _descriptors(plan: Any) -> tuple[dict[str, str], dict[str, Any]]:
    types = {
        "signal_desc": f"tensordesc<fp16[{plan.block_m}, {plan.block_k}]>",
        "weight_desc": f"tensordesc<fp16[{plan.block_n}, {plan.block_k}]>",
    }
    constants: dict[str, Any] = {
        "WHOLE_TILES": True,
        "BLOCK_M": plan.block_m,
        "BLOCK_N": plan.block_n,
        "EXTRA_N": plan.extra_n,
        "BLOCK_K": plan.block_k,
        "STAGES": plan.num_stages,
    }
    if plan.extra_n:
        types["extra_desc"] = f"tensordesc<fp16[{plan.extra_n}, {plan.block_k}]>"
    else:
        constants["extra_desc"] = None
    return types, constants


def _conv(capability: int, layer: str) -> Variant:
    from fishtts.kernels.convolution import causal_conv_kernel
    from fishtts.kernels.convolution_plans import plan_conv

    num_out, num_in, taps, stride = LAYERS[layer]
    plan = plan_conv(num_out, num_in, taps, SHARED_BYTES[capability])
    types, constants = _descriptors(plan)
    # Products add, wide convolutions only activate, the last one does neither.
    pointers = {"bias_ptr": "*fp32"}
    if layer != "last":
        pointers |= {"alpha_ptr": "*fp32", "wave_ptr": "*fp16"}
    if taps < 7:
        pointers |= {"total_ptr": "*fp16"}
    if taps == 1:
        pointers |= {"residual_ptr": "*fp16"}
    if layer == "last":
        pointers |= {"total_ptr": "*fp32"}
    absent = {"alpha_ptr", "wave_ptr", "total_ptr", "residual_ptr"} - set(pointers)
    constants |= dict.fromkeys(absent)
    constants |= {"COLUMNS": num_in, "OUT": num_out, "CHANNELS": num_out // stride, "TAPS": taps}
    return Variant(
        f"conv_{layer}_{capability}",
        causal_conv_kernel,
        types | pointers | _SIZES,
        constants,
        capability,
        num_warps=plan.num_warps,
        num_stages=plan.num_stages,
        odd=_ODD,
    )


def _unit(capability: int, channels: int) -> Iterator[Variant]:
    from fishtts.kernels.convolution import residual_unit_kernel
    from fishtts.kernels.convolution_plans import plan_unit

    plan = plan_unit(channels, SHARED_BYTES[capability])
    if plan is None:
        return
    types, constants = _descriptors(plan)
    floats = ("bias_ptr", "inner_alpha_ptr", "pointwise_bias_ptr", "alpha_ptr")
    halves = ("residual_ptr", "total_ptr", "wave_ptr")
    n, extra = plan.block_n, plan.extra_n
    parts = {
        "pointwise_desc": (n, n),
        "to_extra_desc": (extra, n),
        "from_extra_desc": (n, extra),
        "within_extra_desc": (extra, extra),
    }
    types |= {
        name: f"tensordesc<fp16[{rows}, {columns}]>" for name, (rows, columns) in parts.items()
    }
    yield Variant(
        f"unit_{channels}_{capability}",
        residual_unit_kernel,
        types | dict.fromkeys(floats, "*fp32") | dict.fromkeys(halves, "*fp16") | _SIZES,
        constants | {"CHANNELS": channels, "TAPS": 7},
        capability,
        num_warps=plan.num_warps,
        num_stages=plan.num_stages,
        odd=_ODD,
    )


def _window(capability: int) -> Variant:
    from fishtts.kernels.window_attention import window_attention_kernel

    halves = ("qkv_ptr", "key_ptr", "value_ptr", "out_ptr")
    return Variant(
        f"window_{capability}",
        window_attention_kernel,
        {
            **dict.fromkeys(halves, "*fp16"),
            **dict.fromkeys(("slot_ptr", "position_ptr"), "*i64"),
            **dict.fromkeys(("cosine_ptr", "sine_ptr"), "*fp32"),
            "to_log2": "fp32",
        },
        {
            "LENGTH": 8,
            "HEADS": 16,
            "SIZE": 64,
            "RING": 136,
            "WINDOW": 128,
            "BLOCK_T": 16,
            "BLOCK_S": 64,
            "PRECISION": "ieee",
        },
        capability,
    )


def _depthwise(capability: int) -> Variant:
    from fishtts.kernels.signals import depthwise_norm_kernel

    floats = ("weight_ptr", "bias_ptr", "norm_weight_ptr", "norm_bias_ptr")
    return Variant(
        f"depthwise_{capability}",
        depthwise_norm_kernel,
        {
            **dict.fromkeys(("signal_ptr", "out_ptr"), "*fp16"),
            **dict.fromkeys(floats, "*fp32"),
            "eps": "fp32",
            **dict.fromkeys(("signal_length", "length"), "i32"),
        },
        {"CHANNELS": 1024, "TAPS": 7, "BLOCK": 1024},
        capability,
        odd=("signal_length", "length"),
    )


def main() -> None:
    reports = {variant.name: asdict(compile_variant(variant)) for variant in variants()}
    json.dump(reports, sys.stdout)


if __name__ == "__main__":
    main()

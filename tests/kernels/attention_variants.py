"""What the compile gates compile of the attention and of the small ops, for each kind of GPU.

Run as a program (``python -m tests.kernels.attention_variants``) it compiles all of them and prints
a JSON object of reports by name.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict

from tests.kernels.compiling import Variant, compile_variant
from tests.kernels.variants import BLACKWELL, HOPPER

SHARED_BYTES = {HOPPER: 227 * 1024, BLACKWELL: 99 * 1024}
_GROUPS, _GROUP, _SIZE = 8, 4, 128


def variants() -> Iterator[Variant]:
    """Every variant; names end in the compute capability."""
    for capability in (HOPPER, BLACKWELL):
        for kind, page in (("bf16", 16), ("fp8", 64), ("fp8_products", 16)):
            yield _decode(capability, kind, page)
            yield _prefill(capability, kind, 64)
        yield _shift(capability)
        yield _store(capability, fp8=False)
        yield _store(capability, fp8=True)
        yield _norm(capability, 128)
        yield _draw(capability, "fp32", 2)
        yield _draw(capability, "bf16", 1)
        yield _prefill(capability, "plain", 64)
    yield _prefill(HOPPER, "bf16", 128)


def _pages(kind: str) -> tuple[dict[str, str], dict[str, object]]:
    """Types and constants of what both attention kernels are given."""
    codes = "*bf16" if kind in ("bf16", "plain") else "*fp8e4nv"
    types = {"q_ptr": "*bf16", "key_ptr": codes, "value_ptr": codes, "out_ptr": "*bf16"}
    constants: dict[str, object] = {
        "G": _GROUPS,
        "GROUP": _GROUP,
        "D": _SIZE,
        "BLOCK_T": 64,
        "FP8": codes != "*bf16",
        "FP8_PRODUCTS": kind == "fp8_products",
        "PRECISION": "tf32",
        "PDL": True,
    }
    scales = ("key_scale_ptr", "value_scale_ptr")
    if codes == "*bf16":
        constants |= dict.fromkeys(scales)
    else:
        types |= dict.fromkeys(scales, "*fp32")
    return types, constants


def _gpu(capability: int):
    from fishtts.kernels.plans import Gpu

    return Gpu(132, SHARED_BYTES[capability], has_tma=True)


def _decode(capability: int, kind: str, page: int) -> Variant:
    from fishtts.kernels.attention_plans import plan_decode
    from fishtts.kernels.flash_decode import decode_kernel

    types, constants = _pages(kind)
    row_bytes = _SIZE * (2 if kind == "bf16" else 1)
    plan = plan_decode(_GROUPS, 1024, row_bytes, _gpu(capability))
    return Variant(
        f"decode_{kind}_page{page}_{capability}",
        decode_kernel,
        {
            **types,
            "table_ptr": "*i32",
            "length_ptr": "*i32",
            "partial_ptr": "*fp32",
            "total_ptr": "*fp32",
            "counter_ptr": "*i32",
            "to_log2": "fp32",
            "max_pages": "i32",
            "chunk": "i32",
        },
        {
            **constants,
            "PAGE": page,
            "BLOCK_R": 16,
            "STAGES": plan.num_stages,
            "IS_SPLIT": True,
        },
        capability,
        num_stages=plan.num_stages,
        use_pdl=True,
        odd=("max_pages", "chunk"),
    )


def _prefill(capability: int, kind: str, block_m: int) -> Variant:
    from fishtts.kernels.attention_plans import plan_prefill
    from fishtts.kernels.flash_attention import prefill_kernel

    types, constants = _pages(kind)
    rows = 64 if block_m == 64 else 10**6
    plan = plan_prefill(rows, 2 * _SIZE, _gpu(capability))
    assert plan.block_m == block_m
    strides = [f"{name}_stride_{axis}" for name in ("key", "value") for axis in "btg"]
    strides += [f"q_stride_{axis}" for axis in "bth"]
    tables = ("table_ptr", "length_ptr", "start_ptr")
    if kind == "plain":
        constants |= dict.fromkeys(tables)
    else:
        types |= dict.fromkeys(tables, "*i32")
    sizes = ("max_pages", "num_queries", "num_positions")
    return Variant(
        f"prefill_{kind}_{block_m}_{capability}",
        prefill_kernel,
        {**types, "to_log2": "fp32", **dict.fromkeys((*sizes, *strides), "i32")},
        {
            **constants,
            "PAGE": 0 if kind == "plain" else 16,
            "BLOCK_M": block_m,
            "STAGES": plan.num_stages,
        },
        capability,
        num_warps=plan.num_warps,
        num_stages=plan.num_stages,
        use_pdl=True,
        odd=sizes,
    )


def _shift(capability: int) -> Variant:
    from fishtts.kernels.prev_tokens_triton import shift_kernel

    return Variant(
        f"shift_{capability}",
        shift_kernel,
        {"previous_ptr": "*i32", "new_ptr": "*i32", "width": "i32", "num_columns": "i32"},
        {"BLOCK_W": 16, "BLOCK_C": 16},
        capability,
        num_warps=1,
        odd=("width", "num_columns"),
    )


def _store(capability: int, *, fp8: bool) -> Variant:
    from fishtts.kernels.store_kv import norm_rope_store_kernel

    codes = "*fp8e4nv" if fp8 else "*bf16"
    weights = {"cos_ptr": "*fp32", "sin_ptr": "*fp32", "q_weight_ptr": "*bf16"}
    types = {"position_ptr": "*i32", "table_ptr": "*i32", **weights, "k_weight_ptr": "*bf16"}
    types |= {"qkv_ptr": "*bf16", "q_ptr": "*bf16", "key_ptr": codes, "value_ptr": codes}
    constants: dict[str, object] = {"request_ptr": None}
    scales = ("key_scale_ptr", "value_scale_ptr")
    if fp8:
        types |= dict.fromkeys(scales, "*fp32")
    else:
        constants |= dict.fromkeys(scales)
    heads = {"H": _GROUPS * _GROUP, "G": _GROUPS, "D": _SIZE, "PAGE": 16, "HEADS": 4}
    return Variant(
        f"store_{'fp8' if fp8 else 'bf16'}_{capability}",
        norm_rope_store_kernel,
        {**types, "eps": "fp32", "max_pages": "i32"},
        {**constants, **heads, "NORM": True, "FP8": fp8, "PDL": True},
        capability,
        num_warps=2,
        use_pdl=True,
        odd=("max_pages",),
    )


def _norm(capability: int, group: int) -> Variant:
    from fishtts.kernels.rms_norm import rms_norm_kernel

    types = dict.fromkeys(("x_ptr", "residual_ptr", "weight_ptr", "total_ptr"), "*bf16")
    return Variant(
        f"norm_{group}_{capability}",
        rms_norm_kernel,
        {
            **types,
            "out_ptr": "*fp8e4nv",
            "scale_ptr": "*fp32",
            "eps": "fp32",
            "num_rows": "i32",
            "num_columns": "i32",
        },
        {
            "GROUP": group,
            "GROUPS": 32,
            "QUANTIZED": True,
            "POWER_OF_TWO": False,
            "ROUND_UP": True,
            "PDL": True,
        },
        capability,
        num_warps=8,
        use_pdl=True,
        odd=("num_rows",),
    )


def _draw(capability: int, dtype: str, draws: int) -> Variant:
    from fishtts.kernels.sampling import draw_kernel

    sizes = ("num_ids", "row_stride", "key_stride", "window_stride_b", "window_stride_w")
    sizes = (*sizes, "max_top_k", "width", "last_row")
    return Variant(
        f"draw_{dtype}_{draws}_{capability}",
        draw_kernel,
        {
            **{"logits_ptr": f"*{dtype}", "key_ptr": "*i64", "out_ptr": "*i64"},
            **{"temperature_ptr": "*fp32", "top_p_ptr": "*fp32", "top_k_ptr": "*i32"},
            **{"window_ptr": "*i32", "embedding_ptr": "*bf16", "embedded_ptr": "*bf16"},
            **dict.fromkeys((*sizes, "first_id", "end_id"), "i32"),
        },
        {
            **{"DRAWS": draws, "K": 32, "BLOCK_V": 8192, "BLOCK_W": 16},
            **{"E": 2560, "BLOCK_E": 4096, "PDL": True},
        },
        capability,
        num_warps=16,
        use_pdl=True,
        odd=(*sizes, "first_id", "end_id"),
    )


def main() -> None:
    reports = {variant.name: asdict(compile_variant(variant)) for variant in variants()}
    json.dump(reports, sys.stdout)


if __name__ == "__main__":
    main()

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
    yield _prefill(HOPPER, "bf16", 128)
    yield _prefill(HOPPER, "plain", 64)


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


def main() -> None:
    reports = {variant.name: asdict(compile_variant(variant)) for variant in variants()}
    json.dump(reports, sys.stdout)


if __name__ == "__main__":
    main()

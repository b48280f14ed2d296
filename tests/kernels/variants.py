"""What the compile gates compile: each kernel in the forms that matter, for each kind of GPU."""

from __future__ import annotations

from collections.abc import Iterator

from fishtts.kernels.plans import stages_that_fit
from tests.kernels.compiling import Variant

_SIZES = {"first_token": "i32", "num_tokens": "i32", "num_rows": "i32", "num_columns": "i32"}
HOPPER, DATA_CENTRE_BLACKWELL, BLACKWELL = 90, 100, 120


def variants() -> Iterator[Variant]:
    """Every variant; names end in the compute capability."""
    for capability in (HOPPER, BLACKWELL):
        yield from _quantisers(capability)
        for block_m in (16, 64):
            yield _product(capability, 64, block_m, quantized=True)
            yield _mxfp8(capability, block_m)
        yield _product(capability, 64, 16, quantized=False)
        yield _product(capability, 64, 16, quantized=False, with_swiglu=True)
    yield _product(HOPPER, 64, 16, quantized=True, splits=1, use_tma=False)
    yield _product(HOPPER, 128, 64, quantized=True)
    yield _product(HOPPER, 128, 128, quantized=True, splits=1)
    yield _product(DATA_CENTRE_BLACKWELL, 64, 16, quantized=True)
    yield _product(DATA_CENTRE_BLACKWELL, 64, 16, quantized=False)
    yield _mxfp8(DATA_CENTRE_BLACKWELL, 16)


def _quantisers(capability: int) -> Iterator[Variant]:
    from fishtts.kernels.quantize import quantize_blocks_kernel, quantize_kernel

    for name, group, swiglu in (("1x128", 128, False), ("1x32", 32, False), ("silu", 128, True)):
        scale = "*fp32" if group == 128 else "*u8"
        types = {"x_ptr": "*bf16", "codes_ptr": "*fp8e4nv", "scale_ptr": scale}
        yield Variant(
            f"quantize_{name}_{capability}",
            quantize_kernel,
            {**types, "num_rows": "i32", "num_groups": "i32"},
            {
                "GROUP": group,
                "GROUPS": 4 * 128 // group,
                "SWIGLU": swiglu,
                "POWER_OF_TWO": False,
                "ROUND_UP": True,
                "PDL": True,
            },
            capability,
            use_pdl=True,
            odd=("num_rows", "num_groups"),
        )
    types = {"x_ptr": "*bf16", "codes_ptr": "*fp8e4nv", "scale_ptr": "*fp32"}
    yield Variant(
        f"quantize_128x128_{capability}",
        quantize_blocks_kernel,
        {**types, "num_rows": "i32", "num_columns": "i32"},
        {"POWER_OF_TWO": False},
        capability,
        num_warps=8,
    )


def _product(
    capability: int,
    block_n: int,
    block_m: int,
    *,
    quantized: bool,
    splits: int = 4,
    use_tma: bool = True,
    with_swiglu: bool = False,
) -> Variant:
    from fishtts.kernels.block_scaled import block_scaled_kernel

    kind_of_x = "fp8e4nv" if quantized else "bf16"
    desc = f"tensordesc<fp8e4nv[{block_n}, 128]>" if use_tma else "*fp8e4nv"
    stages = _stages(capability, block_n, block_m, 1 if quantized else 2)
    kind = "bsgemm" if quantized else "w8a16_swiglu" if with_swiglu else "w8a16"
    return Variant(
        f"{kind}_{block_n}x{block_m}{'' if use_tma else '_pointers'}_{capability}",
        block_scaled_kernel,
        {
            "x_ptr": f"*{kind_of_x}",
            "x_desc": f"tensordesc<{kind_of_x}[{block_m}, 128]>" if use_tma else f"*{kind_of_x}",
            "x_scale_ptr": "*fp32",
            "weight_ptr": "*fp8e4nv",
            "weight_desc": desc,
            "weight_scale_ptr": "*fp32",
            "out_ptr": "*bf16",
            "partial_ptr": "*fp32",
            "counter_ptr": "*i32",
            **_SIZES,
        },
        {
            "BLOCK_N": block_n,
            "BLOCK_M": block_m,
            "SPLIT": splits > 1,
            "STAGES": stages,
            "QUANTIZED": quantized,
            "SWIGLU": with_swiglu,
            "TMA": use_tma,
            "X_TMA": use_tma,
            "PDL": use_tma,
            "PREFETCH": 4,
        },
        capability,
        num_warps=8 if block_n > 64 else 4,
        num_stages=stages,
        use_pdl=use_tma,
    )


def _mxfp8(capability: int, block_m: int) -> Variant:
    from fishtts.kernels.mxfp8 import mxfp8_kernel

    native = capability >= 100
    exponents = "*u8" if native else "*i32"
    stages = _stages(capability, 64, block_m, 1)
    return Variant(
        f"mxfp8_64x{block_m}_{capability}",
        mxfp8_kernel,
        {
            "x_ptr": "*fp8e4nv",
            "x_exponent_ptr": exponents,
            "weight_ptr": "*fp8e4nv",
            "weight_exponent_ptr": exponents,
            "out_ptr": "*bf16",
            "partial_ptr": "*fp32",
            "counter_ptr": "*i32",
            **_SIZES,
        },
        {
            "BLOCK_N": 64,
            "BLOCK_M": block_m,
            "SPLIT": True,
            "STAGES": stages,
            "NATIVE": native,
            "PDL": True,
            "PREFETCH": 4,
        },
        capability,
        num_stages=stages,
        use_pdl=True,
    )


def _stages(capability: int, block_n: int, block_m: int, token_bytes: int) -> int:
    """The depth that a plan for such a GPU would choose."""
    shared_bytes = (99 if capability == BLACKWELL else 227) * 1024
    return stages_that_fit(block_n, block_m, token_bytes, shared_bytes)

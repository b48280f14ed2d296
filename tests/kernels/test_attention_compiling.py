"""Attention and the small ops compile for GPUs that are not here. Compiled, not run."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from tests.kernels.attention_variants import SHARED_BYTES, variants
from tests.kernels.compiling import reports_of
from tests.kernels.variants import BLACKWELL, HOPPER

VARIANTS = {variant.name: variant for variant in variants()}


@pytest.fixture(scope="module")
def reports() -> dict[str, dict]:
    return reports_of("tests.kernels.attention_variants")


@pytest.mark.parametrize("name", VARIANTS)
def test_nothing_spills_and_shared_memory_fits(name: str, reports: dict[str, dict]) -> None:
    report = reports[name]
    assert report["local_bytes"] == 0
    assert report["shared_bytes"] <= SHARED_BYTES[VARIANTS[name].capability]


@pytest.mark.parametrize("name", [name for name, v in VARIANTS.items() if v.use_pdl])
def test_with_pdl_only_weights_are_read_before_the_wait(
    name: str, reports: dict[str, dict]
) -> None:
    counts = reports[name]["instructions"]
    assert counts["pdl_wait"] == counts["pdl_launch"] == 1
    # A norm's weight does not depend on the kernel before.
    assert (reports[name]["reads_before_wait"] > 0) == name.startswith("norm")


@pytest.mark.parametrize("kernel", ["decode", "prefill"])
def test_the_matrix_unit_multiplies_in_the_type_it_was_asked_to(
    kernel: str, reports: dict[str, dict]
) -> None:
    for name, report in reports.items():
        if not name.startswith(kernel):
            continue
        counts = report["instructions"]
        in_fp8 = counts["wgmma_e4m3"] + counts["mma_e4m3"]
        in_16_bits = counts["wgmma_bf16"] + counts["mma_bf16"]
        assert (in_fp8 > 0) == ("fp8_products" in name), name
        assert (in_16_bits > 0) == ("fp8_products" not in name), name
        assert counts["mma_f16"] == 0, name
        in_groups = counts["wgmma_e4m3"] + counts["wgmma_bf16"]
        assert (in_groups > 0) == name.endswith(str(HOPPER)), name


@pytest.mark.parametrize("capability", [HOPPER, BLACKWELL])
def test_keys_and_values_come_in_the_background(capability: int, reports: dict[str, dict]) -> None:
    bf16 = reports[f"decode_bf16_page16_{capability}"]["instructions"]
    products = reports[f"decode_fp8_products_page16_{capability}"]["instructions"]
    # 16 bytes a thread, of two tiles of 64 x 128 in 128 threads, once before the loop and once in
    # it. On sm_120 bf16 values wait in registers instead.
    assert bf16["cp_async"] >= (2 * 16 if capability == HOPPER else 16)
    assert products["cp_async"] >= 2 * 8

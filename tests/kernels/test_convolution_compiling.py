"""A convolutional decoder's kernels compile for GPUs that are not here. Compiled, not run."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from tests.kernels.attention_variants import SHARED_BYTES
from tests.kernels.compiling import reports_of
from tests.kernels.convolution_variants import variants
from tests.kernels.variants import HOPPER

VARIANTS = {variant.name: variant for variant in variants()}


@pytest.fixture(scope="module")
def reports() -> dict[str, dict]:
    return reports_of("tests.kernels.convolution_variants")


@pytest.mark.parametrize("name", VARIANTS)
def test_nothing_spills_and_shared_memory_fits(name: str, reports: dict[str, dict]) -> None:
    report = reports[name]
    # The tile of 128 x 128 in four warps puts two words away where two results are written, and is
    # still the fastest of all that were timed.
    assert report["local_bytes"] <= (8 if name == f"conv_up_{HOPPER}" else 0)
    assert report["shared_bytes"] <= SHARED_BYTES[VARIANTS[name].capability]


@pytest.mark.parametrize("name", [name for name in VARIANTS if name.startswith(("conv", "unit"))])
def test_signals_come_by_tma_and_are_multiplied_in_half_precision(
    name: str, reports: dict[str, dict]
) -> None:
    counts = reports[name]["instructions"]
    assert counts["tma_load"] > 0
    product = "wgmma_f16" if VARIANTS[name].capability == HOPPER else "mma_f16"
    assert counts[product] > 0

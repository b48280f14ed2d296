"""Every kernel compiles for GPUs that are not here, to the instructions it was written for.

Compiled, not run: that the machine code computes the right thing is for a GPU to say.
"""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

import triton

from tests.kernels.compiling import reports_of
from tests.kernels.variants import BLACKWELL, DATA_CENTRE_BLACKWELL, HOPPER, variants

HAS_OLD_PTXAS = tuple(map(int, triton.__version__.split(".")[:2])) < (3, 9)
NAMES = [variant.name for variant in variants()]


@pytest.fixture(scope="module")
def reports() -> dict[str, dict]:
    return reports_of("tests.kernels.compiling")


@pytest.mark.parametrize("name", NAMES)
def test_nothing_spills_and_shared_memory_fits(name: str, reports: dict[str, dict]) -> None:
    report = reports[name]
    is_120 = name.endswith(str(BLACKWELL))
    # The compiler of Triton 3.6 and 3.7 (CUDA 12.8) puts up to four words away on sm_120.
    assert report["local_bytes"] <= (16 if is_120 and HAS_OLD_PTXAS else 0)
    assert report["shared_bytes"] <= (99 if is_120 else 227) * 1024


@pytest.mark.parametrize("name", [name for name in NAMES if "pointers" not in name])
def test_with_pdl_only_weights_are_fetched_before_the_wait(
    name: str, reports: dict[str, dict]
) -> None:
    counts = reports[name]["instructions"]
    if name.startswith("quantize_128x128"):
        assert counts["pdl_wait"] == 0
        return
    assert counts["pdl_wait"] == counts["pdl_launch"] == 1
    assert reports[name]["reads_before_wait"] == 0
    assert (counts["prefetch"] > 0) == ("quantize" not in name)


@pytest.mark.parametrize("tile", ["64x16", "64x64"])
def test_hopper_multiplies_fp8_in_its_warpgroups(tile: str, reports: dict[str, dict]) -> None:
    product = reports[f"bsgemm_{tile}_{HOPPER}"]["instructions"]
    assert product["wgmma_e4m3"] == 4  # 128 columns, 32 each
    assert product["tma_load"] > 0
    assert product["mma_f16"] == product["mma_bf16"] == 0
    in_groups = reports[f"mxfp8_{tile}_{HOPPER}"]["instructions"]
    assert in_groups["wgmma_e4m3"] == 4
    assert reports[f"w8a16_64x16_{HOPPER}"]["instructions"]["wgmma_bf16"] == 8


def test_hopper_without_tma_copies_in_the_background(reports: dict[str, dict]) -> None:
    counts = reports[f"bsgemm_64x16_pointers_{HOPPER}"]["instructions"]
    assert counts["tma_load"] == 0
    assert counts["cp_async"] > 0
    assert counts["wgmma_e4m3"] == 4


@pytest.mark.parametrize("tile", ["64x16", "64x64"])
def test_blackwell_scales_blocks_in_its_matrix_instruction(
    tile: str, reports: dict[str, dict]
) -> None:
    scaled = reports[f"mxfp8_{tile}_{BLACKWELL}"]["instructions"]
    assert scaled["mma_block_scale"] > 0
    assert scaled["mma_bf16"] == scaled["mma_f16"] == 0
    product = reports[f"bsgemm_{tile}_{BLACKWELL}"]["instructions"]
    assert product["mma_e4m3"] > 0
    assert product["tma_load"] > 0


@pytest.mark.parametrize("kind", ["bsgemm", "w8a16", "mxfp8"])
def test_data_centre_blackwell_compiles(kind: str, reports: dict[str, dict]) -> None:
    """B200 and B300: labelled so, compiled and never run."""
    counts = reports[f"{kind}_64x16_{DATA_CENTRE_BLACKWELL}"]["instructions"]
    assert counts["tcgen05_mma"] > 0

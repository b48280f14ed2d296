"""How products are cut: valid for every size, full of work, and blind to the batch when asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fishtts.kernels.launch import MAX_TILES
from fishtts.kernels.plans import BLOCK_K, Gpu, plan_product

H200 = Gpu(132, 227 * 1024, True)
UNKNOWN = Gpu(130, 227 * 1024, True)
RTX_5090 = Gpu(170, 99 * 1024, True)
AMPERE = Gpu(108, 163 * 1024, False)

sizes = st.tuples(
    st.integers(1, 8192),
    st.integers(1, 20_000),
    st.integers(1, 100).map(lambda blocks: blocks * 128),
    st.sampled_from([H200, UNKNOWN, RTX_5090, AMPERE]),
    st.sampled_from([1, 2]),
)


@given(sizes, st.booleans())
def test_every_plan_fits_its_gpu(size: tuple[int, int, int, Gpu, int], deterministic: bool) -> None:
    m, n, k, gpu, token_bytes = size
    plan = plan_product(m, n, k, gpu, token_bytes=token_bytes, deterministic=deterministic)
    assert plan.block_n in (64, 128)
    assert plan.block_m in (16, 32, 64, 128)
    assert plan.num_stages >= 2
    stage_bytes = BLOCK_K * (plan.block_n + plan.block_m * token_bytes)
    assert plan.num_stages * stage_bytes < gpu.shared_bytes
    assert 1 <= plan.splits <= k // BLOCK_K
    assert plan.use_tma == gpu.has_tma
    # More sums of a thread would not fit into registers.
    assert plan.block_n * plan.block_m <= 64 * 32 * plan.num_warps
    if plan.splits > 1 and not deterministic:
        assert -(-n // plan.block_n) * -(-m // plan.block_m) <= MAX_TILES


@given(sizes, st.integers(1, 8192))
def test_deterministic_plans_ignore_the_number_of_tokens(
    size: tuple[int, int, int, Gpu, int], other: int
) -> None:
    m, n, k, gpu, token_bytes = size
    one, two = (
        plan_product(tokens, n, k, gpu, token_bytes=token_bytes, deterministic=True)
        for tokens in (m, other)
    )
    assert one == two


@pytest.mark.parametrize(
    ("num_rows", "num_columns"), [(6144, 2560), (2560, 4096), (19456, 2560), (2560, 9728)]
)
@pytest.mark.parametrize("num_tokens", [1, 16, 64])
def test_the_layers_of_s2_pro_keep_every_processor_busy(
    num_rows: int, num_columns: int, num_tokens: int
) -> None:
    """By the estimates, on a GPU of which nothing was measured."""
    plan = plan_product(num_tokens, num_rows, num_columns, UNKNOWN)
    programs = -(-num_rows // plan.block_n) * plan.splits
    assert programs >= UNKNOWN.num_processors
    # 4.3 TB/s at about 0.8 us of latency: 26 KB in flight to a processor.
    assert (plan.num_stages - 1) * plan.block_n * BLOCK_K >= 26 * 1024


def test_what_was_measured_counts_where_it_was_measured() -> None:
    measured = plan_product(64, 2560, 4096, H200)
    assert (measured.block_n, measured.splits, measured.num_warps) == (128, 6, 8)
    for other in (
        plan_product(64, 2560, 4096, UNKNOWN),
        plan_product(64, 2560, 4096, H200, token_bytes=2),
        plan_product(64, 2560, 4096, H200, deterministic=True),
        plan_product(64, 2560, 4224, H200),
    ):
        assert (other.block_n, other.num_warps) == (64, 4)


def test_many_tiles_are_not_split() -> None:
    assert plan_product(4096, 19456, 2560, H200).splits == 1

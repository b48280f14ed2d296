"""How attention is cut: pure functions, so every size can be asked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fishtts.kernels.attention_plans import (
    BLOCK_T,
    DETERMINISTIC_CHUNK,
    MAX_CHUNKS,
    plan_decode,
    plan_prefill,
)
from fishtts.kernels.plans import Gpu

HOPPER, BLACKWELL = Gpu(132, 227 * 1024, True), Gpu(170, 99 * 1024, True)
gpus = st.sampled_from([HOPPER, BLACKWELL])
pairs, lengths = st.integers(1, 2048), st.integers(0, 32768)
row_bytes = st.sampled_from([64, 128, 256])


@given(num_pairs=pairs, length=lengths, size=row_bytes, gpu=gpus, fixed=st.booleans())
def test_every_position_has_a_chunk(
    num_pairs: int, length: int, size: int, gpu: Gpu, fixed: bool
) -> None:
    plan = plan_decode(num_pairs, length, size, gpu, deterministic=fixed)
    assert plan.chunk % BLOCK_T == 0
    assert plan.chunk * plan.num_chunks >= length
    assert plan.chunk * (plan.num_chunks - 1) < max(length, 1)
    assert plan.is_split or plan.num_chunks == 1
    assert 1 <= plan.num_chunks <= MAX_CHUNKS


@given(num_pairs=pairs, length=lengths, size=row_bytes, gpu=gpus)
def test_a_deterministic_chunk_knows_nothing_of_the_batch(
    num_pairs: int, length: int, size: int, gpu: Gpu
) -> None:
    plan = plan_decode(num_pairs, length, size, gpu, deterministic=True)
    alone = plan_decode(1, 1, size, gpu, deterministic=True)
    assert plan.chunk == DETERMINISTIC_CHUNK
    assert plan.is_split
    assert (plan.num_stages, plan.num_warps) == (alone.num_stages, alone.num_warps)


@given(size=row_bytes, gpu=gpus, num_pairs=pairs, length=lengths)
def test_what_is_on_its_way_fits_into_shared_memory(
    size: int, gpu: Gpu, num_pairs: int, length: int
) -> None:
    plan = plan_decode(num_pairs, length, size, gpu)
    tiles = (plan.num_stages - 1) // 2 + 1
    assert tiles * 2 * BLOCK_T * size < gpu.shared_bytes


def test_few_requests_of_a_usual_length_feed_the_gpu() -> None:
    for context in (512, 1024, 2048):
        plan = plan_decode(8, context, 128, HOPPER)
        assert 8 * plan.num_chunks >= 64
    assert plan_decode(64 * 8, 1024, 128, HOPPER).num_chunks <= 4


@given(rows=st.integers(1, 10**6), size=row_bytes, gpu=gpus)
def test_a_deterministic_prefill_has_one_tile_for_all(rows: int, size: int, gpu: Gpu) -> None:
    plan = plan_prefill(rows, size, gpu, deterministic=True)
    assert plan == plan_prefill(1, size, gpu)

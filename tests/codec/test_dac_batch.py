"""S2's codec in steps of many streams, against whole decoding."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fishtts.codec.dac import DacCodec
from fishtts.codec.dac_batch import DacBatch, FusedConvolve

CHUNK = 4
SNR_DB = {torch.float16: 45.0, torch.bfloat16: 28.0}
"""Signal against error of the tiny codec, whose noise is as hard to keep as any signal's: 50 and
32 dB were seen."""


def batch_of(codec: DacCodec, dtype: torch.dtype = torch.float32, chunk: int = CHUNK) -> DacBatch:
    return DacBatch(codec, num_slots=3, chunk_frames=chunk, dtype=dtype)


def stepped(batch: DacBatch, codes: Tensor, slot: int = 1) -> Tensor:
    """Decode one signal by itself."""
    samples, chunk = [], batch.chunk_frames
    for start in range(0, codes.shape[1], chunk):
        step = codes[None, :, start : start + chunk].contiguous()
        samples.append(batch.decode(step, torch.tensor([slot]), torch.tensor([start]))[0])
    return torch.cat(samples)


def snr_db(made: Tensor, wanted: Tensor) -> float:
    error = (made - wanted).square().mean()
    return float(10 * torch.log10(wanted.square().mean() / error))


@pytest.mark.parametrize("chunk", [4, 10])
def test_in_float32_steps_give_the_samples_of_whole_decoding(
    codec: DacCodec, goldens: dict[str, Tensor], chunk: int
) -> None:
    codes = goldens["dec_a.codes"][:, :20]
    made = stepped(batch_of(codec, chunk=chunk), codes)
    torch.testing.assert_close(made, codec.decode(codes), rtol=0, atol=1e-5)


@pytest.mark.parametrize("by_units", [True, False])
@pytest.mark.parametrize("dtype", SNR_DB)
def test_in_half_precision_the_error_is_bounded(
    codec: DacCodec, goldens: dict[str, Tensor], dtype: torch.dtype, by_units: bool
) -> None:
    codes = goldens["dec_a.codes"][:, :20]
    batch = DacBatch(
        codec,
        num_slots=2,
        chunk_frames=CHUNK,
        dtype=dtype,
        convolve=FusedConvolve(by_units=by_units),
    )
    assert snr_db(stepped(batch, codes), codec.decode(codes)) > SNR_DB[dtype]


def test_rows_at_different_positions_are_as_each_alone(
    codec: DacCodec, goldens: dict[str, Tensor]
) -> None:
    first = goldens["dec_a.codes"]
    second = first.flip(1)[:, :12]
    batch = batch_of(codec)
    made: list[Tensor] = [stepped(batch, first[:, :CHUNK], slot=2)]
    other: list[Tensor] = []
    for start in (4, 8, 12):
        # One has begun a step before the other, and they lie the other way round in the step.
        step = torch.stack((second[:, start - 4 : start], first[:, start : start + 4]))
        rows = batch.decode(step, torch.tensor([0, 2]), torch.tensor([start - 4, start]))
        other.append(rows[0])
        made.append(rows[1])
    for samples, codes in ((made, first[:, :16]), (other, second)):
        whole = torch.cat(samples)
        torch.testing.assert_close(whole, stepped(batch_of(codec), codes), rtol=0, atol=1e-5)


def test_a_slot_forgets_who_was_there(codec: DacCodec, goldens: dict[str, Tensor]) -> None:
    first, second = goldens["dec_a.codes"][:, :16], goldens["dec_ar.codes"][:, :8]
    batch = batch_of(codec)
    stepped(batch, first)
    assert torch.equal(stepped(batch, second), stepped(batch_of(codec), second))


def test_rows_that_are_nobody_s_change_nothing(codec: DacCodec, goldens: dict[str, Tensor]) -> None:
    codes = goldens["dec_a.codes"][:, :8]
    batch = batch_of(codec)
    made = [stepped(batch, codes[:, :4])]
    batch.decode(*batch.idle(2))
    step = codes[None, :, 4:].contiguous()
    made.append(batch.decode(step, torch.tensor([1]), torch.tensor([4]))[0])
    assert torch.equal(torch.cat(made), stepped(batch_of(codec), codes))


def test_a_codec_on_a_cpu_decodes_one_by_one(codec: DacCodec) -> None:
    assert codec.steps(4) is None

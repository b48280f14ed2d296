"""The codec of `minnow`: causal, exactly streamable, and the shape of what it answers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fishtts.codec.spectral import SpectralCodec, SpectralConfig

SMALL = SpectralConfig(
    num_mels=20,
    encoder_dim=16,
    encoder_layers=1,
    encoder_frame_layers=1,
    latent_dim=16,
    decoder_dim=16,
    decoder_frame_layers=1,
    decoder_layers=2,
    codebook_dim=4,
    semantic_codebook_size=32,
    num_residual_codebooks=3,
    residual_codebook_size=16,
)


@pytest.fixture(scope="module")
def codec() -> SpectralCodec:
    torch.manual_seed(0)
    return SpectralCodec(SMALL).eval()


@pytest.fixture(scope="module")
def codes() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 16, (4, 21), generator=generator)


def streamed(codec: SpectralCodec, codes: Tensor, size: int) -> list[Tensor]:
    stream = codec.stream()
    parts = [stream.push(part) for part in codes.split(size, dim=1)]
    return [*parts, stream.finish()]


@pytest.mark.parametrize("size", [1, 3, 7, 21])
def test_a_stream_is_the_whole_decode(codec: SpectralCodec, codes: Tensor, size: int) -> None:
    whole = codec.decode(codes)
    assert whole.shape == (21 * SMALL.samples_per_frame,)
    parts = streamed(codec, codes, size)
    # One float32 rounding: a matrix product of other height may sum in another order.
    assert (torch.cat(parts) - whole).abs().max() < 1e-6


def test_a_stream_is_late_by_less_than_its_window(codec: SpectralCodec, codes: Tensor) -> None:
    first = codec.stream().push(codes[:, :1])
    assert SMALL.samples_per_frame - len(first) < SMALL.window


def test_decode_leaves_the_callers_codes_alone(codec: SpectralCodec) -> None:
    wild = torch.full((4, 3), 40)
    codec.decode(wild)
    assert (wild == 40).all()


def test_what_comes_later_changes_nothing_before(codec: SpectralCodec) -> None:
    generator = torch.Generator().manual_seed(2)
    samples = torch.randn(9 * SMALL.samples_per_frame, generator=generator) * 0.1
    whole = codec.encode(samples)
    assert whole.shape == (4, 9)
    assert torch.equal(codec.encode(samples[: 5 * SMALL.samples_per_frame]), whole[:, :5])
    # A frame that is not full counts as one.
    assert codec.encode(samples[: 4 * SMALL.samples_per_frame + 1]).shape == (4, 5)


def test_two_streams_do_not_meet(codec: SpectralCodec, codes: Tensor) -> None:
    alone = torch.cat(streamed(codec, codes, 3))
    one, two = codec.stream(), codec.stream()
    mixed = []
    for part in codes.split(3, dim=1):
        mixed.append(one.push(part))
        two.push(part.flip(0).clamp(max=15))
    assert torch.equal(torch.cat([*mixed, one.finish()]), alone)


def test_training_and_streaming_agree(codec: SpectralCodec, codes: Tensor) -> None:
    with torch.inference_mode():
        z = codec.quantizer.decode(codes[None]).transpose(1, 2)
        trained = codec.synthesise(z)[0].clamp(-1, 1)
    assert (trained - codec.decode(codes)).abs().max() < 1e-6


def test_nothing_in_nothing_out(codec: SpectralCodec) -> None:
    assert codec.decode(torch.zeros(4, 0, dtype=torch.int64)).shape == (0,)

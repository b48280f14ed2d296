"""The codec against the reference implementation, and the promises of its streams."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from fishtts.codec import load_codec
from fishtts.codec.dac import DacCodec, DacConfig, DacStream
from fishtts.codec.transformer import rotation_table
from fishtts.errors import ModelError
from tests.fakes import GOLDEN

# The reference's own kernels differ among themselves by 7e-6.
ATOL = 1e-5

ENCODE_STAGES = {
    "enc_block0": "encoder.block.0",
    "enc_block1": "encoder.block.1",
    "enc_transformer": "encoder.block.4.block.5",
    "encoder": "encoder",
    "downsample": "quantizer.downsample",
    "pre_module": "quantizer.pre_module",
}
DECODE_STAGES = {
    "post_module": "quantizer.post_module",
    "upsample": "quantizer.upsample",
    "dec_block0": "decoder.model.0",
    "dec_block1": "decoder.model.1",
}


class Tap:
    """Keeps what a layer answers, step after step."""

    def __init__(self, layer: nn.Module) -> None:
        self._steps: list[Tensor] = []
        self._handle = layer.register_forward_hook(self._keep)

    def _keep(self, layer: nn.Module, inputs: object, output: Tensor) -> None:
        self._steps.append(output.clone())

    def take(self) -> Tensor:
        self._handle.remove()
        return torch.cat(self._steps, dim=-1)


def tap(codec: nn.Module, stages: dict[str, str]) -> dict[str, Tap]:
    return {stage: Tap(codec.get_submodule(layer)) for stage, layer in stages.items()}


def wave(goldens: dict[str, Tensor], case: str) -> Tensor:
    stored = goldens.get(f"{case}.wave")
    return (goldens[f"{case}.wave_f16"] if stored is None else stored).float()


def pushed(stream: DacStream, codes: Tensor, sizes: Sequence[int]) -> Tensor:
    """Decode codes that arrive in pieces of these sizes, again and again."""
    samples, start = [], 0
    while start < codes.shape[1]:
        for size in sizes:
            samples.append(stream.push(codes[:, start : start + size]))
            start += size
    return torch.cat([*samples, stream.finish()])


@pytest.mark.parametrize("case", ["enc_a", "enc_b", "enc_c"])
def test_encode_gives_the_codes_of_the_reference(
    codec: DacCodec, goldens: dict[str, Tensor], case: str
) -> None:
    codes = codec.encode(wave(goldens, case))
    assert codes.dtype == torch.int64
    assert torch.equal(codes, goldens[f"{case}.codes"])


@pytest.mark.parametrize(
    ("case", "stages"), [("enc_a", list(ENCODE_STAGES)), ("enc_b", ["pre_module"])]
)
def test_stages_of_encode(
    codec: DacCodec, goldens: dict[str, Tensor], case: str, stages: list[str]
) -> None:
    taps = tap(codec, {stage: ENCODE_STAGES[stage] for stage in stages})
    codec.encode(wave(goldens, case))
    for stage, kept in taps.items():
        expected = goldens[f"{case}.{stage}"]
        # The first two stages are stored for their first 512 positions only.
        torch.testing.assert_close(
            kept.take()[..., : expected.shape[-1]], expected, atol=ATOL, rtol=1e-5, msg=stage
        )


@pytest.mark.parametrize(
    ("codes", "samples"),
    [
        ("dec_a.codes", "dec_a.wave"),
        ("dec_clamp.codes", "dec_clamp.wave"),
        ("dec_ar.codes", "dec_ar.wave"),
        ("enc_a.codes", "roundtrip_a.wave"),
    ],
)
def test_decode_gives_the_samples_of_the_reference(
    codec: DacCodec, goldens: dict[str, Tensor], codes: str, samples: str
) -> None:
    decoded = codec.decode(goldens[codes])
    assert decoded.dtype == torch.float32
    torch.testing.assert_close(decoded, goldens[samples], atol=ATOL, rtol=0)


def test_stages_of_decode(codec: DacCodec, goldens: dict[str, Tensor]) -> None:
    taps = tap(codec, DECODE_STAGES)
    codec.decode(goldens["dec_a.codes"])
    for stage, kept in taps.items():
        torch.testing.assert_close(
            kept.take(), goldens[f"dec_a.{stage}"], atol=ATOL, rtol=1e-5, msg=stage
        )
    z = codec.quantizer.decode(goldens["dec_a.codes"][None])
    torch.testing.assert_close(z, goldens["dec_a.z"], atol=ATOL, rtol=0)


def test_codes_beyond_a_codebook_stay_as_the_caller_has_them(
    codec: DacCodec, goldens: dict[str, Tensor]
) -> None:
    codes = goldens["dec_clamp.codes"].clone()
    assert codes[1:].max() > 15
    codec.decode(codes)
    assert torch.equal(codes, goldens["dec_clamp.codes"])


def test_rotation_is_rounded_as_in_training(goldens: dict[str, Tensor]) -> None:
    table = torch.view_as_real(rotation_table(64, 10000, 0, 64))
    assert torch.equal(table, goldens["rope.table_first64"].float())
    assert torch.equal(table[40:], torch.view_as_real(rotation_table(64, 10000, 40, 24)))


@pytest.mark.parametrize("sizes", [(1,), (3,), (4,), (7,), (20,), (2, 0, 5)])
def test_streamed_audio_is_the_whole_audio_sample_for_sample(
    codec: DacCodec, goldens: dict[str, Tensor], sizes: tuple[int, ...]
) -> None:
    codes = goldens["dec_a.codes"][:, :19]
    assert torch.equal(pushed(codec.stream(), codes, sizes), codec.decode(codes))


@pytest.mark.parametrize("num_frames", [1, 5, 13])
def test_what_follows_changes_nothing(
    codec: DacCodec, goldens: dict[str, Tensor], num_frames: int
) -> None:
    codes = goldens["dec_a.codes"]
    start = codec.decode(codes)[: num_frames * codec.samples_per_frame]
    assert torch.equal(codec.decode(codes[:, :num_frames]), start)


def test_streams_do_not_disturb_each_other(codec: DacCodec, goldens: dict[str, Tensor]) -> None:
    first, second = goldens["dec_a.codes"][:, :8], goldens["dec_ar.codes"][:, :8]
    streams = [codec.stream(), codec.stream()]
    made: list[list[Tensor]] = [[], []]
    for start in (0, 4):
        for codes, stream, samples in zip((first, second), streams, made, strict=True):
            samples.append(stream.push(codes[:, start : start + 4]))
    assert torch.equal(torch.cat(made[0]), codec.decode(first))
    assert torch.equal(torch.cat(made[1]), codec.decode(second))


def test_a_stream_holds_no_more_the_longer_it_runs(
    codec: DacCodec, goldens: dict[str, Tensor]
) -> None:
    stream, held = codec.stream(), []
    for _ in range(4):
        stream.push(goldens["dec_a.codes"])
        held.append(stream.num_bytes)
    assert held[0] > 0
    assert len(set(held)) == 1


def test_nothing_in_nothing_out(codec: DacCodec) -> None:
    codes = codec.encode(torch.zeros(0))
    assert codes.shape == (codec.num_codebooks, 0)
    assert codec.decode(codes).shape == (0,)


def test_a_finished_stream_takes_no_more(codec: DacCodec, goldens: dict[str, Tensor]) -> None:
    stream = codec.stream()
    stream.push(goldens["dec_a.codes"][:, :2])
    assert len(stream.finish()) == 2 * codec.samples_per_frame
    assert len(stream.finish()) == 0
    with pytest.raises(AssertionError, match="finished"):
        stream.push(goldens["dec_a.codes"])


@pytest.mark.parametrize(
    "codes", [torch.zeros(9, 3, dtype=torch.int64), torch.full((10, 3), -1), torch.zeros(10)]
)
def test_codes_of_another_codec_are_refused(codec: DacCodec, codes: Tensor) -> None:
    with pytest.raises(ModelError, match="10 codebooks"):
        codec.decode(codes)


def test_half_precision_is_for_decoding_only(codec: DacCodec, goldens: dict[str, Tensor]) -> None:
    half = load_codec(GOLDEN, dtype=torch.bfloat16)
    assert torch.equal(half.encode(wave(goldens, "enc_a")), goldens["enc_a.codes"])
    samples = half.decode(goldens["dec_a.codes"])
    assert samples.dtype == torch.float32
    expected = goldens["dec_a.wave"]
    # Eight bits of mantissa through some forty layers.
    assert (samples - expected).square().mean() < 1e-3 * expected.square().mean()
    assert not torch.equal(samples, codec.decode(goldens["dec_a.codes"]))


def test_full_size_has_the_tensors_of_the_checkpoint() -> None:
    tensors = DacCodec(DacConfig()).state_dict()
    assert all(tensor.is_meta for tensor in tensors.values())
    # The checkpoint holds each of these as a magnitude, one a row, and a direction.
    normed = [
        name
        for name in tensors
        if name.endswith("_proj.weight")
        or (name.startswith(("encoder.", "decoder.")) and name.endswith(".conv.weight"))
    ]
    assert len(tensors) + len(normed) == 535
    magnitudes = sum(tensors[name].shape[0] for name in normed)
    assert sum(tensor.numel() for tensor in tensors.values()) + magnitudes == 391_430_530


@pytest.mark.gpu
def test_a_gpu_says_the_same(goldens: dict[str, Tensor]) -> None:
    codec = load_codec(GOLDEN, device="cuda")
    for case in ("enc_a", "enc_b", "enc_c"):
        assert torch.equal(codec.encode(wave(goldens, case)), goldens[f"{case}.codes"])
    codes = goldens["dec_a.codes"]
    torch.testing.assert_close(codec.decode(codes), goldens["dec_a.wave"], atol=1e-4, rtol=0)
    stream = codec.stream()
    assert isinstance(stream, DacStream)
    assert torch.equal(pushed(stream, codes, (3,)), codec.decode(codes))

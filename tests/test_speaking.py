"""Units that are decoded beside each other, against whole decoding of their codes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pytest
import torch

from fishtts.codec import Codec, load_codec
from fishtts.codec.batched import BatchDecoder, step_sizes
from fishtts.codec.dac import DacCodec
from fishtts.codec.dac_batch import DacBatch
from fishtts.config import EngineConfig
from fishtts.engine.engine import Engine
from fishtts.engine.graphs import EagerSteps
from fishtts.engine.runner import Runner
from fishtts.models import load_model
from fishtts.plan import PlannedUnit
from fishtts.speaking import Speaking, Try, UnitInWork, batch_decoder
from fishtts.types import Samples, SamplingParams, Unit
from tests.fakes import GOLDEN, tiny_voice

MAX_BATCH = 4
TEXTS = ["One.", "Two and three.", "Four, five, six.", "Seven.", "Eight and nine.", "Ten, at last."]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
SNR_DB = {"cpu": 90.0, "cuda": 45.0}
"""Signal against error: float32 in another order of sums; float16, see ``test_dac_batch.py``."""


@cache
def codec_of(device: str) -> Codec:
    return load_codec(GOLDEN, device=device)


def decoder_of(device: str, *, deterministic: bool) -> BatchDecoder:
    """What a GPU has, and the same without graphs and in float32 for a CPU."""
    codec = codec_of(device)
    if device == "cpu":
        assert isinstance(codec, DacCodec)
        batch = DacBatch(codec, num_slots=MAX_BATCH + 2, chunk_frames=4, dtype=torch.float32)
        sizes = [MAX_BATCH] if deterministic else step_sizes(MAX_BATCH)
        return BatchDecoder(batch, EagerSteps(torch.device("cpu")), sizes)
    made = batch_decoder(codec, MAX_BATCH, deterministic=deterministic)
    assert made is not None
    return made


def speaking_of(
    device: str, decoder: BatchDecoder | None = None, *, deterministic: bool = False
) -> Speaking:
    model = load_model(GOLDEN, device=device, dtype=torch.float32)
    config = EngineConfig(device, "float32", MAX_BATCH, deterministic)
    decoder = decoder or decoder_of(device, deterministic=deterministic)
    engine = Engine(Runner(model, config), checked=True)
    return Speaking(model, codec_of(device), engine, decoder=decoder)


def unit_of(text: str, *, live: bool = False, retries: int = 0) -> UnitInWork:
    planned = PlannedUnit(Unit(text, text), seed=len(text), expected_s=1.0)
    params = SamplingParams(max_frames=8 + len(text))
    return UnitInWork(planned, tiny_voice("v").references, params, retries=retries, live=live)


def spoken(speaking: Speaking, units: Sequence[UnitInWork]) -> Iterator[tuple[list[Samples], Try]]:
    """Speak units, some of them beginning while others are at work."""
    waiting, out = list(units), {id(unit): [] for unit in units}
    kept: dict[int, Try] = {}
    while len(kept) < len(units):
        while waiting and speaking.num_units < MAX_BATCH:
            speaking.start(waiting.pop(0))
        speaking.step()
        for unit in units:
            while unit.items:
                item = unit.items.popleft()
                if isinstance(item, Try):
                    kept[id(unit)] = item
                else:
                    out[id(unit)].append(item)
    for unit in units:
        yield out[id(unit)], kept[id(unit)]


def snr_db(made: Samples, wanted: Samples) -> float:
    error = np.square(made - wanted).mean(dtype=np.float64)
    return float(10 * np.log10(np.square(wanted).mean(dtype=np.float64) / max(error, 1e-30)))


@pytest.mark.parametrize("device", DEVICES)
def test_units_beside_each_other_have_the_samples_of_whole_decoding(device: str) -> None:
    codec = codec_of(device)
    units = [unit_of(text, retries=index % 2) for index, text in enumerate(TEXTS)]
    for _, result in spoken(speaking_of(device), units):
        num_frames = result.codes.shape[1]
        assert num_frames > 0
        assert len(result.samples) == num_frames * codec.samples_per_frame
        wanted = codec.decode(torch.from_numpy(result.codes)).numpy()
        assert snr_db(result.samples, wanted) > SNR_DB[device]


@pytest.mark.parametrize("device", DEVICES)
def test_what_goes_out_while_it_is_made_is_all_of_it(device: str) -> None:
    units = [unit_of(TEXTS[2] * 2, live=True), unit_of(TEXTS[1])]
    (chunks, result), _ = spoken(speaking_of(device), units)
    # On a GPU samples may come when the last frame is made already.
    assert result.is_out or device != "cpu"
    if result.is_out:
        assert len(chunks) > 1
        assert np.array_equal(np.concatenate(chunks), result.samples)


@pytest.mark.parametrize("device", DEVICES)
def test_deterministic_samples_are_the_same_alone_and_in_a_crowd(device: str) -> None:
    crowd = spoken(speaking_of(device, deterministic=True), [unit_of(text) for text in TEXTS])
    together = [result.samples.tobytes() for _, result in crowd]
    for text, samples in zip(TEXTS[:3], together, strict=False):
        ((_, alone),) = spoken(speaking_of(device, deterministic=True), [unit_of(text)])
        assert alone.samples.tobytes() == samples


def test_who_is_given_up_leaves_no_signal_behind() -> None:
    decoder = decoder_of("cpu", deterministic=False)
    speaking = speaking_of("cpu", decoder)
    units = [unit_of(text) for text in TEXTS[:3]]
    for unit in units:
        speaking.start(unit)
    for _ in range(7):
        speaking.step()
    speaking.drop(units[1])
    while speaking.num_units or not (units[0].items and units[2].items):
        speaking.step()
    assert not units[1].items
    # Neither the given-up nor the finished ones are left with the decoder.
    assert decoder.num_signals == 0


def test_on_a_cpu_units_are_decoded_one_by_one() -> None:
    assert batch_decoder(codec_of("cpu"), MAX_BATCH, deterministic=False) is None

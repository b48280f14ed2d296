"""How a voice is heard: its clips first, at one rate, else its codes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fishtts.cloning.likeness import describe, heard
from fishtts.cloning.speaker_encoder import identity
from fishtts.types import Audio, Reference, Voice
from tests.fakes import CountingCodec


def hum(sample_rate: int, seconds: float = 2.0) -> Audio:
    time = np.arange(round(seconds * sample_rate)) / sample_rate
    tones = sum(np.sin(2 * np.pi * 130 * k * time) / k for k in range(1, 12))
    return Audio((0.1 * tones).astype(np.float32), sample_rate)


def no_codec() -> CountingCodec:
    raise AssertionError("with a clip nothing is decoded")


def test_clips_of_several_rates_are_heard_at_one() -> None:
    voice = Voice("v", (), clips=(hum(16000), hum(24000)))
    audio = heard(voice, no_codec)
    assert (audio.sample_rate, audio.seconds) == (24000, pytest.approx(4.0, abs=0.01))
    one = describe(Voice("v", (), clips=(hum(24000, 4.0),)), no_codec)
    both = describe(voice, no_codec)
    assert one is not None
    assert both is not None
    assert one @ both > 0.98


def test_an_embedding_of_the_encoder_here_is_taken_as_it_is() -> None:
    stored = np.eye(1, 256, dtype=np.float32)[0]
    known = Voice("v", (), embedding=stored, encoder=identity(), clips=(hum(16000),))
    assert describe(known, no_codec) is stored
    other = describe(
        Voice("v", (), embedding=stored, encoder="another", clips=(hum(16000),)), no_codec
    )
    assert other is not None
    assert not np.array_equal(other, stored)


def test_a_voice_without_sound_is_nobody() -> None:
    class Silent(CountingCodec):
        def decode(self, codes: torch.Tensor) -> torch.Tensor:
            return torch.zeros(codes.shape[1] * self.samples_per_frame)

    voice = Voice("v", (Reference(np.zeros((2, 30), np.int64), ""),))
    assert describe(voice, Silent) is None

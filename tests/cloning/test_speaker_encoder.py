"""One speaker is near, another is far, and neither loudness nor rate makes a speaker."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fishtts.cloning.likeness import likeness
from fishtts.cloning.reference_audio import resample
from fishtts.cloning.speaker_encoder import SAME_SPEAKER, SIZE, embed, identity, mean
from fishtts.types import Audio


def halves(audio: Audio) -> tuple[np.ndarray, np.ndarray]:
    middle = len(audio.samples) // 2
    return audio.samples[:middle], audio.samples[middle:]


def test_an_embedding_is_a_direction(ada: Audio) -> None:
    embedding = embed(ada.samples, ada.sample_rate)
    assert embedding.shape == (SIZE,)
    assert embedding.dtype == np.float32
    assert np.linalg.norm(embedding) == pytest.approx(1, abs=1e-5)
    assert embedding.min() >= 0


def test_one_speaker_is_above_the_line_and_two_are_below(voices: dict[str, Audio]) -> None:
    embeddings = {
        name: [embed(half, audio.sample_rate) for half in halves(audio)]
        for name, audio in voices.items()
    }
    for name, (one, other) in embeddings.items():
        assert one @ other > SAME_SPEAKER, name
    means = [mean(np.stack(found)) for found in embeddings.values()]
    for a in range(len(means)):
        for b in range(a):
            assert means[a] @ means[b] < SAME_SPEAKER


def test_loudness_rate_and_silence_make_no_other_speaker(ada: Audio) -> None:
    reference = embed(ada.samples, ada.sample_rate)
    silence = np.zeros(2 * ada.sample_rate, np.float32)
    for samples, rate in (
        (0.05 * ada.samples, ada.sample_rate),
        (resample(ada, 44100), 44100),
        (np.concatenate([silence, ada.samples, silence]), ada.sample_rate),
    ):
        assert embed(samples, rate) @ reference > 0.95


def test_the_same_samples_are_the_same_embedding_on_any_number_of_threads(ada: Audio) -> None:
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(embed(ada.samples, ada.sample_rate))
    finally:
        torch.set_num_threads(before)
    assert np.abs(found[0] - found[1]).max() < 1e-5
    assert np.array_equal(embed(ada.samples, ada.sample_rate), embed(ada.samples, ada.sample_rate))


def test_very_short_speech_has_an_embedding_and_nothing_has_none(ada: Audio) -> None:
    middle = len(ada.samples) // 2
    short = ada.samples[middle : middle + ada.sample_rate // 2]
    assert embed(short, ada.sample_rate).shape == (SIZE,)
    for nothing in (np.zeros(0, np.float32), np.zeros(16000, np.float32)):
        with pytest.raises(ValueError, match="no sound"):
            embed(nothing, 16000)


def test_likeness_is_the_cosine_to_a_voice(voices: dict[str, Audio]) -> None:
    ada, edward = voices["ada"], voices["edward"]
    embedding = embed(ada.samples, ada.sample_rate)
    assert likeness(ada.samples, ada.sample_rate, embedding) == pytest.approx(1, abs=1e-4)
    assert likeness(edward.samples, edward.sample_rate, embedding) < SAME_SPEAKER
    assert likeness(np.zeros(16000, np.float32), 16000, embedding) == 0.0


def test_the_encoder_has_a_name_of_its_own() -> None:
    assert len(identity()) == 16

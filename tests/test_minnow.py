"""The built-in model speaks: judged by its sound alone, without a recogniser."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fishtts import TTS

TEXT = "The tide came in before anyone noticed."


@pytest.fixture(scope="module")
def tts() -> TTS:
    return TTS()


def voiced_share(samples: np.ndarray, rate: int) -> float:
    """Share of the loud 40 ms frames that repeat themselves at the pitch of a voice (70-400 Hz)."""
    size = rate // 25
    frames = samples[: len(samples) // size * size].reshape(-1, size)
    frames = frames[np.sqrt((frames**2).mean(1)) > 0.02]
    voiced = 0
    for frame in frames - frames.mean(1, keepdims=True):
        correlation = np.correlate(frame, frame, "full")[size - 1 :]
        voiced += correlation[rate // 400 : rate // 70].max() > 0.5 * correlation[0]
    return voiced / max(1, len(frames))


def test_the_default_voice_sounds_like_speech(tts: TTS) -> None:
    speech = tts.say(TEXT)
    samples = speech.samples
    seconds = len(samples) / speech.sample_rate
    assert not speech.report.problems
    # Seven words: people take between 1.6 and 4 seconds.
    assert 1.5 < seconds < 4.5
    assert 0.02 < np.sqrt((samples**2).mean()) < 0.3
    assert 0.1 < np.abs(samples).max() < 1.0
    assert voiced_share(samples, speech.sample_rate) > 0.4


def test_noise_would_not_pass_for_speech() -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, 48000)
    assert voiced_share(noise, 24000) < 0.1


def test_every_voice_says_all_of_a_line(tts: TTS) -> None:
    names = [voice.name for voice in tts.voices()]
    assert len(names) >= 8
    for name in names:
        report = tts.say("Good morning.", voice=name).report
        assert not report.problems, name


def test_every_voice_says_what_it_is_like_and_has_a_sample(tts: TTS) -> None:
    page = (Path(__file__).parents[1] / "docs" / "voices.md").read_text("utf-8")
    for voice in tts.voices():
        assert f"(voices/{voice.name}.mp3) | {voice.description} |" in page
        sample = Path(__file__).parents[1] / "docs" / "voices" / f"{voice.name}.mp3"
        assert 5_000 < sample.stat().st_size <= 40_000


def test_the_same_seed_is_the_same_audio(tts: TTS) -> None:
    once, again = (tts.say("Twice.", seed=4).samples for _ in range(2))
    assert np.array_equal(once, again)
    assert not np.array_equal(once, tts.say("Twice.", seed=5).samples)

"""A recording becomes a clean clip, or a sentence that says with the measured value why not."""

from __future__ import annotations

import hashlib
import resource
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from fishtts.cloning.clip import pack_clip, unpack_clip
from fishtts.cloning.prepare import prepare
from fishtts.cloning.reference_audio import resample
from fishtts.cloning.speaker_encoder import embed
from fishtts.errors import AudioError, FishTTSError, UsageError
from fishtts.types import Audio
from tests.cloning.conftest import Write, repeated

RATE = 24000


def chords(seconds: float) -> np.ndarray:
    """Music of a kind: four chords, each plucked, with overtones."""
    times = np.arange(round(seconds * RATE)) / RATE
    beat = times % 0.5
    roots = np.array([220.0, 174.6, 261.6, 196.0])[(times / 2).astype(int) % 4]
    notes = [
        np.sin(2 * np.pi * roots * step * overtone * times) / overtone
        for step in (1.0, 1.26, 1.5)
        for overtone in (1, 2, 3)
    ]
    return (0.1 * np.exp(-4 * beat) * sum(notes)).astype(np.float32)


# what is kept


@pytest.mark.parametrize("name", ["r.wav", "r.flac", "r.mp3", "r.ogg"])
def test_speech_is_kept_whole_in_any_format(write: Write, ada: Audio, name: str) -> None:
    prepared = prepare(write(name, ada.samples, ada.sample_rate))
    (clip,), (facts,) = prepared.clips, prepared.facts
    assert facts.rate_in == clip.sample_rate == ada.sample_rate
    assert 4.5 < facts.kept_seconds <= ada.seconds
    assert clip.seconds == pytest.approx(facts.kept_seconds + 0.3, abs=0.01)
    assert facts.snr_db > 30
    assert prepared.embedding @ embed(ada.samples, ada.sample_rate) > 0.98
    assert all("only" in warning for warning in prepared.warnings)  # 5 s are not much


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 44100, 48000, 96000])
def test_any_rate_and_any_number_of_channels(write: Write, ada: Audio, rate: int) -> None:
    mono = resample(ada, rate)
    stereo = np.stack([mono, 0.5 * mono, np.zeros_like(mono)], axis=1)
    prepared = prepare(write("r.wav", stereo, rate))
    (clip,), (facts,) = prepared.clips, prepared.facts
    assert (facts.rate_in, facts.channels_in) == (rate, 3)
    assert clip.sample_rate == min(rate, 48000)
    assert prepared.embedding @ embed(ada.samples, ada.sample_rate) > (
        0.8 if rate < 16000 else 0.97
    )
    assert any("kHz" in warning for warning in prepared.warnings) == (rate < 16000)


def test_a_clip_begins_and_ends_in_silence_and_packs_without_loss(write: Write, ada: Audio) -> None:
    (clip,) = prepare(write("r.wav", ada.samples, ada.sample_rate)).clips
    edge = round(0.14 * clip.sample_rate)
    assert not clip.samples[:edge].any()
    assert not clip.samples[-edge:].any()
    assert np.array_equal(unpack_clip(pack_clip(clip)).samples, clip.samples)


def test_quiet_speech_is_raised_and_hot_speech_is_lowered(write: Write, ada: Audio) -> None:
    usual = prepare(write("usual.wav", ada.samples, ada.sample_rate))
    assert usual.facts[0].gain_db == 0
    quiet = prepare(write("quiet.wav", 0.01 * ada.samples, ada.sample_rate))
    assert 20 < quiet.facts[0].gain_db < 50
    peak = float(np.abs(ada.samples).max())
    soundfile.write(hot := Path(write("hot.wav", ada.samples, RATE)), 2 / peak * ada.samples, RATE,
                    subtype="FLOAT")  # fmt: skip
    loud = prepare(hot)
    assert loud.facts[0].gain_db < 0
    for prepared in (quiet, loud):
        assert 0.02 < np.abs(prepared.clips[0].samples).max() <= 0.9
        assert prepared.embedding @ usual.embedding > 0.97


def test_a_long_recording_is_cut_to_thirty_seconds_in_silence(write: Write, ada: Audio) -> None:
    samples = repeated(ada, 95)
    prepared = prepare(write("long.wav", samples, RATE))
    (facts,) = prepared.facts
    assert 10 <= facts.kept_seconds <= 30
    assert facts.seconds_in == pytest.approx(95, abs=0.01)
    for cut_s in (facts.kept_from, facts.kept_to):
        at = round(cut_s * RATE)
        around = samples[max(0, at - 240) : at + 240]
        assert np.abs(around).max() < 0.05
    (source,) = prepared.sources
    assert (source.kept_from_s, source.kept_to_s) == (facts.kept_from, facts.kept_to)
    digest = hashlib.sha256((Path(facts.file)).read_bytes()).hexdigest()
    assert source.sha256 == digest


def test_a_part_that_is_asked_for_is_kept(write: Write, ada: Audio) -> None:
    path = write("long.wav", repeated(ada, 40), RATE)
    (facts,) = prepare(path, start_s=6.0, end_s=18.5).facts
    assert (facts.kept_from, facts.kept_to) == (6.0, 18.5)
    for start_s, end_s in ((30.0, 20.0), (50.0, None), (0.0, 35.0), (-1.0, 5.0)):
        with pytest.raises(UsageError):
            prepare(path, start_s=start_s, end_s=end_s)


def test_several_recordings_share_thirty_seconds(write: Write, ada: Audio) -> None:
    paths = [write(f"{n}.wav", repeated(ada, 25), RATE) for n in range(3)]
    prepared = prepare(paths)
    assert len(prepared.clips) == len(prepared.sources) == len(prepared.texts) == 3
    assert sum(facts.kept_seconds for facts in prepared.facts) <= 30
    assert all(facts.kept_seconds > 4 for facts in prepared.facts)


def test_recordings_of_two_people_make_no_voice(write: Write, voices: dict[str, Audio]) -> None:
    paths = [write(f"{name}.wav", voices[name].samples, RATE) for name in ("ada", "edward")]
    with pytest.raises(AudioError, match=r"two people: they are alike by 0\.[0-7]"):
        prepare(paths)


def test_recordings_that_may_be_of_two_people_are_only_doubted(
    write: Write, voices: dict[str, Audio], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short clips of one reader lie on both sides of the line between two speakers."""
    paths = [write(f"{n}.wav", repeated(voices["ada"], 5 + n), RATE) for n in range(2)]
    monkeypatch.setattr("fishtts.cloning.prepare.SAME_SPEAKER", 1.05)
    prepared = prepare(paths)
    assert any("may be of two people" in warning for warning in prepared.warnings)
    monkeypatch.setattr("fishtts.cloning.prepare.SAME_SPEAKER", 1.2)
    with pytest.raises(AudioError, match="seem to be of two people"):
        prepare(paths)


# words


def test_words_beside_a_recording_are_taken_if_they_can_be_its(write: Write, ada: Audio) -> None:
    path = write("r.wav", ada.samples, RATE)
    path.with_suffix(".lab").write_text(
        "This is about as much as is said in five or six seconds.\n"
    )
    assert prepare(path).texts == ("This is about as much as is said in five or six seconds.",)
    path.with_suffix(".lab").write_text("Far more is said here. " * 20)
    with pytest.raises(UsageError, match="do not belong together"):
        prepare(path)


def test_words_of_a_long_recording_are_refused_with_both_lengths(write: Write, ada: Audio) -> None:
    path = write("long.wav", repeated(ada, 95), RATE)
    with pytest.raises(UsageError, match=r"about \d+ s of speech.*95\.0 s.*\d+\.\d s were kept"):
        prepare(path, text="Something that is said in the whole of it. " * 25)
    words = "What is said between the sixth second and the sixteenth, which is quite a lot, really."
    assert prepare(path, text=words, start_s=6, end_s=16).texts == (words,)


def test_a_recogniser_hears_the_kept_part_only(write: Write, ada: Audio) -> None:
    lengths = []

    def transcribe(clip: Audio) -> str:
        lengths.append(clip.seconds)
        return "what was heard"

    prepared = prepare(write("long.wav", repeated(ada, 95), RATE), transcribe=transcribe)
    assert prepared.texts == ("what was heard",)
    assert lengths == [prepared.clips[0].seconds]
    assert lengths[0] < 31


def test_one_set_of_words_does_not_do_for_two_recordings(write: Write, ada: Audio) -> None:
    paths = [write(f"{n}.wav", ada.samples, RATE) for n in range(2)]
    for more in ({"text": "Words."}, {"start_s": 1.0}):
        with pytest.raises(UsageError, match="one recording"):
            prepare(paths, **more)


# bad recordings

BAD = {
    "one second": r"holds [01]\.\d s of speech; a voice needs 2 s",
    "silence": r"silent: its peak is -\d+ dB",
    "tone": r"No speech was found in .* 10\.0 s",
    "noise": r"No speech was found in",
    "music": r"No speech was found in|holds \d\.\d s of speech",
    "two speakers": r"More than one person speaks .* alike by 0\.\d\d",
    "zero bytes": r"empty \(0 bytes\)",
    "video": r"is a video \(MP4\)",
    "text": r"not a sound file",
    "truncated wav": r"cut short: it promises \d+\.\d s",
    "truncated flac": r"cut short|damaged",
    "no file": r"There is no recording",
    "folder": r"is a folder",
}


def bad_recording(kind: str, folder: Path, voices: dict[str, Audio]) -> Path:
    ada, edward = voices["ada"].samples, voices["edward"].samples
    times = np.arange(10 * RATE) / RATE
    samples = {
        "one second": ada[RATE : 2 * RATE],
        "silence": np.full(10 * RATE, 1e-5, np.float32),
        "tone": 0.3 * np.sin(2 * np.pi * 440 * times),
        "noise": np.random.default_rng(0).normal(0, 0.1, 10 * RATE),
        "music": chords(20),
        "two speakers": np.concatenate([ada, edward, ada, edward]),
        "truncated wav": ada,
        "truncated flac": ada,
    }.get(kind)
    path = folder / ("r.flac" if kind == "truncated flac" else "r.wav")
    if samples is not None:
        soundfile.write(path, samples, RATE)
        if kind.startswith("truncated"):
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    elif kind == "folder":
        path.mkdir()
    elif kind != "no file":
        content = {
            "zero bytes": b"",
            "video": b"\0\0\0\x20ftypisom" + bytes(2000),
            "text": b"words",
        }
        path.write_bytes(content[kind])
    return path


@pytest.mark.parametrize("kind", BAD)
def test_bad_recordings_are_refused(kind: str, tmp_path: Path, voices: dict[str, Audio]) -> None:
    with pytest.raises(FishTTSError, match=BAD[kind]) as caught:
        prepare(bad_recording(kind, tmp_path, voices))
    assert caught.value.exit_code == 2


POOR = {
    "telephone": r"ends at [34]\.\d kHz",
    "clipped": r"is clipped: \d+\.\d% of its samples",
    "noisy": r"is noisy: the speech is \d+ dB above",
    "echo": r"echo: a sound takes about [01]\.\d s",
    "short": r"holds only [2-5]\.\d s of speech",
}


def poor_recording(kind: str, ada: Audio) -> tuple[np.ndarray, int]:
    samples = repeated(ada, 20)
    rng = np.random.default_rng(1)
    if kind == "telephone":
        return resample(Audio(samples, RATE), 8000), 8000
    if kind == "clipped":
        peak = float(np.abs(samples).max())
        return np.clip(samples, -peak / 4, peak / 4), RATE
    if kind == "noisy":
        return samples + rng.normal(0, 0.02, len(samples)).astype(np.float32), RATE
    if kind == "echo":
        length = RATE
        room = rng.normal(size=length) * 10 ** (-3 * np.arange(length) / length)
        room *= 0.5 / np.sqrt((room**2).sum())
        room[0] = 1.0
        size = len(samples) + length
        return np.fft.irfft(np.fft.rfft(samples, size) * np.fft.rfft(room, size))[:size], RATE
    return ada.samples[: 4 * RATE], RATE


@pytest.mark.parametrize("kind", POOR)
def test_poor_recordings_are_used_with_a_measured_warning(
    kind: str, write: Write, ada: Audio
) -> None:
    import re

    prepared = prepare(write("r.wav", *poor_recording(kind, ada)))
    assert any(re.search(POOR[kind], warning) for warning in prepared.warnings), prepared


def test_a_truncated_mp3_is_used_or_refused(write: Write, ada: Audio) -> None:
    path = write("r.mp3", repeated(ada, 20), RATE)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    try:
        (facts,) = prepare(path).facts
    except AudioError as error:
        message = error.message
    else:
        message = f"cut short to {facts.seconds_in}"
        assert facts.seconds_in < 11
    assert "cut short" in message


def test_a_wrong_suffix_does_not_matter(write: Write, ada: Audio) -> None:
    path = write("r.flac", ada.samples, RATE)
    assert prepare(path.rename(path.with_suffix(".mp3"))).clips


@pytest.mark.skipif(sys.platform != "linux", reason="counts memory in Linux's units")
def test_ninety_five_minutes_are_read_in_blocks(tmp_path: Path, ada: Audio) -> None:
    speech = resample(Audio(repeated(ada, 25), RATE), 8000)
    path = tmp_path / "long.flac"
    with soundfile.SoundFile(path, "w", 8000, 1) as file:
        for minute in range(95):
            file.write(speech if minute % 30 == 7 else np.zeros_like(speech))
            file.write(np.zeros(60 * 8000 - len(speech)))
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (facts,) = prepare(path).facts
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) / 1024
    assert facts.seconds_in == pytest.approx(95 * 60)
    assert facts.kept_seconds <= 30
    assert any(abs(facts.kept_from - minute * 60) < 25 for minute in (7, 37, 67))
    assert grown_mb < 150

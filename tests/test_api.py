"""The Python API: what ``TTS`` answers, on a tiny model with random weights."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest
import soundfile

import fishtts
from fishtts import TTS, Audio, Voice
from fishtts.config import SpeechConfig
from fishtts.errors import (
    DeviceError,
    ModelError,
    ScriptError,
    UsageError,
    VoiceError,
)
from fishtts.tts import Line
from tests.fakes import CountingCodec, clean_env, tiny_model, tiny_voice

CARD = {"name": "tiny", "needs_transcript": False, "default_voice": "mira", "unit_chars": 60}
TEXT = "The first sentence stands here. The second sentence is a little longer than that."
PATIENT = SpeechConfig(retries=20)


@pytest.fixture(scope="module")
def tts(tmp_path_factory: pytest.TempPathFactory) -> TTS:
    folder = tiny_model(tmp_path_factory.mktemp("tiny"), CARD, ["mira", "otto"])
    return TTS(str(folder), device="cpu")


def test_importing_the_package_loads_nothing() -> None:
    code = (
        "import sys, fishtts; fishtts.errors; fishtts.__version__; print(dir(fishtts))\n"
        "print({'torch', 'numpy'} & set(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=clean_env(), check=True
    )
    names, loaded = result.stdout.decode().splitlines()
    assert loaded == "set()"
    assert all(f"'{name}'" in names for name in fishtts.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        fishtts.nothing  # noqa: B018


def test_say_answers_samples_a_rate_and_a_report(tts: TTS) -> None:
    speech = tts.say(TEXT, retries=20)
    assert speech.samples.dtype == np.float32
    assert speech.samples.ndim == 1
    assert speech.sample_rate == 44100
    assert 0.01 < np.abs(speech.samples).max() <= 1.0
    report = speech.report
    assert (report.model, report.voice) == ("tiny", "mira")
    assert report.seconds == len(speech.samples) / 44100
    assert [unit.status for unit in report.units] == ["ok", "ok"]
    assert " ".join(unit.text for unit in report.units) == TEXT
    assert report.problems == []


def test_a_stream_is_the_whole_in_parts(tts: TTS) -> None:
    whole = tts.say(TEXT, retries=20).samples
    for live in (False, True):
        stream = tts.stream(TEXT, PATIENT, live=live)
        chunks = list(stream)
        assert len(chunks) > 2
        if not stream.report.problems:  # live, a fault that comes late cannot be mended
            assert np.array_equal(np.concatenate(chunks), whole)
        assert sum(map(len, chunks)) == round(stream.report.seconds * 44100)


def test_the_first_samples_come_before_the_last_sentence_is_begun(tts: TTS) -> None:
    stream = tts.stream(TEXT, PATIENT, live=False)
    assert len(next(iter(stream))) > 0
    assert stream.report.units == []


def test_saying_it_twice_gives_the_same(tts: TTS) -> None:
    first, other = tts.say(TEXT, seed=3), tts.say(TEXT, seed=4)
    assert np.array_equal(first.samples, tts.say(TEXT, seed=3).samples)
    assert len(first.samples) != len(other.samples)


def test_all_that_a_voice_may_be(tts: TTS, tmp_path: Path) -> None:
    by_name = tts.say("One stands here.", voice="otto", retries=20).samples
    by_value = tts.say("One stands here.", voice=tiny_voice("otto"), retries=20).samples
    assert np.array_equal(by_name, by_value)
    noise = (0.1 * np.random.default_rng(3).standard_normal(2 * 44100)).astype(np.float32)
    soundfile.write(tmp_path / "ref.wav", noise, 44100, subtype="FLOAT")
    by_file = tts.say("One stands here.", voice=tmp_path / "ref.wav", ref_text="Two.", retries=20)
    by_audio = tts.say("One stands here.", voice=Audio(noise, 44100), ref_text="Two.", retries=20)
    assert np.array_equal(by_file.samples, by_audio.samples)
    assert by_file.report.voice == "ref"
    assert [voice.name for voice in tts.voices()] == ["mira", "otto"]
    assert isinstance(tts.voice("otto"), Voice)


def test_a_voice_can_be_heard(tts: TTS) -> None:
    audio = tts.play_voice("otto")
    assert audio.sample_rate == 44100
    assert len(audio.samples) == 7 * 2048


def test_files_are_saved(tts: TTS, tmp_path: Path) -> None:
    speech = tts.say("One stands here.", retries=20)
    speech.save(tmp_path / "a.flac")
    assert soundfile.info(tmp_path / "a.flac").frames == len(speech.samples)
    with pytest.raises(fishtts.errors.OutputError):
        speech.save(tmp_path / "a.flac")
    speech.save(tmp_path / "a.flac", force=True)


def test_without_a_voice_the_first_speaker_goes_on(tmp_path: Path) -> None:
    """A model that has no voice of its own must not become somebody else with every sentence."""
    tts = TTS(str(tiny_model(tmp_path, {"name": "nobody", "unit_chars": 60})), device="cpu")
    alone = tts.say("The second sentence is a little longer than that.", retries=20)
    after = tts.say(TEXT, retries=20)
    start = round(after.report.units[1].start_s * 44100)
    assert after.report.units[1].text == alone.report.units[0].text
    assert not np.array_equal(after.samples[start:], alone.samples)
    again = tts.say(TEXT, retries=20)
    assert np.array_equal(again.samples, after.samples)


def test_what_falls_short_is_reported_and_not_raised(tts: TTS) -> None:
    report = tts.say("One stands here.", speed=1.0, retries=0, seed=1).report
    short = list(tts.stream(TEXT, SpeechConfig(max_frames=2, retries=1)))
    assert sum(map(len, short)) > 0
    stream = tts.stream(TEXT, SpeechConfig(max_frames=2, retries=1), live=False)
    list(stream)
    assert all(unit.status == "fell_short" for unit in stream.report.units)
    assert all(unit.tries == 2 for unit in stream.report.units)
    assert len(stream.report.problems) == 2
    assert report.units[0].tries == 1


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"voice": "nobody"}, VoiceError),
        ({"voice": tiny_voice("otto"), "ref_text": "Words."}, UsageError),
        ({"temperature": 0.0}, UsageError),
        ({"top_p": 1.5}, UsageError),
        ({"top_k": 0}, UsageError),
        ({"speed": 3.0}, UsageError),
        ({"pause": -1.0}, UsageError),
        ({"seed": -1}, UsageError),
        ({"voice": Voice("v", tiny_voice("v").references, codec="another")}, ModelError),
    ],
)
def test_what_cannot_be_is_refused(
    tts: TTS, options: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        tts.say("Words.", **options)  # type: ignore[arg-type]


def test_models_and_devices_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        TTS("no-such-model")
    with pytest.raises(DeviceError):
        TTS(str(tiny_model(tmp_path, CARD)), device="cuda:99")
    with pytest.raises(UsageError):
        TTS(str(tmp_path), dtype="float8")


def test_nothing_to_say(tts: TTS) -> None:
    for text in ("", "  \n", "...", "—"):
        with pytest.raises(ScriptError):
            tts.say(text)


def test_a_lack_of_memory_is_told(tts: TTS, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("fishtts.engine.runner.Runner.execute", full)
    with pytest.raises(DeviceError, match="not enough memory"):
        tts.say("Words stand here.")
    monkeypatch.undo()
    assert tts.say("Words stand here.").samples.size, "it goes on when there is memory again"


def line(tts: TTS, key: str, text: str, **options: object) -> Line:
    config = SpeechConfig(retries=0)
    return Line(key, tts.plan(text, config), config=config, **options)  # type: ignore[arg-type]


def test_lines_are_spoken_together_and_each_is_whole(tts: TTS) -> None:
    texts = {f"l{n}": f"Line number {n} stands here. " * (1 + n % 3) for n in range(7)}
    voices = {key: ("mira", "otto")[n % 2] for n, key in enumerate(texts)}
    before = tts.metrics.num_decode_steps, tts.metrics.num_rows
    spoken = {
        done.key: done.speech
        for done in tts.lines(
            line(tts, key, text, voice=voices[key]) for key, text in texts.items()
        )
    }
    assert set(spoken) == set(texts)
    steps, rows = (
        now - then
        for now, then in zip(
            (tts.metrics.num_decode_steps, tts.metrics.num_rows), before, strict=True
        )
    )
    assert rows > 2 * steps, "they run together"
    for key, speech in spoken.items():
        assert speech is not None
        assert speech.report.voice == voices[key]
        units = speech.report.units
        assert (
            "".join(unit.text for unit in units).split() == texts[key].replace(". L", ".L").split()
        )
        assert speech.report.seconds == len(speech.samples) / tts.sample_rate
        assert units[-1].start_s + units[-1].seconds == pytest.approx(speech.report.seconds)


def test_a_dialogue_has_its_voices_and_its_pauses(tts: TTS) -> None:
    text = "[pause:0.25s]\nMIRA: I stand here.[pause:0.5s]\nOTTO: So do I."
    plan = tts.plan(
        text, SpeechConfig(retries=0, pause_s=0.0), cast={"MIRA": "mira", "OTTO": "otto"}
    )
    stream = tts.stream(text, SpeechConfig(retries=0), plan=plan, live=False)
    samples = np.concatenate(list(stream))
    units = stream.report.units
    assert [(unit.voice, unit.text) for unit in units if unit.model_text] == [
        ("mira", "I stand here."),
        ("otto", "So do I."),
    ]
    begin = round(0.25 * tts.sample_rate)
    assert not samples[:begin].any()
    assert samples[begin : begin + 4000].any()
    frames = sum(unit.num_frames for unit in units) * tts.codec.samples_per_frame
    assert len(samples) == frames + begin + round(0.5 * tts.sample_rate)
    alone = tts.say("So do I.", voice="otto", retries=0)
    assert alone.report.voice == "otto"


def test_lines_are_taken_as_there_is_room(tts: TTS) -> None:
    taken = []

    def coming() -> Iterator[Line]:
        for n in range(200):
            taken.append(n)
            yield line(tts, str(n), f"Line number {n}.")

    stream = tts.lines(coming())
    next(stream)
    stream.close()
    assert len(taken) < 100
    assert tts.speaking.num_units == 0, "what nobody waits for is given up"


def test_a_line_that_cannot_be_spoken_stops_no_other(tts: TTS) -> None:
    stranger = Voice("s", tiny_voice("s").references, codec="another")
    asked = [
        line(tts, "a", "This one is fine."),
        line(tts, "b", "This one is not.", voice=stranger),
        line(tts, "d", "This one is fine again."),
    ]
    done = {each.key: each for each in tts.lines(asked)}
    assert [key for key, each in sorted(done.items()) if each.speech is None] == ["b"]
    assert isinstance(done["b"].error, ModelError)


def test_two_streams_may_take_turns(tts: TTS) -> None:
    one, two = "The first of them. It goes on.", "The second of them. It goes on too."
    alone = [np.concatenate(list(tts.stream(text, PATIENT, live=True))) for text in (one, two)]
    streams = [iter(tts.stream(text, PATIENT, live=True)) for text in (one, two)]
    made: list[list[np.ndarray]] = [[], []]
    for chunks in zip_longest(*streams):
        for mine, chunk in zip(made, chunks, strict=True):
            mine += [] if chunk is None else [chunk]
    # Their frames may differ where rounding does, so what is whole is what counts.
    for mine, whole in zip(made, alone, strict=True):
        assert np.concatenate(mine).size > 0.3 * whole.size


def test_deterministic_lines_are_the_same_bytes_in_any_crowd(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path, CARD, ["mira", "otto"])
    texts = [f"Line number {n} stands here." for n in range(6)]

    def spoken(max_batch: int, order: int) -> dict[str, bytes]:
        tts = TTS(str(folder), device="cpu", deterministic=True, max_batch=max_batch)
        asked = [line(tts, text, text) for text in texts[::order]]
        return {d.key: d.speech.samples.tobytes() for d in tts.lines(asked) if d.speech is not None}

    alone = spoken(1, 1)
    assert len(alone) == 6
    assert spoken(8, -1) == alone


def test_the_counting_codec_is_like_a_codec() -> None:
    """What stands in for a codec elsewhere must have what a codec has."""
    from fishtts.codec import Codec

    needed = {name for name in Codec.__annotations__ if not name.startswith("_")}
    assert needed <= set(dir(CountingCodec))

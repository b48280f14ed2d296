"""``fishtts clone``: one command from a recording to a voice that speaks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from fishtts import TTS
from fishtts.cloning.speaker_encoder import identity
from fishtts.cloning.store import Store
from fishtts.cloning.voice_file import read_voice
from fishtts.types import Audio
from tests.cloning.conftest import repeated
from tests.fakes import TINY_MODEL, hollow_model, run_fishtts, write_files

WORDS = "This is about as much as is said in five or six seconds."


@pytest.fixture(scope="module")
def ada() -> Audio:
    return TTS(device="cpu").play_voice("ada")


@pytest.fixture
def recording(tmp_path: Path, ada: Audio) -> Path:
    soundfile.write(tmp_path / "mira.wav", ada.samples, ada.sample_rate)
    return tmp_path / "mira.wav"


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Give each test an empty folder of voices of its own."""
    monkeypatch.setenv("FISHTTS_VOICES", str(tmp_path / "voices"))
    return Store()


def done(*arguments: str | Path) -> tuple[str, str]:
    result = run_fishtts("clone", *arguments)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.decode(), result.stderr.decode()


def answer(*arguments: str | Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(done(*arguments, "--json")[0])
    return facts


def refused(*arguments: str | Path, code: int = 2) -> str:
    result = run_fishtts("clone", *arguments)
    message = result.stderr.decode()
    assert result.returncode == code, message
    assert result.stdout == b""
    assert message.startswith("fishtts: ")
    assert message.count("\n") == 1, message
    return message


def test_a_recording_becomes_a_voice_that_has_everything(recording: Path, store: Store) -> None:
    out, said = done(
        recording, "--name", "Mira", "--text", WORDS, "--consent", "self", "--language", "en"
    )
    voice = store.get("mira")
    assert out.strip() == str(store.path("mira"))
    assert f'"{recording}": 5.5 s, 24000 Hz, mono' in said
    assert "Kept" in said
    assert (voice.name, voice.consent, voice.language) == ("Mira", "self", "en")
    assert [reference.text for reference in voice.references] == [WORDS]
    assert voice.references[0].codes.shape[1] > 50
    assert voice.codec
    assert voice.model == "minnow"
    assert voice.encoder == identity()
    assert voice.embedding is not None
    assert len(voice.clips) == len(voice.sources) == 1


def test_json_says_what_was_measured(recording: Path) -> None:
    facts = answer(recording, "--name", "mira")
    assert facts["voice"] == "mira"
    assert facts["rate_in"] == 24000
    assert facts["channels_in"] == 1
    assert 0 <= facts["kept_from"] < facts["kept_to"] <= 5.6
    assert facts["kept_seconds"] == pytest.approx(facts["kept_to"] - facts["kept_from"], abs=0.01)
    for key in ("bandwidth_hz", "speech_seconds", "snr_db", "clipped_share", "reverb_s"):
        assert isinstance(facts[key], int | float)
    assert Path(facts["file"]).exists()
    assert any("only" in warning for warning in facts["warnings"])
    assert len(facts["recordings"]) == 1


def test_a_reference_far_too_long(tmp_path: Path, ada: Audio) -> None:
    """Case D08: 95 s of one speaker."""
    path = tmp_path / "long.wav"
    soundfile.write(path, repeated(ada, 95), ada.sample_rate)
    facts = answer(path, "--name", "t")
    assert facts["kept_seconds"] <= 30
    assert isinstance(facts["kept_from"], float)
    full = tmp_path / "full.txt"
    full.write_text(" ".join([WORDS] * 16))
    message = refused(path, "--text-file", full, "--name", "u")
    assert "95.0 s" in message
    assert "s of speech) is that of all" in message
    assert not Store().has("u")


def test_the_first_voice_brings_a_notice_about_consent_and_none_that_blocks(
    recording: Path,
) -> None:
    assert "--consent" in done(recording, "--name", "one")[1]
    assert "--consent" not in done(recording, "--name", "two")[1]
    assert done(recording, "--name", "three", "-q")[1] == ""


def test_a_voice_goes_into_a_file(recording: Path, tmp_path: Path, store: Store) -> None:
    target = tmp_path / "out.fishvoice"
    facts = answer(recording, "-o", target, "--no-clip", "--description", "Calm.")
    voice = read_voice(target)
    assert facts["file"] == str(target)
    assert (voice.name, voice.description, voice.clips) == ("out", "Calm.", ())
    assert store.names() == []
    assert "exists already" in refused(recording, "-o", target)
    done(recording, "-o", target, "--force")
    assert read_voice(target).clips


def test_what_cannot_be_kept_is_refused_before_the_work(recording: Path, tmp_path: Path) -> None:
    assert "--name" in refused(recording)
    assert "cannot be the name" in refused(recording, "--name", "../mira")
    assert "built-in voice" in refused(recording, "--name", "ada")
    assert ".fishvoice" in refused(recording, "-o", tmp_path / "mira.wav")
    assert "no folder" in refused(recording, "-o", tmp_path / "none" / "mira.fishvoice")
    assert "--consent" in refused(recording, "--name", "m", "--consent", "two\nlines")
    assert "Give one" in refused(recording, "--name", "m", "--text", "a", "--text-file", recording)
    assert "empty" in refused(recording, "--name", "m", "--text", "  ")
    assert not Store().names()


def test_a_model_that_needs_the_words_says_so_before_the_work(
    recording: Path, tmp_path: Path
) -> None:
    model = write_files(tmp_path / "hollow", hollow_model())
    message = refused(recording, "--name", "m", "-m", model)
    assert "needs to know what is said" in message
    assert "--transcribe" in message


def test_a_bad_recording_is_one_sentence(tmp_path: Path, ada: Audio) -> None:
    (tmp_path / "r.mp3").write_bytes(b"")
    assert "0 bytes" in refused(tmp_path / "r.mp3", "--name", "m")
    soundfile.write(tmp_path / "t.wav", np.zeros(48000), 16000)
    assert "silent" in refused(tmp_path / "t.wav", "--name", "m")
    assert not Store().names()


def test_a_cloned_voice_speaks(recording: Path, tmp_path: Path) -> None:
    done(recording, "--name", "mira")
    target = tmp_path / "said.wav"
    result = run_fishtts("say", "Good morning.", "-v", "mira", "-o", target)
    assert result.returncode == 0, result.stderr.decode()
    assert soundfile.info(target).duration > 0.4


def test_another_model_gets_codes_of_its_own(recording: Path) -> None:
    facts = answer(recording, "--name", "mira", "-m", TINY_MODEL, "--text", WORDS)
    assert facts["model"] != "minnow"
    assert Store().get("mira").codec

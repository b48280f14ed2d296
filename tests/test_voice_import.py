"""``fishtts voices import --from-dir``: recordings with their words become voices."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import soundfile

from fishtts import hub
from fishtts.cloning.speaker_encoder import SAME_SPEAKER
from fishtts.cloning.store import Store
from tests.fakes import run_fishtts


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("FISHTTS_VOICES", str(tmp_path / "voices"))
    return Store()


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of two speakers: the built-in voices' own."""
    folder = tmp_path_factory.mktemp("speech")
    for name in ("ada", "finn"):
        result = run_fishtts("voices", "play", name, "-o", folder / f"{name}.wav")
        assert result.returncode == 0, result.stderr.decode()
    return folder


WORDS = "The morning was quiet, and a thin mist lay over the fields beyond the old stone bridge."


def put(target: Path, recording: Path, words: str | None = WORDS, ending: str = ".lab") -> Path:
    """Put a recording and its words into a folder, in the format of the target's name."""
    target.parent.mkdir(parents=True, exist_ok=True)
    samples, sample_rate = soundfile.read(recording, dtype="float32")
    soundfile.write(target, samples, sample_rate)
    if words is not None:
        target.with_suffix(ending).write_text(words, "utf-8")
    return target


def imported(folder: Path, *arguments: str | Path, code: int = 0) -> list[dict[str, Any]]:
    result = run_fishtts("voices", "import", "--from-dir", folder, "--json", *arguments)
    assert result.returncode == code, result.stderr.decode()
    rows = json.loads(result.stdout)
    assert isinstance(rows, list)
    return rows


def test_recordings_side_by_side(tmp_path: Path, speech: Path, store: Store) -> None:
    mira = put(tmp_path / "in" / "mira.wav", speech / "ada.wav")
    put(tmp_path / "in" / "Uncle Otto.flac", speech / "finn.wav", ending=".txt")
    rows = imported(tmp_path / "in", "--consent", "licensed")
    assert [(row["name"], row["fault"]) for row in rows] == [("Uncle-Otto", ""), ("mira", "")]
    voice = store.get("mira")
    assert voice.consent == "licensed"
    assert voice.references[0].text == WORDS
    assert voice.model == "minnow"
    assert voice.sources[0].sha256 == hashlib.sha256(mira.read_bytes()).hexdigest()
    assert 0.8 * soundfile.info(mira).duration < voice.clips[0].seconds < 7
    assert voice.embedding is not None
    pair = json.loads(run_fishtts("voices", "compare", "mira", "ada", "--json").stdout)["pairs"][0]
    assert pair["similarity"] > SAME_SPEAKER
    result = run_fishtts("say", "Good day.", "-v", "mira", "-o", tmp_path / "a.wav")
    assert result.returncode in (0, 3), result.stderr.decode()


def test_a_folder_for_each_voice_as_fish_speech_keeps_them(
    tmp_path: Path, speech: Path, store: Store
) -> None:
    for name in ("one", "two"):
        put(
            tmp_path / "references" / "mira" / f"{name}.wav",
            speech / "ada.wav",
            f"{WORDS} And {name}.",
        )
    rows = imported(tmp_path)
    assert [row["name"] for row in rows] == ["mira"]
    voice = store.get("mira")
    assert [reference.text for reference in voice.references] == [
        f"{WORDS} And {name}." for name in ("one", "two")
    ]
    assert (len(voice.clips), len(voice.sources)) == (2, 2)


def test_one_that_cannot_be_used_does_not_stop_the_others(
    tmp_path: Path, speech: Path, store: Store
) -> None:
    folder = tmp_path / "in"
    put(folder / "mira.wav", speech / "ada.wav")
    put(folder / "ada.wav", speech / "ada.wav")
    (folder / "broken.wav").write_bytes(b"not sound")
    put(folder / "con.wav", speech / "ada.wav")
    put(folder / "wrong.wav", speech / "ada.wav", "No.")
    rows = {row["name"]: row["fault"] for row in imported(folder, code=3)}
    assert rows["mira"] == ""
    assert "built-in" in rows["ada"]
    assert "not a sound file" in rows["broken"]
    assert "Windows" in rows["con"]
    assert "do not belong together" in rows["wrong"]
    assert store.names() == ["mira"]
    again = {row["name"]: row["fault"] for row in imported(folder, code=3)}
    assert "already" in again["mira"]
    forced = {row["name"]: row["fault"] for row in imported(folder, "--force", code=3)}
    assert forced["mira"] == forced["ada"] == ""


def test_names_that_meet_get_a_number(tmp_path: Path, speech: Path, store: Store) -> None:
    for name in ("mira.wav", "Mira.flac", "references/mira/a.wav"):
        put(tmp_path / "in" / name, speech / "ada.wav")
    for force in ([], ["--force"]):
        assert [r["name"] for r in imported(tmp_path / "in", *force)] == [
            "Mira",
            "mira-2",
            "mira-3",
        ]
    assert store.names() == ["Mira", "mira-2", "mira-3"]


def test_a_model_that_needs_the_words_is_not_given_recordings_without(
    tmp_path: Path, speech: Path
) -> None:
    put(tmp_path / "in" / "mira.wav", speech / "ada.wav", None)
    needy = tmp_path / "needy"
    needy.mkdir()
    for path in (hub.BUILTIN / "minnow").iterdir():
        if path.name != "fishtts.json":
            (needy / path.name).symlink_to(path)
    (needy / "fishtts.json").write_text('{"name": "needy"}')
    (row,) = imported(tmp_path / "in", "-m", needy, code=3)
    assert "mira.lab" in row["fault"]
    (row,) = imported(tmp_path / "in")
    assert row["fault"] == ""


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["a.fishvoice", "--from-dir", "b"],
        ["--from-dir", "b", "--name", "c"],
        ["a.fishvoice", "--consent", "self"],
    ],
)
def test_options_that_contradict(arguments: list[str]) -> None:
    result = run_fishtts("voices", "import", *arguments)
    assert result.returncode == 2
    assert b"--from-dir" in result.stderr


def test_where_there_is_nothing_to_import(tmp_path: Path) -> None:
    for folder, said in ((tmp_path / "none", b"cannot be read"), (tmp_path, b"no recordings")):
        result = run_fishtts("voices", "import", "--from-dir", folder)
        assert result.returncode == 2
        assert said in result.stderr

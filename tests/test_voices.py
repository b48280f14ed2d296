"""``fishtts voices``: what it does to voices, and what it says of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from fishtts.cloning import speaker_encoder
from fishtts.cloning.store import Store
from fishtts.cloning.voice_file import read_voice, write_voice
from tests.cloning.voices import clip, full_voice, same, unit
from tests.fakes import run_fishtts, run_process, tiny_model, tiny_voice

CARD = {"name": "tiny", "languages": ["en"], "needs_transcript": False, "default_voice": "anna"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny"), CARD, ["anna", "otto"])


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Give each test a folder of voices of its own, with one in it."""
    monkeypatch.setenv("FISHTTS_VOICES", str(tmp_path / "voices"))
    store = Store()
    store.add(full_voice("mira"))
    return store


def done(*arguments: str | Path) -> str:
    result = run_fishtts("voices", *arguments)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.decode()


def answer(*arguments: str | Path) -> Any:
    return json.loads(done(*arguments, "--json"))


def refused(code: int, *arguments: str | Path) -> str:
    result = run_fishtts("voices", *arguments)
    message = result.stderr.decode()
    assert result.returncode == code, message
    assert result.stdout == b""
    assert message.startswith("fishtts: ")
    assert message.count("\n") == 1, message
    return message


# list and show


def test_the_list_has_a_models_voices_and_ones_own(model: Path) -> None:
    rows = answer("list", "-m", model)
    assert [(row["name"], row["kind"], row["is_default"]) for row in rows] == [
        ("anna", "model", True),
        ("otto", "model", False),
        ("mira", "own", False),
    ]
    assert rows[2] == {
        "name": "mira",
        "kind": "own",
        "is_default": False,
        "language": "en",
        "description": "Warm, a little hoarse.",
        "seconds": 0.5,
        "consent": "self",
        "fault": "",
    }
    table = done("list", "-m", model)
    assert "anna  tiny" in table
    assert "mira  yours  en        0.5      self     Warm, a little hoarse." in table


def test_a_damaged_voice_is_listed_as_such(store: Store, model: Path) -> None:
    (store.folder / "torn.fishvoice").write_bytes(b"torn")
    row = answer("list", "-m", model)[-1]
    assert row["name"] == "torn"
    assert "damaged" in row["fault"]
    assert "damaged" in done("list", "-m", model)
    assert "torn" in refused(4, "show", "torn")
    done("rm", "torn")
    assert store.names() == ["mira"]


def test_all_facts_are_shown() -> None:
    facts = answer("show", "Mira")
    assert facts["name"] == "mira"
    assert facts["kind"] == "own"
    assert facts["bytes"] == Path(facts["file"]).stat().st_size
    assert facts["consent"] == "self"
    assert facts["has_clip"] is True
    assert facts["seconds"] == 0.5
    assert facts["references"] == [
        {"text": "Grüße — “hello”\nthere.", "seconds": 0.3, "sample_rate": 16000},
        {"text": "", "seconds": 0.2, "sample_rate": 24000},
    ]
    assert facts["codecs"] == [
        {"identity": "abc123", "model": "minnow", "frames": 8},
        {"identity": "def456", "model": "s2-pro", "frames": 12},
    ]
    assert facts["speaker_encoder"] == "e1"
    assert facts["sources"][0] == {
        "sha256": "0f" * 32,
        "seconds": 95.0,
        "kept_from_s": 12.5,
        "kept_to_s": 40.25,
        "date": "2026-12-01",
    }
    text = done("show", "mira")
    for part in ("self", "Grüße — “hello” there.", "def456", "0f0f", "12.5", "2026-12-01"):
        assert part in text


def test_a_file_can_be_shown_before_it_is_imported(tmp_path: Path) -> None:
    write_voice(full_voice("nina"), tmp_path / "n.fishvoice")
    facts = answer("show", tmp_path / "n.fishvoice")
    assert (facts["name"], facts["kind"]) == ("nina", "file")
    assert answer("show", "ada")["kind"] == "model"


# play


def test_a_voice_is_played_from_its_clip(tmp_path: Path, store: Store) -> None:
    one = replace(full_voice(), references=full_voice().references[:1], clips=(clip(),))
    store.add(replace(one, encodings=()), "solo")
    facts = answer("play", "solo", "-o", tmp_path / "a.wav")
    assert facts["from_clip"] is True
    samples, sample_rate = soundfile.read(tmp_path / "a.wav", dtype="float32")
    assert sample_rate == facts["sample_rate"] == 16000
    assert np.array_equal(samples, clip().samples)
    assert "exists already" in refused(2, "play", "solo", "-o", tmp_path / "a.wav")
    both = answer("play", "mira", "-o", tmp_path / "b.wav")
    assert (both["seconds"], both["sample_rate"]) == (0.5, 24000)


def test_a_voice_without_a_clip_is_decoded(tmp_path: Path, model: Path, store: Store) -> None:
    assert answer("play", "anna", "-m", model, "-o", tmp_path / "a.wav")["from_clip"] is False
    store.add(replace(full_voice(), clips=()), "bare")
    message = refused(4, "play", "bare", "-m", model, "-o", tmp_path / "b.wav")
    assert "another model" in message
    assert not (tmp_path / "b.wav").exists()


# rename and rm


def test_voices_are_renamed_and_removed(store: Store) -> None:
    assert answer("rename", "mira", "Nina")["new"] == "Nina"
    assert store.names() == ["Nina"]
    assert done("rename", "nina", "mira") == "nina is now mira.\n"
    store.add(full_voice(), "otto")
    assert "already" in refused(2, "rename", "mira", "otto")
    assert "built-in" in refused(2, "rename", "mira", "ada")
    assert 'Did you mean "mira"?' in refused(2, "rm", "otto", "mirra")
    assert store.names() == ["mira", "otto"]
    assert answer("rm", "otto", "Mira") == {"removed": ["otto", "mira"]}
    assert store.names() == []
    assert "none yet" in refused(2, "rm", "mira")


def test_built_in_voices_stay() -> None:
    for command in (("rm", "ada"), ("rename", "ada", "eda")):
        assert "among your own" in refused(2, *command)


# export and import


def test_a_voice_travels_in_one_file(tmp_path: Path, store: Store) -> None:
    path = tmp_path / "m.fishvoice"
    assert answer("export", "mira", "-o", path)["bytes"] == path.stat().st_size
    assert same(read_voice(path), full_voice())
    assert "exists already" in refused(2, "export", "mira", "-o", path)
    done("export", "mira", "-o", path, "--force")
    assert "already" in refused(2, "import", path)
    assert answer("import", path, "--name", "nina")[0]["name"] == "nina"
    assert same(store.get("nina"), replace(full_voice(), name="nina"))
    store.remove("mira")
    assert done("import", path) == "Imported mira.\n"
    done("import", path, "--force")
    assert store.names() == ["mira", "nina"]


def test_the_recording_can_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "m.fishvoice"
    result = run_fishtts("voices", "export", "mira", "-o", path, "--no-clip", "--json")
    assert json.loads(result.stdout)["has_clip"] is False
    assert "only through the models" in result.stderr.decode()
    assert same(read_voice(path), replace(full_voice(), clips=()))


def test_a_built_in_voice_can_be_exported_and_kept_under_another_name(
    tmp_path: Path, store: Store
) -> None:
    done("export", "ada", "-o", tmp_path / "ada.fishvoice")
    assert "built-in" in refused(2, "import", tmp_path / "ada.fishvoice")
    done("import", tmp_path / "ada.fishvoice", "--name", "adele")
    assert store.get("adele").language == "en"


def test_an_export_is_named_after_its_voice(tmp_path: Path) -> None:
    result = run_fishtts("voices", "export", "mira", cwd=tmp_path)
    assert result.stdout == b"mira.fishvoice\n"
    assert same(read_voice(tmp_path / "mira.fishvoice"), full_voice())
    assert "does not end in .fishvoice" in refused(2, "export", "mira", "-o", tmp_path / "a.wav")


def test_what_cannot_be_imported(tmp_path: Path, store: Store) -> None:
    good, bad = tmp_path / "good.fishvoice", tmp_path / "bad.fishvoice"
    write_voice(full_voice("good"), good)
    bad.write_bytes(good.read_bytes()[:-1])
    assert "damaged" in refused(4, "import", good, bad)
    assert store.names() == ["mira"]
    assert "one --name" in refused(2, "import", good, good, "--name", "x").lower()
    assert "fishtts clone" in refused(2, "import", tmp_path / "me.wav")
    assert "no voice file" in refused(4, "import", tmp_path / "none.fishvoice")
    write_voice(replace(full_voice(), name="a b"), good)
    assert "cannot be the name" in refused(2, "import", good)
    done("import", good, "--name", "ab")


# say


def test_own_voices_and_voice_files_speak(tmp_path: Path, model: Path, store: Store) -> None:
    store.add(replace(tiny_voice("otto"), name="zoe"))
    write_voice(tiny_voice("otto"), tmp_path / "z.fishvoice")
    say = ("say", "One stands here.", "-m", model, "--raw", "-q", "--retries", "20")
    results = [run_fishtts(*say, "-v", v) for v in ("otto", "Zoe", tmp_path / "z.fishvoice")]
    assert [result.returncode for result in results] == [0, 0, 0], results[1].stderr.decode()
    assert results[0].stdout == results[1].stdout == results[2].stdout != b""


def test_a_voice_that_cannot_speak_is_found_out_before_a_model_is_loaded(
    tmp_path: Path, store: Store
) -> None:
    (store.folder / "torn.fishvoice").write_bytes(b"torn")
    (tmp_path / "t.fishvoice").write_bytes(b"torn")
    for voice, code, said in (
        ("mirra", 2, 'Did you mean "mira"?'),
        ("adda", 2, 'Did you mean "ada"?'),
        ("torn", 4, "damaged"),
        (str(tmp_path / "t.fishvoice"), 4, "damaged"),
        (str(tmp_path / "none.fishvoice"), 2, "no recording or voice file"),
    ):
        result = run_fishtts("say", "Hello.", "-v", voice, "--dry-run")
        assert result.returncode == code
        assert said in result.stderr.decode()
        assert result.stdout == b""


def test_two_voices_of_one_name_are_no_secret(model: Path, store: Store) -> None:
    store.add(tiny_voice("otto"))
    result = run_fishtts("say", "Hello.", "-m", model, "-v", "otto", "--dry-run")
    assert result.returncode == 0
    assert "your own voice" in result.stderr.decode()


def test_own_voices_speak_in_dialogues() -> None:
    text = "ann: Good day.\nbob: [voice:mira] And to you."
    say = ("say", text, "--dry-run", "--json", "--cast", "ann=mira", "--cast", "bob=ada")
    result = run_fishtts(*say)
    assert result.returncode == 0, result.stderr.decode()
    units = json.loads(result.stdout)["units"]
    assert [unit["voice"] for unit in units] == ["mira", "mira"]
    result = run_fishtts("say", text, "--dry-run", "--cast", "ann=mirra")
    assert result.returncode == 2
    assert "mira" in result.stderr.decode().replace("mirra", "")


# Names are completed


def test_completion_knows_ones_own_voices(store: Store) -> None:
    store.add(full_voice(), "adele")
    for words, expected in (
        ("fishtts say -v ad", {"adele", "ada"}),
        ("fishtts voices rm a", {"adele"}),
        ("fishtts voices re", {"rename"}),
    ):
        env = {
            "_FISHTTS_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
            "FISHTTS_VOICES": str(store.folder),
        }
        assert set(run_process(env=env).stdout.decode().split()) == expected


# compare


def test_a_speaker_is_told_from_another(tmp_path: Path) -> None:
    """Of the built-in voices: what one says is nearer to itself than to another."""
    done("play", "ada", "-o", tmp_path / "ada.wav")
    facts = answer("compare", "ada", tmp_path / "ada.wav", "edward")
    same_one, other, _ = facts["pairs"]
    assert (same_one["a"], same_one["b"]) == ("ada", str(tmp_path / "ada.wav"))
    assert same_one["similarity"] > 0.99
    assert same_one["same_speaker"] is True
    assert same_one["verdict"] == "likely the same speaker"
    assert other["similarity"] < facts["threshold"]
    assert other["same_speaker"] is False
    assert "different speakers" in done("compare", "ada", "edward")


def test_an_embedding_in_the_file_is_believed_if_it_is_of_this_encoder(store: Store) -> None:
    mine = speaker_encoder.identity()
    for name, seed, encoder in (("one", 1, mine), ("two", 1, mine), ("old", 1, "another")):
        store.add(replace(full_voice(), embedding=unit(seed), encoder=encoder), name)
    one_two, one_old, _ = answer("compare", "one", "two", "old")["pairs"]
    assert one_two["similarity"] == 1.0
    assert one_old["similarity"] < 0.9  # made anew, from the clip


@pytest.mark.parametrize(
    ("above", "is_same", "said"),
    [
        (0.15, True, "likely the same speaker"),
        (0.05, None, "hard to tell"),
        (-0.05, None, "hard to tell"),
        (-0.15, False, "likely different speakers"),
    ],
)
def test_near_the_threshold_nothing_is_claimed(
    store: Store, above: float, is_same: bool | None, said: str
) -> None:
    cosine = speaker_encoder.SAME_SPEAKER + above
    one, other = np.zeros((2, 256), np.float32)
    one[0] = 1
    other[:2] = cosine, np.sqrt(1 - cosine**2)
    for name, vector in (("one", one), ("other", other)):
        voice = replace(full_voice(), embedding=vector, encoder=speaker_encoder.identity())
        store.add(voice, name)
    (pair,) = answer("compare", "one", "other")["pairs"]
    assert pair["same_speaker"] is is_same
    assert said in pair["verdict"]
    assert f"one and other: {cosine:.2f}, {said}" in done("compare", "one", "other")


def test_what_cannot_be_compared(tmp_path: Path, store: Store) -> None:
    assert "Two voices" in refused(2, "compare", "ada")
    assert "no voice" in refused(2, "compare", "ada", "nobody")
    silence = replace(full_voice(), embedding=None, encoder="")
    zeros = tuple(replace(c, samples=np.zeros_like(c.samples)) for c in silence.clips)
    store.add(replace(silence, clips=zeros), "mute")
    assert "no sound" in refused(2, "compare", "ada", "mute")

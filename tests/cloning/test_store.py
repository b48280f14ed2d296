"""Named voices in a folder: names that are allowed, which voice a name means, many writers."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fishtts import hub
from fishtts.cloning import store as store_module
from fishtts.cloning.store import Store, check_name, find_voice
from fishtts.cloning.voice_file import read_voice, write_voice
from fishtts.errors import ModelError, OutputError, VoiceError
from tests.cloning.voices import full_voice, same
from tests.fakes import clean_env, hollow_model, tiny_model, write_files

MIRA = full_voice("mira")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "voices")


def files(store: Store) -> list[str]:
    return sorted(path.name for path in store.folder.iterdir() if path.name != ".lock")


def test_what_is_added_is_there_until_it_is_removed(store: Store) -> None:
    assert store.names() == []
    store.add(MIRA)
    store.add(MIRA, "otto")
    assert store.names() == ["mira", "otto"]
    assert same(store.get("mira"), MIRA)
    assert same(store.get("otto"), replace(MIRA, name="otto"))
    assert read_voice(store.path("otto")).name == "otto"
    store.remove("mira")
    assert store.names() == ["otto"]
    assert files(store) == ["otto.fishvoice"]


def test_a_name_that_is_taken_stays_with_its_voice_unless_forced(store: Store) -> None:
    store.add(MIRA)
    other = replace(MIRA, description="Another.")
    with pytest.raises(VoiceError, match='"mira" already'):
        store.add(other)
    assert store.get("mira").description == MIRA.description
    store.add(other, force=True)
    assert store.get("mira").description == "Another."


@pytest.mark.parametrize("other", ["MIRA", "Mira"])
def test_names_differ_in_more_than_case(store: Store, other: str) -> None:
    store.add(MIRA)
    with pytest.raises(VoiceError, match='"mira" already'):
        store.add(MIRA, other)
    store.add(replace(MIRA, description="Another."), other, force=True)
    assert store.names() == ["mira"]
    assert store.get(other).description == "Another."


def test_names_are_one_however_their_accents_are_encoded(store: Store) -> None:
    store.add(MIRA, "Zoe\u0308")
    assert store.names() == ["Zo\u00eb"]
    assert store.get("zoe\u0308").name == "Zo\u00eb"
    with pytest.raises(VoiceError, match="already"):
        store.add(MIRA, "Zo\u00eb")


@pytest.mark.parametrize("name", ["a", "mira-2", "M_1", "мира", "ミラ", "मीरा", "7", "x" * 64])
def test_names_that_are_allowed(store: Store, name: str) -> None:
    store.add(MIRA, name)
    assert store.names() == [name]
    assert store.get(name).name == name


@pytest.mark.parametrize(
    "name",
    [
        *("../mira", "a/b", "a\\b", "..", ".", ".mira", "mira.wav", "~", "C:x", "/etc/passwd"),
        *("a b", " ", "a\n", "a\x00", "-rf", "_x", "a*", "a?", "\u0301a", "x" * 65, "語" * 60),
        *("CON", "nul", "Com1", "lpt9", "AUX", "prn", "\ud800", "a\u200b", "\u3164", "a\ufe0f"),
    ],
)
def test_names_that_are_not(store: Store, name: str) -> None:
    for attempt in (
        lambda: store.add(MIRA, name),
        lambda: store.add(MIRA, name, force=True),
        lambda: check_name(name),
    ):
        with pytest.raises(VoiceError, match="cannot be the name") as caught:
            attempt()
        str(caught.value).encode()
    for ask in (store.get, store.remove, store.path):
        with pytest.raises(VoiceError, match="no voice"):
            ask(name)
    assert not store.folder.exists()


def test_a_voice_without_a_name_needs_one(store: Store) -> None:
    with pytest.raises(VoiceError, match="empty"):
        store.add(replace(MIRA, name=""))


def test_built_in_names_are_left_to_the_built_in_voices_unless_forced(store: Store) -> None:
    for name in ("ada", "Ada"):
        with pytest.raises(VoiceError, match="built-in"):
            store.add(MIRA, name)
    store.add(MIRA, "Ada", force=True)
    assert store.names() == ["Ada"]


def test_a_voice_gets_another_name(store: Store) -> None:
    store.add(MIRA)
    store.add(MIRA, "otto")
    store.rename("Mira", "anna")
    assert store.names() == ["anna", "otto"]
    assert read_voice(store.path("anna")).name == "anna"
    store.rename("anna", "Anna")
    assert files(store) == ["Anna.fishvoice", "otto.fishvoice"]
    assert same(store.get("anna"), replace(MIRA, name="Anna"))
    for new, said in (("otto", "already"), ("ada", "built-in"), ("a/b", "cannot be the name")):
        with pytest.raises(VoiceError, match=said):
            store.rename("anna", new)
    with pytest.raises(VoiceError, match="no voice"):
        store.rename("nobody", "somebody")
    store.rename("anna", "otto", force=True)
    assert store.names() == ["otto"]


def test_unknown_names_come_with_those_that_are_known(store: Store) -> None:
    store.add(MIRA)
    with pytest.raises(VoiceError) as caught:
        store.get("mirra")
    assert 'Did you mean "mira"?' in caught.value.hint


def test_what_is_not_a_voice_in_the_folder_is_left_alone(store: Store) -> None:
    store.add(MIRA)
    for name in ("notes.txt", "a b.fishvoice", ".x.fishvoice.ab.part.txt", "old.safetensors"):
        (store.folder / name).write_text("mine")
    (store.folder / "torn.fishvoice").write_text("not a voice")
    store.add(MIRA, "otto")
    assert store.names() == ["mira", "otto", "torn"]
    with pytest.raises(ModelError, match="torn"):
        store.get("torn")
    assert (store.folder / "notes.txt").read_text() == "mine"


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = Store(tmp_path / "file" / "voices")
    assert store.names() == []
    with pytest.raises(OutputError, match="cannot be written to") as caught:
        store.add(MIRA)
    assert "FISHTTS_VOICES" in caught.value.hint


def test_the_variable_moves_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FISHTTS_VOICES", str(tmp_path / "mine"))
    assert Store().folder == tmp_path / "mine"
    monkeypatch.delenv("FISHTTS_VOICES")
    assert Store().folder.parts[-2:] == ("fishtts", "voices")


# Which voice a name means


def test_own_voices_come_first_and_it_is_said(store: Store, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    folder = tiny_model(tmp_path / "model", {"name": "tiny"}, ["otto", "anna"])
    store.add(MIRA)
    store.add(MIRA, "Otto")
    assert find_voice("anna", folder, "tiny", store=store).is_own is False
    mira = find_voice("mira", folder, "tiny", store=store)
    assert (mira.is_own, mira.note) == (True, "")
    both = find_voice("otto", folder, "tiny", store=store)
    assert both.is_own
    assert same(both.voice, replace(MIRA, name="Otto"))
    assert "your own" in both.note
    assert "voices rename" in both.note


def test_an_unknown_name_is_answered_from_both_lists(store: Store, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    folder = tiny_model(tmp_path / "model", {"name": "tiny"}, ["otto", "anna"])
    hollow = write_files(tmp_path / "hollow", hollow_model())
    with pytest.raises(VoiceError, match=r"The model tiny has anna, otto\.$"):
        find_voice("nobody", folder, "tiny", store=store)
    with pytest.raises(VoiceError, match="comes without voices"):
        find_voice("nobody", hollow, "hollow", store=store)
    store.add(MIRA)
    with pytest.raises(VoiceError, match=r'mean "mira"\? .*anna, otto\. Your own are mira\.'):
        find_voice("mirra", folder, "tiny", store=store)
    with pytest.raises(VoiceError, match=r'mean "otto"\?'):
        find_voice("oto", folder, "tiny", store=store)
    with pytest.raises(VoiceError, match=r"Your own are mira\."):
        find_voice("nobody", hollow, "hollow", store=store)


def test_a_voice_in_use_does_not_vanish(store: Store) -> None:
    store.add(MIRA)
    found = find_voice("mira", hub.BUILTIN / "minnow", "minnow", store=store)
    store.remove("mira")
    assert same(found.voice, MIRA)


# Many writers at once: real processes

_WRITER = """
import sys
from dataclasses import replace
from pathlib import Path
from fishtts.cloning.store import Store
from fishtts.errors import VoiceError
from tests.cloning.voices import full_voice

store, me = Store(Path(sys.argv[1])), sys.argv[2]
voice = replace(full_voice(), description=me)
sys.stdin.readline()
won = 0
for number in range(10):
    try:
        store.add(voice, ("Race" if me in "ab" else "race") + str(number))
        won += 1
    except VoiceError:
        pass
    store.add(voice, "shared", force=True)
    assert store.get("shared").description in "abcd"
    store.add(voice, f"own-{me}-{number}")
    store.rename(f"own-{me}-{number}", f"mine-{me}-{number}")
    if number % 2:
        store.remove(f"mine-{me}-{number}")
print(won)
"""


def test_writers_do_not_meet(store: Store) -> None:
    """Each name of a race goes to one of four processes; nobody reads half a file; nothing is
    left over, not even what a process that died had begun."""
    store.folder.mkdir()
    (store.folder / ".mira.fishvoice.0badcafe.part").write_text("half")
    writers = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", _WRITER, store.folder, me],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=clean_env(),
        )
        for me in "abcd"
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"go\n")
        writer.stdin.flush()
    wins = [int(writer.communicate(timeout=120)[0]) for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 4
    assert sum(wins) == 10
    names = store.names()
    assert len(names) == 10 + 1 + 4 * 5
    assert {name.casefold() for name in names if name[0] in "Rr"} == {f"race{n}" for n in range(10)}
    for name in names:
        store.get(name)
    assert files(store) == sorted(f"{name}.fishvoice" for name in names)


_ENDLESS_WRITER = """
import sys
from itertools import count
from pathlib import Path
from fishtts.cloning.store import Store
from tests.cloning.voices import full_voice

store = Store(Path(sys.argv[1]))
for number in count():
    store.add(full_voice(), "busy", force=True)
    store.add(full_voice(), "busier", force=True)
    store.rename("busier", "busiest", force=True)
    if number == 3:
        print("busy", flush=True)
"""


def test_a_writer_that_is_killed_leaves_whole_voices_and_no_lock(store: Store) -> None:
    for _ in range(3):
        command = [sys.executable, "-W", "error", "-c", _ENDLESS_WRITER, store.folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=clean_env()) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"busy\n"
            writer.kill()
        for name in store.names():
            assert same(store.get(name), full_voice(name))
    store.add(MIRA)
    assert [name for name in files(store) if not name.endswith(".fishvoice")] == []
    assert {"busy", "busiest", "mira"} <= set(store.names())


def test_a_writer_that_hangs_is_not_waited_for_for_ever(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    import filelock

    monkeypatch.setattr(store_module, "_LOCK_WAIT_S", 0.1)
    store.folder.mkdir()
    with (
        filelock.FileLock(store.folder / ".lock"),
        pytest.raises(OutputError, match="Another program"),
    ):
        store.add(MIRA)
    store.add(MIRA)


def test_a_voice_that_cannot_be_written_leaves_the_old_one(store: Store) -> None:
    store.add(MIRA)
    with pytest.raises(ModelError):
        store.add(replace(MIRA, references=()), force=True)
    assert same(store.get("mira"), MIRA)
    write_voice(MIRA, store.folder / "copied.fishvoice")
    assert store.get("copied").name == "copied"

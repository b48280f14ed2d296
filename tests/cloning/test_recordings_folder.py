"""Which recordings of a folder make which voice."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fishtts.cloning.recordings_folder import find_recordings, name_from
from fishtts.cloning.store import check_name
from fishtts.errors import AudioError, VoiceError


def made(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def found(folder: Path) -> dict[str, list[str]]:
    return {r.name: [path.name for path in r.paths] for r in find_recordings(folder)}


def test_recordings_side_by_side_are_voices_of_their_own(tmp_path: Path) -> None:
    made(tmp_path, "mira.wav", "mira.lab", "otto.FLAC", "otto.txt", "My Aunt (2).mp3", "notes.md")
    made(tmp_path, ".hidden.wav", "old.wav.bak")
    assert found(tmp_path) == {
        "My-Aunt-2": ["My Aunt (2).mp3"],
        "mira": ["mira.wav"],
        "otto": ["otto.FLAC"],
    }


@pytest.mark.parametrize("above", ["", "references/"])
def test_a_folder_for_each_voice(tmp_path: Path, above: str) -> None:
    """As fish-speech keeps them; its own folder or the one named ``references`` will do."""
    names = (
        "mira/b.wav",
        "mira/b.lab",
        "mira/a.wav",
        "mira/a.lab",
        "otto/sample.mp3",
        "empty/x.lab",
    )
    made(tmp_path, *(above + name for name in names))
    assert found(tmp_path) == {"mira": ["a.wav", "b.wav"], "otto": ["sample.mp3"]}


def test_recordings_beside_a_references_folder_count_too(tmp_path: Path) -> None:
    made(tmp_path, "anna.wav", "references/mira/a.wav", "references/otto.wav")
    assert found(tmp_path) == {"anna": ["anna.wav"], "mira": ["a.wav"], "otto": ["otto.wav"]}


def test_where_there_is_nothing(tmp_path: Path) -> None:
    with pytest.raises(AudioError, match="no recordings"):
        find_recordings(made(tmp_path, "a.lab"))
    for nowhere in ("none", "a.lab"):
        with pytest.raises(AudioError, match="cannot be read"):
            find_recordings(tmp_path / nowhere)


@given(st.text(max_size=90))
def test_a_name_that_was_made_is_one_that_is_allowed(text: str) -> None:
    name = name_from(text)
    try:
        assert check_name(name) == name
    except VoiceError as error:
        refusal = str(error)
        assert any(why in refusal for why in ("empty", "Windows", "begins", "longer"))

"""File names are legal everywhere, unique, and never lead out of their folder."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fishtts.errors import ScriptError
from fishtts.text.names import MAX_NAME_BYTES, file_name, file_names, out_key, out_problem

RESERVED = {"con", "prn", "aux", "nul", *(f"{p}{n}" for p in ("com", "lpt") for n in range(10))}


def is_legal(name: str) -> bool:
    """Say what Windows, macOS and Linux all allow, in other words than the code under test."""
    return (
        name not in ("", ".", "..")
        and not set(name) & set('<>:"/\\|?*')
        and all(ord(character) >= 32 and character != "\x7f" for character in name)
        and name[-1] not in ". "
        and name.split(".")[0].strip().lower() not in RESERVED
        and len(name.encode()) <= MAX_NAME_BYTES
    )


def test_hostile_titles() -> None:
    assert file_name('11/22/63: A "Novel"?', ".wav") == "11_22_63_ A _Novel__.wav"
    assert file_name("a" * 210, ".wav") == "a" * 115 + ".wav"


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("L0001", "L0001.wav"),
        ("../../etc/passwd", "_._.._etc_passwd.wav"),
        ("C:\\x", "C__x.wav"),
        ("con", "_con.wav"),
        ("NUL.txt", "_NUL.txt.wav"),
        ("com¹", "_com¹.wav"),
        (".hidden", "_hidden.wav"),
        ("-rf", "_rf.wav"),
        ("end. . ", "end.wav"),
        ("...", "_.wav"),
        ("   ", "_.wav"),
        ("a\nb\0c\u202ed", "a_b_c_d.wav"),
        ("他" * 60, "他" * 38 + ".wav"),
    ],
)
def test_what_a_title_becomes(title: str, name: str) -> None:
    assert file_name(title, ".wav") == name
    assert is_legal(name)


@settings(max_examples=400, deadline=None)
@given(st.text(max_size=250), st.sampled_from([".wav", ".opus", ""]))
@example("COM1 .x", ".wav")
@example(" .", "")
def test_every_name_is_legal(title: str, suffix: str) -> None:
    name = file_name(title, suffix)
    assert is_legal(name)
    assert name.endswith(suffix)


ALIKE = st.sampled_from(
    [
        "a",
        "A",
        "é",
        "e\u0301",
        "ﬁ",
        "fi",
        "ß",
        "SS",
        "a/b",
        "a:b",
        "a?b",
        "x" * 130,
        "x" * 140,
        "A.",
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(ALIKE | st.text(max_size=12), unique=True, max_size=30))
def test_names_differ_even_where_case_and_accents_do_not_count(ids: list[str]) -> None:
    items = [(identity, "") for identity in ids]
    names = file_names(items, ".wav")
    keys = {unicodedata.normalize("NFD", name.casefold()) for name in names}
    assert len(keys) == len(names)
    assert all(map(is_legal, names))
    assert names == file_names(items, ".wav")


def test_names_that_were_asked_for_come_first() -> None:
    assert file_names([("hello", ""), ("b", "Hello.wav"), ("c", "en/intro")], ".wav")[1:] == [
        "Hello.wav",
        "en/intro.wav",
    ]
    first = file_names([("hello", ""), ("b", "Hello.wav")], ".wav")[0]
    assert first.startswith("hello-")
    assert file_names([("en.wav", "")], "") == ["en.wav"]


def test_a_later_line_does_not_rename_an_earlier_one() -> None:
    before = file_names([("a/b", ""), ("a:b", "")], ".wav")
    assert file_names([("a/b", ""), ("a:b", ""), ("a?b", "")], ".wav")[:2] == before
    assert before[0] == "a_b.wav"


@pytest.mark.parametrize(
    "out",
    [
        "../x", "a/../x", "/x", "\\x", "C:x", "c:/x", "a//b", "a/", "", ".", "./x", "a\\b", "a:b",
        "x?", "x\n", "x\u202e", "CON", "a/nul.wav", "x.", "x ", " x", ".hidden", "x" * 121,
        "x.mp3", "x.FLAC", "lpt²",
    ],
)  # fmt: skip
def test_paths_that_are_refused(out: str) -> None:
    assert out_problem(out, ".wav")
    if out:
        with pytest.raises(ScriptError):
            file_names([("a", out)], ".wav")


@pytest.mark.parametrize("out", ["x", "x.wav", "X.WAV", "en/x.wav", "a b/c.v2", "他/é.wav", "con1"])
def test_paths_that_are_taken_as_they_are(out: str) -> None:
    assert out_problem(out, ".wav") == ""
    assert file_names([("a", out)], ".wav")[0].startswith(out)


@pytest.mark.parametrize("outs", [("x.wav", "X"), ("é", "e\u0301"), ("a", "a.wav/b")])
def test_a_file_is_not_asked_for_twice(outs: tuple[str, str]) -> None:
    with pytest.raises(ScriptError, match="asked for"):
        file_names([(out, out) for out in outs], ".wav")


def test_paths_are_compared_as_file_systems_do() -> None:
    assert out_key("Straße", ".wav") == out_key("STRASSE.wav", ".wav")

"""Bytes become clean text, or one sentence says why not."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from fishtts.errors import ScriptError, UsageError
from fishtts.text.read import clean, decode, read_file, read_stream


def test_byte_order_mark_and_windows_line_ends_vanish(tmp_path: Path) -> None:
    path = tmp_path / "bom.txt"
    path.write_bytes(b"\xef\xbb\xbfThe first line.\r\nThe second line.\r\n\r\nThe third line.\r\n")
    assert read_file(path) == "The first line.\nThe second line.\n\nThe third line.\n"


def test_standard_input_is_read_as_bytes() -> None:
    assert read_stream(io.BytesIO("Ünïcode\r".encode())) == "Ünïcode\n"


def test_the_encoding_can_be_named() -> None:
    assert decode("naïve “quoted”".encode("cp1252"), encoding="cp1252") == "naïve “quoted”"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_wide_byte_order_marks_are_believed(encoding: str) -> None:
    assert decode("Héllo".encode(encoding)) == "Héllo"


def test_bytes_that_do_not_fit_are_named_by_place(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes(b"na\xefve")
    with pytest.raises(ScriptError, match=r"byte 2 \(0xef\)") as caught:
        read_file(path)
    assert "--encoding cp1252" in caught.value.hint


def test_a_text_cut_inside_a_character_is_refused() -> None:
    with pytest.raises(ScriptError, match="byte 1"):
        decode("aé".encode()[:-1])


@pytest.mark.parametrize("name", ["klingon", "base64", "no\0name"])
def test_an_encoding_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="encoding"):
        decode(b"text", encoding=name)


@pytest.mark.parametrize(
    ("text", "named"),
    [("a\0b", "NUL character \\(number 2\\)"), ("ab\udcff", "character 3, U\\+DCFF")],
)
def test_what_is_no_character_is_refused(text: str, named: str) -> None:
    with pytest.raises(ScriptError, match=named):
        clean(text)


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match=r"no file .*gone\.txt"):
        read_file(tmp_path / "gone.txt")
    with pytest.raises(ScriptError, match="is a folder"):
        read_file(tmp_path)


def test_a_form_feed_ends_a_paragraph() -> None:
    assert clean("One.\x0cTwo.") == "One.\n\nTwo."

"""A voice file says what was put into it, and a damaged one says so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from fishtts.cloning.voice_file import read_voice, write_voice
from fishtts.errors import DeviceError, ModelError, OutputError
from fishtts.types import Reference, Voice

CODES = np.arange(24, dtype=np.int64).reshape(4, 6)
VOICE = Voice(
    "Mira",
    (Reference(CODES, "Grüße — “hello”\nthere."), Reference(CODES[:, :2] + 4000, "")),
    codec="abc123",
    language="en",
    description="Warm, a little hoarse.",
)


def equal(one: Voice, other: Voice) -> bool:
    parts = ("name", "codec", "language", "description")
    return all(getattr(one, part) == getattr(other, part) for part in parts) and all(
        a.text == b.text and a.codes.dtype == b.codes.dtype and np.array_equal(a.codes, b.codes)
        for a, b in zip(one.references, other.references, strict=True)
    )


def test_a_voice_comes_back_as_it_was(tmp_path: Path) -> None:
    write_voice(VOICE, tmp_path / "mira.safetensors")
    assert equal(read_voice(tmp_path / "mira.safetensors"), VOICE)
    assert [path.name for path in tmp_path.iterdir()] == ["mira.safetensors"]


def test_version_1_stays_readable(tmp_path: Path) -> None:
    """The format written out by hand: what later versions of the reader must go on reading."""
    path = tmp_path / "old.safetensors"
    metadata = {
        "format": "fishtts-voice",
        "version": "1",
        "name": "old",
        "texts": '["One."]',
        "codec": "c",
        "language": "en",
        "description": "",
    }
    save_file({"codes.0": CODES.astype(np.int16)}, path, metadata=metadata)
    assert equal(read_voice(path), Voice("old", (Reference(CODES, "One."),), "c", "en"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": "2"}, "lacks a part"),
        ({"version": "x"}, "not a number"),
        ({"format": "else"}, "not a voice"),
        ({"texts": '["One.", "Two."]'}, "do not belong together"),
        ({"texts": "[]"}, "do not belong together"),
        ({"texts": "[1]"}, "not text"),
        ({"texts": "{"}, "not JSON"),
        ({"name": "a\x1b[2Jb"}, "not a line of text"),
    ],
)
def test_what_is_no_voice_is_refused(tmp_path: Path, change: dict[str, str], said: str) -> None:
    path = tmp_path / "v.safetensors"
    metadata = {"format": "fishtts-voice", "version": "1", "name": "v", "texts": '["One."]'}
    save_file({"codes.0": CODES}, path, metadata={**metadata, **change})
    with pytest.raises(ModelError, match=said):
        read_voice(path)


@pytest.mark.parametrize(
    "codes",
    [
        CODES.astype(np.float32),
        CODES - 1,
        CODES[0],
        CODES[:, :0],
        CODES + 40000,
    ],
)
def test_codes_that_are_none_are_neither_written_nor_read(
    tmp_path: Path, codes: np.ndarray
) -> None:
    path = tmp_path / "v.safetensors"
    with pytest.raises(ModelError, match="not codes"):
        write_voice(Voice("v", (Reference(codes, "One."),)), path)
    assert not path.exists()
    metadata = {"format": "fishtts-voice", "version": "1", "texts": json.dumps(["One."])}
    save_file({"codes.0": codes}, path, metadata=metadata)
    with pytest.raises(ModelError, match="not codes"):
        read_voice(path)


def test_a_voice_cut_short_anywhere_says_so(tmp_path: Path) -> None:
    path = tmp_path / "v.safetensors"
    write_voice(VOICE, path)
    data = path.read_bytes()
    for end in (0, 4, 60, len(data) - 1):
        path.write_bytes(data[:end])
        with pytest.raises(ModelError, match=r"v\.safetensors"):
            read_voice(path)


def test_places_where_no_voice_can_be(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no voice file"):
        read_voice(tmp_path / "none.safetensors")
    with pytest.raises(OutputError, match="cannot be written"):
        write_voice(VOICE, tmp_path / "no" / "v.safetensors")
    with pytest.raises(ModelError, match="no reference"):
        write_voice(Voice("v", ()), tmp_path / "v.safetensors")


def test_a_full_disk_is_the_machines_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(DeviceError, match="No space left"):
        write_voice(VOICE, tmp_path / "v.safetensors")

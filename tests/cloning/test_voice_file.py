"""A voice file says what was put into it, and a damaged one says so."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save_file

from fishtts import hub
from fishtts.cloning.voice_file import pack_voice, read_voice, unpack_voice, write_voice
from fishtts.errors import DeviceError, ModelError, OutputError
from fishtts.types import Audio, Encoding, Reference, Source, Voice
from tests.cloning.voices import clip, full_voice, same, unit

CODES = np.arange(24, dtype=np.int64).reshape(4, 6)
PLAIN = Voice("v", (Reference(CODES, "One."),))


def test_a_voice_comes_back_as_it_was(tmp_path: Path) -> None:
    write_voice(full_voice(), tmp_path / "mira.fishvoice")
    assert same(read_voice(tmp_path / "mira.fishvoice"), full_voice())
    assert [path.name for path in tmp_path.iterdir()] == ["mira.fishvoice"]


_texts = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=30)
_marks = st.text("0123456789abcdef", max_size=8)
_seconds = st.floats(0, 1e6)


@st.composite
def voices(draw: st.DrawFn) -> Voice:
    num = draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def codes(num_codebooks: int) -> tuple[np.ndarray, ...]:
        return tuple(
            rng.integers(0, 2**15, (num_codebooks, rng.integers(1, 9))) for _ in range(num)
        )

    first = codes(draw(st.integers(1, 10)))
    clips = [
        clip(rng.uniform(0.001, 0.05), draw(st.sampled_from([8000, 24000, 44100])), bits, seed)
        for seed, bits in enumerate(draw(st.lists(st.sampled_from([16, 24]), min_size=num)))
    ]
    kept = sorted([draw(_seconds), draw(_seconds)])
    others = draw(st.lists(_marks, max_size=2, unique=True))
    codec = draw(_marks.filter(lambda mark: mark not in others))
    return Voice(
        name=draw(_texts),
        references=tuple(Reference(c, draw(_texts)) for c in first),
        codec=codec,
        language=draw(st.sampled_from(["", "en", "zh-Hant"])),
        description=draw(_texts),
        clips=tuple(clips[:num]) if draw(st.booleans()) else (),
        embedding=unit(num) if draw(st.booleans()) else None,
        sources=(Source("5a" * 32, draw(_seconds), *kept, "2026-01-31"),) * draw(st.integers(0, 2)),
        consent=draw(_texts),
        model=draw(_texts),
        encoder=draw(_marks),
        encodings=tuple(Encoding(other, codes(2), draw(_texts)) for other in others),
    )


@settings(max_examples=60, deadline=None)
@given(voices())
def test_whatever_voice_is_written_is_what_is_read(voice: Voice) -> None:
    assert same(unpack_voice(pack_voice(voice), "v"), voice)


def test_clips_are_kept_to_24_bits_and_no_louder_than_full_scale() -> None:
    samples = np.linspace(-1.5, 1.5, 9001, dtype=np.float32)
    voice = replace(PLAIN, clips=(Audio(samples, 44100),))
    kept = unpack_voice(pack_voice(voice), "v").clips[0]
    assert np.abs(kept.samples - np.clip(samples, -1, 1)).max() <= 2**-23
    again = unpack_voice(pack_voice(replace(voice, clips=(kept,))), "v").clips[0]
    assert np.array_equal(again.samples, kept.samples)


def test_a_clip_of_16_bits_takes_no_more_room_than_its_flac() -> None:
    size = len(pack_voice(replace(PLAIN, clips=(clip(1.0),)))) - len(pack_voice(PLAIN))
    assert size < 1.05 * 2 * 16000


# Older and newer versions


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
    assert same(read_voice(path), Voice("old", (Reference(CODES, "One."),), "c", "en"))


def test_the_built_in_voices_stay_readable() -> None:
    paths = sorted((hub.BUILTIN / "minnow" / "voices").iterdir())
    assert len(paths) >= 8
    for path in paths:
        voice = read_voice(path)
        assert voice.name == path.stem
        assert voice.references[0].codes.shape[0] == 8


def test_version_2_is_what_it_was(tmp_path: Path) -> None:
    """A file of version 2 as bytes: a change of the format must not forget its number."""
    codes = np.arange(6, dtype=np.int16).reshape(2, 3)
    facts = (
        '{"name": "m", "language": "", "description": "", "consent": "", "references": ["A."],'
        ' "codecs": [{"identity": "c", "model": ""}], "encoder": "", "sources": []}'
    )
    metadata = {
        "format": "fishtts-voice",
        "version": "2",
        "needs": "0.1.0",
        "voice": facts,
        "digest": "09fa1148e02e780dd88367eb47c7e6771786548d35c6a85be881142dc98ee55c",
    }
    save_file({"codes.0.0": codes}, tmp_path / "m.fishvoice", metadata=metadata)
    expected = Voice("m", (Reference(codes.astype(np.int64), "A."),), "c")
    assert same(read_voice(tmp_path / "m.fishvoice"), expected)


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        ({"needs": "1.4.0"}, "it needs fishtts 1.4.0 or later"),
        ({}, "it needs a newer fishtts"),
        ({"needs": "\x1b[31m rm -rf"}, "it needs a newer fishtts"),
    ],
)
def test_a_file_from_a_newer_program_says_what_it_needs(
    tmp_path: Path, needs: dict[str, str], said: str
) -> None:
    """Whatever else is in it: a newer version may hold what this one has never heard of."""
    path = tmp_path / "new.fishvoice"
    metadata = {"format": "fishtts-voice", "version": "3", **needs}
    save_file({"spectrum": np.zeros((2, 2), np.complex64)}, path, metadata=metadata)
    with pytest.raises(ModelError, match=r"version 3.*versions up to 2; " + said) as caught:
        read_voice(path)
    assert "pip install --upgrade fishtts" in caught.value.hint
    assert "\x1b" not in str(caught.value)


# What is no voice


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
        ({"texts": "[" * 100_000}, "damaged"),
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
    "codes", [CODES.astype(np.float32), CODES - 1, CODES[0], CODES[:, :0], CODES + 40000]
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


SOURCE = Source("0f" * 32, 9.0, 1.0, 8.0, "2026-12-01")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"references": ()}, "no reference"),
        ({"references": PLAIN.references * 17}, "too many references"),
        ({"references": (Reference(CODES, "a\x00b"),)}, "words"),
        ({"references": (Reference(CODES, "a" * 5001),)}, "words"),
        ({"references": (Reference(CODES, "\ud800"),)}, "words"),
        ({"name": "two\nlines"}, "line of text"),
        ({"consent": "\udcff"}, "line of text"),
        ({"description": "d" * 1001}, "line of text"),
        ({"references": (*PLAIN.references, Reference(CODES[:2], ""))}, "one codec"),
        ({"encodings": (Encoding("x", ()),)}, "do not belong together"),
        ({"encodings": (Encoding("", (CODES,)),)}, "there twice"),
        ({"clips": (clip(), clip())}, "do not belong together"),
        ({"clips": (Audio(np.zeros(0, np.float32), 16000),)}, "0 samples"),
        ({"clips": (Audio(np.full(9, np.nan, np.float32), 16000),)}, "no sound"),
        ({"clips": (Audio(np.zeros(2_880_001, np.float32), 16000),)}, "2880001 samples"),
        ({"clips": (Audio(np.zeros(9, np.float32), 1),)}, "impossible rate"),
        ({"embedding": unit()[:255]}, "wrong size"),
        ({"embedding": unit() * 2}, "embedding is none"),
        ({"embedding": np.full(256, np.nan, np.float32)}, "embedding is none"),
        ({"sources": (replace(SOURCE, sha256="../../etc/passwd"),)}, "no hash"),
        ({"sources": (replace(SOURCE, seconds=float("inf")),)}, "times"),
        ({"sources": (replace(SOURCE, kept_from_s=8.5),)}, "later"),
        ({"sources": (replace(SOURCE, date="yesterday"),)}, "date"),
    ],
)
def test_what_is_no_voice_is_not_written(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    with pytest.raises(ModelError, match=said):
        write_voice(replace(PLAIN, **change), tmp_path / "v.fishvoice")
    assert list(tmp_path.iterdir()) == []


def test_a_voice_cut_short_anywhere_says_so(tmp_path: Path) -> None:
    path = tmp_path / "v.safetensors"
    data = pack_voice(full_voice())
    for end in (0, 4, 60, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:end])
        with pytest.raises(ModelError, match=r"v\.safetensors"):
            read_voice(path)


def test_nothing_in_a_voice_file_says_where_it_was_made(tmp_path: Path) -> None:
    write_voice(full_voice(), tmp_path / "v.fishvoice")
    data = (tmp_path / "v.fishvoice").read_bytes()
    assert str(tmp_path).encode() not in data
    assert set(load(data)) == {
        *("codes.0.0", "codes.0.1", "codes.1.0", "codes.1.1"),
        *("clip.0", "clip.1", "embedding"),
    }


def test_places_where_no_voice_can_be(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no voice file"):
        read_voice(tmp_path / "none.safetensors")
    with pytest.raises(OutputError, match="cannot be written"):
        write_voice(PLAIN, tmp_path / "no" / "v.safetensors")


def test_a_full_disk_is_the_machines_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(DeviceError, match="No space left"):
        write_voice(PLAIN, tmp_path / "v.safetensors")

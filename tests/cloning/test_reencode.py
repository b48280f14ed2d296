"""A voice outlives every codec: its codes, or its clip encoded anew, once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fishtts.cloning.reencode import cache_folder, references_for, voice_for
from fishtts.cloning.voice_file import pack_voice, read_voice, unpack_voice, write_voice
from fishtts.errors import ModelError
from fishtts.types import Encoding, Reference, Voice
from tests.cloning.voices import clip
from tests.fakes import CountingCodec

CODES = np.arange(12, dtype=np.int64).reshape(2, 6)


class Codec(CountingCodec):
    """Count how often it is asked."""

    def __init__(self) -> None:
        self.num_calls = 0

    def encode(self, samples: torch.Tensor) -> torch.Tensor:
        self.num_calls += 1
        return super().encode(samples)


@pytest.fixture
def codec() -> Codec:
    return Codec()


def voice(**change: object) -> Voice:
    """Make a voice for another codec than the tests', with its clips."""
    made = Voice(
        "mira",
        (Reference(CODES + 5000, "One."), Reference(CODES, "Two.")),
        codec="other",
        model="trout",
        clips=(clip(0.5, 16000, seed=1), clip(1.0, 16000, seed=2)),
    )
    return replace(made, **change)


def test_codes_for_the_codec_are_taken_as_they_are(codec: Codec, tmp_path: Path) -> None:
    ready = voice(codec="counting", references=(Reference(CODES, "One."),), clips=(clip(),))
    further = voice(encodings=(Encoding("counting", (CODES, CODES + 1)),))
    assert references_for(ready, codec, cache=tmp_path) == ready.references
    first, second = references_for(further, codec, cache=tmp_path)
    assert np.array_equal(first.codes, CODES)
    assert np.array_equal(second.codes, CODES + 1)
    assert (first.text, second.text) == ("One.", "Two.")
    assert (codec.num_calls, list(tmp_path.iterdir())) == (0, [])


def test_clips_are_encoded_once_for_another_codec(codec: Codec, tmp_path: Path) -> None:
    for _ in range(2):
        references = references_for(voice(), codec, cache=tmp_path / "codes")
        assert [reference.text for reference in references] == ["One.", "Two."]
        assert [reference.codes.shape for reference in references] == [(2, 10), (2, 20)]
        assert np.array_equal(references[1].codes, np.arange(20).repeat(2).reshape(20, 2).T)
    assert codec.num_calls == 2
    references_for(voice(clips=voice().clips[::-1]), codec, cache=tmp_path / "codes")
    assert codec.num_calls == 2  # by what is in the clips, not by whose they are
    newer = Codec()
    newer.identity = "retrained"
    references_for(voice(), newer, cache=tmp_path / "codes")
    assert newer.num_calls == 2


def test_the_voices_own_file_is_not_changed(codec: Codec, tmp_path: Path) -> None:
    path = tmp_path / "mira.fishvoice"
    write_voice(voice(), path)
    before = path.read_bytes()
    kept = read_voice(path)
    references_for(kept, codec, cache=tmp_path / "codes")
    assert path.read_bytes() == before
    assert kept.codec == "other"


def test_a_voice_for_a_codec_can_be_kept_and_loses_nothing(codec: Codec, tmp_path: Path) -> None:
    made = voice_for(voice(), codec, cache=tmp_path)
    assert made.codec == "counting"
    assert [reference.codes.shape for reference in made.references] == [(2, 10), (2, 20)]
    kept = unpack_voice(pack_voice(made), "v")
    assert [encoding.codec for encoding in kept.encodings] == ["other"]
    assert voice_for(kept, codec).references[0].text == "One."
    other = Codec()
    other.identity, other.codebook_sizes = "other", (9000, 9000)
    back = voice_for(kept, other)
    assert np.array_equal(back.references[0].codes, voice().references[0].codes)
    assert (codec.num_calls, other.num_calls) == (2, 0)


@pytest.mark.parametrize("damage", ["cut", "noise", "empty", "another", "out of range"])
def test_a_damaged_entry_is_made_anew(codec: Codec, tmp_path: Path, damage: str) -> None:
    expected = references_for(voice(), codec, cache=tmp_path)
    for entry in tmp_path.iterdir():
        data = entry.read_bytes()
        another = Voice("", (Reference(CODES, ""),), "another")
        out_of_range = Voice("", (Reference(CODES + 9000, ""),), "counting")
        replacement = {
            "cut": data[:-5],
            "noise": data[:-5] + b"\0" * 5,
            "empty": b"",
            "another": pack_voice(another),
            "out of range": pack_voice(out_of_range),
        }
        entry.write_bytes(replacement[damage])
    again = references_for(voice(), codec, cache=tmp_path)
    assert codec.num_calls == 4
    assert all(np.array_equal(a.codes, b.codes) for a, b in zip(again, expected, strict=True))
    references_for(voice(), codec, cache=tmp_path)
    assert codec.num_calls == 4


def test_without_a_cache_it_only_takes_longer(codec: Codec, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for _ in range(2):
        assert len(references_for(voice(), codec, cache=tmp_path / "file" / "codes")) == 2
    assert codec.num_calls == 4


def test_a_voice_with_neither_says_what_to_do(codec: Codec) -> None:
    with pytest.raises(ModelError, match=r"another model \(trout\).*Make it anew") as caught:
        references_for(voice(clips=()), codec)
    assert int(caught.value.exit_code) == 4
    with pytest.raises(ModelError, match="another model, and"):
        references_for(voice(clips=(), model=""), codec)


def test_codes_of_an_unknown_codec_count_if_they_fit(codec: Codec, tmp_path: Path) -> None:
    plain = Voice("v", (Reference(CODES, "One."),))
    assert references_for(plain, codec) == plain.references
    for codes in (CODES[:1], CODES + 1000):
        other = Voice("v", (Reference(codes, "One."),))
        with pytest.raises(ModelError, match="another model"):
            references_for(other, codec)
        encoded = references_for(replace(other, clips=(clip(0.5),)), codec, cache=tmp_path)
        assert encoded[0].codes.shape == (2, 10)


def test_codes_that_cannot_be_the_codecs_are_damage(codec: Codec) -> None:
    """Out of the codebook's range, they would be looked up beyond the end of a table."""
    with pytest.raises(ModelError, match="damaged"):
        references_for(Voice("v", (Reference(CODES + 1000, "One."),), "counting"), codec)


def test_the_cache_is_where_caches_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_folder().parts[-2:] == ("fishtts", "codes")

"""Words go with the clip that they are said in, or are refused with both lengths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fishtts.cloning.speech_detector import Stretch
from fishtts.cloning.transcript import check_words, pair, words_beside
from fishtts.cloning.window import Window
from fishtts.errors import ScriptError, UsageError
from fishtts.types import Audio

CLIP = Audio(np.zeros(16000, np.float32), 16000)
SENTENCE = "The ferry left the harbour before the fog had lifted over the bay."  # about 5 s
STORY = (
    "It rained all morning, and nobody came. The ferry left the harbour before the fog had"
    " lifted over the bay. Then we walked back along the old wall, and had our supper."
)


def window(start_s: float, end_s: float, *, is_whole: bool = False) -> Window:
    return Window(Stretch(start_s, end_s), (Stretch(start_s, end_s),), 40.0, is_whole)


def paired(text: str, kept: Window, *, of_window: bool = False, heard: str | None = None) -> str:
    def transcribe(clip: Audio) -> str:
        assert clip is CLIP
        return heard or ""

    return pair(
        text,
        kept,
        CLIP,
        name="r.wav",
        seconds=95.0,
        of_window=of_window,
        transcribe=None if heard is None else transcribe,
    )


def test_words_of_the_whole_go_with_the_whole() -> None:
    assert paired(SENTENCE, window(0, 5, is_whole=True)) == SENTENCE


@pytest.mark.parametrize("seconds", [1.0, 25.0])
def test_words_that_cannot_take_so_long_are_refused(seconds: float) -> None:
    with pytest.raises(UsageError, match=rf"about 5 s.*{seconds:.1f} s"):
        paired(SENTENCE, window(0, seconds, is_whole=True))


def test_words_of_the_whole_are_never_paired_with_a_part() -> None:
    with pytest.raises(UsageError, match=r"about \d+ s.*95\.0 s.*5\.0 s were kept"):
        paired(STORY, window(20, 25))


def test_words_of_a_part_go_with_the_part() -> None:
    assert paired(SENTENCE, window(20, 25), of_window=True) == SENTENCE
    with pytest.raises(UsageError):
        paired(STORY, window(20, 23), of_window=True)


@pytest.mark.parametrize(
    "heard",
    [
        "the ferry left the harbour before the fog had lifted over the bay",
        "The fairy left the harbor before the fog had lifted over the bay.",
        "A ferry left the harbour before the fog had lifted over a bay",
    ],
)
def test_a_recogniser_places_a_part_in_the_whole_and_our_own_words_stay(heard: str) -> None:
    assert paired(STORY, window(20, 25), heard=heard) == SENTENCE


@pytest.mark.parametrize("heard", ["", "something else was said here by somebody"])
def test_words_that_are_not_in_the_transcript_are_not_placed(heard: str) -> None:
    with pytest.raises(UsageError, match="not found"):
        paired(STORY, window(20, 25), heard=heard)


def test_words_lie_beside_their_recording(tmp_path: Path) -> None:
    recording = tmp_path / "r.wav"
    assert words_beside(recording) == ""
    (tmp_path / "r.txt").write_text("In a text file.\n")
    assert words_beside(recording) == "In a text file."
    (tmp_path / "r.lab").write_text("In a label file.\n")
    assert words_beside(recording) == "In a label file."


def test_a_book_is_no_transcript() -> None:
    assert check_words(" one\n two ") == "one two"
    with pytest.raises(ScriptError):
        check_words("word " * 2000)

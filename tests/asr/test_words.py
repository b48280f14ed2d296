"""What was heard is compared by words as they are spoken, and what was missed is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fishtts.asr.words import compare, words

spoken = st.lists(st.sampled_from(["tide", "came", "in", "the", "sea"]), max_size=8)


@pytest.mark.parametrize(
    ("expected", "heard"),
    [
        ("It costs five dollars.", "It costs $5."),
        ("Doctor Vale, I presume?", "Dr. Vale, I presume."),
        ("[whisper] Hello there.", "Hello, there!"),
        ("<|speaker:0|>Hello there.", "hello there"),
        ("“It’s late,” she said.", "It's late she said."),
        ("twenty three", "23"),
    ],
)
def test_the_same_words_however_they_are_written(expected: str, heard: str) -> None:
    assert compare(expected, heard).wer == 0


def test_missed_words_are_named_in_order() -> None:
    found = compare("The tide came in before anyone noticed.", "The tide game in noticed.")
    assert found.missed == ("came", "before", "anyone")
    assert found.wer == pytest.approx(3 / 7)


def test_words_that_were_added_count() -> None:
    found = compare("Close the door.", "Close the the old door.")
    assert found.missed == ()
    assert found.wer == pytest.approx(2 / 3)


def test_scripts_without_spaces_are_compared_by_letters() -> None:
    assert words("你好，世界。", "zh") == ["你", "好", "世", "界"]
    assert compare("你好世界", "你好时界", "zh").wer == 0.25


def test_nothing_to_hear() -> None:
    assert compare("Hello.", "").missed == ("hello",)
    assert compare("...", "").wer == 0
    assert compare("...", "noise").wer == 1


@given(spoken, spoken)
def test_the_distance_is_one(left: list[str], right: list[str]) -> None:
    there = compare(" ".join(left), " ".join(right))
    back = compare(" ".join(right), " ".join(left))
    edits = there.wer * max(1, len(left))
    assert edits == pytest.approx(back.wer * max(1, len(right)))
    assert abs(len(left) - len(right)) <= round(edits) <= max(len(left), len(right))
    assert (edits == 0) == (left == right)
    assert len(there.missed) <= round(edits)

"""Marks in a text say who speaks and where it pauses; prose with a colon in it says nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fishtts.errors import ScriptError, UsageError
from fishtts.text.dialogue import Segment, find_speakers, read_cast, segments, spread_turns
from fishtts.types import ScriptLine

VOICES = ("ada", "clara", "miles")


def parted(
    text: str, voices: tuple[str, ...] | None = VOICES, cast: dict[str, str] | None = None
) -> list[Segment]:
    return segments(text, find_speakers(text.split("\n"), voices, cast))


def turns(text: str, **options: object) -> list[tuple[str, str]]:
    found = parted(text, **options)  # type: ignore[arg-type]
    return [(segment.voice, segment.text.strip()) for segment in found]


def refused(text: str, **options: object) -> str:
    with pytest.raises(ScriptError) as caught:
        parted(text, **options)  # type: ignore[arg-type]
    return str(caught.value)


def test_a_dialogue_is_parted_into_turns() -> None:
    text = (
        "The door opened.\n"
        "MIRA: Who is there?\n"
        "\n"
        "Nobody answered, so she asked again.\n"
        "Clara: It is me. [voice:miles] And me. [pause:0.5s] Us. [PAUSE: 300ms] [pause:1]\n"
        "narrator: They went in.\n"
    )
    assert parted(text, cast={"MIRA": "ada"}) == [
        Segment("", "The door opened.\n", 1),
        Segment("ada", "Who is there?\n\nNobody answered, so she asked again.\n", 2),
        Segment("clara", "It is me. ", 5),
        Segment("miles", " And me. ", 5, 0.5),
        Segment("miles", " Us.  \n", 5, 1.3),
        Segment("", "They went in.\n", 6),
    ]


def test_a_name_may_stand_above_its_words() -> None:
    assert turns("ADA:\nHello.\n\nOLD TOM:\nBye.", cast={"Old Tom": "miles"}) == [
        ("ada", "Hello."),
        ("miles", "Bye."),
    ]


def test_a_pause_may_come_first() -> None:
    assert parted("[pause:2s]Hello.") == [Segment("", "", 1, 2.0), Segment("", "Hello.", 1)]


PROSE = [
    "Note: this is important.",
    "He said: no",
    "WARNING: Do not touch.",
    "CHAPTER ONE: THE RIVER RISES",
    "ERROR: disk full",
    "See http://example.org: it is there.",
    "At 10:30: tea.",
    "The list: bread, milk.",
    "Then he thought: why not?",
    "他说：不。",
    "C:\\windows",
    "A: yes or no?",
    "[laughing] Ha! [pause] [whispers: softly] <|speaker:0|>",
]


@pytest.mark.parametrize("text", PROSE)
def test_prose_is_no_dialogue(text: str) -> None:
    assert parted(text) == [Segment("", text, 1)]
    assert parted(text, voices=None) == [Segment("", text, 1)]
    assert parted(f"ADA: Hello.\n{text}")[0].text == f"Hello.\n{text}"
    assert parted(f"Ada: Hello.\n{text}")[0].text == f"Hello.\n{text}"


def test_a_rare_line_in_capitals_makes_no_book_a_dialogue() -> None:
    book = "The old man said nothing.\n" * 40 + "BREAKFAST: Two eggs.\n"
    assert len(parted(book)) == 1
    assert "line 41" in refused(book, cast={"MIRA": "ada"})


def test_nothing_is_a_speaker_where_no_voices_are_known() -> None:
    assert len(parted("MIRA: Hello.\nNARRATOR: Hm.", voices=None)) == 1


def test_unknown_speakers_are_refused_by_line_with_the_known_ones() -> None:
    message = refused("Once.\n\nMIRA: Hello.\nADA: Hi.\n[voice:bob] So. [pause:soon] [pause:99s]")
    for expected in (
        'line 3: there is no voice for the speaker "MIRA".',
        'line 5: there is no voice "bob".',
        'line 5: "[pause:soon]" is no pause',
        'line 5: "[pause:99s]" is longer than 60 seconds',
        "Known: ada, clara, miles.",
    ):
        assert expected in message
    assert "line 4" not in message


def test_names_in_the_style_of_a_known_one_are_speakers_too() -> None:
    assert 'line 2: there is no voice for the speaker "Tmo"' in refused("Ada: Hi.\nTmo: Hi.")
    assert 'the speaker "bob"' in refused("ada: Hi.\nbob: Hi.")
    assert 'the speaker "SPEAKER 1"' in refused("SPEAKER 1: Hi.")


def test_a_voice_that_is_unknown_is_refused_even_where_none_was_asked_for() -> None:
    assert 'there is no voice "bob"' in refused("[voice:bob] Hi.", voices=None)


def test_numbered_speakers_are_voices_if_the_cast_says_so() -> None:
    text = "Before. <|speaker:0|>Hello.<|speaker:1|>Hi."
    assert parted(text) == [Segment("", text, 1)]
    assert turns(text, cast={"0": "ada", "1": "miles"}) == [
        ("", "Before."),
        ("ada", "Hello."),
        ("miles", "Hi."),
    ]
    assert "line 1: the cast has no voice for <|speaker:1|>" in refused(text, cast={"0": "ada"})


def test_names_without_case_are_speakers_if_they_are_known() -> None:
    text = "小明：你好。\n他说：不。"
    assert turns(text, cast={"小明": "ada"}) == [("ada", "你好。\n他说：不。")]


def test_the_cast_is_checked() -> None:
    assert read_cast(["MIRA=ada", " OLD TOM = miles ", "0=x=y"]) == {
        "MIRA": "ada",
        "OLD TOM": "miles",
        "0": "x=y",
    }
    for entry in ("MIRA", "=ada", "MIRA="):
        with pytest.raises(UsageError, match="NAME=VOICE"):
            read_cast([entry])
    with pytest.raises(UsageError, match="two voices"):
        read_cast(["A=ada", "A=miles"])
    assert 'no voice "bob" for MIRA' in refused("Hi.", cast={"MIRA": "bob"})


def test_a_cast_may_send_a_name_to_the_narrator() -> None:
    assert turns("Question: why?", cast={"Question": "narrator"}) == [("", "why?")]


MARKS = st.sampled_from(
    ["[voice:ada]", "[voice: CLARA ]", "[pause:1s]", "[pause:20 ms]", "<|speaker:7|>"]
)
WORDS = st.text(st.sampled_from("abc ADé.:[]|<>\n他"), max_size=12).filter(
    lambda words: ":" not in words
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(MARKS, WORDS), max_size=8), WORDS)
def test_no_text_is_lost_but_the_marks(parts: list[tuple[str, str]], first: str) -> None:
    text = first + "".join(mark + words for mark, words in parts)
    words = first + "".join(words for _, words in parts)
    found = parted(text, cast={"7": "miles"})
    assert "".join(segment.text for segment in found) == words
    assert all(segment.text for segment in found[1:])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["ADA: ", "MILES: ", ""]), WORDS), min_size=1))
def test_no_text_is_lost_but_the_names(lines: list[tuple[str, str]]) -> None:
    text = "\n".join(name + words.replace("\n", " ") for name, words in lines)
    found = parted(text)
    expected = "".join(words for _, words in lines)
    assert "".join("".join(s.text for s in found).split()) == "".join(expected.split())


def test_a_turn_goes_on_over_the_lines_of_a_script() -> None:
    lines = [
        ScriptLine("1", 1, "Once."),
        ScriptLine("2", 2, "MIRA: Hello. [voice:miles] Hm."),
        ScriptLine("3", 3, "Still him."),
        ScriptLine("4", 4, "His own.", voice="clara"),
        ScriptLine("5", 5, "Chapter Two", heading="Chapter Two"),
        ScriptLine("6", 6, "Told again."),
    ]
    speakers = find_speakers([line.text for line in lines], VOICES, {"MIRA": "ada"})
    spread = spread_turns(lines, speakers)
    assert [line.voice for line in spread] == ["", "", "miles", "clara", "", ""]
    assert [line.text for line in spread] == [line.text for line in lines]
    with pytest.raises(ScriptError) as caught:
        spread_turns(lines, find_speakers([line.text for line in lines], VOICES, {"X": "ada"}))
    assert 'The script, line 2: there is no voice for the speaker "MIRA"' in str(caught.value)

"""Texts become units that a model can speak, and nothing is dropped."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fishtts.errors import ScriptError
from fishtts.text.normalise import normalise, plain
from fishtts.text.split import Limits, sentences, units
from fishtts.types import Unit


def spoken(text: str, **limits: float) -> list[Unit]:
    return units(text, limits=Limits(**limits), render=normalise)  # type: ignore[arg-type]


def squeezed(text: str) -> str:
    return "".join(text.split())


ABBREVIATIONS = (
    "Dr. Vale paid $1,250.50 at 9:30 a.m. to Mrs. Orr of the U.S. office. It rose 3.14 percent.\n"
)


def test_abbreviations_and_decimals_do_not_split() -> None:
    assert sentences(ABBREVIATIONS) == [
        "Dr. Vale paid $1,250.50 at 9:30 a.m. to Mrs. Orr of the U.S. office. ",
        "It rose 3.14 percent.\n",
    ]
    assert [unit.text for unit in spoken(ABBREVIATIONS)] == [
        s.strip() for s in sentences(ABBREVIATIONS)
    ]


@pytest.mark.parametrize(
    ("language", "text", "count"),
    [
        ("en", 'He said, "Stop. Now." Then he left. “Go away!” she cried.', 3),
        ("de", "Das ist z. B. ein Satz. Am 3. Mai kam Dr. Müller. Er ging.", 3),
        ("es", "¿Cómo estás? ¡Bien! El Sr. Pérez llegó.", 3),
        ("ru", "Это предложение. Ул. Ленина, д. 5. Он пришёл.", 3),
        ("el", "Πώς είσαι; Είμαι καλά. Ευχαριστώ!", 3),
        ("ar", "كيف حالك؟ أنا بخير. شكرا!", 3),
        ("he", "מה שלומך? אני בסדר. תודה!", 3),
        ("hi", "यह एक वाक्य है। यह दूसरा है। क्या?", 3),
        ("bn", "এটা একটা বাক্য। এটা দ্বিতীয়।", 2),
        ("ta", "இது ஒரு வாக்கியம். இது இரண்டாவது.", 2),
        ("am", "ይህ ዓረፍተ ነገር ነው። ይህ ሌላ ነው።", 2),
        ("my", "ဒါက စာကြောင်း။ ဒါက ဒုတိယ။", 2),
        ("zh", "今天天气很好。你好吗？我很好！", 3),
        ("ja", "今日は天気がいい。元気ですか？", 2),
        ("ko", "오늘은 날씨가 좋다. 잘 지내니? 네!", 3),
        ("hy", "Սա նախադասություն է։ Ինչպե՞ս ես։ Լավ։", 3),
        ("ka", "ეს წინადადებაა. როგორ ხარ? კარგად!", 3),
    ],
)
def test_sentences_of_many_scripts(language: str, text: str, count: int) -> None:
    found = sentences(text, language)
    assert len(found) == count
    assert "".join(found) == text


def test_each_line_that_ends_a_sentence_is_a_unit_with_its_pause() -> None:
    made = spoken("One here.\nTwo here.\n", pause_s=0.125)
    assert [unit.text for unit in made] == ["One here.", "Two here."]
    assert [unit.pause_s for unit in made] == [0.125, 0.0]


def test_paragraphs_are_boundaries_with_a_longer_pause() -> None:
    made = spoken("The first line.\nThe second line.\n\nThe third line.\n")
    assert [(u.text, u.pause_s, u.paragraph_end) for u in made] == [
        ("The first line.", 0.25, False),
        ("The second line.", 0.6, True),
        ("The third line.", 0.0, True),
    ]


def test_wrapped_lines_are_one_sentence_and_titles_are_not() -> None:
    text = (
        "The Tide\nThe tide came in before anyone had noticed that the\n"
        "Monday boats were gone, and nobody spoke.\n"
    )
    assert [unit.text for unit in spoken(text)] == [
        "The Tide",
        "The tide came in before anyone had noticed that the Monday boats were gone, and nobody"
        " spoke.",
    ]


def test_very_short_sentences_join_a_neighbour_of_their_paragraph() -> None:
    assert [unit.text for unit in spoken("No. Well then. We stay at home today. Yes.\n\nEnd.")] == [
        "No. Well then.",
        "We stay at home today. Yes.",
        "End.",
    ]


def test_sentences_are_gathered_as_far_as_the_card_says() -> None:
    text = "We stay at home today. They go to the sea. You may choose one."
    assert len(spoken(text)) == 3
    assert [u.text for u in spoken(text, group_chars=50)] == [
        "We stay at home today. They go to the sea.",
        "You may choose one.",
    ]


def test_silent_lines_keep_their_place_and_say_nothing() -> None:
    made = spoken("A normal line.\n...\n\n—\n***\n   \nAnother normal line.\n")
    assert [unit.model_text for unit in made] == [
        "A normal line.", "", "", "", "Another normal line.",
    ]  # fmt: skip
    assert all(unit.warnings for unit in made if not unit.model_text)


@pytest.mark.parametrize("text", ["", " \n ", "...", "*** —\n\n?!", "\U0001f389", "мир"])
def test_a_text_with_nothing_to_say_is_refused(text: str) -> None:
    with pytest.raises(ScriptError, match=r"empty|nothing to say"):
        spoken(text)


LONG = (
    "On the first Monday of the month, when the tide was low and the boats lay on their sides, the"
    " children of the village, who had waited all week, ran down to the harbour with buckets,"
    " spades and nets, and nobody called them back until the sun had gone behind the hill."
)


def test_a_long_sentence_is_cut_at_clauses_into_like_parts() -> None:
    made = spoken(LONG, max_chars=100)
    assert len(made) == 3
    assert all(unit.text.endswith((",", ".")) for unit in made)
    assert made[0].model_text.endswith("."), "a model that hears a comma goes on"
    assert min(len(unit.text) for unit in made) > 60
    assert made[0].pause_s == 0.1


def test_without_clauses_it_is_cut_at_spaces_and_only_then_in_a_word() -> None:
    assert {word for u in spoken("word " * 60, max_chars=100) for word in u.text.split()} == {
        "word"
    }
    assert {unit.pause_s for unit in spoken("so, " + "word " * 60, max_chars=100)[:-1]} == {0.0}
    made = spoken("x" * 250, max_chars=100)
    assert max(len(unit.model_text) for unit in made) <= 100
    assert squeezed("".join(unit.text for unit in made)) == "x" * 250


def test_no_text_is_too_long() -> None:
    text = " ".join(f"Item {i} is on the list." for i in range(1, 61))
    made = spoken(text)
    assert [u.text for u in made] == [f"Item {i} is on the list." for i in range(1, 61)]


WORDS = st.sampled_from(
    ["One.", "two", "Three!", "3.14", "$5", "Dr.", "don't", "—", "...", "\n", "\n\n", "мир",
     "你好。", "x" * 70, "U.S.", "(so", "it)", "\u00a0", "\t", "a,", "\u200d", "e\u0301",
     "[tag]", "😀", "*"]
)  # fmt: skip


@given(st.lists(WORDS, max_size=40).map(" ".join) | st.text(max_size=120), st.integers(30, 80))
@settings(max_examples=300, deadline=None)
def test_nothing_is_dropped_and_nothing_is_too_long(text: str, max_chars: int) -> None:
    for render in (normalise, plain):
        try:
            made = units(text, limits=Limits(max_chars=max_chars), render=render)
        except ScriptError:
            assert render(" ".join(text.split())).text == "" or not squeezed(text)
            continue
        assert squeezed("".join(unit.text for unit in made)) == squeezed(text)
        assert max(len(unit.model_text) for unit in made) <= max_chars
        assert made[-1].pause_s == 0.0

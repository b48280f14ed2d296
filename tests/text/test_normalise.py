"""Written English becomes words of one small alphabet."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fishtts.text.normalise import ALPHABET, normalise, plain

READINGS = [
    # numbers
    ("It has 1,250 pages.", "It has one thousand two hundred fifty pages."),
    ("Pi is 3.14.", "Pi is three point one four."),
    ("It was -5 or −6.5.", "It was minus five or minus six point five."),
    (".5 of 007", "point five of zero zero seven."),
    ("The 1st, 22nd and 103rd.", "The first, twenty-second and one hundred third."),
    ("10-12 or 10–12 people", "ten to twelve or ten to twelve people."),
    ("1/2 cup, 3/4, 1 1/2, ½, 2⅓", "one half cup, three quarters, one and one half, one half, two"
     " and one third."),
    ("#5 & #cool @ home + 1 = 2", "number five and hashtag cool at home plus one equals two."),
    ("$20/month for notes.txt", "twenty dollars per month for notes dot txt."),
    ("5 ft. 4 high, 5 min. later", "five feet four high, five minutes later."),
    ("version 1.2.3", "version one point two point three."),
    ("H2O in 3D", "H two O in three D."),
    ("٣ and ５", "three and five."),
    # years
    ("In 1984, 1905, 2005 and 2024.", "In nineteen eighty-four, nineteen oh-five, two thousand"
     " five and twenty twenty-four."),
    ("the 1990s and the '80s", "the nineteen nineties and the eighties."),
    ("from 1984–1986", "from nineteen eighty-four to nineteen eighty-six."),
    # money, percentages
    ("$1,250.50", "one thousand two hundred fifty dollars and fifty cents."),
    ("$1, £1.01, €0.50, -$4", "one dollar, one pound and one penny, fifty cents, minus four"
     " dollars."),
    ("$3.5 million or 20 € or $5-10", "three point five million dollars or twenty euros or five to"
     " ten dollars."),
    ("3.14% more", "three point one four percent more."),
    # times and dates
    ("at 9:30 a.m. or 14:05", "at nine thirty A M or fourteen oh five."),
    ("9 pm, 9:00, 14:00", "nine P M, nine o'clock, fourteen hundred."),
    ("2024-03-05", "March fifth, twenty twenty-four."),
    ("3/5/2024", "March fifth, twenty twenty-four."),
    ("25/12/2024", "December twenty-fifth, twenty twenty-four."),
    ("March 3rd, 2024", "March third, twenty twenty-four."),
    ("5 May 1905 and Jan. 7", "May fifth, nineteen oh-five and January seventh."),
    # units
    ("100 km/h, 20kg, 1 ft, 6 ft", "one hundred kilometers per hour, twenty kilograms, one foot,"
     " six feet."),
    ("-5°C and 3 m²", "minus five degrees Celsius and three square meters."),
    ("5-10 km at 30mph", "five to ten kilometers at thirty miles per hour."),
    # abbreviations, initials, acronyms
    ("Dr. Vale and Mrs. Orr of the U.S. office", "Doctor Vale and Missus Orr of the U S office."),
    ("St. Paul on Main St.", "Saint Paul on Main Street."),
    ("e.g. this, i.e. that, etc.", "for example, this, that is, that, et cetera."),
    ("No. 5 vs. No. He said no.", "Number five versus No. He said no."),
    ("NASA vs. FBI and the USA", "Nasa versus F B I and the U S A."),
    ("John F. Kennedy and J. R. R. Tolkien", "John F Kennedy and J R R Tolkien."),
    ("Henry VIII, Chapter IV", "Henry the eighth, Chapter four."),
    ("STOP SHOUTING AT ME!", "Stop shouting at me!"),
    # addresses
    ("See https://www.example.com/help.", "See example dot com slash help."),
    ("Go to example.org!", "Go to example dot org!"),
    ("bob.smith@example.co.uk", "bob dot smith at example dot C O dot U K."),
    # typography
    ("It’s “quoted” — really… yes", "It's quoted, really, yes."),
    ("'Hello,' he said. Don't!", "Hello, he said. Don't!"),
    ("Wait... What?!", "Wait. What?"),
    ("café Straße Łódź", "cafe Strasse Lodz."),
    ("so\u200bft\u00adhy\u2060phen", "softhyphen."),
    ("(in brackets), well-known", "in brackets, well-known."),
    ("**bold** and `code`", "bold and code."),
]  # fmt: skip


@pytest.mark.parametrize(("written", "spoken"), READINGS)
def test_reading(written: str, spoken: str) -> None:
    assert normalise(written) == (spoken, ())


@pytest.mark.parametrize("written", ["", "   ", "...", "—", "***", "?!", "()", "''"])
def test_nothing_to_say_is_empty(written: str) -> None:
    assert normalise(written).text == ""


@pytest.mark.parametrize(
    ("written", "spoken", "named"),
    [
        ("Hi [laugh] there", "Hi there.", "[laugh]"),
        ("I like it \U0001f389 a lot", "I like it a lot.", "party popper"),
        ("Hello мир", "Hello.", "мир"),
        ("\u2764\ufe0f", "", "heavy black heart"),
    ],
)
def test_what_is_left_out_is_said(written: str, spoken: str, named: str) -> None:
    text, warnings = normalise(written)
    assert text == spoken
    assert len(warnings) == 1
    assert named in warnings[0]


@given(st.text(max_size=80) | st.text("0123456789.,:/-$€%°# amkgst'[]()IVXDrUS?!", max_size=40))
@settings(max_examples=400, deadline=None)
def test_only_the_alphabet_is_left_and_a_mark_ends_it(written: str) -> None:
    spoken = normalise(written).text
    assert ALPHABET.fullmatch(spoken)
    assert spoken == "" or spoken[-1] in ".!?"
    assert "  " not in spoken
    assert spoken == spoken.strip()


def test_plain_text_keeps_tags_and_scripts() -> None:
    assert plain("  [whisper]  Привет\n мир 5% ").text == "[whisper] Привет мир 5%"
    assert plain("今天天气\n很好").text == "今天天气很好"
    assert plain("—").text == ""


@pytest.mark.parametrize("mark", ["<|im_end|>", "<|speaker:1|>", "<|semantic:7|>", "[laughing]"])
def test_marks_of_other_models_are_left_out_and_said(mark: str) -> None:
    found = normalise(f"Before {mark} after.")
    assert found.text == "Before after."
    assert any(mark in warning for warning in found.warnings)

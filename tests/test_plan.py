"""Which units a text becomes, with which seeds, and what a model's card cannot cover."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fishtts.config import SpeechConfig
from fishtts.errors import LimitError, ScriptError
from fishtts.plan import expected_seconds, make_plan, unit_seed
from fishtts.types import Card

ANY = Card("any")
ENGLISH = Card("english", languages=("en",), scripts=("Latin",), normalise=True, unit_chars=180)


def seeds(text: str, config: SpeechConfig = SpeechConfig()) -> dict[str, list[int]]:  # noqa: B008
    found: dict[str, list[int]] = {}
    for planned in make_plan(text, ENGLISH, config).units:
        found.setdefault(planned.unit.text, []).append(planned.seed)
    return found


LINES = [f"This is line number {number} of the text.\n" for number in range(8)]


def test_a_line_more_changes_no_other_line() -> None:
    before = seeds("".join(LINES))
    after = seeds("".join([*LINES[:3], "A new line came in between.\n", *LINES[3:]]))
    assert len(before) == 8
    assert before.items() <= after.items()


def test_equal_lines_get_different_seeds_and_keep_them() -> None:
    found = seeds("".join([*LINES[:2], *LINES[:2]]))
    assert all(len(set(two)) == 2 for two in found.values())
    assert seeds("".join(LINES[:2])) == {text: two[:1] for text, two in found.items()}


def test_the_seed_of_the_run_and_the_number_of_the_try_count() -> None:
    assert seeds(LINES[0]) != seeds(LINES[0], SpeechConfig(seed=1))
    assert len({unit_seed(0, "a"), unit_seed(0, "a", attempt=1), unit_seed(0, "a", 1)}) == 3
    assert all(0 <= unit_seed(run, "a") < 2**63 for run in range(100))


def test_seeds_stay_what_they_are() -> None:
    """A later version must speak an old text in the old way."""
    assert unit_seed(42, "The tide came in.") == 5497417064787226428


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("The tide came in before anyone noticed.", 2.0, 4.0),
        ("Yes.", 0.4, 1.0),
        ("他在海边走了很久，没有遇见任何人。", 3.0, 6.0),
        ("Es rauscht das Meer, und niemand hat den Wind bemerkt, der von Norden kam.", 4, 7),
        ("[whispering softly] Hello there.", 0.8, 2.0),
        ("", 0.0, 0.0),
    ],
)
def test_the_estimate_is_in_the_right_region(text: str, low: float, high: float) -> None:
    assert low <= expected_seconds(text) <= high


def test_a_pause_is_put_between_all_sentences() -> None:
    text = "One sentence stands here. Another one stands there. The last one ends it."
    assert len(make_plan(text, ANY).units) == 1
    units = [planned.unit for planned in make_plan(text, ANY, SpeechConfig(pause_s=0.7)).units]
    assert [unit.pause_s for unit in units] == [0.7, 0.7, 0.0]


def test_words_in_letters_that_the_model_lacks() -> None:
    plan = make_plan("Hello Москва there.", ENGLISH)
    assert '"Москва" (Cyrillic)' in plan.shortfalls[0]
    assert plan.units[0].unit.model_text == "Hello there."
    with pytest.raises(ScriptError, match="Москва"):
        make_plan("Hello Москва there.", ENGLISH, strict=True)
    with pytest.raises(LimitError, match="Nothing was said"):
        make_plan("Москва!", ENGLISH)
    assert make_plan("Hello Москва there.", ANY, strict=True).shortfalls == ()


def test_a_language_that_the_model_does_not_speak() -> None:
    text = "Das ist ein Haus, und die Katze ist auf dem Dach und nicht bei der Maus."
    assert '"de"' in make_plan(text, ENGLISH).shortfalls[0]
    with pytest.raises(ScriptError, match='"de"'):
        make_plan(text, ENGLISH, strict=True)
    both = replace(ENGLISH, languages=("en", "de"))
    assert make_plan(text, both).shortfalls == ()


def test_a_speaker_goes_on_until_the_next_tag() -> None:
    text = (
        "First of all, nobody has been named. <|speaker:0|>Hello there, my friend. How are you"
        " doing on this fine day? <|speaker:1|>I am well, thank you very much. And how are you?"
    )
    units = [planned.unit for planned in make_plan(text, replace(ANY, unit_chars=60)).units]
    assert " ".join(unit.text for unit in units) == text
    assert [unit.model_text for unit in units] == [
        "First of all, nobody has been named.",
        "<|speaker:0|>Hello there, my friend.",
        "<|speaker:0|>How are you doing on this fine day?",
        "<|speaker:1|>I am well, thank you very much.",
        "<|speaker:1|>And how are you?",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "彼は海辺を長く歩いた。誰にも会わなかった。風が北から吹いていた。",
        "Он долго шёл по берегу. Никого не было. Дул холодный северный ветер.",
        "वह किनारे पर चला। कोई नहीं था। हवा चल रही थी।",
        "كان يمشي على الشاطئ. لم يكن هناك أحد. هبت الريح من الشمال.",
    ],
)
def test_sentences_are_found_in_other_scripts(text: str) -> None:
    assert len(make_plan(text, ANY, SpeechConfig(pause_s=0.2)).units) == 3


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), max_size=300))
def test_every_word_is_in_some_unit(text: str) -> None:
    for card in (ANY, ENGLISH):
        try:
            plan = make_plan(text, card)
        except (ScriptError, LimitError):
            continue
        said = "".join(planned.unit.text for planned in plan.units)
        assert "".join(said.split()) == "".join(text.split())

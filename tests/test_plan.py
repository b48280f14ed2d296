"""Which units a text becomes, with which seeds, and what a model's card cannot cover."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fishtts.config import SpeechConfig
from fishtts.errors import LimitError, ScriptError
from fishtts.plan import expected_seconds, make_plan, unit_seed
from fishtts.text.dialogue import find_speakers
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


DIALOGUE = (
    "The door opened.\nMIRA: Who is there? [pause:0.5s] Speak!\n\nClara: It is me.\nTOM: Yes.\n"
)
CAST = {"MIRA": "ada", "TOM": "miles"}


def test_a_dialogue_gives_its_turns_to_voices() -> None:
    plan = make_plan(DIALOGUE, ENGLISH, voices=["ada", "clara", "miles"], cast=CAST)
    assert [(p.voice, p.unit.text, p.unit.pause_s) for p in plan.units] == [
        ("", "The door opened.", 0.25),
        ("ada", "Who is there?", 0.5),
        ("ada", "Speak!", 0.6),
        ("clara", "It is me.", 0.25),
        ("miles", "Yes.", 0.0),
    ]


def test_an_unknown_speaker_is_refused_by_the_line_of_the_file() -> None:
    with pytest.raises(ScriptError, match=r"line 12: .*MIRA") as caught:
        make_plan(DIALOGUE, ENGLISH, voices=["ada"], first_line=11)
    assert "ada" in str(caught.value)


def test_without_voices_no_line_is_a_speakers() -> None:
    plan = make_plan("MIRA: Who is there?", ENGLISH)
    assert [(p.voice, p.unit.text) for p in plan.units] == [("", "MIRA: Who is there?")]


def test_a_line_of_a_script_is_told_who_may_speak() -> None:
    lines = ["Ada: Hello.", "Bob: Hi."]
    speakers = find_speakers(lines, ["ada"])
    assert make_plan(lines[0], ENGLISH, speakers=speakers).units[0].voice == "ada"
    with pytest.raises(ScriptError, match=r"line 2: .*Bob"):
        make_plan(lines[1], ENGLISH, speakers=speakers, first_line=2)


def test_the_voice_counts_in_the_seed_and_only_where_one_is_given() -> None:
    def seed(text: str) -> int:
        return make_plan(text, ENGLISH, voices=["ada", "miles"]).units[-1].seed

    assert seed("Hello there.") == unit_seed(0, "Hello there.")
    assert len({seed("Hello there."), seed("ADA: Hello there."), seed("MILES: Hello there.")}) == 3
    assert seed("ADA: Hello there.") == seed("Once.\n\nADA: Hello there.")


def test_pauses_that_are_asked_for_are_exact() -> None:
    def pauses(text: str, **options: float) -> list[float]:
        units = make_plan(text, ENGLISH, SpeechConfig(**options)).units  # type: ignore[arg-type]
        return [planned.unit.pause_s for planned in units]

    assert pauses("One here, [pause:2s] two there. [pause:100ms]") == [2.0, 0.1]
    assert pauses("One here. [pause:1s] [pause:1s]\n\nTwo there.", pause_s=0.3) == [2.0, 0.0]
    assert pauses("One here. ... [pause:1s] ... Two there.") == [1.0, 0.0, 0.0, 0.0]
    leading = make_plan("[pause:1s] One here.", ENGLISH).units[0]
    assert (leading.unit.text, leading.unit.pause_s, leading.is_silent) == ("", 1.0, True)
    with pytest.raises(ScriptError, match="nothing to say"):
        make_plan("[pause:1s] ...", ENGLISH)


def test_speaker_tags_go_through_unless_the_cast_takes_them() -> None:
    text = "<|speaker:0|>Hello there, all. [pause:1s] How are you?[voice:ada] Fine, thank you."
    plan = make_plan(text, ANY, voices=["ada"])
    assert [(p.voice, p.unit.model_text) for p in plan.units] == [
        ("", "<|speaker:0|>Hello there, all."),
        ("", "<|speaker:0|>How are you?"),
        ("ada", "Fine, thank you."),
    ]
    plan = make_plan(text, ANY, voices=["ada", "miles"], cast={"0": "miles"})
    assert [(p.voice, p.unit.model_text) for p in plan.units][:2] == [
        ("miles", "Hello there, all."),
        ("miles", "How are you?"),
    ]


MARKED = st.lists(
    st.sampled_from(["[voice:ada]", "[pause:1s]", "<|speaker:3|>", "\nADA: ", "\nMILES: "])
    | st.text(st.sampled_from("abc dE.,!?\n他é-"), max_size=20),
    max_size=10,
)


@settings(max_examples=100, deadline=None)
@given(MARKED)
def test_no_word_of_a_dialogue_is_lost(parts: list[str]) -> None:
    marks = ("[voice:ada]", "[pause:1s]", "<|speaker:3|>", "\nADA: ", "\nMILES: ")
    words = "".join(part for part in parts if part not in marks)
    try:
        plan = make_plan("".join(parts), ANY, voices=["ada", "miles"], cast={"3": "miles"})
    except ScriptError:
        assert not any(map(str.isalnum, words))
        return
    said = "".join(planned.unit.text for planned in plan.units)
    assert "".join(said.split()) == "".join(words.split())

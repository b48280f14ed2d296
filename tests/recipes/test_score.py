"""The evaluation's own arithmetic: which spellings are one word, how errors count."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("num2words")

from recipes.minnow.normaliser import normalise
from recipes.minnow.score import (
    JUDGE_RATE,
    LineErrors,
    bootstrap_interval,
    char_error_rate,
    compare,
    edit_distance,
    judges_audio,
    word_error_rate,
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('"I never said that," she replied.', "I never said that she replied"),
        ("There were twenty seven people.", "There were 27 people."),
        ("Twenty-seven people", "twenty seven people"),
        ("two hundred and fifty miles", "250 miles"),
        ("two hundred fifty miles", "250 miles"),
        ("one thousand two hundred steps", "1,200 steps"),
        ("eight thousand dollars", "$8,000"),
        ("in nineteen forty five", "in 1945"),
        ("in two thousand and four", "in 2004"),
        ("the twenty first of May", "the 21st of May"),
        ("five dollars and fifty cents", "$5.50"),
        ("one pound", "£1"),
        ("a quarter to seven thirty", "a quarter to 7:30"),
        ("seven oh five", "7:05"),
        ("nine o'clock", "9 o’clock"),
        ("ten per cent", "10%"),
        ("ten percent", "10 per cent"),
        ("three point two", "3.2"),
        ("the nineteen twenties", "the 1920s"),
        ("the nineteen hundreds", "the 1900s"),
        ("Doctor Brown and Mister Green", "Dr. Brown and Mr Green"),
        ("at six p.m. today", "at 6 PM today"),
        ("I do not know", "I don't know"),
        ("you can't", "you cannot"),
        ("Harbour, cancelled, grey, favourite", "harbor canceled gray favorite"),
        ("The theatres realised it", "the theaters realized it"),
        ("It's all right", "Its alright"),
        ("The café", "the cafe"),
        ("a hundred grams", "100 grams"),
        ("The ploughman catalogued two catalogues", "The plowman cataloged two catalogs"),
        ("on the windowsill", "on the window sill"),
    ],
)
def test_one_pronunciation_is_one_text(one: str, other: str) -> None:
    assert normalise(one) == normalise(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("bread and butter", "bread butter"),
        ("a hundred and more", "a hundred more"),
        ("four hours", "for hours"),
        ("the hour", "the our"),
        ("fifteen", "fifty"),
        ("I would go", "I will go"),
    ],
)
def test_what_sounds_different_stays_different(one: str, other: str) -> None:
    assert normalise(one) != normalise(other)


@pytest.mark.parametrize(
    ("language", "one", "other"),
    [
        ("es", "El quince de agosto, ¿verdad?", "el 15 de agosto verdad"),
        ("fr", "Il y avait vingt-sept personnes à l'école.", "Il y avait 27 personnes à l’école"),
        ("it", "C'erano ventisette persone.", "C’erano 27 persone"),
        ("pt", "Havia vinte e sete pessoas.", "Havia 27 pessoas"),
    ],
)
def test_other_languages_have_their_own_numbers(language: str, one: str, other: str) -> None:
    assert normalise(one, language) == normalise(other, language)


def test_normalising_twice_changes_nothing() -> None:
    text = "Mr. O'Neil's 3rd colour-coded cheque, £2.50, won't arrive before 7:30 p.m."
    words = normalise(text)
    assert normalise(" ".join(words)) == words


def test_nothing_but_punctuation_is_no_word() -> None:
    assert normalise(" ... !?") == []


@pytest.mark.parametrize(
    ("reference", "heard", "distance"),
    [
        ("", "", 0),
        ("a b c", "a b c", 0),
        ("a b c", "a c", 1),
        ("a b c", "a x c", 1),
        ("a b c", "a b b c", 1),
        ("a b c", "", 3),
        ("", "a b", 2),
        ("a b c d", "b c d e", 2),
    ],
)
def test_edit_distance(reference: str, heard: str, distance: int) -> None:
    assert edit_distance(reference.split(), heard.split()) == distance


def test_rates_are_pooled_over_words_and_not_averaged_over_lines() -> None:
    lines = [LineErrors(1, 1, 2, 4), LineErrors(0, 9, 0, 36)]
    assert word_error_rate(lines) == pytest.approx(0.1)
    assert char_error_rate(lines) == pytest.approx(0.05)


def test_compare_counts_words_and_characters() -> None:
    assert compare("The cat sat.", "the hat sat") == LineErrors(1, 3, 1, 11)


def test_more_words_than_were_said_count_as_errors() -> None:
    assert word_error_rate([compare("Yes.", "yes yes yes")]) == 2.0


def test_bootstrap_interval_encloses_the_rate_and_repeats() -> None:
    lines = [LineErrors(errors, 10, errors, 50) for errors in (0, 0, 0, 1, 0, 2, 0, 0, 5, 0)]
    low, high = bootstrap_interval(lines)
    assert low < word_error_rate(lines) < high
    assert bootstrap_interval(lines) == (low, high)


def test_bootstrap_interval_of_perfect_lines_is_a_point() -> None:
    assert bootstrap_interval([LineErrors(0, 8, 0, 40)] * 5) == (0.0, 0.0)


def test_judges_hear_sixteen_thousand_samples_a_second() -> None:
    tone = np.sin(np.linspace(0, 440 * 2 * np.pi, 24000)).astype(np.float32)
    audio = judges_audio(tone, 24000)
    assert (len(audio), audio.dtype.name) == (JUDGE_RATE, "float32")

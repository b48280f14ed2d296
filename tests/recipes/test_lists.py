"""What is measured stays comparable: frozen lists, frozen words, and none of them trained on."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("num2words")

from recipes.minnow import gather, languages, records, sentences
from recipes.minnow.voices import LINES, REFERENCES, SAMPLE


def test_lists_and_normaliser_are_the_frozen_ones() -> None:
    assert json.loads(records.FROZEN.read_bytes()) == records.frozen_hashes()


def test_lists_have_their_sizes_and_no_sentence_twice() -> None:
    sizes = {"sentences": 40, "extended": 200, "hard": 100, "es": 40, "fr": 40, "it": 40, "pt": 40}
    found = {
        path.stem: path.read_text("utf-8").splitlines() for path in records.LISTS.glob("*.txt")
    }
    assert {name: len(lines) for name, lines in found.items()} == sizes
    everything = [line for lines in found.values() for line in lines]
    assert len({gather.key(line) for line in everything}) == len(everything)
    assert all(line == line.strip() and line for line in everything)


def test_voices_are_chosen_on_lines_that_are_in_no_list() -> None:
    keys = {gather.key(line) for line in records.held_out_lines()}
    assert not keys & {gather.key(line) for line in (*LINES, *REFERENCES, SAMPLE)}


@pytest.mark.parametrize(
    "text",
    ["Listen!", "the ferry left the harbour, before the fog had lifted.",
     "He said, the ferry left the harbour before the fog had lifted. It was cold."],
)  # fmt: skip
def test_a_sentence_of_a_list_stops_the_gathering(text: str) -> None:
    with pytest.raises(SystemExit, match="evaluation"):
        gather.check_held_out(["It rained.", text])


def test_sentences_of_a_list_are_left_out_before_that() -> None:
    seen = {gather.key(line) for line in records.held_out_lines()}
    sources = {"a": ["Listen!", "Listen to me!", "Listen to me.", "Listen to me."]}
    kept = list(gather._fresh("en", sources, sentences.plain, seen))
    assert kept == ["Listen to me!", "Listen to me."]
    gather.check_held_out(kept)


@pytest.mark.parametrize("language", ["es", "fr", "it", "pt"])
def test_templates_of_other_languages_are_sentences(language: str) -> None:
    lines = list(languages.templates(language, np.random.default_rng(0), 200))
    good = [line for line in map(languages.plain, lines) if line]
    assert len(good) >= 0.97 * len(lines)
    assert not any(any(c.isdigit() for c in line) for line in good)


def test_fragments_keep_the_marks_and_the_small_letters_of_the_middle_of_a_sentence() -> None:
    lines = ["When the rain had stopped, she took her coat, and she went out, alone, to the sea."]
    found = list(sentences.fragments(lines * 40, np.random.default_rng(0), 40))
    assert any(line.endswith(",") for line in found)
    assert any(line[0].islower() for line in found)
    assert all(line in lines[0] for line in found)


def test_places_of_characters_become_places_of_bytes() -> None:
    text = "¿Qué?"
    first, last = gather.byte_spans(text, [0, 1, -1, 3], [0, 2, -1, 4])
    assert [text.encode()[a : b + 1].decode() if a >= 0 else "" for a, b in zip(
        first, last, strict=True)] == ["¿", "Qu", "", "é?"]  # fmt: skip


def test_every_language_is_written_in_the_teachers_symbols_alone() -> None:
    assert languages.to_teacher("vˈɛ̃t^sɛt d^ʒa-n") == "vˈɛ̃ʦɛt ʤan"

"""What a model cannot speak is found, word by word."""

from __future__ import annotations

import pytest

from fishtts.text.language import likely_language, scripts, unspoken


def test_scripts_are_counted_by_their_letters() -> None:
    counted = scripts("Hello мир 你好 カタカナ ひらがな 한국 عربي ไทย ქართ Հայ אב हिन्दी 123 !?")
    assert counted["Latin"] == 5
    assert {
        "Cyrillic", "Han", "Katakana", "Hiragana", "Hangul", "Arabic", "Thai", "Georgian",
        "Armenian", "Hebrew", "Devanagari",
    } <= set(counted)  # fmt: skip
    assert len(counted) == 12


def test_words_of_other_scripts_are_found_with_their_place() -> None:
    text = "Say мир, then 你好 世界 twice: हिन्दी."
    found = unspoken(text, ["Latin"])
    assert [(f.text, f.script) for f in found] == [
        ("мир", "Cyrillic"),
        ("你好 世界", "Han"),
        ("हिन्दी", "Devanagari"),
    ]
    assert all(text[f.start : f.start + len(f.text)] == f.text for f in found)


def test_accents_and_fancy_latin_are_latin() -> None:
    assert unspoken("café naïve Łódź ＡＢ 𝐁𝐨𝐥𝐝 5 µm e\u0301t", ["Latin"]) == ()


def test_a_card_without_a_list_speaks_all() -> None:
    assert unspoken("мир 你好", []) == ()


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "The quick brown fox jumps over the lazy dog and then it was tired."),
        ("de", "Der schnelle braune Fuchs springt über den Hund und ist dann sehr müde."),
        ("fr", "Le renard brun saute par-dessus le chien et puis il est très fatigué."),
        ("es", "El rápido zorro marrón salta sobre el perro y luego está muy cansado."),
        ("pt", "A rápida raposa marrom salta sobre o cão e depois ela está muito cansada."),
        ("it", "La rapida volpe marrone salta sopra il cane e poi è molto stanca."),
        ("nl", "De snelle bruine vos springt over de luie hond en daarna is hij moe."),
        ("pl", "Szybki brązowy lis skacze nad leniwym psem i potem jest zmęczony, ale nie śpi."),
    ],
)
def test_plain_sentences_show_their_language(language: str, text: str) -> None:
    assert likely_language(text) == language


@pytest.mark.parametrize("text", ["", "Hello there.", "Rapid seed banks mail eight tiny boxes."])
def test_no_language_is_guessed_from_too_little(text: str) -> None:
    assert likely_language(text) == ""

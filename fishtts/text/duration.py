"""How long it takes to say a text, told from its letters alone.

Knows no voice: people and models differ by a factor of two, and so may this.
"""

from __future__ import annotations

import re
from collections import Counter

from fishtts.text.language import script_of

_LETTER_S = 0.065
"""Seconds a letter or a space takes: 15 a second, as unhurried readers of alphabets speak."""

_LETTER_OF_SCRIPT_S = {
    "Han": 0.22,
    "Hiragana": 0.13,
    "Katakana": 0.13,
    "Hangul": 0.18,
    "Ethiopic": 0.13,
}
_DIGIT_S = 0.35
_PAUSE_S = {**dict.fromkeys(".!?…。！？।", 0.25), **dict.fromkeys(",;:–—、，；：", 0.12)}
_BREATH_S = 0.3
"""What comes on top once: the silence before and after."""

_TAG = re.compile(r"\[[^\[\]\n]*\]|<\|[^|]*\|>")


def expected_seconds(text: str) -> float:
    """Estimate how long it takes to say a text; right within a factor of two, which is its use."""
    if not text:
        return 0.0
    return _BREATH_S + sum(
        number * _seconds_of(character) for character, number in Counter(_TAG.sub("", text)).items()
    )


def _seconds_of(character: str) -> float:
    if character in _PAUSE_S:
        return _PAUSE_S[character]
    if character.isdigit():
        return _DIGIT_S
    if character == " ":
        return _LETTER_S
    script = script_of(character)
    return _LETTER_OF_SCRIPT_S.get(script, _LETTER_S) if script else 0.0

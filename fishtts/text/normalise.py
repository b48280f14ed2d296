"""Text as a model reads it: written signs become plain English words, nothing else is left.

``plain`` only tidies (for models that read free text), ``normalise`` leaves nothing but
``[A-Za-z ,.;:!?'-]`` (for models trained on that alphabet). Both keep the user's text as it is and
say in warnings what they left out. Knows nothing of sentences, models or audio.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

from fishtts.text.abbreviations import expand_abbreviations, spell, spell_acronyms
from fishtts.text.language import unspoken
from fishtts.text.numbers import speak_numbers


class ModelText(NamedTuple):
    """What a model is given, and what had to be left out of it."""

    text: str
    warnings: tuple[str, ...] = ()


Render = Callable[[str], ModelText]
"""How a model wants its text: ``plain`` or ``normalise``."""

ALPHABET = re.compile(r"[A-Za-z ,.;:!?'-]*")
"""All that ``normalise`` may answer with."""

_TAG = re.compile(r"\[[^\[\]\n]{1,100}\]|<\|[^|\n]{1,60}\|>")
_URL = re.compile(r"\b(?:https?://|ftp://|www\.)[^\s<>\"]+", re.IGNORECASE)
_EMAIL = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")
_DOMAIN = re.compile(
    r"\b(?:[a-z0-9-]+\.)+(?:com|org|net|edu|gov|info|dev|io|ai|app|uk|de|fr|eu|ca|au|jp)\b"
    r"(?:/[^\s<>\"]*)?",
    re.IGNORECASE,
)
_URL_END = re.compile(r"[.,;:!?'\")\]]+$")
_URL_SIGNS = {
    ".": "dot", "/": "slash", "-": "dash", "_": "underscore", "?": "question mark", "=": "equals",
    "&": "and", "#": "hash", "@": "at", ":": "colon", "%": "percent", "+": "plus", "~": "tilde",
}  # fmt: skip
_SPOKEN_SUFFIXES = frozenset(("com", "org", "net", "edu", "gov", "info", "dev", "app"))

_SIGNS = str.maketrans(
    {
        "’": "'", "‘": "'", "‛": "'", "ʼ": "'", "′": "'", "`": "'", "´": "'",
        "“": '"', "”": '"', "„": '"', "‟": '"', "«": '"', "»": '"', "″": '"', "‹": '"', "›": '"',
        "‐": "-", "‑": "-", "‒": "-", "–": "-", "−": "-", "﹣": "-", "－": "-", "⁃": "-",
        "—": " -- ", "―": " -- ", "…": "...", "⋯": "...",
        "²": "^2", "³": "^3", "№": "No. ", "℃": "°C", "℉": "°F", "µ": "u", "μ": "u",
        "⁄": "/", "∕": "/", "™": " ", "®": " ", "©": " copyright ",
        "、": ",", "，": ",", "。": ".", "！": "!", "？": "?", "；": ";", "：": ":",
        "¿": " ", "¡": " ", "·": " ", "•": " ", "‣": " ", "▪": " ",
        "ß": "ss", "æ": "ae", "Æ": "Ae", "œ": "oe", "Œ": "Oe", "ø": "o", "Ø": "O", "ł": "l",
        "Ł": "L", "đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "þ": "th", "Þ": "Th", "ı": "i",
    }
)  # fmt: skip
"""Typographic signs as ASCII, so that later patterns need know only one spelling."""

_WORDS_FOR_SIGNS = (
    (re.compile(r"(?<=\d)\s*[x×]\s*(?=\d)"), " by "),
    (re.compile("×"), " times "),
    (re.compile(r"(?<=\d)\s?/\s?(?=[a-z]{3,})"), " per "),
    (re.compile(r"(?<=[A-Za-z]{2})\.(?=[a-z]{2,4}\b)"), " dot "),
    (re.compile("÷"), " divided by "),
    (re.compile("±"), " plus or minus "),
    (re.compile("[≈≅]"), " about "),
    (re.compile("[~∼](?=\\s?[\\d$€£])"), " about "),
    (re.compile("≤"), " at most "),
    (re.compile("≥"), " at least "),
    (re.compile("≠"), " is not "),
    (re.compile("[→⇒➔]"), " to "),
    (re.compile("§+"), " section "),
    (re.compile("[½¼¾⅐-⅞]"), lambda m: f" {unicodedata.normalize('NFKC', m[0]).translate(_SIGNS)}"),
)
_WORDS_AFTER_NUMBERS = (
    (re.compile(r"&"), " and "),
    (re.compile(r"@"), " at "),
    (re.compile(r"%"), " percent "),
    (re.compile(r"\+"), " plus "),
    (re.compile(r"(?<![=<>!])=+(?!=)"), " equals "),
    (re.compile(r"(?<=\w)\s+<\s+(?=\w)"), " less than "),
    (re.compile(r"(?<=\w)\s+>\s+(?=\w)"), " greater than "),
    (re.compile(r"#(?=[A-Za-z])"), " hashtag "),
    (re.compile(r"\$"), " dollars "),
    (re.compile("€"), " euros "),
    (re.compile("£"), " pounds "),
    (re.compile("¥"), " yen "),
    (re.compile("°"), " degrees "),
    (re.compile(r"(?<=\w)/(?=\w)"), " slash "),
    (re.compile(r"\s+--+\s+|(?<=\w)--+(?=\w)|\s+-\s+"), ", "),
    (re.compile(r"[(){}\[\]|]"), ", "),
)

_TIDY = (
    (re.compile(r"(?<![A-Za-z])'|'(?![A-Za-z])"), " "),
    (re.compile(r"(?<![A-Za-z])-|-(?![A-Za-z])"), " "),
    (re.compile(r"\.{2,}(?=\s+[a-z])|\.{2,}\s*(?=,)"), ","),
    (re.compile(r"\s+"), " "),
    (re.compile(r"\s+(?=[,.;:!?])"), ""),
    (re.compile(r"[,;:.]*([!?])[,;:.!?]*"), r"\1"),
    (re.compile(r"[,;:]*\.[,;:.]*"), "."),
    (re.compile(r"([,;:])[,;:]+"), r"\1"),
    (re.compile(r"(?<=[,.;:!?])(?=[A-Za-z])"), " "),
    (re.compile(r"^[\s,.;:!?]+"), ""),
)

_JOINED_SCRIPTS = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WRAP_IN_JOINED_SCRIPT = re.compile(
    rf"(?<=[{_JOINED_SCRIPTS}，。、])\s*\n\s*(?=[{_JOINED_SCRIPTS}])"
)


def plain(text: str) -> ModelText:
    """Tidy white space for a model that reads free text, tags and all scripts included."""
    if not has_words(text):
        return ModelText("")
    return ModelText(" ".join(_WRAP_IN_JOINED_SCRIPT.sub("", text).split()))


def normalise(text: str) -> ModelText:
    """Speak a text in plain English words, letters and simple punctuation.

    The answer is empty where nothing can be said; a final punctuation mark is added where there is
    none. Cut at clauses, not inside them, before calling: "March 3rd, 2024" is read as one date.
    """
    warnings: list[str] = []
    text = _without_tags(text, warnings)
    text = unicodedata.normalize("NFC", text)
    text = _EMAIL.sub(lambda match: _address(match[0]), text)
    text = _URL.sub(lambda match: _url(match[0]), text)
    text = _DOMAIN.sub(lambda match: _url(match[0]), text)
    text = _with_words_for_signs(text)
    if not text.isascii():
        text = _without_emoji(text, warnings)
        text = _ascii_digits(unicodedata.normalize("NFKC", text).translate(_SIGNS))
        text = _without_other_scripts(text, warnings)
        text = _without_accents(text)
    text = speak_numbers(expand_abbreviations(text))
    for pattern, words in _WORDS_AFTER_NUMBERS:
        text = pattern.sub(words, text)
    text = spell_acronyms(text)
    return ModelText(_finish(text), tuple(warnings))


def has_words(text: str) -> bool:
    """Tell whether there is anything to say: a letter, a digit or a sign with a name."""
    return any(unicodedata.category(character)[0] in "LN" for character in text)


def ends_open(text: str) -> bool:
    """Tell whether a text lacks a mark that ends a sentence or a clause."""
    return not text.endswith((".", "!", "?", ",", ";", ":"))


def _with_words_for_signs(text: str) -> str:
    text = text.translate(_SIGNS)
    for pattern, words in _WORDS_FOR_SIGNS:
        text = pattern.sub(words, text)
    return text


def _without_tags(text: str, warnings: list[str]) -> str:
    for tag in dict.fromkeys(_TAG.findall(text)):
        warnings.append(f'Left out "{tag}": this model takes no tags.')
    return _TAG.sub(" ", text)


def _url(url: str) -> str:
    """Read an address on the web as people do: no scheme, no "www", signs by name."""
    ending = _URL_END.search(url)
    tail = ending[0] if ending else ""
    url = url.removesuffix(tail)
    url = re.sub(r"^(?:\w+://)?(?:www\.)?", "", url, flags=re.IGNORECASE).rstrip("/")
    return _address(url) + tail


def _address(address: str) -> str:
    words = []
    for part in re.findall(r"[A-Za-z]+|\d+|[^\W\d_]+|\S", address):
        if part in _URL_SIGNS:
            words.append(_URL_SIGNS[part])
        elif part.isascii() and part.isalpha() and part.lower() not in _SPOKEN_SUFFIXES:
            is_code = len(part) == 2 or not re.search("[aeiouyAEIOUY]", part)
            words.append(spell(part) if is_code else part)
        else:
            words.append(part)
    return " ".join(words)


def _without_emoji(text: str, warnings: list[str]) -> str:
    """Take out pictures, and joiners and other characters that are never seen."""
    kept, removed = [], []
    for character in text:
        category = unicodedata.category(character)
        if category in ("So", "Sk") and character not in "°^":
            removed.append(character)
            kept.append(" ")
        elif category not in ("Cf", "Cn", "Co", "Me"):
            kept.append(character)
    pictures = [character for character in dict.fromkeys(removed) if ord(character) >= 0x2000]
    if pictures:
        names = [unicodedata.name(character, "a picture").lower() for character in pictures[:3]]
        more = f" and {len(pictures) - 3} more" if len(pictures) > 3 else ""
        warnings.append(f"Left out pictures: {', '.join(names)}{more}.")
    return "".join(kept)


def _ascii_digits(text: str) -> str:
    return "".join(
        str(unicodedata.digit(character)) if unicodedata.category(character) == "Nd" else character
        for character in text
    )


def _without_other_scripts(text: str, warnings: list[str]) -> str:
    left_out = unspoken(text, ["Latin"])
    warnings.extend(f'Left out "{found.text}": {found.script} letters.' for found in left_out)
    for found in reversed(left_out):
        text = f"{text[: found.start]} {text[found.start + len(found.text) :]}"
    return text


def _without_accents(text: str) -> str:
    """Fold accented Latin letters ("café" is "cafe")."""
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(c for c in decomposed if not unicodedata.category(c).startswith("M"))


def _finish(text: str) -> str:
    """Keep the alphabet only, set punctuation right, end with a mark."""
    text = re.sub(r"[^A-Za-z ,.;:!?'\-]", " ", text)
    for pattern, replacement in _TIDY:
        text = pattern.sub(replacement, text)
    text = text.strip()
    if not re.search("[A-Za-z]", text):
        return ""
    if text[-1] in ",;:":
        text = text[:-1]
    return f"{text}." if ends_open(text) else text

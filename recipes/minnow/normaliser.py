"""The words that are compared: one pronunciation, one text. Frozen.

Figures made with two versions of this file cannot be compared: its hash is part of every record,
and ``eval/FROZEN.json`` holds the one that counts. Owns spellings and numbers; knows no audio.
"""

from __future__ import annotations

import re
import unicodedata

from num2words import num2words

LANGUAGES = ("en", "es", "fr", "it", "pt")

_PUNCTUATION = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "–": "-", "—": "-"})
_CURRENCIES = {"$": ("dollar", "cent"), "£": ("pound", "pence"), "€": ("euro", "cent")}
_CONTRACTIONS = (
    (r"\bwon't\b", "will not"),
    (r"\bcan't\b", "can not"),
    (r"\bcannot\b", "can not"),
    (r"\bshan't\b", "shall not"),
    (r"n't\b", " not"),
    (r"'re\b", " are"),
    (r"'ll\b", " will"),
    (r"'ve\b", " have"),
    (r"\bi'm\b", "i am"),
)
_SAME_WORD = (
    # one sound, several spellings
    (r"\bmr\b\.?", "mister"),
    (r"\bmrs\b\.?", "missus"),
    (r"\bdr\b\.?", "doctor"),
    (r"\bo\.?k\b\.?", "okay"),
    (r"\b([ap])\.\s?m\b\.?", r"\1m"),
    (r"\b([ap]) m\b", r"\1m"),
    (r"\ball right\b", "alright"),
    (r"\bany more\b", "anymore"),
    (r"\bfor ever\b", "forever"),
    (r"\bwindow sill\b", "windowsill"),
    (r"\bpercent\b", "per cent"),
    (r"\ba (?=hundred\b|thousand\b|million\b)", "one "),
    (r"\bplough", "plow"),
    (r"\bsheikh", "sheik"),
    (r"\bcatalogue(?=[dr])", "cataloge"),
    (r"\bcatalogue", "catalog"),
    (r"%", " per cent"),
    (r"&", " and "),
)
_AMERICAN = {
    "grey": "gray",
    "cheque": "check",
    "centre": "center",
    "theatre": "theater",
    "metre": "meter",
    "litre": "liter",
    "kilometre": "kilometer",
    "programme": "program",
    "tyre": "tire",
    "pyjamas": "pajamas",
    "jewellery": "jewelry",
    "moustache": "mustache",
    "storey": "story",
    "towards": "toward",
    "afterwards": "afterward",
    "practise": "practice",
    "licence": "license",
    "defence": "defense",
    "mould": "mold",
    "sceptical": "skeptical",
    "aeroplane": "airplane",
    "dialogue": "dialog",
}
_OUR = re.compile(
    r"\b(arm|behavi|col|endeav|fav|flav|harb|hon|hum|lab|neighb|od|parl|rig|rum|tum|vap|vig)our"
)
_DOUBLED_L = re.compile(r"\b(cance|fue|jewe|labe|leve|marve|mode|quarre|signa|trave)ll(ed|ing|er)")
_ISE = re.compile(r"\b(real|organ|recogn|apolog|critic|memor|special|final|emphas)is(e[ds]?|ing)\b")
_AND_IN_NUMBER = re.compile(
    r"\b(hundred|thousand|million) and "
    r"(?=(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|\w+ty|first|second"
    r"|third|\w+th)\b)"
)


def normalise(text: str, language: str = "en") -> list[str]:
    """Bring a sentence into the words that are compared: spoken forms, no case, no punctuation."""
    text = unicodedata.normalize("NFKC", text.translate(_PUNCTUATION)).lower()
    if language != "en":
        return _other_language(text, language)
    for pattern, replacement in _SAME_WORD:
        text = re.sub(pattern, replacement, text)
    text = _numbers_to_words(text)
    for pattern, replacement in _CONTRACTIONS:
        text = re.sub(pattern, replacement, text)
    text = re.sub(r"'", "", text)
    text = re.sub(r"[^a-z]+", " ", _without_accents(text)).strip()
    text = _AND_IN_NUMBER.sub(r"\1 ", text)
    text = _OUR.sub(r"\1or", text)
    text = _DOUBLED_L.sub(r"\1l\2", text)
    text = _ISE.sub(r"\1iz\2", text)
    return [_american(word) for word in text.split()]


def _other_language(text: str, language: str) -> list[str]:
    """Numbers to words, no accents, elided articles as words of their own."""
    text = re.sub(r"(?<=\d)[.\s](?=\d{3}\b)", "", text)
    number = {"pt": "pt_BR"}.get(language, language)
    text = re.sub(r"\d+", lambda m: f" {num2words(int(m[0]), lang=number)} ", text)
    return re.sub(r"[^a-z]+", " ", _without_accents(text)).split()


def _american(word: str) -> str:
    if word in _AMERICAN:
        return _AMERICAN[word]
    singular = word.removesuffix("s")
    return _AMERICAN[singular] + "s" if singular in _AMERICAN else word


def _without_accents(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))


def _numbers_to_words(text: str) -> str:
    """Write digits as they are read aloud: money, times, ordinals, years, decimals, the rest."""
    text = re.sub(r"([$£€])(\d[\d,]*)(?:\.(\d\d))?\b", _money, text)
    text = re.sub(r"\b\d{1,3}(?:,\d{3})+\b", _grouped, text)
    text = re.sub(r"\b(\d{1,2}):(\d\d)\b", _time, text)
    text = re.sub(
        r"\b(\d+)(?:st|nd|rd|th)\b", lambda m: f" {num2words(int(m[1]), to='ordinal')} ", text
    )
    text = re.sub(r"\b(\d\d)(\d)0s\b", _decade, text)
    text = re.sub(r"\d+\.\d+", lambda m: f" {num2words(float(m[0]))} ", text)
    return re.sub(r"\d+", _whole_number, text)


def _money(match: re.Match[str]) -> str:
    whole, part = _CURRENCIES[match[1]]
    amount, cents = int(match[2].replace(",", "")), int(match[3] or 0)
    words = f" {num2words(amount)} {whole}{'' if amount == 1 else 's'} "
    if not cents:
        return words
    plural = "" if cents == 1 or part == "pence" else "s"
    return f"{words}and {num2words(cents)} {part}{plural} "


def _time(match: re.Match[str]) -> str:
    hour, minute = num2words(int(match[1])), int(match[2])
    if minute == 0:
        return f" {hour} "
    return f" {hour} {'oh ' if minute < 10 else ''}{num2words(minute)} "


def _grouped(match: re.Match[str]) -> str:
    return f" {num2words(int(match[0].replace(',', '')))} "


def _decade(match: re.Match[str]) -> str:
    century, tens = num2words(int(match[1])), int(match[2])
    return f" {century} {num2words(tens * 10).removesuffix('y') + 'ies' if tens else 'hundreds'} "


def _whole_number(match: re.Match[str]) -> str:
    digits, value = match[0], int(match[0])
    if len(digits) > 1 and digits.startswith("0"):
        return " " + " ".join("oh" if d == "0" else num2words(int(d)) for d in digits) + " "
    is_year = len(digits) == 4 and (1100 <= value < 2000 or 2010 <= value < 2100)
    return f" {num2words(value, to='year' if is_year else 'cardinal')} "

"""English abbreviations, initials and acronyms: which are words, and which are letters.

Owns the tables and the three passes that use them. Knows nothing of numbers or symbols.
"""

from __future__ import annotations

import re

_ALWAYS = {
    "Dr": "Doctor", "Mr": "Mister", "Mrs": "Missus", "Ms": "Miss", "Messrs": "Messers",
    "Prof": "Professor", "Sr": "Senior", "Jr": "Junior", "Mt": "Mount", "Ft": "Fort",
    "Gen": "General", "Col": "Colonel", "Capt": "Captain", "Cpt": "Captain", "Lt": "Lieutenant",
    "Sgt": "Sergeant", "Maj": "Major", "Cmdr": "Commander", "Adm": "Admiral", "Rev": "Reverend",
    "Hon": "Honorable", "Gov": "Governor", "Sen": "Senator", "Rep": "Representative",
    "Ave": "Avenue", "Blvd": "Boulevard", "Rd": "Road", "Hwy": "Highway",
    "vs": "versus", "etc": "et cetera", "approx": "approximately", "dept": "department",
    "Dept": "Department", "govt": "government", "est": "established", "misc": "miscellaneous",
    "Inc": "Incorporated", "Ltd": "Limited", "Corp": "Corporation", "Co": "Company",
    "Bros": "Brothers", "Assn": "Association", "Univ": "University", "cf": "compare",
    "Mon": "Monday", "Tue": "Tuesday", "Tues": "Tuesday", "Wed": "Wednesday", "Thu": "Thursday",
    "Thur": "Thursday", "Thurs": "Thursday", "Fri": "Friday", "Sat": "Saturday", "Sun": "Sunday",
}  # fmt: skip
"""Read so where a full stop follows: without one, "Sun" and "Sat" are words."""

_BEFORE_NUMBER = {
    "No": "Number", "no": "number", "Nos": "Numbers", "nos": "numbers", "Fig": "Figure",
    "fig": "figure", "Figs": "Figures", "Vol": "Volume", "vol": "volume", "Ch": "Chapter",
    "ch": "chapter", "p": "page", "pp": "pages", "ed": "edition", "Sec": "Section",
    "Eq": "Equation", "ca": "circa", "c": "circa", "Apt": "Apartment", "Art": "Article",
}  # fmt: skip

_WITHOUT_STOP = {"Mr", "Mrs", "Ms", "Dr", "vs"}
"""Also read so without a full stop, as British usage writes them."""

_PHRASES = (
    (re.compile(r"\be\.\s?g\.,?", re.IGNORECASE), "for example,"),
    (re.compile(r"\bi\.\s?e\.,?", re.IGNORECASE), "that is,"),
    (re.compile(r"\bet al\."), "et al"),
    (re.compile(r"\ba\.m\."), "A M"),
    (re.compile(r"\bp\.m\."), "P M"),
    (re.compile(r"\bPh\.?\s?D\b\.?"), "P H D"),
    (re.compile(r"\bw/o\b"), "without"),
    (re.compile(r"\bw/(?=\s|[a-z])"), "with "),
    (re.compile(r"\bSt\.?(?=\s+[A-Z][a-z])"), "Saint"),
    (re.compile(r"\bSt\b\."), "Street"),
)

_SPELLED = (
    "AI AOL API ATM BBC CEO CFO CIA CIO CNN COO CPU CTO DIY DNA EU EPA ETA EV FAA FAQ FBI FDA"
    " GDP GPA GPU GUI HIV HQ IBM ICU IDE IOU IP IPO IQ IRA IRS ISBN ISP IV MIT MRI NBA NGO NYU OCR"
    " OK PDF QA RNA SUV TV UAE UCLA UFO UI UK UN URL US USA USB UPS USSR UV UX VIP"
)
"""Read by letter although they have a vowel. Not here: those that are also words in capitals."""
_SPELLED_WORDS = frozenset(_SPELLED.split())

_ROMAN = r"(?=[IVX])(?:X{0,3})(?:IX|IV|V?I{0,3})"
_ROMAN_AFTER = re.compile(
    rf"\b(Chapter|Part|Book|Act|Scene|Volume|Section|Appendix|Article|Phase|Type|War)\s+({_ROMAN})\b"
)
_ROMAN_RULER = re.compile(
    r"\b(Henry|Louis|Edward|George|Charles|James|Richard|William|Elizabeth|Philip|Francis|Frederick"
    rf"|Pius|Paul|Benedict|Gregory|Leo|Napoleon|Nicholas|Alexander|Catherine|Peter)\s+({_ROMAN})\b"
)
_ROMAN_VALUES = {"I": 1, "V": 5, "X": 10}

_DOTTED_CAPITALS = re.compile(r"(?:\b[A-Z]\.){2,}")
_INITIAL = re.compile(
    r"(?:(?<=[a-z]\s)|(?<=^)|(?<=[A-Z]\s)|(?<=[A-Z]\.\s))([A-HJ-Z])\.(?=\s+[A-Z][a-z.])"
)
_CAPITALS = re.compile(r"\b[A-Z]{2,}(?:s\b|\b)")
_ALWAYS_PATTERN = re.compile(rf"\b({'|'.join(sorted(_ALWAYS, key=len, reverse=True))})\.")
_STOPLESS_PATTERN = re.compile(rf"\b({'|'.join(_WITHOUT_STOP)})\b(?=\s)")
_NUMBERED_PATTERN = re.compile(rf"\b({'|'.join(_BEFORE_NUMBER)})\.\s?(?=\d)")

_SHOUTED_WORDS = 3
"""At least so many words, and all in capitals: shouting, not a row of acronyms."""


def expand_abbreviations(text: str) -> str:
    """Write out abbreviations ("Dr." is "Doctor"), and roman numerals after their usual words."""
    for pattern, words in _PHRASES:
        text = pattern.sub(words, text)
    text = _NUMBERED_PATTERN.sub(lambda match: f"{_BEFORE_NUMBER[match[1]]} ", text)
    text = _ALWAYS_PATTERN.sub(lambda match: _written_out(match, text), text)
    text = _STOPLESS_PATTERN.sub(lambda match: _ALWAYS[match[1]], text)
    text = _ROMAN_AFTER.sub(lambda match: _with_roman(match, ""), text)
    return _ROMAN_RULER.sub(lambda match: _with_roman(match, "th"), text)


def spell_acronyms(text: str) -> str:
    """Set letters apart that are read one by one: "U.S.", "FBI", initials of names.

    A word in capitals is read by letter when it has no vowel or is in the list; any other is read
    as a word and written with one capital ("NASA" becomes "Nasa").
    """
    text = _DOTTED_CAPITALS.sub(_letters, text)
    text = _INITIAL.sub(r"\1", text)
    capitals = _CAPITALS.findall(text)
    words = re.findall(r"\b[A-Za-z]{2,}\b", text)
    if len(words) >= _SHOUTED_WORDS and len(capitals) == len(words):
        return text.capitalize()
    return _CAPITALS.sub(_acronym, text)


def spell(letters: str) -> str:
    """Set letters apart, in capitals."""
    return " ".join(letters.upper())


def _written_out(match: re.Match[str], text: str) -> str:
    """Keep the full stop of "etc." where a capital shows that a sentence ended with it."""
    after = text[match.end() :].lstrip()
    ends = match[1] == "etc" and after[:1].isupper()
    return _ALWAYS[match[1]] + ("." if ends else "")


def _with_roman(match: re.Match[str], suffix: str) -> str:
    value = 0
    for symbol, following in zip(match[2], f"{match[2][1:]} ", strict=True):
        worth = _ROMAN_VALUES[symbol]
        value += -worth if _ROMAN_VALUES.get(following, 0) > worth else worth
    if not value:
        return match[0]
    return f"{match[1]} the {value}{suffix}" if suffix else f"{match[1]} {value}"


def _letters(match: re.Match[str]) -> str:
    return f"{spell(match[0].replace('.', ''))} "


def _acronym(match: re.Match[str]) -> str:
    word = match[0].removesuffix("s")
    plural = "s" if match[0].endswith("s") else ""
    if word in _SPELLED_WORDS or not re.search("[AEIOUY]", word):
        letters = spell(word)
        return f"{letters}'s" if plural else letters
    return word.capitalize() + plural

"""Which scripts, and roughly which language, a text is written in; what a model cannot speak.

Scripts come from the Unicode names of letters; languages from the commonest little words, and
only where they speak plainly. Knows no model: a card's lists come in as arguments.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

_SCRIPT_OF_FIRST_WORD = {
    "CJK": "Han",
    "IDEOGRAPHIC": "Han",
    "KANGXI": "Han",
    "BOPOMOFO": "Bopomofo",
    "NKO": "Nko",
    "MICRO": "Latin",
    "KELVIN": "Latin",
    "ANGSTROM": "Latin",
    "OHM": "Latin",
    "SCRIPT": "Latin",
    "DOUBLE-STRUCK": "Latin",
    "BLACK-LETTER": "Latin",
    "FEMININE": "Latin",
    "MASCULINE": "Latin",
    "MODIFIER": "",
    "KATAKANA-HIRAGANA": "Katakana",
    "HALFWIDTH": "Katakana",
}
"""Where the first word of a letter's Unicode name is not its script ("" belongs to any)."""

_LANGUAGE_OF_SCRIPT = {
    "Han": "zh",
    "Hiragana": "ja",
    "Katakana": "ja",
    "Hangul": "ko",
    "Cyrillic": "ru",
    "Greek": "el",
    "Arabic": "ar",
    "Hebrew": "he",
    "Devanagari": "hi",
    "Bengali": "bn",
    "Tamil": "ta",
    "Telugu": "te",
    "Thai": "th",
    "Armenian": "hy",
    "Myanmar": "my",
    "Khmer": "km",
    "Ethiopic": "am",
}
"""The language whose rules find the ends of sentences in a script that many may share."""

_RUN = re.compile(r"[^\W\d_]+(?:[\u0300-\u036f'’\-]+[^\W\d_]+)*")

_MIN_WORDS = 8
"""Fewer words than this name no language: three little words are shared by half of Europe."""

_MIN_SHARE = 0.2
"""Least share of a text that must be a language's little words (running prose has 0.3 to 0.5)."""

_LEAD = 1.5
"""The winner must have this many times the little words of the next language."""

_LITTLE_WORDS = {
    "en": "the of and to in a is that it was for on with as he his be at by had not are but from or"
    " have an they which you were her she this their we been has will would there i my what",
    "de": "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es"
    " an werden aus er hat dass sie nach wird bei einer um am sind noch wie einem über war ich",
    "fr": "de la le et les des en un du une que est pour qui dans a par plus pas au sur ne se ce il"
    " sont avec il elle son nous vous mais je on cette était ses aux été l d qu c",
    "es": "de la que el en y a los se del las un por con no una su para es al lo como más o pero"
    " sus le ha me si sin sobre este ya entre cuando todo esta ser son era muy yo",
    "pt": "de a o que e do da em um para é com não uma os no se na por mais as dos como mas foi ao"
    " ele das tem à seu sua ou ser quando muito há nos já está eu também isso",
    "it": "di e il la che in un a per è una sono del non le si della i con da dei gli al lo nel"
    " come più ma ha alla anche se o mi questo delle era ho degli io suo",
    "nl": "de van een het en in is dat op te zijn met voor niet aan er die was om hij ook als bij"
    " maar uit nog naar ik door over ze je wordt heeft dan of zich werd had",
    "sv": "och i att det som en på är av för med den till inte om ett han men var jag sig från vi"
    " så kan när har de hade hon där eller nu skulle vid",
    "da": "og i at det er en til på som af for med den de ikke der et han var jeg har fra om men vi"
    " sig kan så havde hun eller nu skal ved blev",
    "pl": "w i na z do się nie to że jest o a od po jak za przez ale jego był jako co dla są tym"
    " jej tak było tylko ich czy może ja",
    "cs": "a se v na je že s z do o i to jako za by pro k od ale po jsem si byl který jeho tak co"
    " jsou být bylo má ve už",
    "tr": "ve bir bu da de için ile çok daha olarak ne gibi sonra kadar ben o en var değil ama her"
    " ya olan mi ki şey",
    "id": "yang dan di dengan untuk dari ini itu pada adalah tidak ke dalam akan juga ada saya oleh"
    " atau sebagai mereka kita anda bisa lebih",
    "vi": "và của là có không được cho một trong người với các này đã những để tôi khi về đến ra",
    "fi": "ja on ei se että hän oli mutta kun ovat joka niin myös tai kuin ole minä mitä olen sitä"
    " nyt vain jos sen",
    "hu": "a az és hogy nem is egy ez meg volt de csak már mint el még ha kell azt vagy lehet én",
    "ro": "de și în a la cu nu o că pe mai este un pentru din se ce au fost care ca sunt prin dar",
}
"""The commonest words of each language, from any frequency list; diacritics matter."""


@dataclass(frozen=True, slots=True)
class Unspoken:
    """Words that a model cannot speak, where they stand in the text, and in which script."""

    text: str
    start: int
    script: str


@lru_cache(maxsize=4096)
def script_of(character: str) -> str:
    """Name the script of a letter as Unicode does ("Latin", "Han"); "" for anything else."""
    if not unicodedata.category(character).startswith("L"):
        return ""
    name = unicodedata.name(character, "")
    if name.startswith(("FULLWIDTH LATIN", "MATHEMATICAL")):
        name = unicodedata.name(unicodedata.normalize("NFKC", character)[0], "")
    elif name.startswith("HALFWIDTH HANGUL"):
        return "Hangul"
    first = name.split(" ", 1)[0]
    return _SCRIPT_OF_FIRST_WORD.get(first, first.title())


def scripts(text: str) -> dict[str, int]:
    """Count the letters of each script, most frequent first."""
    counts = Counter(script_of(character) for character in text)
    counts.pop("", None)
    return dict(counts.most_common())


def unspoken(text: str, spoken_scripts: Sequence[str]) -> tuple[Unspoken, ...]:
    """Find the words with a letter outside a card's scripts; neighbours are joined to one.

    An empty list of scripts means that the model speaks them all.
    """
    if not spoken_scripts:
        return ()
    allowed = {name.casefold() for name in spoken_scripts} | {""}
    found: list[Unspoken] = []
    for run in _RUN.finditer(text):
        alien = next((s for s in map(script_of, run[0]) if s.casefold() not in allowed), None)
        if alien is None:
            continue
        start, end = run.start(), _after_marks(text, run.end())
        if found and found[-1].script == alien:
            last = found[-1]
            between = text[last.start + len(last.text) : start]
            if not any(character.isalnum() for character in between):
                found.pop()
                start = last.start
        found.append(Unspoken(text[start:end], start, alien))
    return tuple(found)


def _after_marks(text: str, end: int) -> int:
    """Include the vowel signs and accents that belong to the last letter."""
    while end < len(text) and unicodedata.category(text[end]).startswith("M"):
        end += 1
    return end


def likely_language(text: str) -> str:
    """Name the language of a text in Latin letters (ISO 639-1), or "" where it is not plain.

    Meant for a warning, never for a decision that costs words.
    """
    words = [word.casefold() for word in re.findall(r"[^\W\d_]+", text)]
    if len(words) < _MIN_WORDS:
        return ""
    counts = Counter(words)
    hits = Counter(
        {
            language: sum(counts[word] for word in set(little.split()))
            for language, little in _LITTLE_WORDS.items()
        }
    )
    (best, most), (_, second) = hits.most_common(2)
    if most < _MIN_SHARE * len(words) or most < _LEAD * second:
        return ""
    return best


def sentence_language(text: str, fallback: str = "en") -> str:
    """Name the language whose rules find the sentences of a text."""
    script = next(iter(scripts(text)), "Latin")
    if script in _LANGUAGE_OF_SCRIPT:
        return _LANGUAGE_OF_SCRIPT[script]
    return likely_language(text) or fallback

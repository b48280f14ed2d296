"""English sentences to train on, from free sources and from templates.

Everything comes out in the alphabet ``[A-Za-z ,.;:!?'-]``: the product turns digits, symbols and
quotes into words before the model sees them, so the model never learns them. Sentences are whole
(``plain``) or clauses of longer ones (``fragments``), since the product also splits there. Other
languages: ``languages.py``.
"""

from __future__ import annotations

import bz2
import lzma
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from num2words import num2words

from fishtts.text.normalise import normalise

MAX_CHARACTERS = 220
ALLOWED = re.compile(r"^[A-Za-z][A-Za-z ,.;:!?'\-]*$")
QUOTES = str.maketrans({"“": '"', "”": '"', "’": "'", "‘": "'", "`": "'", "_": " ", "\n": " "})
ABBREVIATION = re.compile(r"\b(Mrs|Mr|Dr|St|Capt|Col|vol|etc|Ms|Esq|Rev|Hon|No)\.$")


def plain(text: str) -> str | None:
    """One sentence in the model's alphabet with an end mark, or None where it cannot be."""
    text = text.translate(QUOTES).replace("--", ", ").replace("—", ", ").replace("…", "...")
    text = re.sub(
        r"\d[\d,]*",
        lambda m: num2words(int(m[0].replace(",", ""))).replace(",", "") if len(m[0]) < 8 else " ",
        text,
    )
    text = re.sub(r'["\[\]{}<>*=+/\\|~^@#%&$]', " ", text)
    text = re.sub(r"\(.*?\)", " ", text)
    text = re.sub(r"\s+", " ", text).strip(" ,;:-")
    text = re.sub(r"\s+([,.;:!?])", r"\1", text)
    text = re.sub(r"([,.;:!?])[,.;:]+", r"\1", text)
    if not text:
        return None
    text = text[0].upper() + text[1:]
    if text[-1] not in ".!?":
        text = text.rstrip(",;:") + "."
    if not ALLOWED.match(text) or len(text) > MAX_CHARACTERS or ABBREVIATION.search(text):
        return None
    if sum(c.isupper() for c in text) > max(6, 0.6 * len(text.split())):
        return None
    return text


def fragments(sentences: list[str], rng: np.random.Generator, count: int) -> Iterator[str]:
    """Clauses as the product makes them of sentences that are too long: they begin in small letters
    or end with a comma, and keep the marks that they have."""
    made = 0
    for index in rng.permutation(len(sentences)):
        clauses = re.split(r"(?<=[,;:]) ", sentences[index])
        if len(clauses) < 2:
            continue
        size = int(rng.integers(1, len(clauses)))
        start = int(rng.integers(0, len(clauses) - size + 1))
        text = " ".join(clauses[start : start + size])
        if 12 < len(text) <= MAX_CHARACTERS and ALLOWED.match(text):
            yield text
            made += 1
            if made == count:
                return


def long_lines(sentences: list[str], rng: np.random.Generator, count: int) -> Iterator[str]:
    """Two or three neighbouring sentences that fill a unit of the product almost wholly."""
    made = 0
    while made < count:
        at = int(rng.integers(0, len(sentences) - 4))
        text = sentences[at]
        for following in sentences[at + 1 : at + 4]:
            if len(text) + len(following) >= MAX_CHARACTERS:
                break
            text += " " + following
        if len(text) > 150:
            made += 1
            yield text


def split(text: str) -> list[str]:
    """Sentences of running prose."""
    return re.split(r"(?<=[.!?])\s+(?=[A-Z\"'])", text)


def wordnet(folder: Path, rng: np.random.Generator) -> Iterator[str]:
    """Example sentences, half of the glosses, some with the word they explain."""
    for path in sorted(folder.glob("data.*")):
        for line in path.read_text("utf-8", errors="ignore").splitlines():
            if line.startswith("  ") or " | " not in line:
                continue
            gloss = line.split(" | ", 1)[1].strip()
            yield from (e for e in re.findall(r'"([^"]+)"', gloss) if len(e.split()) > 2)
            meaning = re.sub(r'"[^"]*"', "", gloss).strip(" ;").split(";")[0]
            if not 3 < len(meaning.split()) < 28:
                continue
            word = line.split()[4].replace("_", " ")
            chance = rng.random()
            if chance < 0.25:
                yield f"{word}: {meaning}"
            elif chance < 0.5:
                yield meaning


def wordnet_words(folder: Path) -> list[str]:
    """All lower-case single words, for the spellings that running prose never shows."""
    words = set()
    for path in folder.glob("index.*"):
        for line in path.read_text("utf-8", errors="ignore").splitlines():
            word = line.split(" ", 1)[0]
            if re.fullmatch(r"[a-z]{3,14}", word):
                words.add(word)
    return sorted(words)


def wordnet_names(folder: Path) -> list[str]:
    """Capitalised single words: people, places, peoples, plants."""
    names = set()
    for line in (folder / "data.noun").read_text("utf-8", errors="ignore").splitlines():
        if not line.startswith("  "):
            word = line.split()[4]
            if re.fullmatch(r"[A-Z][a-z]{2,13}", word):
                names.add(word)
    return sorted(names)


def r_strings(path: Path) -> Iterator[str]:
    """Character vectors inside an R data file: compressed segments with length-prefixed strings."""
    raw = path.read_bytes()
    openers: tuple[Callable[[bytes], bytes], ...] = (
        lambda b: zlib.decompressobj().decompress(b),
        lambda b: bz2.BZ2Decompressor().decompress(b),
        lambda b: lzma.LZMADecompressor().decompress(b),
    )
    for match in re.finditer(rb"\x78[\x9c\xda\x01\x5e]|BZh9|\xfd7zXZ", raw):
        for opener in openers:
            try:
                data = opener(raw[match.start() :])
            except (zlib.error, OSError, lzma.LZMAError, ValueError):
                continue
            if len(data) > 10000:
                lines = []
                for m in re.finditer(rb"\x00[\x04\x00]\x00\x09(....)", data, re.S):
                    (size,) = struct.unpack(">I", m[1])
                    if size < 200:
                        lines.append(data[m.end() : m.end() + size].decode("utf-8", "ignore"))
                yield "\n".join(lines)
            break


def novels(path: Path) -> Iterator[str]:
    """Sentences of the novels packed for R (Jane Austen, public domain)."""
    for text in r_strings(path):
        for paragraph in re.split(r"\n\s*\n", text):
            yield from split(paragraph.replace("\n", " "))


def listed(words: str) -> tuple[str, ...]:
    """A word list written as one line of text."""
    return tuple(words.split())


NAMES = listed(
    "Anna Ben Clara David Emma Felix Grace Henry Isabel Jack Kate Liam Maria Noah Olivia Peter "
    "Rosa Samuel Tessa Victor Wendy Arthur Bridget Charles Diana Edward Fiona George Hannah "
    "Ivan Julia Kenneth Laura Michael Nina Oscar Paula Quentin Rachel Stephen Theresa Ursula "
    "Vincent William Yvonne Zachary Alice Andrew Beatrice Christopher Dorothy Eleanor "
    "Frederick Gabriel Harriet Jonathan Katherine Leonard Margaret Nicholas Patricia Richard "
    "Susan Thomas Virginia Walter"
)
SURNAMES = listed(
    "Smith Johnson Baker Carter Davies Edwards Fletcher Green Hughes Jackson King Lewis Miller "
    "Nelson Owens Parker Quinn Roberts Stewart Turner Walker Young Hamilton Murphy Robinson "
    "Thompson Anderson Campbell Mitchell Phillips Collins Bennett Sanders Wallace Peterson "
    "Morrison"
)
PLACES = listed(
    "London Paris Boston Chicago Dublin Berlin Madrid Rome Toronto Sydney Oxford Denver "
    "Seattle Houston Vienna Lisbon Athens Cairo Delhi Tokyo Moscow Oslo Geneva Glasgow "
    "Manchester Florida Texas California Virginia Scotland Ireland Canada Mexico Brazil Egypt "
    "Norway Portugal Australia"
)
THINGS = listed(
    "cats books miles people dollars bottles questions minutes ships letters apples soldiers "
    "windows steps children tickets horses chairs pages candles students photographs engines "
    "islands"
)
VERBS = listed(
    "bought counted found lost saw ordered sold carried wanted needed painted borrowed "
    "remembered forgot described repaired opened closed followed answered"
)
DAYS = listed("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
MONTHS = listed(
    "January February March April May June July August September October November December"
)
SHORT = (
    "Yes. No. Maybe. Stop! Wait! Hello. Hello there. Goodbye. Thank you. Please. Sorry. Of "
    "course. Come in. Go away! Why? Why not? Who? What? When? Where? How? Really? Never mind. "
    "Not yet. Good morning. Good night. Good evening. Well done. All right. I see. I know. I "
    "think so. Look out! Be quiet. Sit down. Stand up. Hurry up! Right now. Later. Tomorrow. "
    "Perhaps. Indeed. Exactly. Certainly. Absolutely. Nonsense! Impossible! Excellent. "
    "Wonderful. Chapter one. The end. Yes? No! Okay. Oh! Ah. Hm. Thanks. Cheers. Careful! Quiet! "
    "Help! Fire! Enough! Ready? Alone? Today? Both. None. Never! Always. Soon. Now! Here. There. "
    "Left. Right. Up. Down. You? Me. Him. Us. Them. One. Two. Three. Ten. Zero. Good. Bad. Fine. "
    "Great! Sure. True. False. Wrong! Next. Done. Gone. Again? Again! Please? Sorry? Pardon? What? "
    "No, thank you. Yes, please. Not now. Not me. Why me? Who knows? Says who? So what? And then? "
    "Come on! Let go! Get up. Get out! Wake up. Calm down. Well, well. Dear me! Good heavens! "
    "I do. I am. I was. It is. We did. They are. She does. He would. You could. See you. Bye."
)


def number_words(rng: np.random.Generator) -> str:
    """A number as it is read aloud."""
    kind = rng.random()
    if kind < 0.3:
        value = int(rng.integers(1, 20))
    elif kind < 0.7:
        value = int(rng.integers(20, 1000))
    else:
        value = int(rng.integers(1000, 3_000_000))
    if kind > 0.95:
        return f"{num2words(value % 1000)} point {' '.join(digits(rng, 2))}".replace(",", "")
    return num2words(value).replace(",", "")


def digits(rng: np.random.Generator, count: int) -> list[str]:
    return [num2words(int(d)) for d in rng.integers(0, 10, count)]


def templates(rng: np.random.Generator, count: int) -> Iterator[str]:
    """Numbers, times, dates, money, names and questions in simple frames."""

    def one(words: Iterable[str]) -> str:
        return str(rng.choice(list(words)))

    for _ in range(count):
        name, person = one(NAMES), f"{one(NAMES)} {one(SURNAMES)}"
        n, day, place = number_words(rng), one(DAYS), one(PLACES)
        hour = num2words(int(rng.integers(1, 13)))
        minutes = one(("thirty", "fifteen", "forty five", "twenty", "ten", "oh five"))
        date = f"{one(MONTHS)} {num2words(int(rng.integers(1, 32)), to='ordinal')}"
        year = num2words(int(rng.integers(1700, 2040)), to="year")
        yield one(
            (
                f"{name} {one(VERBS)} {n} {one(THINGS)} on {day}",
                f"The meeting is at {hour} {minutes} on {day}, {date}",
                f"It was {date}, {year}, when {person} left {place}",
                f"Please call {' '.join(digits(rng, int(rng.integers(3, 9))))}",
                f"That will be {n} dollars and "
                f"{num2words(int(rng.integers(1, 100)))} cents, please",
                f"Did {person} really move to {place}?",
                f"Who {one(VERBS)} the {one(THINGS)}, {name} or {one(NAMES)}?",
                f"{person} lives at {n} {one(SURNAMES)} Street in {place}",
                f"{name}, {one(NAMES)} and {one(NAMES)} went from {place} to {one(PLACES)}",
                f"About {n} percent of the {one(THINGS)} came from {place}",
                f"In {year} there were only {n} {one(THINGS)} in all of {place}",
                f"Chapter {num2words(int(rng.integers(1, 60)))}",
                f"{name} said, I will be there at {hour} o'clock, and not a minute later",
                f"Ask Doctor {one(SURNAMES)} or Mister {one(SURNAMES)} about it on {day}",
                f"Item {num2words(int(rng.integers(1, 100)))} is on the list",
            )
        )


def twins(sentences: list[str], rng: np.random.Generator, count: int) -> Iterator[str]:
    """Short lines with each of the marks that change their melody: the words alone do not tell."""
    short = [s[:-1] for s in sentences if len(s.split()) <= 5 and s[-1] in ".!?"]
    for index in rng.permutation(len(short))[:count]:
        yield from (short[index] + mark for mark in ".?!")


def single_words(words: list[str], rng: np.random.Generator, count: int) -> Iterator[str]:
    """One word and a mark."""
    for word in rng.choice(words, min(count, len(words)), replace=False):
        yield str(word).capitalize() + str(rng.choice((".", ".", "?", "!")))


def written_figures(rng: np.random.Generator, count: int) -> Iterator[str]:
    """Lines with digits and signs, as the product's own normaliser reads them out."""

    def number(low: int, high: int) -> int:
        return int(rng.integers(low, high))

    for _ in range(count):
        day, month = number(1, 29), str(rng.choice(MONTHS))
        name, place = str(rng.choice(NAMES)), str(rng.choice(PLACES))
        thing = str(rng.choice(THINGS))
        nth = num2words(number(2, 400), to="ordinal_num")
        lines = (
            f"The bill came to ${number(1, 900)}.{number(10, 100)}, without the tip.",
            f"It costs £{number(2, 5000):,} or €{number(2, 5000):,}.",
            f"The train to {place} leaves at {number(1, 13)}:{number(10, 60)} p.m.",
            f"{month} {day}, {number(1750, 2035)}, was a cold day in {place}.",
            f"On the {num2words(day, to='ordinal_num')} of {month} {name} turned {number(3, 100)}.",
            f"{number(2, 99)}% of the {thing} were lost in {number(1801, 2030)}.",
            f"It was {number(-20, 40)}°C in {place} at noon.",
            f"The box weighs {number(1, 90)}.{number(1, 99)} kg and is {number(10, 300)} cm long.",
            f"Call {number(200, 999)}-{number(100, 999)}-{number(1000, 9999)} and ask for {name}.",
            f"{name} finished {nth} of {number(401, 900)}.",
            f"The score was {number(60, 130)} to {number(60, 130)}.",
            f"About {number(1, 9)}/{number(2, 9) + 1} of the {number(1000, 90000):,} {thing}.",
            f"See page {number(1, 900)}, section {number(1, 20)}.{number(1, 9)}.",
            f"It seats {number(100, 99999):,} people, {number(10, 2000)} of them outside.",
            f"The {number(17, 20)}{number(2, 9)}0s were good years for {place}.",
        )
        yield normalise(str(rng.choice(lines))).text


def rare_names(names: list[str], rng: np.random.Generator, count: int) -> Iterator[str]:
    """Proper names of an encyclopaedic kind in simple frames."""
    table = np.array(names)
    for _ in range(count):
        a, b, c = (str(n) for n in rng.choice(table, 3))
        frames = (
            f"Have you ever been to {a}?",
            f"{a} lies between {b} and {c}",
            f"She wrote a book about {a}",
            f"Mister {a} met Miss {b} in {c}",
            f"The road from {a} to {b} was closed",
            f"{a}, {b} and {c} are on the list",
            f"Who was {a}, and what did {b} want from {c}?",
            f"I prefer {a} to {b}!",
        )
        yield str(rng.choice(frames))


def dialogue(sentences: list[str], rng: np.random.Generator, count: int) -> Iterator[str]:
    """Short turns one after the other, and lines with who says them."""
    short = [s for s in sentences if 3 < len(s) < 60]
    verbs = ("said", "asked", "whispered", "shouted", "answered", "replied", "cried", "muttered")
    for _ in range(count):
        a, b, c = (short[i] for i in rng.integers(0, len(short), 3))
        name, verb = str(rng.choice(NAMES)), str(rng.choice(verbs))
        spoken = a.rstrip(".") + ("," if a.endswith(".") else "")
        frames = (
            f"{a} {b}",
            f"{a} {b} {c}",
            f"{spoken} {verb} {name}.",
            f"{spoken} {name} {verb}. {b}",
            f"{spoken} {verb} the {rng.choice(('boy', 'doctor', 'captain', 'woman', 'guard'))}.",
            f"{name} {verb}, {a[0].lower()}{a[1:]}",
        )
        yield str(rng.choice(frames))


def word_lists(words: list[str], rng: np.random.Generator, count: int) -> Iterator[str]:
    """Lines of a few dictionary words."""
    table = np.array(words)
    for _ in range(count):
        size = int(rng.choice((1, 2, 3, 4, 5, 6)))
        yield ", ".join(rng.choice(table, size))


def pairs(sentences: list[str], rng: np.random.Generator, count: int) -> Iterator[str]:
    """Neighbouring sentences joined, so that the model meets pauses inside a request."""
    for index in rng.integers(0, len(sentences) - 1, count):
        yield sentences[index] + " " + sentences[index + 1]

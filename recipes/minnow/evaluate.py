"""Measure quality on sentences that were never trained on: the teacher, the codec, the product.

    python -m recipes.minnow.judges --work DIR
    python -m recipes.minnow.evaluate all --work DIR [--model FOLDER] --write

- ``teacher``: the network that `minnow` learnt from, in four of its own voices
- ``codec``: the teacher's audio, encoded and decoded again: what the codec alone costs
- ``say``: what a user gets, in every voice of the model
- ``all``: the three in this order; the teacher's figures are kept from an earlier run

Owns the runs, their records (one JSON a run under ``DIR/results``, line by line) and the tables of
``docs/quality.md``, which come from the records only. How speech is judged: ``score.py``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import numpy as np
import soxr

from recipes.minnow.score import (
    Judges,
    LineErrors,
    Samples,
    bootstrap_interval,
    char_error_rate,
    compare,
    word_error_rate,
)
from recipes.minnow.teacher_onnx import SAMPLE_RATE as TEACHER_RATE
from recipes.minnow.teacher_onnx import Teacher

Mode = Literal["teacher", "codec", "say"]
MODES: tuple[Mode, ...] = ("teacher", "codec", "say")

HERE = Path(__file__).parent
SENTENCES = HERE / "eval" / "sentences.txt"
PAGE = HERE.parents[1] / "docs" / "quality.md"
TEACHER_VOICES = ("af_heart", "am_michael", "bf_emma", "bm_george")
NO_VOICE = "no voice"
"""The row of a model that comes without voices: it speaks as it likes."""
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


@dataclass(frozen=True, slots=True)
class Line:
    """One sentence of one voice: what was heard, and what it cost to make."""

    text: str
    heard: str
    errors: LineErrors
    mos: float
    dnsmos: float
    seconds: float
    took_s: float


@dataclass(frozen=True, slots=True)
class Record:
    """One run: every line of every voice, and where and with what it was made."""

    mode: Mode
    sentences: str
    model: str
    environment: dict[str, str]
    voices: dict[str, list[Line]]

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n", "utf-8")

    @classmethod
    def read(cls, path: Path) -> Record:
        fields = json.loads(path.read_bytes())
        fields["voices"] = {
            voice: [Line(**{**line, "errors": LineErrors(**line["errors"])}) for line in lines]
            for voice, lines in fields["voices"].items()
        }
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Spoken:
    """Audio and the seconds that it took to make."""

    samples: Samples
    sample_rate: int
    took_s: float


# --- what speaks -------------------------------------------------------------------------------


class TeacherSpeech:
    """The teacher; what it has said once is kept in the work folder, with the time it took."""

    def __init__(self, work: Path, threads: int) -> None:
        self._work, self._threads = work, threads
        self._teacher: Teacher | None = None

    def __call__(self, text: str, voice: str) -> Spoken:
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        kept = self._work / "audio" / "teacher" / voice / f"{key}.npz"
        if not kept.exists():
            if self._teacher is None:
                self._teacher = Teacher(self._work / "teacher", threads=self._threads)
                self._teacher.speak("Warm up.", voice)
            start = time.perf_counter()
            samples = self._teacher.speak(text, voice)
            took_s = time.perf_counter() - start
            kept.parent.mkdir(parents=True, exist_ok=True)
            np.savez(kept, samples=samples, took_s=took_s)
        with np.load(kept) as file:
            return Spoken(file["samples"], TEACHER_RATE, float(file["took_s"]))


class CodecSpeech:
    """The teacher's audio through a model's codec and back."""

    def __init__(self, folder: Path, teacher: TeacherSpeech) -> None:
        from fishtts.codec import load_codec

        self._codec, self._teacher = load_codec(folder), teacher

    def __call__(self, text: str, voice: str) -> Spoken:
        import torch

        spoken, rate = self._teacher(text, voice), self._codec.sample_rate
        samples = spoken.samples
        if rate != spoken.sample_rate:
            samples = soxr.resample(samples, spoken.sample_rate, rate)
        start = time.perf_counter()
        with torch.inference_mode():
            decoded = self._codec.decode(self._codec.encode(torch.from_numpy(samples).float()))
        took_s = time.perf_counter() - start
        return Spoken(decoded.float().cpu().numpy(), rate, took_s)


class ProductSpeech:
    """The product, as a Python program uses it."""

    def __init__(self, model: str) -> None:
        from fishtts import TTS

        self._tts = TTS(model=model, device="cpu", offline=True)
        names = tuple(voice.name for voice in self._tts.voices())
        self.voices = names or (NO_VOICE,)
        # The first request pays for loading; bench/say.py measures that.
        self("Warm up.", self.voices[0])

    def __call__(self, text: str, voice: str) -> Spoken:
        start = time.perf_counter()
        speech = self._tts.say(text, voice=None if voice == NO_VOICE else voice, seed=0)
        return Spoken(speech.samples, speech.sample_rate, time.perf_counter() - start)


# --- a run -------------------------------------------------------------------------------------


def measure(
    speak: Callable[[str, str], Spoken],
    voices: Iterable[str],
    sentences: Sequence[str],
    judges: Judges,
) -> dict[str, list[Line]]:
    """Let every voice say every sentence, and the judges hear it."""
    measured: dict[str, list[Line]] = {}
    for voice in voices:
        lines = measured[voice] = []
        for text in sentences:
            spoken = speak(text, voice)
            verdict = judges.hear(spoken.samples, spoken.sample_rate)
            seconds = len(spoken.samples) / spoken.sample_rate
            lines.append(
                Line(
                    text=text,
                    heard=verdict.heard,
                    errors=compare(text, verdict.heard),
                    mos=round(verdict.mos, 3),
                    dnsmos=round(verdict.dnsmos, 3),
                    seconds=round(seconds, 3),
                    took_s=round(spoken.took_s, 3),
                )
            )
        print(f"  {voice}: {word_error_rate([line.errors for line in lines]):.3f}", flush=True)
    return measured


def run(mode: Mode, args: argparse.Namespace, judges: Judges, sentences: list[str]) -> Record:
    """Make the record of one mode."""
    print(f"{mode}, {len(sentences)} sentences", flush=True)
    speak: TeacherSpeech | CodecSpeech | ProductSpeech
    voices: tuple[str, ...] = TEACHER_VOICES
    if mode == "teacher":
        speak = TeacherSpeech(args.work, args.threads)
    elif mode == "codec":
        speak = CodecSpeech(model_folder(args.model), TeacherSpeech(args.work, args.threads))
    else:
        speak = ProductSpeech(args.model)
        voices = speak.voices
    wanted = tuple(args.voices.split(",")) if args.voices else voices
    return Record(
        mode=mode,
        sentences=args.list.name,
        model="" if mode == "teacher" else identity(model_folder(args.model), mode),
        environment=environment(args.threads),
        voices=measure(speak, wanted, sentences, judges),
    )


def model_folder(model: str) -> Path:
    """Find the folder of a model. One on disk need not be whole: ``codec`` wants the codec only."""
    from fishtts import hub

    source = hub.parse(model)
    return source.folder if source.kind == "folder" else hub.locate(source, offline=True)


def identity(folder: Path, mode: Mode) -> str:
    """Name the weights that a mode measures: a hash of the codec's file, or of all files."""
    pattern = "codec.*" if mode == "codec" else "*"
    files = [x for x in sorted(folder.glob(pattern)) if x.suffix in (".safetensors", ".pth")]
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def environment(threads: int) -> dict[str, str]:
    """Say on what, and with which versions, a record was made."""
    return {
        "processor": processor(),
        "threads": str(threads),
        "python": platform.python_version(),
        **{
            package: _version(package)
            for package in ("fishtts", "torch", "onnxruntime", "faster-whisper", "ctranslate2")
        },
    }


def processor() -> str:
    """Name the processor as far as the system tells, and how many cores may be used."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines()
                  if line.startswith("model name")]  # fmt: skip
        name = models[0] if models else name
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} cores"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


# --- tables ------------------------------------------------------------------------------------

HEADER = ("Voice", "WER", "95 %", "CER", "DistillMOS mean", "min", "DNSMOS", "Speech, s", "RTF")


def rows(record: Record) -> list[tuple[str, ...]]:
    """Turn a record into a table: a row a voice, and one of all voices together."""
    table = [
        _row(voice, lines, [x.errors for x in lines]) for voice, lines in record.voices.items()
    ]
    if len(record.voices) > 1:
        everything = [line for lines in record.voices.values() for line in lines]
        # Voices share their sentences: what is drawn again for the interval is a sentence.
        by_sentence = [_sum(lines) for lines in zip(*record.voices.values(), strict=True)]
        table.append(_row("all", everything, by_sentence))
    return table


def _sum(lines: Iterable[Line]) -> LineErrors:
    columns = zip(*((x.word_errors, x.words, x.char_errors, x.chars)
                    for x in (line.errors for line in lines)), strict=True)  # fmt: skip
    return LineErrors(*map(sum, columns))


def _row(name: str, lines: Sequence[Line], errors: Sequence[LineErrors]) -> tuple[str, ...]:
    low, high = bootstrap_interval(errors)
    seconds = sum(line.seconds for line in lines)
    return (
        name,
        f"{word_error_rate(errors):.3f}",
        f"{low:.3f} to {high:.3f}",
        f"{char_error_rate(errors):.3f}",
        f"{np.mean([line.mos for line in lines]):.2f}",
        f"{min(line.mos for line in lines):.2f}",
        f"{np.mean([line.dnsmos for line in lines]):.2f}",
        f"{seconds:.1f}",
        f"{sum(line.took_s for line in lines) / seconds:.3f}",
    )


def as_text(record: Record) -> str:
    """Lay a record out for a terminal."""
    table = [HEADER, *rows(record)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )


def as_markdown(record: Record) -> str:
    """Lay a record out for the documentation, with where it comes from."""
    titles = {
        "teacher": "The teacher, in its own voices",
        "codec": "The codec alone: the teacher's audio, encoded and decoded",
        "say": "The product: `fishtts say`",
    }
    cells = [HEADER, ("---",) + ("---:",) * (len(HEADER) - 1), *rows(record)]
    count = len(next(iter(record.voices.values())))
    versions = ", ".join(
        f"{name} {value}"
        for name, value in record.environment.items()
        if name not in ("processor", "threads")
    )
    model = f" Weights `{record.model}`." if record.model else ""
    return "\n".join(
        (
            f"### {titles[record.mode]}",
            "",
            f"`{record.sentences}`, {count} sentences a voice.{model}",
            "",
            *("| " + " | ".join(row) + " |" for row in cells),
            "",
            f"{record.environment['processor']}, {record.environment['threads']} threads; "
            f"{versions}.",
            "",
        )
    )


PREFACE = """# Quality

How well `minnow` can be understood, and whether it sounds broken, against the network that it
learnt from, on the same sentences. The sentences are our own and were kept out of training.

- **WER, CER**: the share of words and characters that a recogniser (Whisper base) hears wrongly. It
  makes some mistakes with perfect speech too: read a figure against the teacher's. The interval
  comes from drawing the sentences anew; where nothing was misheard it is empty, and the true rate
  may still be as high as three over the number of words.
- **DistillMOS, DNSMOS**: predicted opinion scores from 1 to 5. Both saturate: they catch broken
  sound, and cannot rank one clean voice above another.
- **RTF**: seconds of work for one second of speech, loading not counted, with whatever else shared
  the cores: `bench/say.py` measures speed.

Nobody listened for these tables. The commands that made them:

```
python -m recipes.minnow.judges --work DIR
python -m recipes.minnow.evaluate all --work DIR --write
```

"""


def write_page(records: Sequence[Record]) -> None:
    """Put the tables into the page, between its marks; what else stands there stays."""
    tables = "\n".join((BEGIN, *map(as_markdown, records), END, ""))
    page = PAGE.read_text("utf-8") if PAGE.exists() else f"{PREFACE}{BEGIN}\n{END}\n"
    before, rest = page.split(BEGIN, 1)
    after = rest.split(END, 1)[1].removeprefix("\n")
    PAGE.write_text(before + tables + after, "utf-8")


def record_path(args: argparse.Namespace, mode: Mode) -> Path:
    """Name the record of a mode: one a model, and a partial run never replaces a whole one."""
    model = "" if mode == "teacher" else f"-{identity(model_folder(args.model), mode)}"
    part = "-partial" if args.limit or args.voices else ""
    return Path(args.work, "results", args.list.stem + part, f"{mode}{model}.json")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mode", choices=(*MODES, "all"))
    parser.add_argument("--work", type=Path, required=True, help="the folder judges.py filled")
    parser.add_argument("--model", default="minnow", help="a built-in model or a folder")
    parser.add_argument("--list", type=Path, default=SENTENCES, help="sentences, one a line")
    parser.add_argument("--voices", default="", help="only these, with commas between")
    parser.add_argument("--limit", type=int, default=None, help="only so many sentences")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="write the tables of docs/quality.md")
    args = parser.parse_args()
    if args.write and (args.limit or args.voices):
        parser.error("--write wants every sentence and every voice")
    return args


def main() -> None:
    args = arguments()
    sentences = args.list.read_text("utf-8").splitlines()[: args.limit]
    modes = MODES if args.mode == "all" else (args.mode,)
    judges: Judges | None = None
    _limit_threads(args.threads)
    for mode in modes:
        path = record_path(args, mode)
        kept = (
            Record.read(path)
            if mode == "teacher" and args.mode == "all" and path.exists()
            else None
        )
        if kept is None or _texts(kept) != sentences:
            judges = judges or Judges(args.work, threads=args.threads)
            kept = run(mode, args, judges, sentences)
            kept.write(path)
        print(f"\n{mode}\n{as_text(kept)}\n", flush=True)
    if args.write:
        paths = [record_path(args, mode) for mode in MODES]
        write_page([Record.read(path) for path in paths if path.exists()])


def _texts(record: Record) -> list[str]:
    return [line.text for line in next(iter(record.voices.values()))]


def _limit_threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)


if __name__ == "__main__":
    main()

"""Measure quality on sentences that were never trained on: the teacher, the codec, the product.

    python -m recipes.minnow.judges --work DIR
    python -m recipes.minnow.evaluate all --work DIR [--model FOLDER] [--lists extended,hard]

- ``teacher``: the network that `minnow` learnt from, in some of its own voices
- ``codec``: the teacher's audio, encoded and decoded again: what the codec alone costs
- ``say``: what a user gets, in every voice of the model, one seed, no second try
- ``endings``: of 500 lines by the voices in turn, how many loop, stop early or never stop
- ``clone``: voices of the teacher that were never trained on, and people, cloned from ten seconds
- ``speed``: lines one at a time and sixteen together
- ``all``: all of these; what was measured once with the same weights, lists and normaliser is kept
- ``frozen``: print the hashes of lists and normaliser; an error where they are not the frozen ones

A list named es, fr, it or pt is of that language; ``say`` leaves out what a model does not speak.
Owns the runs and their records (one JSON a run under ``DIR/results``); the tables, also those of
``docs/quality.md``, come from the records only (``tables.py``). How speech is judged: ``score.py``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from recipes.minnow import records
from recipes.minnow.normaliser import LANGUAGES
from recipes.minnow.records import LISTS, MODES, Line, Mode, Record, cases, identity
from recipes.minnow.score import (
    Judges,
    LineErrors,
    SpeakerEncoder,
    compare,
    judges_audio,
    word_error_rate,
)
from recipes.minnow.subjects import (
    TEACHER_VOICES,
    CloneSpeech,
    CodecSpeech,
    Person,
    ProductSpeech,
    Spoken,
    TeacherSpeech,
    held_out_people,
    real_people,
)
from recipes.minnow.tables import as_text, write_page

SENTENCES = LISTS / "sentences.txt"
NUM_ENDINGS = 500
NUM_CLONED_LINES = 5
NUM_TOGETHER = 16
ENDINGS, CLONES, SPEED = "endings", "clones", "speed"
"""Names of the records that draw on fixed lists of their own."""


@dataclass(frozen=True, slots=True)
class Task:
    """One run to make: a mode on a list of sentences."""

    mode: Mode
    list: str
    sentences: tuple[str, ...]

    @property
    def language(self) -> str:
        return self.list if self.list in LANGUAGES else "en"


class Bench:
    """What the runs share: the judges, opened when the first line is to be heard."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self._judges: Judges | None = None

    @property
    def judges(self) -> Judges:
        if self._judges is None:
            self._judges = Judges(self.args.work, threads=self.args.threads)
        return self._judges

    def line(self, text: str, spoken: Spoken, language: str = "en") -> Line:
        """Let the judges hear one line."""
        verdict = self.judges.hear(spoken.samples, spoken.sample_rate, language)
        return Line(
            text=text,
            heard=verdict.heard,
            errors=compare(text, verdict.heard, language),
            mos=round(verdict.mos, 3),
            dnsmos=round(verdict.dnsmos, 3),
            seconds=round(len(spoken.samples) / spoken.sample_rate, 3),
            took_s=round(spoken.took_s, 3),
            faults=spoken.faults,
        )

    def lines(
        self, speak: Callable[[str, str], Spoken], pairs: Iterable[tuple[str, str]], language: str
    ) -> dict[str, list[Line]]:
        """Let (voice, sentence) pairs be said and heard."""
        heard: dict[str, list[Line]] = {}
        for voice, text in pairs:
            heard.setdefault(voice, []).append(self.line(text, speak(text, voice), language))
        for voice, lines in heard.items():
            print(f"  {voice}: {word_error_rate([x.errors for x in lines]):.3f}", flush=True)
        return heard


def run(task: Task, bench: Bench) -> dict[str, list[Line]]:
    """Make the lines of one task; none where the model does not speak the language."""
    args = bench.args
    if task.mode == "clone":
        return clone(task, bench)
    if task.mode == "speed":
        return speed(task, args.model)
    speak: TeacherSpeech | CodecSpeech | ProductSpeech
    voices: tuple[str, ...] = TEACHER_VOICES[task.language]
    if task.mode == "teacher":
        speak = TeacherSpeech(args.work, args.threads)
    elif task.mode == "codec":
        speak = CodecSpeech(model_folder(args.model), TeacherSpeech(args.work, args.threads))
    else:
        speak = ProductSpeech(args.model, retries=0)
        voices = speak.voices
        if task.language not in speak.languages:
            return {}
    voices = tuple(args.voices.split(",")) if args.voices else voices
    if task.mode == "endings":
        pairs = cases(task.sentences, voices, args.limit or NUM_ENDINGS)
    else:
        pairs = [(voice, text) for voice in voices for text in task.sentences]
    return bench.lines(speak, pairs, task.language)


def clone(task: Task, bench: Bench) -> dict[str, list[Line]]:
    """Clone every person; compare each line with its reference, and with all the others."""
    args = bench.args
    teacher = TeacherSpeech(args.work, args.threads)
    people = {f"held out/{p.name}": p for p in held_out_people(teacher)}
    people |= {f"real/{p.name}": with_words(p, bench.judges) for p in real_people(args.work)}
    encoder = SpeakerEncoder(args.work / "speaker", threads=args.threads)
    codec = CodecSpeech(model_folder(args.model), teacher)
    speak = CloneSpeech(args.model, list(people.values()), retries=0)
    references, ceilings = {}, {}
    for name, p in people.items():
        references[name] = encoder.embed(judges_audio(p.samples, p.sample_rate))
        again = codec.resynthesise(p.samples, p.sample_rate)
        again_16k = judges_audio(again, speak.sample_rate)
        ceilings[name] = float(encoder.embed(again_16k) @ references[name])
    out: dict[str, list[Line]] = {}
    for name, person in people.items():
        group = [n for n in people if n.split("/")[0] == name.split("/")[0]]
        for text in task.sentences:
            spoken = speak(text, person.name)
            direction = encoder.embed(judges_audio(spoken.samples, spoken.sample_rate))
            scores = {other: float(direction @ references[other]) for other in group}
            line = replace(
                bench.line(text, spoken),
                similarity=round(scores[name], 4),
                ceiling=round(ceilings[name], 4),
                rank=1 + sum(score > scores[name] for score in scores.values()),
            )
            out.setdefault(name, []).append(line)
        print(f"  {name}: {np.mean([x.similarity for x in out[name]]):.3f}", flush=True)
    return out


def with_words(person: Person, judges: Judges) -> Person:
    """Supply what is said in a recording, as the recogniser hears it."""
    return replace(person, words=judges.hear(person.samples, person.sample_rate).heard)


def speed(task: Task, model: str) -> dict[str, list[Line]]:
    """Time lines one at a time, then all together; the judges hear none of them."""
    from fishtts.tts import Line as Request

    def timed(text: str, seconds: float, took_s: float) -> Line:
        return Line(text, "", LineErrors(0, 0, 0, 0), 0.0, 0.0, seconds, took_s)

    product = ProductSpeech(model, retries=0)
    single = [product(text, product.voices[0]) for text in task.sentences]
    alone = [
        timed(text, len(x.samples) / x.sample_rate, x.took_s)
        for text, x in zip(task.sentences, single, strict=True)
    ]
    requests = [Request(text, product.tts.plan(text)) for text in task.sentences]
    start = time.perf_counter()
    spoken = list(product.tts.lines(requests))
    each_s = (time.perf_counter() - start) / len(spoken)
    together = [
        timed(x.key, len(x.speech.samples) / x.speech.sample_rate, each_s)
        for x in spoken
        if x.speech is not None
    ]
    return {"one line at a time": alone, f"{len(requests)} lines together": together}


# --- what to run -------------------------------------------------------------------------------


def tasks(args: argparse.Namespace) -> list[Task]:
    """The runs that the arguments ask for."""
    modes = MODES if args.mode == "all" else (args.mode,)
    wanted: list[Task] = []
    lists = {name: _sentences(name)[: args.limit] for name in args.lists.split(",")}
    for mode in modes:
        if mode == "endings":
            lines = [
                line for name in ("extended", "hard", "sentences") for line in _sentences(name)
            ]
            wanted.append(Task(mode, ENDINGS, tuple(lines)))
        elif mode == "clone":
            lines = _sentences("sentences")[: args.limit or NUM_CLONED_LINES]
            wanted.append(Task(mode, CLONES, tuple(lines)))
        elif mode == "speed":
            wanted.append(Task(mode, SPEED, tuple(_sentences("sentences")[:NUM_TOGETHER])))
        else:
            wanted += [Task(mode, name, tuple(lines)) for name, lines in lists.items()]
    return wanted


def _sentences(name: str) -> list[str]:
    return (LISTS / f"{name}.txt").read_text("utf-8").splitlines()


def model_folder(model: str) -> Path:
    """Find the folder of a model. One on disk need not be whole: ``codec`` wants the codec only."""
    from fishtts import hub

    source = hub.parse(model)
    return source.folder if source.kind == "folder" else hub.locate(source, offline=True)


def record_path(args: argparse.Namespace, task: Task) -> Path:
    """Name the record of a task: one a model, and a partial run never replaces a whole one."""
    weights = "" if task.mode == "teacher" else f"-{identity(model_folder(args.model), task.mode)}"
    part = "-partial" if args.limit or args.voices else ""
    return Path(args.work, "results", task.list + part, f"{task.mode}{weights}.json")


def is_current(record: Record, task: Task) -> bool:
    """Whether a kept record is of the same sentences and of the frozen normaliser."""
    normaliser = records.frozen_hashes()["normaliser.py"]
    same_words = task.mode == "speed" or record.environment.get("normaliser") == normaliser
    return same_words and (task.mode == "endings" or record.texts == list(task.sentences))


def check_frozen() -> None:
    """Print the hashes of lists and normaliser, and stop where one is not the frozen one."""
    frozen = json.loads(records.FROZEN.read_bytes())
    now = records.frozen_hashes()
    for name, digest in now.items():
        print(f"{digest}  {name}{'' if frozen.get(name) == digest else '  NOT THE FROZEN ONE'}")
    if now != frozen:
        raise SystemExit("Figures made with other lists or words cannot be compared.")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mode", choices=(*MODES, "all", "frozen"))
    parser.add_argument("--work", type=Path, help="the folder judges.py filled")
    parser.add_argument("--model", default="minnow", help="a built-in model or a folder")
    parser.add_argument(
        "--lists", default="sentences", help="lists of recipes/minnow/eval, with commas between"
    )
    parser.add_argument("--voices", default="", help="only these, with commas between")
    parser.add_argument("--limit", type=int, default=None, help="only so many sentences")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="measure anew what was measured")
    parser.add_argument("--write", action="store_true", help="write the tables of docs/quality.md")
    args = parser.parse_args()
    if args.mode != "frozen" and args.work is None:
        parser.error("--work is needed: the folder that judges.py filled")
    if args.write and (args.limit or args.voices):
        parser.error("--write wants every sentence and every voice")
    return args


def main() -> None:
    args = arguments()
    check_frozen()
    if args.mode == "frozen":
        return
    import torch

    torch.set_num_threads(args.threads)
    bench = Bench(args)
    shown: list[Record] = []
    for task in tasks(args):
        path = record_path(args, task)
        record = Record.read(path) if path.exists() and not args.again else None
        if record is None or not is_current(record, task):
            print(f"{task.mode}, {task.list}", flush=True)
            lines = run(task, bench)
            if not lines:
                print(f"  not a language of {args.model}", flush=True)
                continue
            weights = "" if task.mode == "teacher" else identity(
                model_folder(args.model), task.mode
            )  # fmt: skip
            environment = records.environment(args.threads)
            record = Record(task.mode, f"{task.list}.txt", weights, environment, lines)
            record.write(path)
        shown.append(record)
        print(f"\n{task.mode}, {task.list}\n{as_text(record)}\n", flush=True)
    if args.write:
        write_page(shown)


if __name__ == "__main__":
    main()

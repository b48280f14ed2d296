"""A speaker that answers at once, a model folder that only has a card, and runs in processes that
can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fishtts.batch import Request, batch
from fishtts.cloning.voice_file import write_voice
from fishtts.config import SpeechConfig
from fishtts.engine.engine import Metrics
from fishtts.errors import FishTTSError
from fishtts.jobs import stopping
from fishtts.jobs.folder import file_hash
from fishtts.report import Report, UnitReport
from fishtts.tts import Line, Speech, SpokenLine
from fishtts.types import Samples
from tests.fakes import CountingCodec, hollow_model, tiny_voice, write_files

RATE = 8000


class _Codec(CountingCodec):
    """A codec that the voices of the tiny model go with."""

    num_codebooks = 10
    codebook_sizes = (1000,) * 10


@dataclass
class StandIn:
    """Speaks noise that depends on the seed alone, in whatever order. ``faulty`` and ``failing``
    are texts that fall short or fail; ``width`` lines are in work together."""

    width: int = 4
    faulty: set[str] = field(default_factory=set)
    failing: dict[str, FishTTSError] = field(default_factory=dict)
    after: dict[int, Any] = field(default_factory=dict)
    """What happens when so many lines have been answered: a call."""
    spoken: list[Line] = field(default_factory=list)

    @property
    def codec(self) -> Any:
        return _Codec()

    @property
    def metrics(self) -> Metrics:
        return Metrics(num_rows=3 * len(self.spoken), num_decode_steps=len(self.spoken))

    @property
    def max_batch(self) -> int:
        return self.width

    def lines(self, lines: Iterable[Line]) -> Iterator[SpokenLine]:
        source = iter(lines)
        in_work: list[Line] = []
        while True:
            while len(in_work) < self.width and (line := next(source, None)) is not None:
                in_work.append(line)
            if not in_work:
                return
            in_work.sort(key=lambda line: sha256(line.key.encode()).digest())
            line = in_work.pop()
            self.spoken.append(line)
            self.after.get(len(self.spoken), lambda: None)()
            yield self._answer(line)

    def _answer(self, line: Line) -> SpokenLine:
        text = " ".join(planned.unit.text for planned in line.plan.units)
        if text in self.failing:
            return SpokenLine(line.key, None, self.failing[text])
        report = Report("stand-in", "", RATE, line.config.seed)
        for planned in line.plan.units:
            faults: Any = ("silent",) if text in self.faulty else ()
            unit = planned.unit
            report.units.append(
                UnitReport(
                    text=unit.text,
                    model_text=unit.model_text,
                    seed=planned.seed,
                    tries=1,
                    start_s=0,
                    seconds=0,
                    num_frames=7,
                    stop_reason="eos",
                    faults=faults,
                )
            )
        return SpokenLine(line.key, Speech(noise(line), RATE, report))


def noise(line: Line) -> Samples:
    """What the stand-in says: 16-bit noise of the line's seed, as long as its text is."""
    length = 40 * sum(len(planned.unit.text) for planned in line.plan.units)
    values = np.random.default_rng(line.config.seed).integers(-20000, 20000, length)
    return (values / np.float32(32767)).astype(np.float32)


def model_folder(folder: Path, voices: Iterable[str] = ("mira", "otto")) -> Path:
    """A model that can be planned for, and not be loaded."""
    card = {
        "name": "stand-in",
        "languages": ["en"],
        "scripts": ["Latin"],
        "normalise": True,
        "needs_transcript": False,
        "default_voice": "mira",
        "unit_chars": 120,
    }
    write_files(folder, {**hollow_model(), "fishtts.json": json.dumps(card).encode()})
    (folder / "voices").mkdir()
    for name in voices:
        write_voice(tiny_voice(name), folder / "voices" / f"{name}.safetensors")
    return folder


def run(
    model: Path, script: Path, output: Path, *, speaker: StandIn | None = None, **more: Any
) -> StandIn:
    """Run a batch with the stand-in; answers the stand-in, which knows what it spoke."""
    speaker = speaker or StandIn()
    recogniser = more.pop("recogniser", None)
    speech = {key: more.pop(key) for key in ("seed", "speed", "pause_s", "retries") if key in more}
    request = Request(
        str(script),
        str(output),
        model=str(model),
        quiet=more.pop("quiet", True),
        speech=SpeechConfig(**speech),
        **more,
    )
    batch(request, speaker=speaker, recogniser=recogniser)
    return speaker


def records(folder: Path) -> list[dict[str, Any]]:
    """Read a manifest as a script would."""
    lines = (folder / "manifest.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def check_manifest(folder: Path) -> None:
    """Check that every file is there with the hash that is told of it, and nothing besides."""
    found = records(folder)
    for record in found:
        if record["file"]:
            assert file_hash(folder / record["file"]) == record["sha256"], record["id"]
    files = {record["file"] for record in found if record["file"]}
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert there - files <= {"manifest.jsonl", "failed.jsonl"}


@dataclass
class Zygote:
    """A warm process that forks runs: they start at once, and can be killed one by one."""

    process: subprocess.Popen[str]

    def start(self, **arguments: Any) -> int:
        """Start a run; answers its process id."""
        return int(self._ask(arguments))

    def wait(self) -> tuple[int, str]:
        """Wait for it; answers its exit code (negative: the signal that ended it) and what it said
        on standard error."""
        code, message = json.loads(self._ask("wait"))
        return code, message

    def _ask(self, question: Any) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()


@contextmanager
def zygote() -> Iterator[Zygote]:
    """Keep a warm process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.jobs.stand_ins"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        yield Zygote(process)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.wait(timeout=30)
        process.stdout.close()


def _serve() -> None:
    """Fork a run for every question, after one that brings in all that is imported on the way."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "script.txt").write_text("Number 1.")
        run(model_folder(folder / "model"), folder / "script.txt", folder / "out")
    for question in sys.stdin:
        arguments = json.loads(question)
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            os.dup2(writer, 2)
            os._exit(_child(arguments))
        os.close(writer)
        print(child, flush=True)
        assert json.loads(sys.stdin.readline()) == "wait"
        with open(reader, encoding="utf-8", errors="replace") as pipe:
            message = pipe.read()
        _, status = os.waitpid(child, 0)
        print(json.dumps([os.waitstatus_to_exitcode(status), message]), flush=True)


def _child(arguments: dict[str, Any]) -> int:
    """Run a batch as the command line does. ``hold`` is a named pipe, and after how many lines
    somebody is met there."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    stopping.GRACE_S = arguments.pop("grace_s", stopping.GRACE_S)
    speaker = StandIn()
    hold = arguments.pop("hold", None)
    if hold:
        path, number = hold
        speaker.after[number] = lambda: _hold(Path(path))
    paths = [Path(arguments.pop(name)) for name in ("model", "script", "output")]
    code = 0
    try:
        run(*paths, speaker=speaker, **arguments)
    except FishTTSError as error:
        print(f"fishtts: {error}", file=sys.stderr)
        code = int(error.exit_code)
    except KeyboardInterrupt:
        code = 130
    sys.stderr.flush()
    return code


def _hold(pipe: Path) -> None:
    """Meet the test at a named pipe, and wait there until it lets go."""
    with open(pipe, "rb") as met:
        met.read()


if __name__ == "__main__":
    _serve()

"""What an evaluation wrote down: one JSON file a run, line by line. Knows no table and no judge."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from recipes.minnow.score import LineErrors

Mode = Literal["teacher", "codec", "say", "endings", "clone", "speed"]
MODES: tuple[Mode, ...] = ("teacher", "codec", "say", "endings", "clone", "speed")

HERE = Path(__file__).parent
LISTS = HERE / "eval"
FROZEN = LISTS / "FROZEN.json"


@dataclass(frozen=True, slots=True)
class Line:
    """One sentence of one voice: what was heard, and what it cost to make.

    ``faults`` are what the product's own checks found. ``similarity`` is that of a clone to its
    reference, ``ceiling`` that of the reference's re-synthesis by the codec, ``rank`` the place of
    the right reference among all of them, from 1.
    """

    text: str
    heard: str
    errors: LineErrors
    mos: float
    dnsmos: float
    seconds: float
    took_s: float
    faults: tuple[str, ...] = ()
    similarity: float | None = None
    ceiling: float | None = None
    rank: int | None = None


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
            voice: [_line(line) for line in lines] for voice, lines in fields["voices"].items()
        }
        return cls(**fields)

    @property
    def texts(self) -> list[str]:
        """The sentences, in the order of the first voice."""
        return [line.text for line in next(iter(self.voices.values()))]


def _line(fields: dict) -> Line:  # type: ignore[type-arg]
    faults = tuple(fields.get("faults", ()))
    return Line(**{**fields, "errors": LineErrors(**fields["errors"]), "faults": faults})


def frozen_hashes() -> dict[str, str]:
    """Hash what figures depend on: the lists of sentences and the normaliser."""
    files = (*sorted(LISTS.glob("*.txt")), HERE / "normaliser.py")
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in files}


def held_out_lines() -> list[str]:
    """Every sentence of every list: none of them may be trained on."""
    return [
        line
        for file in sorted(LISTS.glob("*.txt"))
        for line in file.read_text("utf-8").splitlines()
    ]


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
    packages = ("fishtts", "torch", "onnxruntime", "faster-whisper", "ctranslate2")
    return {
        "processor": processor(),
        "threads": str(threads),
        "python": platform.python_version(),
        **{package: _version(package) for package in packages},
        "normaliser": frozen_hashes()["normaliser.py"],
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


def cases(sentences: Sequence[str], voices: Sequence[str], count: int) -> list[tuple[str, str]]:
    """``count`` (voice, sentence) pairs: every sentence once before one is said again, each time
    round by another voice."""
    pairs = []
    for i in range(count):
        turn, at = divmod(i, len(sentences))
        pairs.append((voices[(at + turn) % len(voices)], sentences[at]))
    return pairs

"""Frozen speeds of GPUs: one file a GPU beside this one, measured by ``bench/engine.py``.

Owns the file's form, and how a GPU's name and clocks are asked for. Knows nothing of how a speed is
measured, or of what is made of a comparison.
"""

from __future__ import annotations

import datetime
import json
import platform
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fishtts.errors import FishTTSError

FOLDER = Path(__file__).parent
_PACKAGES = ("fishtts", "torch", "triton")
_QUERY = ("clocks.sm", "clocks.mem", "driver_version")
_PATIENCE_S = 30.0
_KEYS = {"gpu", "clocks", "versions", "date", "streams", "kernels"}


@dataclass(frozen=True, slots=True)
class Clocks:
    """What a GPU ran at under load, in MHz."""

    sm_mhz: int
    memory_mhz: int

    def are_like(self, others: Clocks, tolerance: float = 0.03) -> bool:
        """Whether both differ so little that speeds can be compared."""
        pairs = ((self.sm_mhz, others.sm_mhz), (self.memory_mhz, others.memory_mhz))
        return all(abs(a - b) <= tolerance * max(a, b) for a, b in pairs)

    def __str__(self) -> str:
        return f"{self.sm_mhz} MHz, memory {self.memory_mhz} MHz"


@dataclass(frozen=True, slots=True)
class Machine:
    """A GPU by its name, its clocks under load (None where nobody tells), and the versions."""

    gpu: str
    clocks: Clocks | None
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Baseline:
    """What was measured on one GPU.

    ``streams`` are rows of ``fishtts.engine.streams`` with the model's name and its format beside
    them, ``kernels`` is what ``bench/kernels.py`` wrote, with its own machine, or None.
    """

    machine: Machine
    date: str
    streams: Sequence[Mapping[str, Any]]
    kernels: Mapping[str, Any] | None

    def row(self, model: str, form: str, streams: int) -> Mapping[str, Any] | None:
        """One row of the streams."""
        wanted = {"model": model, "format": form, "streams": streams}
        return next((row for row in self.streams if wanted.items() <= row.items()), None)


def read(folder: Path = FOLDER) -> list[Baseline]:
    """Read every baseline there is.

    Raises: ``FishTTSError`` for a file that is no baseline.
    """
    return [_read(path) for path in sorted(folder.glob("*.json"))]


def _read(path: Path) -> Baseline:
    try:
        values = json.loads(path.read_bytes())
        if set(values) != _KEYS:
            raise ValueError
        machine = Machine(values["gpu"], Clocks(**values["clocks"]), values["versions"])
        return Baseline(machine, values["date"], values["streams"], values["kernels"])
    except (OSError, ValueError, TypeError):
        raise FishTTSError(f"{path} is no baseline.", hint="Install fishtts again.") from None


def find(gpu: str, folder: Path = FOLDER) -> Baseline | None:
    """The baseline of a GPU, if there is one."""
    return next((each for each in read(folder) if each.machine.gpu == gpu), None)


def write(
    machine: Machine,
    streams: Sequence[Mapping[str, Any]],
    kernels: Mapping[str, Any] | None = None,
    folder: Path = FOLDER,
) -> Path:
    """Write the baseline of a GPU in place of the one before; answers the file.

    Without ``kernels`` those of the one before stay. ``kernels`` is the JSON of
    ``bench/kernels.py``.

    Raises: ``ValueError`` where nobody tells the clocks: nothing could be compared with it.
    """
    if machine.clocks is None:
        raise ValueError(f"The clocks of {machine.gpu} are not known: is nvidia-smi there?")
    before = find(machine.gpu, folder)
    if kernels is None and before is not None:
        kernels = before.kernels
    values = {
        "gpu": machine.gpu,
        "clocks": asdict(machine.clocks),
        "versions": dict(machine.versions),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "streams": [dict(row) for row in streams],
        "kernels": kernels,
    }
    path = folder / f"{_file_name(machine.gpu)}.json"
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    return path


def _file_name(gpu: str) -> str:
    """h200 of "NVIDIA H200", rtx-5090 of "NVIDIA GeForce RTX 5090"."""
    words = gpu.lower().split()
    return "-".join(word for word in words if word not in ("nvidia", "geforce"))


def machine(gpu: str, uuid: str, work: Callable[[], object]) -> Machine:
    """Describe a CUDA device while it works: ``work`` is called until the clocks have been read.

    ``uuid`` tells the driver's tool which device is meant, whatever this program may see of them.
    """
    command = ["nvidia-smi", f"--query-gpu={','.join(_QUERY)}", f"--id={uuid}"]
    facts: dict[str, str] = {}
    try:
        asked = subprocess.Popen(
            [*command, "--format=csv,noheader,nounits"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        end = time.monotonic() + _PATIENCE_S
        while asked.poll() is None and time.monotonic() < end:
            work()
        asked.kill()
        answer, _ = asked.communicate()
        facts = dict(zip(_QUERY, answer.splitlines()[0].split(", "), strict=True))
        clocks: Clocks | None = Clocks(int(facts["clocks.sm"]), int(facts["clocks.mem"]))
    except (OSError, IndexError, ValueError):
        clocks = None
    versions = {"python": platform.python_version()}
    versions |= {package: _version(package) for package in _PACKAGES}
    versions["driver"] = facts.get("driver_version", "unknown")
    return Machine(gpu, clocks, versions)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"

"""How long a user waits: cold start to the first audio, speed, memory, and the time of --help.

    python bench/say.py [--model NAME] [--runs 5] [--json]

Every figure is that of a fresh process, the median of several runs on at most two threads. Prints
the machine and the versions; the last line is always JSON (with ``--json`` it is the only one).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

THREADS = 2
SHORT = "Good morning."
SENTENCE = "The ferry left the harbour before the fog had lifted."
PARAGRAPH = (
    "The ferry left the harbour before the fog had lifted. Nobody on deck could see the shore, and "
    "the captain sounded the horn every two minutes. A boy asked his mother if they were lost. "
    "She laughed, and said that the ship knew the way by heart."
)
BYTES_PER_SAMPLE = 2


@dataclass(frozen=True, slots=True)
class Run:
    """One process: seconds to its first byte and to its end, bytes written, peak memory in MB."""

    first_s: float
    total_s: float
    num_bytes: int
    peak_mb: float


def environment() -> dict[str, str]:
    """Keep a child off the network, and to ``THREADS`` threads where cores cannot be limited."""
    limit = {} if hasattr(os, "sched_setaffinity") else {"OMP_NUM_THREADS": str(THREADS)}
    return {**os.environ, **limit, "HF_HUB_OFFLINE": "1"}


def limit_cores() -> list[int]:
    """Keep this process and its children to the first ``THREADS`` cores, where a system can."""
    if not hasattr(os, "sched_setaffinity"):
        return []
    cores = sorted(os.sched_getaffinity(0))[:THREADS]
    os.sched_setaffinity(0, cores)
    return cores


def run(arguments: Sequence[str]) -> Run:
    """Run ``fishtts`` once in a process of its own."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "fishtts", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    # Straight from the pipe: a buffered read would wait for a full buffer.
    first = os.read(process.stdout.fileno(), 65536)
    first_s = time.perf_counter() - start
    num_bytes = len(first) + len(process.stdout.read())
    message = process.stderr.read().decode(errors="replace")
    code, peak_mb = _wait(process)
    total_s = time.perf_counter() - start
    if code:
        raise SystemExit(f"fishtts {' '.join(arguments)} failed with {code}: {message.strip()}")
    return Run(first_s, total_s, num_bytes, peak_mb)


def _wait(process: subprocess.Popen[bytes]) -> tuple[int, float]:
    """Wait for a child; get its exit code and its own peak memory (nan where unknown)."""
    if not hasattr(os, "wait4"):
        return process.wait(), float("nan")
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    kilo = 1024 if sys.platform == "darwin" else 1  # macOS counts bytes, Linux kilobytes
    return process.returncode, usage.ru_maxrss / kilo / 1024


def measure_help(runs: int) -> dict[str, float]:
    """Time ``--help``: what the command line costs before any work."""
    measured = [run(["--help"]) for _ in range(runs)]
    return {
        "total_s": _median(r.total_s for r in measured),
        "peak_mb": _median(r.peak_mb for r in measured),
    }


def measure_say(text: str, model: str, sample_rate: int, runs: int) -> dict[str, float]:
    """Time one text from the shell's Enter key: raw samples on standard output."""
    arguments = ["say", text, "--model", model, "--raw", "-o", "-", "--quiet", "--offline"]
    measured = [run([*arguments, "--device", "cpu"]) for _ in range(runs)]
    audio_s = measured[0].num_bytes / BYTES_PER_SAMPLE / sample_rate
    total_s = _median(r.total_s for r in measured)
    return {
        "first_s": _median(r.first_s for r in measured),
        "total_s": total_s,
        "audio_s": audio_s,
        "rtf_cold": total_s / audio_s,
        "peak_mb": _median(r.peak_mb for r in measured),
    }


def measure_warm(model: str, runs: int) -> dict[str, float]:
    """Time a paragraph in a process that has loaded the model and spoken before."""
    code = (
        "import json, sys, time\n"
        "from fishtts import TTS\n"
        "model, text, runs = sys.argv[1], sys.argv[2], int(sys.argv[3])\n"
        "tts = TTS(model=model, device='cpu', offline=True)\n"
        "tts.say('Warm up.', seed=0)\n"
        "took = []\n"
        "for _ in range(runs):\n"
        "    start = time.perf_counter()\n"
        "    speech = tts.say(text, seed=0)\n"
        "    took.append(time.perf_counter() - start)\n"
        "print(json.dumps([took, len(speech.samples), speech.sample_rate]))\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", code, model, PARAGRAPH, str(runs)],
        env=environment(),
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    took, num_samples, sample_rate = json.loads(output.splitlines()[-1])
    audio_s, total_s = num_samples / sample_rate, statistics.median(took)
    return {
        "total_s": total_s,
        "audio_s": audio_s,
        "rtf": total_s / audio_s,
        "sample_rate": float(sample_rate),
    }


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


def machine(cores: Sequence[int]) -> dict[str, str]:
    """Name the processor, the cores in use, and the versions."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [x for x in info.read_text().splitlines() if x.startswith("model name")]
        name = models[0].split(":", 1)[1].strip() if models else name
    return {
        "processor": name,
        "cores": str(len(cores) or os.cpu_count()),
        "threads": str(THREADS),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{package: version(package) for package in ("fishtts", "torch", "numpy")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="minnow")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print the last line only")
    args = parser.parse_args()

    cores = limit_cores()
    warm = measure_warm(args.model, args.runs)
    sample_rate = int(warm["sample_rate"])
    results = {
        "help": measure_help(args.runs),
        **{
            name: measure_say(text, args.model, sample_rate, args.runs)
            for name, text in (("short", SHORT), ("sentence", SENTENCE), ("paragraph", PARAGRAPH))
        },
        "warm paragraph": warm,
    }
    about = machine(cores)
    if not args.json:
        print(", ".join(f"{key} {value}" for key, value in about.items()))
        print(f"median of {args.runs} runs, a fresh process each (warm: one process)\n")
        for name, figures in results.items():
            print(f"{name:16}" + "  ".join(f"{key} {value:.3f}" for key, value in figures.items()))
    print(json.dumps({"machine": about, "runs": args.runs, "results": results}))


if __name__ == "__main__":
    main()

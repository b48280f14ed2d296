"""The whole training run, unattended: synthesise, codec, encode, decoder and language model.

    python -m recipes.minnow.drive --pack PACK --work DIR --seconds 1450

Stages are separate processes placed on the GPUs that exist. With two, the decoder and the language
model train side by side once the codes are frozen; with one, one after the other. A stage that left
its ``.done`` file is skipped, and every stage goes on from its last saved weights, so the same
command resumes a run that was cut off.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

NUM_ENCODERS = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """How the seconds of a run are spent. Counted from the start of the run."""

    codec_starts: float
    codec_ends: float
    end: float


class Run:
    """Starts stages, waits for them, and writes their logs under ``work/log``."""

    def __init__(self, pack: Path, work: Path, gpus: int) -> None:
        self.pack, self.work, self.gpus = pack, work, gpus
        self.started = time.monotonic()
        (work / "log").mkdir(parents=True, exist_ok=True)
        self.shards, self.codes = work / "shards", work / "codes"
        self.whole, self.decoder, self.ar = (work / n for n in ("whole", "decoder", "ar"))

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started

    def start(self, name: str, gpu: int, *arguments: str | Path | float) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"recipes.minnow.{arguments[0]}", *map(str, arguments[1:])]
        log = (self.work / "log" / f"{name}.log").open("ab")
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if torch.cuda.is_available():
            environment["CUDA_VISIBLE_DEVICES"] = str(gpu % self.gpus)
        print(f"{self.elapsed:.0f} s start {name}", flush=True)
        return subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=environment, stdin=subprocess.DEVNULL
        )

    def finish(self, name: str, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        print(f"{self.elapsed:.0f} s ended {name}: {code}", flush=True)
        if code:
            raise SystemExit(f"stage {name} failed; see its log")

    def done(self, name: str) -> Path:
        return self.work / f"{name}.done"

    def synthesise(self, part: int, seconds: float, hours: float) -> subprocess.Popen[bytes]:
        return self.start(
            f"synthesise{part}",
            part,
            "synthesise",
            "--pack",
            self.pack,
            "--out",
            self.shards,
            "--hours",
            hours,
            "--seconds",
            seconds,
            "--shard",
            f"{part}/2",
            "--seed",
            part,
        )

    def train(self, stage: str, gpu: int, seconds: float) -> subprocess.Popen[bytes]:
        out = self.whole if stage == "whole" else self.decoder
        extra: list[str | Path] = [] if stage == "whole" else ["--start", self._decoder_start()]
        return self.start(
            stage,
            gpu,
            "train_codec",
            stage,
            "--shards",
            self.shards,
            "--pack",
            self.pack,
            "--out",
            out,
            "--seconds",
            seconds,
            *extra,
        )

    def _decoder_start(self) -> Path:
        resumed = self.decoder / "codec.safetensors"
        return resumed if resumed.exists() else self.whole / "codec.safetensors"

    def encode(self) -> None:
        parts = [
            self.start(
                f"encode{i}",
                i,
                "encode",
                "--shards",
                self.shards,
                "--pack",
                self.pack,
                "--codec",
                self.whole / "codec.safetensors",
                "--out",
                self.codes,
                "--part",
                f"{i}/{NUM_ENCODERS}",
            )
            for i in range(NUM_ENCODERS)
        ]
        for i, part in enumerate(parts):
            self.finish(f"encode{i}", part)

    def train_ar(self, gpu: int, seconds: float) -> subprocess.Popen[bytes]:
        return self.start(
            "ar",
            gpu,
            "train_ar",
            "--codes",
            self.codes,
            "--pack",
            self.pack,
            "--out",
            self.ar,
            "--seconds",
            seconds,
        )


def run(run: Run, plan: Plan, hours: float) -> None:
    """All stages; see the module's docstring."""
    if not run.done("codes").exists():
        first = run.synthesise(0, plan.codec_starts, hours * 0.15)
        second = run.synthesise(1, plan.codec_ends, hours) if run.gpus > 1 else None
        run.finish("synthesise0", first)
        if second is None:
            run.finish("synthesise1", run.synthesise(1, plan.codec_starts, hours))
        whole = run.train("whole", 0, plan.codec_ends - run.elapsed)
        run.finish("whole", whole)
        if second is not None:
            run.finish("synthesise1", second)
        run.encode()
        run.done("codes").touch()
    left = plan.end - run.elapsed
    if run.gpus > 1:
        ar, decoder = run.train_ar(1, left), run.train("decoder", 0, left)
        run.finish("ar", ar)
        run.finish("decoder", decoder)
        return
    run.finish("ar", run.train_ar(0, left * 0.65))
    run.finish("decoder", run.train("decoder", 0, plan.end - run.elapsed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--pack", "--work"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--codec-starts", type=float, default=55.0)
    parser.add_argument("--codec-ends", type=float, default=430.0)
    parser.add_argument("--hours", type=float, default=150.0)
    args = parser.parse_args()
    gpus = max(1, torch.cuda.device_count())
    plan = Plan(args.codec_starts, args.codec_ends, args.seconds)
    run(Run(args.pack, args.work, gpus), plan, args.hours)
    print("all done", flush=True)


if __name__ == "__main__":
    main()

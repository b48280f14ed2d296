"""The whole training run, unattended: speech, codec, codes, decoder and language model.

    python -m recipes.minnow.drive --pack PACK --work DIR --seconds 1450 [--start FOLDER]

``--seconds`` are those that are left: every stage gets its share of them, and every learning rate
has come down when they end. Stages are separate processes placed on the GPUs that exist. A stage
that left its ``.done`` file is skipped, and every stage goes on from its last saved weights, so the
same command resumes a run that was cut off, on the same machine, or with the weights alone on
another (``parcel.py`` carries them). At the end stands ``DIR/done``, or ``DIR/failed`` with the
reason.

With ``--start``, a folder with ``model.safetensors`` and ``codec.safetensors``, training goes on
from there: encoder and quantiser stay as they are, so that codes and voices made with them stay
true. The folder is waited for when it is first needed. ``--only decoder`` leaves the language
model as it is: after a short time of speech, all seconds are the decoder's. It needs ``--start``,
of which the codec is enough, and a light pack (``lighten.py``) will do. ``--toy`` does a few steps
of everything.
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


@dataclass(frozen=True, slots=True)
class Plan:
    """How the seconds of a run are shared out, as shares of all of them.

    ``speech`` ends the first round of speech on every GPU, ``more_speech`` the second one, on the
    first of several GPUs; ``whole`` the codec's first stage. ``model`` is the language model's
    share of what is left where one GPU does it all. ``only_speech`` ends the speech where nothing
    but the decoder is trained.
    """

    speech: float = 0.09
    more_speech: float = 0.19
    whole: float = 0.29
    model: float = 0.65
    only_speech: float = 0.115
    hours: float = 200.0
    toy: bool = False


# Options that make a stage tiny. Two rounds of everything on a CPU take a minute or two.
TOY = {
    "synthesise": ("--batch", 3, "--shard-hours", 0.002),
    "encode": (),
    "train_codec": ("--batch", 8, "--frames", 8, "--hours", 0.05, "--max-steps", 2,
                    "--judged-from", 0.0, "--print-every", 1),
    "train_ar": ("--tokens", 900, "--num-fast", 32, "--workers", 0, "--max-steps", 2,
                 "--print-every", 1),
}  # fmt: skip
TOY_HOURS = 0.004
# Of the learning rates, where training goes on from finished weights.
WARM_RATE = 0.5
# Lines a step of the decoder then: judges gain more from more steps than from more lines.
WARM_BATCH = 32
Process = subprocess.Popen[bytes]


class Run:
    """Starts stages, waits for them, and writes their logs under ``work/log``."""

    def __init__(self, args: argparse.Namespace, plan: Plan) -> None:
        self.pack, self.work, self.start_folder = args.pack, args.work, args.start
        self.plan, self.seconds = plan, args.seconds
        self.gpus = args.gpus or max(1, torch.cuda.device_count())
        self.started = time.monotonic()
        (self.work / "log").mkdir(parents=True, exist_ok=True)
        self.shards, self.codes = self.work / "shards", self.work / "codes"
        self.whole, self.decoder, self.ar = (self.work / n for n in ("whole", "decoder", "ar"))

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started

    def left(self, until: float = 1.0) -> float:
        """Seconds until a share of the run is over."""
        return max(1.0, until * self.seconds - self.elapsed)

    def launch(self, name: str, gpu: int, module: str, *options: object) -> Process:
        """Start one stage on one GPU."""
        options = (*options, *(TOY[module] if self.plan.toy else ()))
        command = [sys.executable, "-m", f"recipes.minnow.{module}", "--pack", self.pack, *options]
        log = (self.work / "log" / f"{name}.log").open("ab")
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if torch.cuda.is_available():
            environment["CUDA_VISIBLE_DEVICES"] = str(gpu % self.gpus)
        print(f"{self.elapsed:.0f} s start {name}", flush=True)
        return subprocess.Popen(
            [str(part) for part in command],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            stdin=subprocess.DEVNULL,
        )

    def finish(self, **processes: Process) -> None:
        """Wait for stages; one that failed ends the run once the others are through."""
        failed = []
        for name, process in processes.items():
            code = process.wait()
            print(f"{self.elapsed:.0f} s ended {name}: {code}", flush=True)
            if code:
                failed.append(name)
        if failed:
            raise SystemExit(f"failed: {', '.join(failed)}; see the logs")

    def once(self, name: str) -> Path:
        """The file that says a stage is over."""
        return self.work / f"{name}.done"

    def weights(self, name: str) -> Path:
        """A file of ``--start``, waited for."""
        path: Path = self.start_folder / name
        while not path.exists():
            time.sleep(0.5)
        return path

    # ---- stages --------------------------------------------------------------------------------

    def speak(self, part: int, until: float, seed: int) -> Process:
        """Teacher speech until a share of the run is over."""
        hours = TOY_HOURS if self.plan.toy else self.plan.hours
        # Part 0 begins with the held-out lines: a toy would come no further.
        shard = "1/2" if self.plan.toy else f"{part}/2"
        options = ("--out", self.shards, "--hours", hours, "--seconds", self.left(until),
                   "--shard", shard, "--seed", seed)  # fmt: skip
        return self.launch(f"speech{part}", part, "synthesise", *options)

    def encode(self) -> None:
        """Codes of all speech that has none yet, on every GPU."""
        codec = self.frozen_codec()
        parts = {
            f"encode{i}": self.launch(
                f"encode{i}", i, "encode", "--shards", self.shards, "--codec", codec,
                "--out", self.codes, "--part", f"{i}/{self.gpus}",
            )
            for i in range(self.gpus)
        }  # fmt: skip
        self.finish(**parts)

    def frozen_codec(self) -> Path:
        """The codec whose encoder and quantiser are final."""
        if self.start_folder is not None:
            return self.weights("codec.safetensors")
        return self.whole / "codec.safetensors"

    def train_codec(self, stage: str, until: float, after: Path | None = None) -> Process:
        """One stage of the codec, on the first GPU. Where it begins only ``after`` a file exists,
        it is the process that waits for ``--start``."""
        out = self.whole if stage == "whole" else self.decoder
        options: list[object] = [stage, "--shards", self.shards, "--out", out]
        options += ["--seconds", self.left(until)]
        if stage == "decoder":
            if after is not None:
                options += ["--after", after, "--start", self.start_folder / "codec.safetensors"]
            else:
                options += ["--start", self.frozen_codec()]
            if self.start_folder is not None:
                options += ["--rate", WARM_RATE, "--judged-from", 0.0, "--batch", WARM_BATCH]
        return self.launch(stage, 0, "train_codec", *options)

    def train_ar(self, gpu: int, seconds: float) -> Process:
        """The language model."""
        options: list[object] = ["--codes", self.codes, "--out", self.ar, "--seconds", seconds]
        if self.start_folder is not None:
            options += ["--start", self.weights("model.safetensors"), "--rate", WARM_RATE]
        return self.launch("ar", gpu, "train_ar", *options)


def first_codes(run: Run) -> None:
    """Speech, the codec where it is not given, and the first codes."""
    plan, several = run.plan, run.gpus > 1
    if run.start_folder is not None:
        if not run.once("speech").exists():
            run.finish(**{f"speech{i}": run.speak(i, plan.speech, i) for i in range(run.gpus)})
            run.once("speech").touch()
    else:
        first = run.speak(0, plan.speech * 0.5, 0)
        second = run.speak(1, plan.whole, 1) if several else None
        run.finish(speech0=first)
        if second is None:
            run.finish(speech1=run.speak(1, plan.speech * 1.5, 1))
        run.finish(whole=run.train_codec("whole", plan.whole))
        if second is not None:
            run.finish(speech1=second)
    run.encode()
    run.once("codes").touch()


def more_codes(run: Run) -> None:
    """A second round of speech beside the language model, which takes the codes in as they come."""
    run.finish(speech0=run.speak(0, run.plan.more_speech, 100))
    codec = run.frozen_codec()
    options = ("--shards", run.shards, "--codec", codec, "--out", run.codes)
    run.finish(encode=run.launch("encode", 0, "encode", *options))
    run.once("more").touch()


def decoder_only(run: Run) -> None:
    """Speech, and the decoder, whose process starts and takes the speech in meanwhile."""
    speech = run.once("speech")
    decoder = run.train_codec("decoder", 1.0, after=speech)
    try:
        if not speech.exists():
            until = run.plan.only_speech
            run.finish(**{f"speech{i}": run.speak(i, until, i) for i in range(run.gpus)})
            speech.touch()
    except BaseException:
        decoder.terminate()
        raise
    run.finish(decoder=decoder)


def drive(run: Run) -> None:
    """All stages; see the module's docstring."""
    if not run.once("codes").exists():
        first_codes(run)
    if run.gpus > 1:
        ar = run.train_ar(1, run.left())
        if run.start_folder is not None and not run.once("more").exists():
            more_codes(run)
        run.finish(ar=ar, decoder=run.train_codec("decoder", 1.0))
        return
    if not run.once("ar").exists():
        run.finish(ar=run.train_ar(0, run.left() * run.plan.model))
        run.once("ar").touch()
    run.finish(decoder=run.train_codec("decoder", 1.0))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("--pack", "--work"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--start", type=Path, help="a folder with weights to go on from")
    parser.add_argument("--gpus", type=int, default=0, help="as many as there are")
    parser.add_argument("--toy", action="store_true", help="a few steps of everything")
    parser.add_argument("--only", choices=("decoder",), help="train nothing else")
    args = parser.parse_args()
    if args.only and args.start is None:
        parser.error("--only decoder needs --start: the codec whose decoder goes on")
    run = Run(args, Plan(toy=args.toy))
    for name in ("done", "failed"):
        (args.work / name).unlink(missing_ok=True)
    try:
        (decoder_only if args.only else drive)(run)
    except BaseException as error:
        (args.work / "failed").write_text(f"{error}\n")
        raise
    (args.work / "done").touch()
    print("all done", flush=True)


if __name__ == "__main__":
    main()

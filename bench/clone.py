"""How long it takes from a recording to a voice, by stage, and what a cloned voice costs a line.

    python bench/clone.py [--model NAME] [--runs 3] [--json]

The recordings are made here, of a built-in voice: 10 s and 60 s as WAV, 30 minutes as FLAC.
Stages: ``listen`` (read, find speech), ``choose`` (the window), ``measure`` (read the window,
compare speakers, measure, clean), ``encode`` (the codec), ``write`` (the voice file). ``command``
is the whole of ``fishtts clone`` in a fresh process, from the shell's Enter key. The median of
several runs on one thread; the last line is always JSON (with ``--json`` it is the only one).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import soundfile
import torch

from bench.say import PARAGRAPH, environment, limit_cores, machine
from fishtts import TTS
from fishtts.audio.blocks import open_recording
from fishtts.cloning.listening import listen
from fishtts.cloning.prepare import prepare
from fishtts.cloning.reference_audio import encode_reference, resample
from fishtts.cloning.voice_file import write_voice
from fishtts.cloning.window import best_windows
from fishtts.types import Audio, Samples, Voice

RATE = 44100
LENGTHS = {"10 s": (10, "wav"), "60 s": (60, "wav"), "30 min": (1800, "flac")}
STORY = (
    f"{PARAGRAPH} By noon the wind had turned. They saw the first gulls, and then the tower of the"
    " old church. Somebody began to sing, and half of the deck joined in. When they landed, the"
    " harbour master shook hands with everyone and asked what had kept them so long."
)
LINE = "The ferry left the harbour before the fog had lifted."


def recording(tts: TTS, folder: Path, seconds: int, kind: str) -> Path:
    """Write speech of a length: one voice telling a story, over and over."""
    once = _story(tts)
    path = folder / f"{seconds}.{kind}"
    with soundfile.SoundFile(path, "w", RATE, 1, "PCM_16") as file:
        left = seconds * RATE
        while left > 0:
            file.write(once[:left])
            left -= len(once)
    return path


@cache
def _story(tts: TTS) -> Samples:
    speech = tts.say(STORY, voice="ada", seed=0)
    told = resample(Audio(speech.samples, speech.sample_rate), RATE)
    return np.concatenate([told, np.zeros(RATE // 2, np.float32)])


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def stages(path: Path, tts: TTS, folder: Path) -> dict[str, float]:
    """Time the stages of one recording."""
    with open_recording(path) as opened:
        start = time.perf_counter()
        heard = listen(opened)
        listen_s = time.perf_counter() - start
    choose_s = timed(lambda: best_windows(heard))
    start = time.perf_counter()
    prepared = prepare(path)
    prepare_s = time.perf_counter() - start
    start = time.perf_counter()
    reference = encode_reference(prepared.clips[0], tts.codec)
    encode_s = time.perf_counter() - start
    voice = Voice("bench", (reference,), tts.codec.identity, clips=prepared.clips)
    return {
        "listen_s": listen_s,
        "choose_s": choose_s,
        "measure_s": max(0.0, prepare_s - listen_s - choose_s),
        "encode_s": encode_s,
        "write_s": timed(lambda: write_voice(voice, folder / "bench.fishvoice")),
    }


def command(path: Path, model: str, folder: Path) -> float:
    """Time the command in a process of its own."""
    target = folder / "command.fishvoice"
    arguments = [str(path), "-o", str(target), "--force", "-q", "--offline", "--model", model]
    return timed(
        lambda: subprocess.run(
            [sys.executable, "-m", "fishtts", "clone", *arguments],
            env=environment(),
            check=True,
            stdout=subprocess.DEVNULL,
        )
    )


def cost_of_a_line(tts: TTS, path: Path, runs: int) -> dict[str, float]:
    """Time a line by a built-in voice, by a clone of it whose reference is as long, and by a clone
    with the longest reference that the model takes.

    In turn, once each prompt is prepared; seconds of processor time for a second of audio, so that
    other work on the machine does not count. ``tries`` tells of lines that had to be said again.
    """
    built_in = tts.voice("ada")
    frames = built_in.references[0].codes.shape[1]
    clip = prepare(path, max_s=tts.card.reference_s).clips[0]
    length = round(frames * tts.codec.samples_per_frame / tts.codec.sample_rate * clip.sample_rate)
    same = Audio(clip.samples[:length], clip.sample_rate)
    cloned = Voice("clone", (encode_reference(same, tts.codec),), tts.codec.identity)
    long = Voice("long", (encode_reference(clip, tts.codec),), tts.codec.identity)
    voices = {"built_in": built_in, "clone": cloned, "longest_clone": long}
    took: dict[str, list[float]] = {name: [] for name in voices}
    tries = dict.fromkeys(voices, 0)
    for voice in voices.values():
        tts.say(LINE, voice=voice, seed=0)
    for seed in range(runs):
        for name, voice in voices.items():
            start = time.process_time()
            speech = tts.say(LINE, voice=voice, seed=seed)
            took_s = time.process_time() - start
            took[name].append(took_s / speech.report.seconds)
            tries[name] += sum(unit.tries for unit in speech.report.units)
    rtf = {name: statistics.median(values) for name, values in took.items()}
    return {
        **{f"cpu_{name}": value for name, value in rtf.items()},
        **{f"tries_{name}": tries[name] / runs for name in voices},
        "extra_percent": 100 * (rtf["clone"] / rtf["built_in"] - 1),
        "extra_percent_longest": 100 * (rtf["longest_clone"] / rtf["built_in"] - 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="minnow")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print the last line only")
    args = parser.parse_args()
    about = machine(limit_cores())
    torch.set_num_threads(1)
    tts = TTS(args.model, device="cpu", offline=True)
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for title, (seconds, kind) in LENGTHS.items():
            path = recording(tts, folder, seconds, kind)
            measured = [stages(path, tts, folder) for _ in range(args.runs)]
            results[title] = {
                stage: statistics.median(run[stage] for run in measured) for stage in measured[0]
            }
            took = [command(path, args.model, folder) for _ in range(args.runs)]
            results[title]["command_s"] = statistics.median(took)
            if title == "60 s":
                results["a line"] = cost_of_a_line(tts, path, 3 * args.runs)
    if not args.json:
        print(", ".join(f"{key} {value}" for key, value in about.items()))
        print(f"median of {args.runs} runs\n")
        for title, figures in results.items():
            print(f"{title:8}" + "  ".join(f"{key} {value:.3f}" for key, value in figures.items()))
    print(json.dumps({"machine": about, "runs": args.runs, "results": results}))


if __name__ == "__main__":
    main()

"""How fast many lines are made together: frames a second, audio, occupancy, first frame.

    python bench/engine.py [--lines 1 4 16 64] [--seconds 20] [--json]     the built-in model, a CPU
    python bench/engine.py --gpu [--formats bf16 bsfp8 w8a16]              S2 Pro's size, a GPU

On a CPU whole lines are spoken: text to samples, checks and codec included. With ``--gpu`` the
engine alone is run, with random weights of S2 Pro's size and prompts of 512 positions, in each of
the formats; it is the measurement of ``fishtts verify``. ``--write-baseline`` freezes the figures
as that command's, ``--kernel-rows FILE`` puts beside them what ``bench/kernels.py --output`` wrote;
``--profile`` adds where the time of a step goes; ``--dry-run`` runs minnow's size on a CPU, to show
that the script works, and no speed. Prints the machine and the versions; the last line is always
JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fishtts import TTS, baselines, hub
from fishtts.baselines import Machine
from fishtts.config import DEFAULT_MODEL, WEIGHT_FORMATS, EngineConfig, SpeechConfig
from fishtts.engine.engine import Engine
from fishtts.engine.request import FrameMade
from fishtts.engine.streams import CONTEXT, NUM_STEPS, engine_for
from fishtts.models import LoadedModel, read_config
from fishtts.models.quantized import DENSE, quantize_net
from fishtts.models.random_model import random_model, size_values
from fishtts.tts import Line
from fishtts.types import Prompt, SamplingParams
from fishtts.verify.speed import STREAMS, gpu_of, measure

THREADS = 2
SIZE = "s2-pro"
WORDS = (
    "The ferry left the harbour before the fog had lifted",
    "Nobody on deck could see the shore",
    "The captain sounded the horn every two minutes",
    "A boy asked his mother if they were lost",
    "She laughed, and said that the ship knew the way by heart",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table. ``rtf`` is seconds of work for a second of audio, of all lines."""

    lines: int
    frames_per_s: float
    audio_s_per_s: float
    rtf: float
    occupancy: float
    first_frame_ms: float
    step_ms: float


def lines(count: int, tts: TTS, config: SpeechConfig) -> Iterator[Line]:
    """Lines of mixed lengths, none like another, in all voices."""
    voices = [voice.name for voice in tts.voices()]
    for number in range(count):
        chosen = [WORDS[(number + k) % len(WORDS)] for k in range(1 + number % 3)]
        plan = tts.plan(f"Number {number}. " + ". ".join(chosen) + ".", config)
        yield Line(str(number), plan, voice=voices[number % len(voices)], config=config)


def spoken(count: int, seconds: float, max_batch: int, deterministic: bool) -> Row:
    """Speak so many lines at a time, for at least so many seconds."""
    tts = TTS(device="cpu", max_batch=max_batch, deterministic=deterministic, offline=True)
    config = SpeechConfig(retries=0)
    list(tts.lines(lines(min(count, max_batch), tts, config)))
    before = replace(tts.metrics)
    audio_s = 0.0
    start = time.perf_counter()
    first = _first_frame_ms(tts, count, config)
    rounds = 0
    while rounds == 0 or time.perf_counter() - start < seconds:
        for done in tts.lines(lines(count, tts, config)):
            assert done.speech is not None, done.error
            audio_s += done.speech.report.seconds
        rounds += 1
    took = time.perf_counter() - start
    now = tts.metrics
    steps = now.num_decode_steps - before.num_decode_steps
    rows = now.num_rows - before.num_rows
    units = sum(len(line.plan.units) for line in lines(count, tts, config))
    width = min(units, tts.max_batch)
    return Row(
        lines=count,
        frames_per_s=(now.num_frames - before.num_frames) / took,
        audio_s_per_s=audio_s / took,
        rtf=took / audio_s,
        occupancy=rows / max(1, steps) / width,
        first_frame_ms=first,
        step_ms=1000 * took / max(1, now.num_steps - before.num_steps),
    )


def _first_frame_ms(tts: TTS, count: int, config: SpeechConfig) -> float:
    """Milliseconds until all of so many newcomers have their first frame, their voices known."""
    engine = tts.speaking._engine
    prompts = [
        tts.model.prompts.build(p.unit.model_text, tts.voice(str(line.voice)).references)
        for line in lines(min(count, tts.max_batch), tts, config)
        for p in line.plan.units[:1]
    ]
    start = time.perf_counter()
    ids = {engine.add(prompt, SamplingParams(max_frames=2)) for prompt in prompts}
    while ids:
        ids -= {e.request_id for e in engine.step() if isinstance(e, FrameMade)}
    took = 1000 * (time.perf_counter() - start)
    while engine.has_work:
        engine.step()
    return took


def in_format(form: str, *, dry_run: bool) -> LoadedModel:
    """Random weights of S2 Pro's size in a format; on a dry run of the built-in model's."""
    values = size_values(SIZE)
    if dry_run:
        values = read_config(hub.locate(hub.parse(DEFAULT_MODEL), offline=True))
    device = "cpu" if dry_run else "cuda"
    model = random_model(values, device=device, dtype=torch.bfloat16)
    net: Any = model.net
    if form != DENSE:
        quantize_net(net, form)
    return model


def streams(options: argparse.Namespace) -> tuple[list[dict[str, Any]], Machine]:
    """Measure the engine alone in each format: rows, and the machine at the end of them."""
    counts = options.lines or ([1, 2] if options.dry_run else STREAMS)
    rows = []
    for form in options.formats:
        model = in_format(form, dry_run=options.dry_run)
        gpu, uuid = ("no GPU", "") if options.dry_run else gpu_of(model.device)
        config = EngineConfig(
            str(model.device),
            "bfloat16",
            max(counts),
            options.deterministic,
            False if options.plain else None,
        )
        made, here = measure(
            model,
            gpu,
            uuid,
            config,
            streams=counts,
            steps=4 if options.dry_run else options.frames,
            context=20 if options.dry_run else CONTEXT,
        )
        size = DEFAULT_MODEL if options.dry_run else SIZE
        rows += [{"model": size, "format": form, **asdict(row)} for row in made]
        if options.profile:
            table = profile(engine_for(model, replace(config, max_batch=options.profile)), model)
            print(form, table, sep="\n", file=sys.stderr)
    return rows, here


def profile(engine: Engine, model: LoadedModel) -> str:
    """Where the time of a few steps goes, on the device and on the host."""
    count = engine.capacity.max_batch
    matrix = np.zeros((1 + model.config.num_codebooks, CONTEXT), np.int64)
    for seed in range(count):
        engine.add(Prompt(matrix), SamplingParams(seed=seed, max_frames=40))
    for _ in range(count + 8):
        engine.step()
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as found:
        for _ in range(5):
            engine.step()
        torch.cuda.synchronize()
    return str(
        found.key_averages().table(
            sort_by="self_cuda_time_total", row_limit=32, max_name_column_width=70
        )
    )


def machine() -> dict[str, str]:
    """Where this ran."""
    facts = {
        "cpu": platform.processor() or platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "fishtts": version("fishtts"),
    }
    if torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name()
    return facts


def table(rows: list[Row]) -> str:
    """The rows as people read them."""
    head = "lines  frames/s  audio s/s    RTF  occupancy  first frame ms  step ms"
    body = [
        f"{r.lines:5}  {r.frames_per_s:8.1f}  {r.audio_s_per_s:9.2f}  {r.rtf:5.3f}"
        f"  {r.occupancy:9.2f}  {r.first_frame_ms:14.0f}  {r.step_ms:7.1f}"
        for r in rows
    ]
    return "\n".join([head, *body])


def stream_table(rows: list[dict[str, Any]]) -> str:
    """The rows of the engine alone."""
    head = "format  streams  frames/s  each  audio s/s  step ms  first frames ms  occupancy"
    body = [
        f"{r['format']:6}  {r['streams']:7}  {r['frames_per_s']:8.1f}"
        f"  {r['frames_per_s'] / r['streams']:4.0f}  {r['audio_s_per_s']:9.1f}"
        f"  {r['step_ms']:7.2f}  {r['ttfb_ms']:15.0f}  {r['occupancy']:9.2f}"
        for r in rows
    ]
    return "\n".join([head, *body])


def write_baseline(options: argparse.Namespace, rows: list[dict[str, Any]], here: Machine) -> Path:
    """Freeze what was measured."""
    kernels = json.loads(options.kernel_rows.read_bytes()) if options.kernel_rows else None
    return baselines.write(here, rows, kernels, options.baselines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lines", type=int, nargs="+", default=None)
    parser.add_argument("--seconds", type=float, default=20.0, help="least time of a row")
    parser.add_argument("--frames", type=int, default=NUM_STEPS, help="steps of a row, on a GPU")
    parser.add_argument("--max-batch", type=int, default=16)
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--dry-run", action="store_true", help="the same at minnow's size, a CPU")
    parser.add_argument("--formats", nargs="+", default=[DENSE], choices=(DENSE, *WEIGHT_FORMATS))
    parser.add_argument("--plain", action="store_true", help="decode without our own kernels")
    parser.add_argument("--profile", type=int, default=0, help="streams of a profiled step")
    parser.add_argument("--write-baseline", action="store_true", help="freeze the figures")
    parser.add_argument("--kernel-rows", type=Path, help="what bench/kernels.py --output wrote")
    parser.add_argument("--baselines", type=Path, default=baselines.FOLDER, help="where they lie")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args()
    chosen = options.deterministic or options.plain or options.lines
    if options.write_baseline and (chosen or not options.gpu or options.dry_run):
        parser.error("a baseline is of what users get: --gpu, and no choices but --formats")
    return options


def main() -> None:
    """Run the sweep."""
    options = arguments()
    facts: dict[str, Any] = machine()
    if options.gpu:
        rows, here = streams(options)
        facts |= asdict(here)
        shown = stream_table(rows)
        if options.write_baseline:
            shown += f"\nwritten: {write_baseline(options, rows, here)}"
    else:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
        found = [
            spoken(count, options.seconds, options.max_batch, options.deterministic)
            for count in options.lines or [1, 4, 16, 64]
        ]
        rows, shown = [asdict(row) for row in found], table(found)
    if not options.json:
        print(", ".join(f"{key} {value}" for key, value in facts.items()))
        print(shown)
    print(json.dumps({"machine": facts, "rows": rows}))


if __name__ == "__main__":
    main()

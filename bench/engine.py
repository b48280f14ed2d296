"""How fast many lines are made together: frames a second, audio, occupancy, first frame.

    python bench/engine.py [--lines 1 4 16 64] [--seconds 20] [--json]     the built-in model, a CPU
    python bench/engine.py --gpu [--lines 1 16 64]                         S2 Pro's size, a GPU

On a CPU whole lines are spoken: text to samples, checks and codec included. With ``--gpu`` the
engine alone is run, with random weights of S2 Pro's size in bf16 and prompts of 512 positions;
``--profile`` adds where the time of a step goes. Prints the machine and the versions; the last line
is always JSON.
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

from fishtts import TTS
from fishtts.config import WEIGHT_FORMATS, EngineConfig, SpeechConfig
from fishtts.engine.engine import Engine
from fishtts.engine.request import FrameMade
from fishtts.engine.runner import Runner
from fishtts.models import LoadedModel
from fishtts.models.dual_ar.config import DualARConfig
from fishtts.models.dual_ar.net import DualAR
from fishtts.models.quantized import quantize_net
from fishtts.tts import Line
from fishtts.types import Prompt, SamplingParams

CONTEXT = 512
GOLDEN_CONFIG = Path(__file__).parent.parent / "tests" / "golden" / "s2-pro-config.json"
THREADS = 2
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


def random_s2_pro(form: str = "") -> LoadedModel:
    """S2 Pro's architecture in full size, with random weights in bf16 on the GPU, or in FP8."""
    config = DualARConfig.from_dict(json.loads(GOLDEN_CONFIG.read_bytes()))
    with torch.device("meta"):
        net = DualAR(config)
    net = net.to_empty(device="cuda").to(torch.bfloat16).eval().requires_grad_(False)
    generator = torch.Generator("cuda").manual_seed(1)
    for weight in net.parameters():
        if weight.ndim > 1:
            weight.normal_(std=0.02, generator=generator)
        else:
            weight.fill_(1.0)
    if form:
        quantize_net(net, form)
    return LoadedModel(net, _NoPrompts(), config, Path(), torch.device("cuda"), torch.bfloat16)


class _NoPrompts:
    def build(self, text: str, references: Any = ()) -> Prompt:
        raise NotImplementedError("the bench makes its own prompts")


def streams(engine: Engine, model: LoadedModel, count: int, frames: int) -> Row:
    """Decode so many streams of ``CONTEXT`` positions each, all the time."""
    config: Any = model.config
    rng = np.random.default_rng(7)
    prompts = []
    for _ in range(count):
        matrix = np.zeros((1 + config.num_codebooks, CONTEXT), np.int64)
        matrix[0] = rng.integers(0, 1000, CONTEXT)
        prompts.append(Prompt(matrix))
    params = SamplingParams(temperature=1.0, top_p=0.9, top_k=30, max_frames=frames + 20)
    start = time.perf_counter()
    missing = {engine.add(p, replace(params, seed=n)) for n, p in enumerate(prompts)}
    first = 0.0
    while missing:
        missing -= {e.request_id for e in engine.step() if isinstance(e, FrameMade)}
        first = first or 1000 * (time.perf_counter() - start)
    all_first = 1000 * (time.perf_counter() - start)
    for _ in range(5):
        engine.step()
    torch.cuda.synchronize()
    start, made, steps, rows = time.perf_counter(), 0, 0, engine.metrics.num_rows
    while steps < frames and engine.num_requests == count:
        made += sum(isinstance(event, FrameMade) for event in engine.step())
        steps += 1
    took = time.perf_counter() - start
    rows = engine.metrics.num_rows - rows
    rate = 44100 / 2048
    while engine.has_work:
        engine.step()
    return Row(
        lines=count,
        frames_per_s=made / took,
        audio_s_per_s=made / took / rate,
        rtf=took / (made / rate),
        occupancy=rows / steps / count,
        first_frame_ms=all_first,
        step_ms=1000 * took / steps,
    )


def profile(engine: Engine, count: int) -> str:
    """Where the time of a few steps goes, on the device and on the host."""
    matrix = np.zeros((11, CONTEXT), np.int64)
    for seed in range(count):
        engine.add(Prompt(matrix), SamplingParams(seed=seed, max_frames=40))
    for _ in range(count + 8):
        engine.step()
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as found:
        for _ in range(5):
            engine.step()
        torch.cuda.synchronize()
    while engine.has_work:
        engine.step()
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


def main() -> None:
    """Run the sweep."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lines", type=int, nargs="+", default=None)
    parser.add_argument("--seconds", type=float, default=20.0, help="least time of a row")
    parser.add_argument("--frames", type=int, default=100, help="steps of a row, on a GPU")
    parser.add_argument("--max-batch", type=int, default=16)
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--kernels", action="store_true", help="decode by our own kernels")
    parser.add_argument("--form", default="", choices=("", *WEIGHT_FORMATS), help="FP8 weights")
    parser.add_argument("--profile", type=int, default=0, help="streams of a profiled step")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args()
    rows = []
    if options.gpu:
        model = random_s2_pro(options.form)
        counts = options.lines or [1, 16, 64]
        config = EngineConfig(
            "cuda", "bfloat16", max(counts), options.deterministic, options.kernels
        )
        engine = Engine(Runner(model, config), budget=4096)
        rows = [streams(engine, model, count, options.frames) for count in counts]
        if options.profile and not options.json:
            print(profile(engine, options.profile), file=sys.stderr)
    else:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
        for count in options.lines or [1, 4, 16, 64]:
            rows.append(spoken(count, options.seconds, options.max_batch, options.deterministic))
    facts = machine()
    if not options.json:
        print(", ".join(f"{key} {value}" for key, value in facts.items()))
        print(table(rows))
    print(json.dumps({"machine": facts, "rows": [asdict(row) for row in rows]}))


if __name__ == "__main__":
    main()

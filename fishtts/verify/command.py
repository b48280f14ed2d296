"""``fishtts verify``: whether a model says the same in FP8 as in bf16, and as fast as it did.

Owns which models are compared, and what is said of it. Knows no kernel and no number format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fishtts import hub, model_folder
from fishtts.cloning.reencode import voice_for
from fishtts.cloning.store import find_voice
from fishtts.cloning.voice_file import read_voice
from fishtts.codec import load_codec
from fishtts.config import EngineConfig
from fishtts.errors import ExitCode, FishTTSError, ModelError, UsageError
from fishtts.models import Config, LoadedModel, load_model, read_config
from fishtts.models.accepted import accept, withdraw
from fishtts.models.quantized import (
    DENSE,
    FORMATS,
    choose,
    format_of,
    quantize_net,
    runs_by_kernels,
    use_backend,
)
from fishtts.models.random_model import random_model, size_names, size_values
from fishtts.printing import note, print_json, print_line
from fishtts.tts import resolve
from fishtts.types import Prompt, Reference, Voice
from fishtts.verify.comparison import (
    MAX_LOGITS_ERROR,
    MIN_COSINE,
    Case,
    Dense,
    Gate,
    Verdict,
    dense_of,
    judge,
)
from fishtts.verify.prompts import NUM_FRAMES, PROMPTS
from fishtts.verify.speed import TOLERANCE, SpeedVerdict, judge_speed
from fishtts.weights import model_files

RANDOM_LENGTHS = (16, 100, 500)
"""Positions of the prompts that random weights are given."""

YARDSTICK = "float32"
"""The model without bf16's own rounding: how much that alone changes. It passes no gate."""


class GateError(FishTTSError):
    """A gate that was not passed."""

    exit_code = ExitCode.FELL_SHORT


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be verified.

    Without ``formats``: float32, as a yardstick, and all of them. ``quantized`` is the folder of a
    quantised copy to compare instead. ``voice`` speaks half of the prompts, the model's default
    voice without one. ``random`` takes random weights of the model's size in place of its own.
    ``accept`` remembers the one format if it passes, and forgets it if not.
    """

    model: str
    formats: Sequence[str] = ()
    keep: Mapping[str, str] = field(default_factory=dict)
    quantized: str = ""
    voice: str = ""
    random: bool = False
    speed: bool = True
    accept: bool = False
    device: str = "auto"
    offline: bool = False
    as_json: bool = False


def verify(request: Request) -> None:
    """Compare a model in each format with itself in bf16, and its speed with the frozen one; print
    what came out.

    Raises: ``GateError`` where a gate was not passed.
    """
    _check_acceptable(request)
    load = _loader(request)
    dense_model = load(torch.bfloat16)
    gate: Gate = "values" if request.random else "tokens"
    report = _Report(request)
    with torch.inference_mode():
        dense = dense_of(dense_model, _cases(request, dense_model), gate)
        report.add_dense(dense)
        if request.speed:
            report.add_speed(judge_speed(dense_model, DENSE))
        for name, other in _others(request, dense_model, load):
            net: Any = other.net
            is_yardstick = name == YARDSTICK
            report.add(judge(name, "none" if is_yardstick else gate, dense, dense_model, other))
            if request.speed and not is_yardstick:
                report.add_speed(judge_speed(other, format_of(net)))
            if request.random and runs_by_kernels(net):
                # What the format costs in exact arithmetic: the rest is the kernels' doing.
                use_backend(net, "reference")
                name = f"{name} by the reference"
                report.add(judge(name, "none", dense, dense_model, other))
    if request.accept:
        settle(request, dense_model, report.passed, torch.cuda.get_device_name(dense_model.device))
    report.finish(str(dense_model.device))


def _check_acceptable(request: Request) -> None:
    if not request.accept:
        return
    if len(request.formats) != 1 or request.quantized or request.random:
        raise UsageError("--accept goes with one --format, and a model's own weights.")
    if torch.device(resolve(EngineConfig(request.device)).device).type != "cuda":
        raise UsageError("--accept is for GPUs: on a CPU, auto is always float32.")


def settle(request: Request, model: LoadedModel, has_passed: bool, gpu: str) -> None:
    """Remember that a model may have the format of a request on a GPU, or that it may not."""
    net: Any = model.net
    files = model_files(model.folder)
    if has_passed:
        accept(files, gpu, choose(net, request.formats[0], request.keep))
        note(f"--dtype auto now takes {request.formats[0]} for {request.model} on this GPU.")
    else:
        withdraw(files, gpu)


Load = Callable[[torch.dtype], LoadedModel]


def _loader(request: Request) -> Load:
    """How the model is had in a type: from its folder, or of its size."""
    source = hub.parse(request.model)
    device = resolve(EngineConfig(request.device)).device
    if not request.random:
        folder = hub.locate(source, offline=request.offline)
        return lambda dtype: load_model(folder, device=device, dtype=dtype)
    if request.quantized:
        raise UsageError("--random and --quantized do not go together.")
    values = _values(source)
    return lambda dtype: random_model(values, device=device, dtype=dtype)


def _values(source: hub.Source) -> Mapping[str, Any]:
    """A model's ``config.json``, where it is on this machine or its size is known without it."""
    folder = hub.cached(source)
    if folder is not None:
        return read_config(folder)
    if source.name in size_names():
        return size_values(source.name)
    raise ModelError(
        f"The size of {source.name} is not known here.",
        hint=f"Known without weights: {', '.join(size_names())}.",
    )


def _others(request: Request, dense: LoadedModel, load: Load) -> Iterator[tuple[str, LoadedModel]]:
    """The models to compare with the dense one, by name, one after another."""
    if request.quantized:
        folder = Path(request.quantized)
        other = load_model(folder, device=dense.device, dtype=torch.bfloat16)
        if other.config != dense.config:
            raise ModelError(f"{folder} is not a copy of this model: its sizes differ.")
        yield request.quantized, other
        return
    for form in request.formats or (YARDSTICK, *FORMATS):
        if form == YARDSTICK:
            yield form, load(torch.float32)
            continue
        other = load(torch.bfloat16)
        net: Any = other.net
        quantize_net(net, form, request.keep)
        yield form, other


def _cases(request: Request, model: LoadedModel) -> list[Case]:
    """Every text without a voice, and with one where there is one."""
    if request.random:
        return random_cases(model.config)
    speakers: list[tuple[str, Sequence[Reference]]] = [("", ())]
    if voice := _voice(request, model):
        speakers.append((voice.name, voice.references))
    else:
        note(f"{request.model} has no voice of its own: prompts with a voice want --voice.")
    return [
        Case(text, name, model.prompts.build(text, references))
        for text in PROMPTS
        for name, references in speakers
    ]


def _voice(request: Request, model: LoadedModel) -> Voice | None:
    """The voice that was asked for, in the codes of the model's codec, or the model's own."""
    card, folder = hub.card(hub.parse(request.model), model.folder), model.folder
    if request.voice:
        codec = load_codec(folder, device=str(model.device))
        return voice_for(find_voice(request.voice, folder, card.name).voice, codec)
    if card.default_voice:
        return read_voice(model_folder.find_voice(folder, card.name, card.default_voice))
    return None


def random_cases(config: Config) -> list[Case]:
    """Prompts of random text ids, half of them with random codes before, as a voice's are."""
    rng = np.random.default_rng(1)
    cases = []
    for length in RANDOM_LENGTHS:
        matrix = np.zeros((1 + config.num_codebooks, length), np.int64)
        matrix[0] = rng.integers(0, min(1000, config.semantic_begin), length)
        cases.append(Case(f"{length} random ids", "", Prompt(matrix)))
        spoken = matrix.copy()
        codes = rng.integers(0, config.codebook_size, (config.num_codebooks, length // 2))
        spoken[1:, : length // 2] = codes
        spoken[0, : length // 2] = codes[0] + config.semantic_begin
        cases.append(Case(f"{length} random ids", "random codes", Prompt(spoken)))
    return cases


class _Report:
    """Prints what came out as it comes, or all of it as JSON at the end."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._verdicts: list[Verdict] = []
        self._speeds: list[SpeedVerdict] = []
        self._told: set[str] = set()
        self._dense: Dense | None = None

    def add_dense(self, dense: Dense) -> None:
        """Say what the model in bf16 does by itself."""
        self._dense = dense
        if not self._request.as_json:
            _print_dense(dense)

    def add(self, verdict: Verdict) -> None:
        """Take a verdict on a format."""
        self._verdicts.append(verdict)
        if not self._request.as_json:
            _print(verdict)

    def add_speed(self, verdict: SpeedVerdict) -> None:
        """Take a verdict on the speed of a format; one reason is told once."""
        self._speeds.append(verdict)
        if not self._request.as_json and verdict.reason not in self._told:
            _print_speed(verdict)
        self._told |= {verdict.reason} - {""}

    @property
    def passed(self) -> bool:
        """Whether everything so far was passed."""
        return all(verdict.passed for verdict in (*self._verdicts, *self._speeds))

    def finish(self, device: str) -> None:
        """Print what is left.

        Raises: ``GateError`` where something was not passed.
        """
        assert self._dense is not None, "add_dense comes first"
        if self._request.as_json:
            print_json(
                {
                    "model": self._request.model,
                    "device": device,
                    "random": self._request.random,
                    "num_cases": len(self._dense.cases),
                    "num_same_together": self._dense.num_same_together,
                    "verdicts": [{**asdict(v), "passed": v.passed} for v in self._verdicts],
                    "speed": [{**asdict(v), "passed": v.passed} for v in self._speeds],
                }
            )
        if failed := [verdict.format for verdict in self._verdicts if not verdict.passed]:
            what = "is not near" if self._request.random else "does not say the same as in"
            raise GateError(
                f"{self._request.model} {what} bf16 in: {', '.join(failed)}.",
                hint="Keep layers in bf16 or w8a16: --keep 'PATTERN=w8a16'.",
            )
        if slow := [verdict.format for verdict in self._speeds if not verdict.passed]:
            raise GateError(
                f"{self._request.model} is slower than the frozen figures in: {', '.join(slow)}."
            )


def _print_speed(verdict: SpeedVerdict) -> None:
    if verdict.reason:
        print_line(f"Speed was not compared: {verdict.reason}.")
        return
    word = "passed" if verdict.passed else "FAILED"
    print_line(f"{verdict.format}, speed: {word}. Frames a second of each stream, and as frozen:")
    for row in verdict.rows:
        word = "" if row.holds else f"  more than {TOLERANCE:.0%} slower"
        print_line(f"  {row.streams:3} streams {row.frames_per_s:8.1f} {row.baseline:8.1f}{word}")
    for line in verdict.notes:
        print_line(f"  {line}")


def _print_dense(dense: Dense) -> None:
    if dense.together:
        print_line(
            f"bf16, in one batch: the same tokens as alone for {dense.num_same_together} of"
            f" {len(dense.cases)} prompts."
        )


def _print(verdict: Verdict) -> None:
    """Print a verdict for people."""
    word = "passed" if verdict.passed else "FAILED"
    word = "for comparison" if verdict.gate == "none" else word
    batch = f", {verdict.num_equal_together} in one batch"
    print_line(
        f"{verdict.format}: {word}. The same tokens for {NUM_FRAMES} frames: {verdict.num_equal} of"
        f" {verdict.num_cases} prompts alone{'' if verdict.num_equal_together is None else batch}."
    )
    print_line(
        f"  draws with the same best token: {verdict.num_draws_equal} of {verdict.num_draws};"
        f" semantic: {verdict.num_semantic_equal} of {verdict.num_semantic}"
    )
    cosines = " ".join(f"{cosine:.5f}" for cosine in verdict.layer_cosines)
    print_line(
        f"  smallest cosine ({_versus(verdict.cosines_hold)} {MIN_COSINE}): hidden states"
        f" {verdict.hidden_cosine:.5f}, layers {cosines}"
    )
    own = " ".join(f"{cosine:.5f}" for cosine in verdict.own_cosines)
    print_line(f"  each slow layer by itself, given what bf16's was given: {own}")
    print_line(
        f"  logits, relative error ({_versus(verdict.logits_hold)} {MAX_LOGITS_ERROR}):"
        f" {verdict.logits_error:.4f} on average, {verdict.largest_logits_error:.4f} at most"
    )
    # Random weights leave tokens no margins: each of theirs would be listed, and tell nothing.
    for miss in verdict.mismatches if verdict.gate != "values" else ():
        where = "in the batch" if miss.in_batch else "alone"
        print_line(
            f"  {where}, frame {miss.frame}, codebook {miss.codebook}, margin {miss.margin:.4f}:"
            f' "{miss.text}" ({miss.voice or "no voice"})'
        )


def _versus(holds: bool) -> str:
    return "within" if holds else "NOT within"

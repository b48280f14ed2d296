"""``fishtts verify``: whether a model says the same in FP8 as in bf16.

Owns which models are compared, and what is said of it. Knows no kernel and no number format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from fishtts import hub
from fishtts.cloning.voice_file import read_voice
from fishtts.config import EngineConfig
from fishtts.errors import ExitCode, FishTTSError, ModelError
from fishtts.model_folder import find_voice
from fishtts.models import LoadedModel, load_model
from fishtts.models.quantized import FORMATS, quantize_net
from fishtts.printing import print_json, print_line
from fishtts.tts import resolve
from fishtts.types import Reference
from fishtts.verify.comparison import (
    MAX_LOGITS_ERROR,
    MIN_COSINE,
    Case,
    Dense,
    Verdict,
    dense_of,
    judge,
)
from fishtts.verify.prompts import NUM_FRAMES, PROMPTS

YARDSTICK = "float32"
"""The model without bf16's own rounding: how much that alone changes. It passes no gate."""


class GateError(FishTTSError):
    """A gate that was not passed."""

    exit_code = ExitCode.FELL_SHORT


def verify(
    model: str,
    formats: Sequence[str],
    *,
    keep: Mapping[str, str],
    quantized: str = "",
    device: str = "auto",
    offline: bool = False,
    as_json: bool = False,
) -> None:
    """Compare a model in each format with itself in bf16, and print what came out.

    Without ``formats``: in float32, as a yardstick, and in all of them. ``quantized`` is the folder
    of a quantised copy to compare instead.

    Raises: ``GateError`` where tokens differ.
    """
    source = hub.parse(model)
    folder = hub.locate(source, offline=offline)
    where = resolve(EngineConfig(device)).device
    dense_model = _load(folder, where)
    verdicts = []
    with torch.inference_mode():
        cases = _cases(dense_model, folder, hub.card(source, folder).default_voice)
        dense = dense_of(dense_model, cases)
        if not as_json:
            _print_dense(dense)
        for name, other in _others(dense_model, folder, where, formats, keep, quantized):
            gate = "none" if name == YARDSTICK else "tokens"
            verdicts.append(judge(name, gate, dense, dense_model, other))
            if not as_json:
                _print(verdicts[-1])
    if as_json:
        print_json(
            {
                "model": model,
                "device": where,
                "num_cases": len(cases),
                "num_same_together": dense.num_same_together,
                "verdicts": [{**asdict(v), "passed": v.passed} for v in verdicts],
            }
        )
    failed = [verdict.format for verdict in verdicts if not verdict.passed]
    if failed:
        raise GateError(
            f"{model} does not say the same as in bf16 in: {', '.join(failed)}.",
            hint="Keep layers in bf16 or w8a16: --keep 'PATTERN=w8a16'.",
        )


def _load(folder: Path, device: str, dtype: torch.dtype = torch.bfloat16) -> LoadedModel:
    return load_model(folder, device=device, dtype=dtype)


def _others(
    dense: LoadedModel,
    folder: Path,
    device: str,
    formats: Sequence[str],
    keep: Mapping[str, str],
    quantized: str,
) -> Iterator[tuple[str, LoadedModel]]:
    """The models to compare with the dense one, by name, one after another."""
    if quantized:
        other = _load(Path(quantized), device)
        if other.config != dense.config:
            raise ModelError(f"{quantized} is not a copy of this model: its sizes differ.")
        yield quantized, other
        return
    for form in formats or (YARDSTICK, *FORMATS):
        if form == YARDSTICK:
            yield form, _load(folder, device, torch.float32)
            continue
        other = _load(folder, device)
        net: Any = other.net
        quantize_net(net, form, keep)
        yield form, other


def _cases(model: LoadedModel, folder: Path, voice: str) -> list[Case]:
    """Every text without a voice, and with the model's default voice where it has one."""
    speakers: list[tuple[str, Sequence[Reference]]] = [("", ())]
    if voice:
        found = read_voice(find_voice(folder, str(folder), voice))
        speakers.append((voice, found.references))
    return [
        Case(text, name, model.prompts.build(text, references))
        for text in PROMPTS
        for name, references in speakers
    ]


def _print_dense(dense: Dense) -> None:
    print_line(
        f"bf16, in one batch: the same tokens as alone for {dense.num_same_together} of"
        f" {len(dense.cases)} prompts."
    )


def _print(verdict: Verdict) -> None:
    """Print a verdict for people."""
    word = "passed" if verdict.passed else "FAILED"
    word = "for comparison" if verdict.gate == "none" else word
    print_line(
        f"{verdict.format}: {word}. The same tokens for {NUM_FRAMES} frames: {verdict.num_equal} of"
        f" {verdict.num_cases} prompts alone, {verdict.num_equal_together} in one batch."
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
    print_line(
        f"  logits, relative error ({_versus(verdict.logits_hold)} {MAX_LOGITS_ERROR}):"
        f" {verdict.logits_error:.4f} on average, {verdict.largest_logits_error:.4f} at most"
    )
    for miss in verdict.mismatches:
        where = "in the batch" if miss.in_batch else "alone"
        print_line(
            f"  {where}, frame {miss.frame}, codebook {miss.codebook}, margin {miss.margin:.4f}:"
            f' "{miss.text}" ({miss.voice or "no voice"})'
        )


def _versus(holds: bool) -> str:
    return "within" if holds else "NOT within"

"""``fishtts verify``: whether a model says the same in FP8 as in bf16.

Owns the comparison: greedy frames, logits and layers on the same prompts, and what must hold. Knows
no kernel and no number format. Prompts that decide were committed before they were measured with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fishtts import hub
from fishtts.cloning.voice_file import read_voice
from fishtts.config import EngineConfig
from fishtts.errors import ExitCode, FishTTSError, ModelError
from fishtts.model_folder import find_voice
from fishtts.models import LoadedModel, load_model
from fishtts.models.quantized import FORMATS, quantize_net
from fishtts.printing import print_json, print_line
from fishtts.tts import resolve
from fishtts.types import Prompt, Reference
from fishtts.verify_prompts import NUM_FRAMES, PROMPTS

YARDSTICK = "float32"
"""The model without bf16's own rounding: how much that alone changes. It passes no gate."""

MIN_LAYER_COSINE = 0.998
MAX_LOGITS_ERROR = 0.05


@dataclass(frozen=True, slots=True)
class Case:
    """One prompt of the comparison."""

    text: str
    voice: str
    prompt: Prompt


@dataclass(slots=True)
class Trace:
    """What a model made of a case: per frame its tokens (the end token alone where it ended) and
    the logits behind each, and the output of every layer for the prompt."""

    tokens: list[list[int]] = field(default_factory=list)
    logits: list[list[Tensor]] = field(default_factory=list)
    layers: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first token that differs: its frame and codebook, and by how much the dense model
    preferred its own token to the next best one."""

    text: str
    voice: str
    frame: int
    codebook: int
    margin: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """One format against the dense model, over all cases.

    Draws are counted along the dense model's tokens: how many have the same best token, of all and
    of the semantic ones.
    """

    format: str
    num_cases: int
    num_equal: int
    num_draws: int
    num_draws_equal: int
    num_semantic: int
    num_semantic_equal: int
    mismatches: tuple[Mismatch, ...]
    layer_cosines: tuple[float, ...]
    logits_error: float
    largest_logits_error: float

    @property
    def passed(self) -> bool:
        """Whether every case gave the same tokens."""
        return self.format == YARDSTICK or self.num_equal == self.num_cases


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
    dense = _load(folder, where)
    cases = _cases(dense, folder, hub.card(source, folder).default_voice)
    with torch.inference_mode():
        traces = [trace(dense, case.prompt) for case in cases]
        verdicts = []
        for name, other in _others(dense, folder, where, formats, keep, quantized):
            verdicts.append(_judge(name, cases, traces, other))
            if not as_json:
                _print(verdicts[-1])
    if as_json:
        print_json(
            {
                "model": model,
                "device": where,
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


class _Recorder:
    """A layer that keeps what it last gave."""

    def __init__(self, layer: Any, outputs: list[Tensor]) -> None:
        self._layer, self._outputs = layer, outputs

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        out: Tensor = self._layer(*args, **kwargs)
        self._outputs.append(out.float())
        return out

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


def trace(model: LoadedModel, prompt: Prompt, follow: Trace | None = None) -> Trace:
    """Run a prompt and a few frames, greedily, or along the tokens of another trace.

    Along another's tokens the logits can be compared, and up to the first token that differs it is
    what the model would have said on its own.
    """
    net: Any = model.net
    made = Trace()
    rows = torch.from_numpy(prompt.matrix).to(model.device)[None]
    cache = net.new_cache(1, rows.shape[2] + NUM_FRAMES)
    stack = net.stacks[0]
    layers = stack.layers
    stack.layers = [_Recorder(layer, made.layers) for layer in layers]
    hidden = net.backbone(rows, cache)
    stack.layers = layers
    for frame in range(NUM_FRAMES):
        forced = follow.tokens[frame] if follow else None
        logits = net.slow_logits(hidden)
        made.logits.append([logits[0].float()])
        semantic = torch.tensor([forced[0]]) if forced else logits.argmax(-1).cpu()
        if int(semantic) == logits.shape[-1] - 1:
            made.tokens.append([int(semantic)])
            break
        codes = net.frame(hidden, semantic.to(model.device), _draw(made.logits[-1], forced))
        made.tokens.append(codes[0].tolist())
        if frame + 1 == NUM_FRAMES or (follow and frame + 1 == len(follow.tokens)):
            break
        token = codes[:, :1] + model.config.semantic_begin
        hidden = net.backbone(torch.cat((token, codes), dim=1)[..., None], cache)
    return made


def _draw(logits: list[Tensor], forced: list[int] | None) -> Callable[[int, Tensor], Tensor]:
    """Keep the logits of each codebook; take the best code, or the one that is followed."""

    def draw(codebook: int, values: Tensor) -> Tensor:
        logits.append(values[0].float())
        if forced is None:
            return values.argmax(-1)
        return torch.tensor([forced[codebook]], device=values.device)

    return draw


def _judge(
    name: str, cases: Sequence[Case], traces: Sequence[Trace], model: LoadedModel
) -> Verdict:
    mismatches, errors, cosines = [], [], []
    same: list[list[bool]] = []
    for case, dense in zip(cases, traces, strict=True):
        ours = trace(model, case.prompt, follow=dense)
        mismatch = _first_mismatch(case, dense, ours)
        mismatches += [mismatch] if mismatch else []
        same += _same_draws(dense, ours)
        errors.append(_logits_error(dense, ours))
        cosines.append([_cosine(a, b) for a, b in zip(dense.layers, ours.layers, strict=True)])
    return Verdict(
        format=name,
        num_cases=len(cases),
        num_equal=len(cases) - len(mismatches),
        num_draws=sum(map(len, same)),
        num_draws_equal=sum(map(sum, same)),
        num_semantic=len(same),
        num_semantic_equal=sum(frame[0] for frame in same),
        mismatches=tuple(mismatches),
        layer_cosines=tuple(min(layer) for layer in zip(*cosines, strict=True)),
        logits_error=sum(errors) / len(errors),
        largest_logits_error=max(errors),
    )


def _same_draws(dense: Trace, ours: Trace) -> list[list[bool]]:
    """By frame and codebook: whether the best token is the same."""
    return [
        [bool(a.argmax() == b.argmax()) for a, b in zip(theirs, mine, strict=True)]
        for theirs, mine in zip(dense.logits, ours.logits, strict=True)
    ]


def _first_mismatch(case: Case, dense: Trace, ours: Trace) -> Mismatch | None:
    """Where our best token is not the dense model's; ``ours`` followed the dense tokens."""
    for frame, draws in enumerate(_same_draws(dense, ours)):
        if not all(draws):
            codebook = draws.index(False)
            best, second = dense.logits[frame][codebook].topk(2).values.tolist()
            return Mismatch(case.text, case.voice, frame, codebook, best - second)
    return None


def _logits_error(dense: Trace, ours: Trace) -> float:
    """Length of the difference by the length of the dense logits, mean removed, over all draws."""
    difference = length = 0.0
    for theirs, mine in zip(dense.logits, ours.logits, strict=True):
        for a, b in zip(theirs, mine, strict=True):
            a, b = a - a.mean(), b - b.mean()
            difference += float((a - b).square().sum())
            length += float(a.square().sum())
    return (difference / length) ** 0.5


def _cosine(a: Tensor, b: Tensor) -> float:
    a, b = a.double().flatten(), b.double().flatten()
    return float(a @ b / (a.norm() * b.norm()))


def _print(verdict: Verdict) -> None:
    """Print a verdict for people."""
    word = "passed" if verdict.passed else "FAILED"
    word = "for comparison" if verdict.format == YARDSTICK else word
    print_line(
        f"{verdict.format}: {word}. {verdict.num_equal} of {verdict.num_cases} prompts give the"
        f" same tokens for {NUM_FRAMES} frames."
    )
    print_line(
        f"  draws with the same best token: {verdict.num_draws_equal} of {verdict.num_draws};"
        f" semantic: {verdict.num_semantic_equal} of {verdict.num_semantic}"
    )
    note = _versus(min(verdict.layer_cosines) >= MIN_LAYER_COSINE)
    cosines = " ".join(f"{cosine:.5f}" for cosine in verdict.layer_cosines)
    print_line(f"  layers, smallest cosine each ({note} {MIN_LAYER_COSINE}): {cosines}")
    note = _versus(verdict.largest_logits_error <= MAX_LOGITS_ERROR)
    print_line(
        f"  logits, relative error ({note} {MAX_LOGITS_ERROR}): {verdict.logits_error:.4f} on"
        f" average, {verdict.largest_logits_error:.4f} at most"
    )
    for miss in verdict.mismatches:
        voice = miss.voice or "no voice"
        print_line(
            f"  frame {miss.frame}, codebook {miss.codebook}, margin {miss.margin:.4f}:"
            f' "{miss.text}" ({voice})'
        )


def _versus(holds: bool) -> str:
    return "within" if holds else "NOT within"

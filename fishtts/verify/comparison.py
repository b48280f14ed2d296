"""One model against another on the same prompts: greedy tokens, logits, hidden states, layers.

Owns what is compared and what must hold. Knows no kernel, no number format, and nothing of where
the two models came from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from fishtts.config import EngineConfig
from fishtts.engine.engine import Engine
from fishtts.engine.request import FrameMade
from fishtts.engine.runner import Runner
from fishtts.models import LoadedModel
from fishtts.types import Prompt, SamplingParams
from fishtts.verify.prompts import NUM_FRAMES

MIN_COSINE = 0.998
MAX_LOGITS_ERROR = 0.05

Gate = Literal["tokens", "values", "none"]
"""What decides: every token; layers, hidden states and logits, where random weights leave tokens no
margins; or nothing, for a model that is shown for comparison."""

_GREEDY = SamplingParams(temperature=1.0, top_p=1.0, top_k=1, max_frames=NUM_FRAMES)


@dataclass(frozen=True, slots=True)
class Case:
    """One prompt of the comparison."""

    text: str
    voice: str
    prompt: Prompt


@dataclass(slots=True)
class Trace:
    """What a model made of a case, alone: per frame its tokens (the end token alone where it
    ended), the logits behind each and the hidden state behind those; and the output of every layer
    for the prompt and, of the fast transformer, for the first frame. ``inputs`` are what the slow
    layers were given for the prompt."""

    tokens: list[list[int]] = field(default_factory=list)
    logits: list[list[Tensor]] = field(default_factory=list)
    hidden: list[Tensor] = field(default_factory=list)
    layers: list[Tensor] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Dense:
    """What the dense model made of all cases: of each alone, and the tokens of all together (none
    where only values are compared)."""

    cases: tuple[Case, ...]
    alone: tuple[Trace, ...]
    together: tuple[list[list[int]], ...]

    @property
    def num_same_together(self) -> int | None:
        """Cases of which the dense model says the same alone and in the batch."""
        if not self.together:
            return None
        pairs = zip(self.alone, self.together, strict=True)
        return sum(trace.tokens == tokens for trace, tokens in pairs)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first token of a case that differs: its frame and codebook, whether in the batch or
    alone, and by how much the dense model, alone, prefers its token to the next best one."""

    text: str
    voice: str
    in_batch: bool
    frame: int
    codebook: int
    margin: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """One model against the dense one, over all cases.

    ``num_equal`` and ``num_equal_together`` count cases with the same tokens, alone and in a batch
    (None where there was none).
    Draws are counted along the dense model's tokens, alone: how many have the same best token, of
    all and of the semantic ones. ``layer_cosines`` are the smallest of any case, the slow
    transformer's layers first; ``own_cosines`` are those of slow layers that are given what the
    dense model's were, so that they tell a layer's own error from what came to it.
    """

    format: str
    gate: Gate
    num_cases: int
    num_equal: int
    num_equal_together: int | None
    num_draws: int
    num_draws_equal: int
    num_semantic: int
    num_semantic_equal: int
    mismatches: tuple[Mismatch, ...]
    layer_cosines: tuple[float, ...]
    own_cosines: tuple[float, ...]
    hidden_cosine: float
    logits_error: float
    largest_logits_error: float

    @property
    def passed(self) -> bool:
        """Whether what its gate asks for holds."""
        if self.gate == "tokens":
            return self.num_equal == self.num_equal_together == self.num_cases
        return self.gate == "none" or (self.cosines_hold and self.logits_hold)

    @property
    def cosines_hold(self) -> bool:
        """Whether every layer and the hidden states stay near the dense model's."""
        return min(*self.layer_cosines, self.hidden_cosine) >= MIN_COSINE

    @property
    def logits_hold(self) -> bool:
        """Whether the logits of every case stay near the dense model's."""
        return self.largest_logits_error <= MAX_LOGITS_ERROR


@dataclass(slots=True)
class _Kept:
    """What a layer was given first, and all that it gave."""

    given: Tensor | None = None
    outputs: list[Tensor] = field(default_factory=list)


class _Recorder:
    """A layer that keeps what goes in and what comes out."""

    def __init__(self, layer: Any, kept: _Kept) -> None:
        self._layer, self._kept = layer, kept

    def __call__(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if self._kept.given is None:
            self._kept.given = x.clone()
        out: Tensor = self._layer(x, *args, **kwargs)
        self._kept.outputs.append(out.float().flatten())
        return out

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


class _Recording:
    """Keeps what all layers of a net make of the prompt and of the first frame."""

    def __init__(self, net: Any) -> None:
        self._stacks = net.stacks
        self._layers = [list(stack.layers) for stack in self._stacks]
        self._kept = [[_Kept() for _ in layers] for layers in self._layers]
        for stack, layers, kept in zip(self._stacks, self._layers, self._kept, strict=True):
            stack.layers = [_Recorder(*each) for each in zip(layers, kept, strict=True)]

    def stop(self, made: Trace) -> None:
        """Leave the net as it was, and write down what was kept."""
        for stack, layers in zip(self._stacks, self._layers, strict=True):
            stack.layers = layers
        slow, fast = self._kept
        made.inputs = [kept.given for kept in slow if kept.given is not None]
        made.layers = [torch.cat(kept.outputs) for kept in (*slow, *fast) if kept.outputs]


def trace(model: LoadedModel, prompt: Prompt, follow: Trace | None = None) -> Trace:
    """Run a prompt and a few frames, greedily, or along the tokens of another trace.

    Along another's tokens the logits can be compared, and up to the first token that differs it is
    what the model would have said on its own.
    """
    net: Any = model.net
    made = Trace()
    rows = torch.from_numpy(prompt.matrix).to(model.device)[None]
    cache = net.new_cache(1, rows.shape[2] + NUM_FRAMES)
    recording: _Recording | None = _Recording(net)
    hidden = net.backbone(rows, cache)
    for frame in range(NUM_FRAMES):
        forced = follow.tokens[frame] if follow else None
        logits = net.slow_logits(hidden)
        made.hidden.append(hidden[0].float())
        made.logits.append([logits[0].float()])
        semantic = torch.tensor([forced[0]]) if forced else logits.argmax(-1).cpu()
        is_end = int(semantic) == model.config.codebook_size
        if is_end:
            made.tokens.append([int(semantic)])
        else:
            codes = net.frame(hidden, semantic.to(model.device), _draw(made.logits[-1], forced))
            made.tokens.append(codes[0].tolist())
        if recording:
            recording.stop(made)
            recording = None
        if is_end or frame + 1 == NUM_FRAMES or (follow and frame + 1 == len(follow.tokens)):
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


def together(model: LoadedModel, prompts: Sequence[Prompt]) -> tuple[list[list[int]], ...]:
    """Let the engine speak a few greedy frames of all prompts in one batch; answers the tokens of
    each frame, as a trace has them."""
    name = str(model.dtype).removeprefix("torch.")
    config = EngineConfig(str(model.device), name, max_batch=len(prompts))
    # All prompts in the first step that they may, so that few frames are made in a smaller batch.
    budget = sum(prompt.matrix.shape[1] for prompt in prompts)
    engine = Engine(Runner(model, config), budget=budget)
    made = {engine.add(prompt, _GREEDY): list[list[int]]() for prompt in prompts}
    while engine.has_work:
        for event in engine.step():
            if isinstance(event, FrameMade):
                made[event.request_id].append(event.codes.tolist())
            elif event.stop_reason == "eos":
                made[event.request_id].append([model.config.codebook_size])
    return tuple(made.values())


def dense_of(model: LoadedModel, cases: Sequence[Case], gate: Gate = "tokens") -> Dense:
    """Run all cases on the model that others are compared with, as far as a gate asks for it."""
    alone = tuple(trace(model, case.prompt) for case in cases)
    batch = together(model, [case.prompt for case in cases]) if gate == "tokens" else ()
    return Dense(tuple(cases), alone, batch)


def judge(
    name: str, gate: Gate, dense: Dense, dense_model: LoadedModel, model: LoadedModel
) -> Verdict:
    """Compare a model with the dense one, whose margins are looked up where tokens differ."""
    alone, errors, cosines, own, hidden = [], [], [], [], []
    same: list[list[bool]] = []
    for case, theirs in zip(dense.cases, dense.alone, strict=True):
        mine = trace(model, case.prompt, follow=theirs)
        draws = _same_draws(theirs, mine)
        same += draws
        alone += _mismatches(case, theirs, draws, in_batch=False)
        errors.append(_logits_error(theirs, mine))
        cosines.append([_cosine(a, b) for a, b in zip(theirs.layers, mine.layers, strict=True)])
        own.append(_own_cosines(model, theirs))
        hidden += [_cosine(a, b) for a, b in zip(theirs.hidden, mine.hidden, strict=True)]
    batched = _batch_mismatches(dense, dense_model, model)
    return Verdict(
        format=name,
        gate=gate,
        num_cases=len(dense.cases),
        num_equal=len(dense.cases) - len(alone),
        num_equal_together=len(dense.cases) - len(batched) if dense.together else None,
        num_draws=sum(map(len, same)),
        num_draws_equal=sum(map(sum, same)),
        num_semantic=len(same),
        num_semantic_equal=sum(frame[0] for frame in same),
        mismatches=(*alone, *batched),
        layer_cosines=_smallest(cosines),
        own_cosines=_smallest(own),
        hidden_cosine=min(hidden),
        logits_error=sum(errors) / len(errors),
        largest_logits_error=max(errors),
    )


def _batch_mismatches(dense: Dense, dense_model: LoadedModel, model: LoadedModel) -> list[Mismatch]:
    """The first token that differs of each case of the batch, if the dense model ran one."""
    if not dense.together:
        return []
    said = together(model, [case.prompt for case in dense.cases])
    found = []
    for case, ours, wanted in zip(dense.cases, said, dense.together, strict=True):
        if ours != wanted:
            # What the dense model says alone may differ from what it says in the batch.
            logits = trace(dense_model, case.prompt, follow=Trace(wanted))
            found += _mismatches(case, logits, _same_tokens(wanted, ours), in_batch=True)
    return found


def _own_cosines(model: LoadedModel, dense: Trace) -> list[float]:
    """How near each slow layer's output for the prompt is, given the dense model's input."""
    net: Any = model.net
    stack = net.stacks[0]
    last = len(stack.layers) - 1
    cosines = []
    for at, (layer, given) in enumerate(zip(stack.layers, dense.inputs, strict=True)):
        cache = net.new_cache(1, given.shape[1])
        turns = cache.turns(stack.rotary, given.shape[1])
        out = layer(given.to(model.dtype), turns, cache, at, only_last=at == last)
        cosines.append(_cosine(dense.layers[at], out.float().flatten()))
    return cosines


def _smallest(cosines: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """The smallest cosine of each layer; cases that ended at once have none of the fast ones."""
    count = max(map(len, cosines))
    return tuple(min(case[at] for case in cosines if at < len(case)) for at in range(count))


def _same_draws(dense: Trace, ours: Trace) -> list[list[bool]]:
    """By frame and codebook: whether the best token is the same; ours followed the dense ones."""
    return [
        [bool(a.argmax() == b.argmax()) for a, b in zip(theirs, mine, strict=True)]
        for theirs, mine in zip(dense.logits, ours.logits, strict=True)
    ]


def _same_tokens(wanted: list[list[int]], ours: list[list[int]]) -> list[list[bool]]:
    """By frame and codebook, up to the first that differs: whether the tokens are the same. An end
    differs in the semantic token."""
    return [
        [a == b for a, b in zip(theirs, mine, strict=False)]
        for theirs, mine in zip(wanted, ours, strict=False)
    ]


def _mismatches(
    case: Case, dense: Trace, same: list[list[bool]], *, in_batch: bool
) -> list[Mismatch]:
    """The first token that is not the dense model's, if there is one."""
    for frame, draws in enumerate(same):
        if not all(draws):
            codebook = draws.index(False)
            margin = _margin(dense.logits[frame][codebook], dense.tokens[frame][codebook])
            return [Mismatch(case.text, case.voice, in_batch, frame, codebook, margin)]
    return []


def _margin(logits: Tensor, token: int) -> float:
    """By how much a token is better than the best other one."""
    others = logits.clone()
    others[token] = -torch.inf
    return float(logits[token] - others.max())


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
    a, b = a.double(), b.double()
    return float(a @ b / (a.norm() * b.norm()))

"""How a token is drawn: filters, an exponential race, and the repetition rule.

Owns the rules and their constants. Does not know what is drawn, or why.
"""

from __future__ import annotations

import torch
from torch import Tensor

RAS_WINDOW = 10
"""Semantic tokens back that the repetition rule looks."""

RAS_TEMPERATURE = 1.0
RAS_TOP_P = 0.9

_MIN_TEMPERATURE = 1e-5


def filtered(
    logits: Tensor, temperature: Tensor, top_p: Tensor, top_k: int
) -> tuple[Tensor, Tensor]:
    """Probabilities of the ids that may be drawn, best first, and those ids.

    An id falls out when it is not among the ``top_k`` best, or when the ids down to itself hold
    more than ``top_p`` of the probability (judged before ``temperature``); the best one never does.
    Equal logits rank by id.

    Shapes: logits [..., V]; temperature and top_p broadcast to logits [..., 1] -> probabilities
    [..., K], ids int64 [..., K] of the logits' own leading shape. Rounds: in the logits' dtype
    throughout, as the model was tuned with.
    """
    values, ids = torch.sort(logits, dim=-1, descending=True, stable=True)
    top_k = min(top_k, logits.shape[-1])
    values, ids = values.narrow(-1, 0, top_k), ids.narrow(-1, 0, top_k)
    mass = torch.softmax(logits, dim=-1).gather(-1, ids).cumsum(dim=-1)
    mass.narrow(-1, 0, 1).zero_()
    scaled = values / temperature.to(logits.dtype).clamp(min=_MIN_TEMPERATURE)
    kept = scaled.masked_fill(mass > top_p.to(logits.dtype), float("-inf"))
    return torch.softmax(kept, dim=-1), ids


def race(probabilities: Tensor, ids: Tensor, uniform: Tensor) -> Tensor:
    """Draw one id: the smallest of exponential waits, each with its id's probability as rate.

    Shapes: probabilities [..., K], ids [..., K], uniform float32 [..., V], indexed by id
    -> int64 [...].
    """
    waits = -uniform.gather(-1, ids).log()
    winner = (probabilities / waits).argmax(dim=-1, keepdim=True)
    return ids.gather(-1, winner).squeeze(-1)


def replace_repeats(normal: Tensor, high: Tensor, window: Tensor) -> Tensor:
    """Take the draw made at high temperature where the normal one is in the window; no retry.

    Shapes: normal, high int64 [B], window int64 [B, W] -> int64 [B].
    """
    return torch.where((window == normal[:, None]).any(dim=-1), high, normal)

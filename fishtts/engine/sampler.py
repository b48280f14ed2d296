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
    logits: Tensor, temperature: Tensor, top_p: Tensor, top_k: Tensor, width: int
) -> tuple[Tensor, Tensor]:
    """Weights of the ids that may be drawn, best first, and those ids. The best one weighs 1.

    An id falls out (weight 0) when it is not among the ``top_k`` best, or when the ids down to
    itself hold more than ``top_p`` of the probability (judged before ``temperature``); the best one
    never does. Equal logits rank by id. ``width`` is the largest top-k of all rows.

    Shapes: logits [..., V]; temperature, top_p and top_k broadcast to logits [..., 1] -> weights
    float32 [..., K], ids int64 [..., K] of the logits' own leading shape. Rounds: in the logits'
    dtype throughout, as the model was tuned with, the weights apart. A row's weights do not depend
    on ``width``: they are not brought to a sum of one, which no draw needs.
    """
    width = min(width, logits.shape[-1])
    values, ids = torch.sort(logits, dim=-1, descending=True, stable=True)
    values, ids = values.narrow(-1, 0, width), ids.narrow(-1, 0, width)
    mass = torch.softmax(logits, dim=-1).gather(-1, ids).cumsum(dim=-1)
    mass.narrow(-1, 0, 1).zero_()
    scaled = values / temperature.to(logits.dtype).clamp(min=_MIN_TEMPERATURE)
    weights = (scaled - scaled.narrow(-1, 0, 1)).float().exp()
    rank = torch.arange(width, device=logits.device)
    return weights.masked_fill((mass > top_p.to(logits.dtype)) | (rank >= top_k), 0.0), ids


def race(weights: Tensor, ids: Tensor, uniform: Tensor) -> Tensor:
    """Draw one id: the smallest of exponential waits, each with its id's weight as rate.

    Shapes: weights [..., K], ids [..., K], uniform float32 [..., K] -> int64 [...].
    """
    winner = (weights / -uniform.log()).argmax(dim=-1, keepdim=True)
    return ids.gather(-1, winner).squeeze(-1)


def replace_repeats(normal: Tensor, high: Tensor, window: Tensor) -> Tensor:
    """Take the draw made at high temperature where the normal one is in the window; no retry.

    Shapes: normal, high int64 [B], window [B, W] -> int64 [B].
    """
    return torch.where((window == normal[:, None]).any(dim=-1), high, normal)

"""The tiny model with random weights, and what the public reference makes of it."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from fishtts.models import LoadedModel, load_model
from fishtts.models.dual_ar.config import DualARConfig
from fishtts.models.dual_ar.net import DualAR
from tests.fakes import GOLDEN

ATOL = 1e-4
"""Float32 kernels differ by 2e-5 here; unrounded rotations would move the logits by 0.04, and the
nearest two logits of the greedy run lie 0.022 apart."""


@cache
def golden() -> dict[str, Tensor]:
    """The tensors that tests/golden/README.md describes."""
    return load_file(GOLDEN / "ar_goldens.safetensors")


@cache
def tiny(dtype: torch.dtype = torch.float32) -> LoadedModel:
    """The tiny model."""
    return load_model(GOLDEN, device="cpu", dtype=dtype)


def config_values() -> dict[str, Any]:
    """The tiny model's config, to be changed at will."""
    values: dict[str, Any] = json.loads((GOLDEN / "config.json").read_bytes())
    return values


def random_net(values: dict[str, Any], seed: int = 1) -> DualAR:
    """A net of any config with random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = DualAR(DualARConfig.from_dict(values)).eval().requires_grad_(False)
        # The tables come without values of their own.
        for weight in net.parameters():
            weight.normal_(std=0.5 if weight.ndim > 1 else 1.0)
        return net

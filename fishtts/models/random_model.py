"""Models with random weights, for what asks for no meaning: speed, memory, arithmetic.

Owns the sizes of models that are not in this package, by name, and how their weights are drawn.
Knows nothing of what is measured with them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fishtts.errors import ModelError
from fishtts.models import Config, LoadedModel
from fishtts.models.dual_ar import empty_net
from fishtts.models.dual_ar.config import DualARConfig
from fishtts.types import Prompt, Reference

_SIZES = Path(__file__).parent / "sizes"


def size_names() -> list[str]:
    """Models whose sizes are known without their weights."""
    return sorted(path.stem for path in _SIZES.glob("*.json"))


def size_values(name: str) -> dict[str, Any]:
    """The ``config.json`` of one of them."""
    values: dict[str, Any] = json.loads((_SIZES / f"{name}.json").read_bytes())
    return values


def name_of_size(config: Config) -> str:
    """Which of them is exactly as large as a model; empty where none is."""
    sizes = {name: DualARConfig.from_dict(size_values(name)) for name in size_names()}
    return next((name for name, size in sizes.items() if size == config), "")


def random_model(
    values: Mapping[str, Any],
    *,
    device: torch.device | str,
    dtype: torch.dtype,
    seed: int = 1,
) -> LoadedModel:
    """Make the model that a ``config.json`` describes, with random weights.

    Matrices are normal, so that each product keeps the size of what it is given; norms are one.
    They are drawn in bf16 whatever the type, so that a seed gives one model in every type.

    Raises: ``ModelError`` for a config that is not understood, or of a quantised model.
    """
    if "quantization_config" in values:
        raise ModelError("The weights of a quantised model cannot be drawn.")
    net = empty_net(values).to(torch.bfloat16).to_empty(device=device)
    generator = torch.Generator(device).manual_seed(seed)
    with torch.no_grad():
        for weight in net.parameters():
            if weight.ndim > 1:
                weight.normal_(std=weight.shape[-1] ** -0.5, generator=generator)
            else:
                weight.fill_(1.0)
    net = net.to(dtype).eval().requires_grad_(False)
    return LoadedModel(net, _NoPrompts(), net.config, Path(), torch.device(device), dtype)


class _NoPrompts:
    """Random weights go without a tokenizer."""

    def build(self, text: str, references: Sequence[Reference] = ()) -> Prompt:
        raise NotImplementedError("whoever runs random weights makes prompts of its own")

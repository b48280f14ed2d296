"""A model in what a person wishes for: a type, an FP8 format, or whatever is best here.

Owns what ``--dtype`` means. Knows no arithmetic.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from fishtts.errors import UsageError
from fishtts.models import LoadedModel, load_model
from fishtts.models.accepted import accepted
from fishtts.models.quantized import DENSE, FORMATS, format_of, install, quantize_net, quantize_unit
from fishtts.weights import model_files


def load_in(folder: Path, *, device: torch.device | str, wish: str) -> LoadedModel:
    """Load the model in a folder in one of ``config.DTYPES``.

    A format quantises the weights of a model that is not quantised; activations, and all weights
    with ``auto``, are float32 on a CPU and bfloat16 elsewhere. On a GPU, ``auto`` takes the format
    that was accepted for just these weights there (``fishtts verify --accept``), if one was.

    Raises: ``UsageError`` for a format and a model that has one already; as ``load_model``.
    """
    device = torch.device(device)
    name = wish
    if wish == "auto" or wish in FORMATS:
        name = "float32" if device.type == "cpu" else "bfloat16"
    model = load_model(folder, device=device, dtype=getattr(torch, name))
    net: Any = model.net
    if wish in FORMATS:
        if format_of(net) != DENSE:
            raise UsageError(
                f"The model in {folder} is quantised already.", hint="Leave out --dtype."
            )
        quantize_net(net, wish)
    elif wish == "auto" and device.type == "cuda":
        take_accepted(model, torch.cuda.get_device_name(device))
    return model


def take_accepted(model: LoadedModel, gpu: str) -> None:
    """Quantise what was accepted of a model on a GPU, unless it is quantised as it is."""
    net: Any = model.net
    quantization = accepted(model_files(model.folder), gpu)
    if quantization is not None and format_of(net) == DENSE:
        install(net, quantization, quantize_unit)

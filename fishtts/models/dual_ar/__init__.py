"""The family of S2: a slow transformer over time, a fast one over codebooks.

Owns how its parts are put together from a folder. Knows no arithmetic and no scheduling.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fishtts.models import LoadedModel

if TYPE_CHECKING:
    import torch

    from fishtts.models.dual_ar.net import DualAR


def load(
    folder: Path, values: Mapping[str, Any], *, device: torch.device | str, dtype: torch.dtype
) -> LoadedModel:
    """Load the model in ``folder``, whose ``config.json`` holds ``values``.

    Raises: ``ModelError`` for files that are missing, damaged, or do not belong together.
    """
    import torch

    from fishtts.models.dual_ar.prompt import PromptBuilder
    from fishtts.weights import load_into, model_files

    net = empty_net(values)
    prompts = PromptBuilder.load(folder / "tokenizer.json", net.config)
    load_into(net, model_files(folder), device=device, dtype=dtype)
    net.eval().requires_grad_(False)
    return LoadedModel(net, prompts, net.config, folder, torch.device(device), dtype)


def empty_net(values: Mapping[str, Any]) -> DualAR:
    """Make the net that a ``config.json`` describes, its quantised layers included, without memory.

    Raises: ``ModelError`` naming the key that is not understood.
    """
    import torch

    from fishtts.models.dual_ar.config import DualARConfig
    from fishtts.models.dual_ar.net import DualAR
    from fishtts.models.quantized import Quantization, install

    quantization = Quantization.from_dict(values)
    config = DualARConfig.from_dict(values)
    with torch.device("meta"):
        net = DualAR(config)
        if quantization is not None:
            install(net, quantization)
    return net

"""The model's quantised layers by the Triton kernels: the same as by the reference."""

from __future__ import annotations

import pytest
import torch
from torch import nn

pytest.importorskip("triton")

from fishtts.models.quantized import FORMATS, QuantizedFeedForward, QuantizedLinear
from tests.kernels.tolerances import cosine_loss


def by_kernels(module: nn.Module, device: str) -> nn.Module:
    for layer in module.modules():
        if isinstance(layer, QuantizedLinear):
            layer.backend_name = "triton"
    return module.to(device)


@pytest.mark.parametrize("form", FORMATS)
def test_layers_are_the_same_by_kernels_and_by_the_reference(form: str, device: str) -> None:
    draw = torch.Generator().manual_seed(2)
    w1, w3 = torch.randn(2, 128, 256, generator=draw) / 16
    w2, wide = torch.randn(256, 128, generator=draw) / 11, torch.randn(72, 256, generator=draw) / 16
    x = torch.randn(2, 3, 256, generator=draw).bfloat16()
    for make in (
        lambda: QuantizedLinear.from_dense(wide, form),
        lambda: QuantizedFeedForward.from_dense(w1, w2, w3, form),
    ):
        theirs = make()(x)
        ours = by_kernels(make(), device)(x.to(device))
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        # Between its products the block rounds once more in one of them, hence not bit for bit.
        assert cosine_loss(ours.cpu(), theirs) < 1e-4

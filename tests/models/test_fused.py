"""The decode step by fused ops is the plain decode step, whatever the weights are stored in."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fishtts.models.dual_ar.net import DualAR
from fishtts.models.quantized import DENSE, FORMATS, quantize_net
from tests.goldens import random_net
from tests.kernels.tolerances import cosine_loss
from tests.models.test_quantized import fitting_values

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
PAGE, LENGTHS = 16, (1, 17, 40)


def net_in(form: str, device: str, dtype: torch.dtype) -> DualAR:
    net = random_net(fitting_values())
    with torch.no_grad():
        for weight in net.parameters():
            # As trained weights have it, so that what 8 bits lose stays small.
            weight.mul_(0.1 if weight.ndim > 1 else 0.2).add_(0 if weight.ndim > 1 else 1)
    if form != DENSE:
        quantize_net(net, form)
    return net.to(device, dtype)


class Forced:
    """Draws what it is told, and keeps the logits."""

    def __init__(self, codes: Tensor) -> None:
        self._codes = codes
        self.logits: list[Tensor] = []

    def __call__(self, codebook: int, logits: Tensor) -> Tensor:
        self.logits.append(logits)
        return self._codes[codebook]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("form", [DENSE, *FORMATS])
def test_a_step_is_the_plain_one(form: str, device: str) -> None:
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    net = net_in(form, device, dtype)
    generator = torch.Generator().manual_seed(4)
    count, width = net.config.num_codebooks, -(-max(LENGTHS) // PAGE)
    batch = len(LENGTHS)
    tables = torch.randperm(batch * width, generator=generator).view(batch, width).to(device)
    pools = [net.new_pages(batch * width, PAGE) for _ in range(2)]
    for row, length in enumerate(LENGTHS):
        prompt = torch.randint(0, 40, (1, 1 + count, length), generator=generator).to(device)
        for pool in pools:
            net.backbone(prompt, pool.chunk(tables[row].tolist(), 0))
    rows = torch.randint(0, 40, (batch, 1 + count), generator=generator).to(device)
    positions = torch.tensor(LENGTHS, device=device) - 1
    store = pools[0].together(tables, positions, net.config.max_positions)
    plain = net.backbone(rows[:, :, None], store)
    fused = net.fused(pools[1], 4, deterministic=False)
    ours = fused.backbone(rows, tables.int(), positions.int())
    limit = 1e-6 if device == "cpu" else 1e-3
    assert cosine_loss(ours, plain) < limit
    assert cosine_loss(fused.slow_logits(ours), net.slow_logits(plain)) < limit

    codes = torch.randint(0, 8, (count, batch), generator=generator).to(device)
    wanted, found = Forced(codes), Forced(codes)
    frame = net.frame(plain, codes[0], wanted)
    assert torch.equal(fused.frame(plain, codes[0], found), frame)
    for a, b in zip(found.logits, wanted.logits, strict=True):
        assert cosine_loss(a, b) < limit

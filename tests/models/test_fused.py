"""The decode step by fused ops is the plain decode step, whatever the weights are stored in."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fishtts.kernels.small_reference import Places
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
    assert fused is not None
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


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("form", [DENSE, "bsfp8"])
def test_prompts_together_are_the_plain_ones_one_by_one(form: str, device: str) -> None:
    """Begun and unbegun ones in one pass, filled up with rows and requests that are nobody's."""
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    net = net_in(form, device, dtype)
    generator = torch.Generator().manual_seed(4)
    width, batch = 3, len(LENGTHS)
    tables = torch.randperm(batch * width + 1, generator=generator)
    scratch, tables = int(tables[-1]), tables[:-1].view(batch, width)
    prompts = [
        torch.randint(0, 40, (1, 1 + net.config.num_codebooks, n), generator=generator).to(device)
        for n in LENGTHS
    ]
    plain, pool = (net.new_pages(batch * width + 1, PAGE) for _ in range(2))
    known = [0, 5, 16]
    expected = []
    for prompt, table, start in zip(prompts, tables.tolist(), known, strict=True):
        if start:
            net.backbone(prompt[:, :, :start], pool.chunk(table, 0))
        expected.append(net.backbone(prompt, plain.chunk(table, 0)))

    rows = torch.zeros(64, 1 + net.config.num_codebooks, dtype=torch.int64)
    positions, requests = torch.full((64,), -1), torch.zeros(64)
    starts, lasts = [0], []
    for number, (prompt, start) in enumerate(zip(prompts, known, strict=True)):
        begin = starts[-1]
        end = begin + prompt.shape[2] - start
        rows[begin:end] = prompt[0, :, start:].t().cpu()
        positions[begin:end] = torch.arange(start, prompt.shape[2])
        requests[begin:end] = number
        starts.append(end)
        lasts.append(end - 1)
    spare = torch.full((1, width), scratch)
    as_int = lambda t: torch.as_tensor(t).int().to(device)  # noqa: E731
    places = Places(as_int(positions), as_int(torch.cat((tables, spare))), as_int(requests))
    fused = net.fused(pool, 4, deterministic=False)
    assert fused is not None
    lengths, wanted = as_int([*LENGTHS, 0]), torch.tensor([*lasts, 0], device=device)
    hidden = fused.prefill(rows.to(device), places, lengths, as_int([*starts, starts[-1]]), wanted)
    limit = 1e-6 if device == "cpu" else 1e-3
    for ours, theirs in zip(hidden[:batch], expected, strict=True):
        assert cosine_loss(ours, theirs[0]) < limit
    for ours, theirs in zip(pool.keys, plain.keys, strict=True):
        for table, length in zip(tables.tolist(), LENGTHS, strict=True):
            stored = (each[table].flatten(0, 1)[:length] for each in (ours, theirs))
            assert cosine_loss(*stored) < limit

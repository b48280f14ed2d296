"""Weights whose rows are whole multiples of a scale, multiplied in int8 on a CPU.

One or a few positions a step are limited by reading weights, and int8 is a quarter of float32. Owns
when that pays and how it multiplies. Only weights that were stored in int8 (``fishtts/weights.py``)
qualify: no model is rounded unasked. Activations are rounded to bfloat16 for these products.

Shapes: K columns in, N rows out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

_MAX_POSITIONS = 8
"""Positions up to which int8 is faster: at 1 / 8 / 16 of them a product of 1,536 x 512 took 39, 199
and 408 us, in float32 120, 402 and 485."""

_MAX_BFLOAT16 = 32
"""Positions up to which, from there on, bfloat16 is faster where the processor has tiles for it: at
16 of them 2,560 x 512 took 235 us, in float32 565. Beyond, prompts stay in float32."""

_CAPABILITIES = ("AVX2", "AVX512")
"""Elsewhere torch's product is not written for the processor."""


class RowInt8:
    """A weight as int8 ``codes`` [N, K] times ``scale`` [N], bfloat16 as the product takes it."""

    def __init__(self, codes: Tensor, scale: Tensor) -> None:
        self._codes, self._scale = codes, scale.bfloat16()

    @classmethod
    def beside(cls, *weights: RowInt8) -> RowInt8:
        """Several of one width as one: their rows in turn."""
        return cls(torch.cat([w._codes for w in weights]), torch.cat([w._scale for w in weights]))

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply x [..., K] -> bfloat16 [..., N]."""
        rows = x.reshape(-1, x.shape[-1]).bfloat16()
        return torch._weight_int8pack_mm(rows, self._codes, self._scale).view(*x.shape[:-1], -1)


def is_few(x: Tensor) -> bool:
    """Tell whether x [..., K] has so few positions that int8 is faster."""
    return x.numel() <= _MAX_POSITIONS * x.shape[-1]


def is_some(x: Tensor) -> bool:
    """Tell whether x [..., K] has so few positions that bfloat16 in tiles is faster."""
    return x.numel() <= _MAX_BFLOAT16 * x.shape[-1]


def packed(weight: Tensor) -> RowInt8 | None:
    """Take a float weight [N, K] as int8, where it is that by nature and the processor has the
    product; None elsewhere."""
    dense = weight.detach()
    if dense.device.type != "cpu" or dense.dtype != torch.float32 or not _has_product():
        return None
    # Whether it is one shows in the first rows: nobody else pays for the rest.
    if _codes(dense[:4]) is None:
        return None
    found = _codes(dense)
    return RowInt8(*found) if found else None


def product(weight: Tensor) -> Callable[[Tensor], Tensor] | None:
    """Make a product ready to run, x [..., K] float32 -> [..., N], if the weight is ``packed``."""
    few = packed(weight)
    if few is None:
        return None
    half = weight.detach().bfloat16() if _has_tiles() else None

    def run(x: Tensor) -> Tensor:
        if is_few(x):
            return few(x).float()
        if half is not None and is_some(x):
            return F.linear(x.bfloat16(), half).float()
        return F.linear(x, weight)

    return run


def swiglu(w1: Tensor, w2: Tensor, w3: Tensor) -> Callable[[Tensor], Tensor] | None:
    """Make w2(silu(w1 x) * w3 x) ready to run, likewise."""
    gate, up, down = (packed(weight) for weight in (w1, w3, w2))
    if gate is None or up is None or down is None:
        return None
    both = RowInt8.beside(gate, up)
    halves = None
    if _has_tiles():
        halves = torch.cat((w1, w3)).detach().bfloat16(), w2.detach().bfloat16()

    def run(x: Tensor) -> Tensor:
        if is_few(x):
            gate, up = both(x).chunk(2, dim=-1)
            return down(F.silu(gate).mul_(up)).float()
        if halves is not None and is_some(x):
            gate, up = F.linear(x.bfloat16(), halves[0]).chunk(2, dim=-1)
            return F.linear(F.silu(gate).mul_(up), halves[1]).float()
        return F.linear(F.silu(F.linear(x, w1)).mul_(F.linear(x, w3)), w2)

    return run


def _codes(dense: Tensor) -> tuple[Tensor, Tensor] | None:
    """Codes and scales of rows that are 127 steps at most, and nothing between the steps."""
    scale = dense.abs().amax(dim=1) / 127
    steps = dense / scale.clamp(min=torch.finfo(torch.float32).tiny)[:, None]
    codes = steps.round()
    if float((steps - codes).abs().max()) > 1e-3:
        return None
    return codes.to(torch.int8), scale


@cache
def _has_tiles() -> bool:
    """Tell whether the processor multiplies bfloat16 in tiles (AMX); torch's name for it is no
    promise either."""
    return bool(getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)())


@cache
def _has_product() -> bool:
    """Tell whether this torch multiplies so on this processor: its name is no promise."""
    if torch.backends.cpu.get_cpu_capability() not in _CAPABILITIES:
        return False
    codes = torch.arange(-64, 64, dtype=torch.int8).view(2, 64)
    x, scale = torch.ones(1, 64, dtype=torch.bfloat16), torch.ones(2, dtype=torch.bfloat16)
    try:
        out = torch._weight_int8pack_mm(x, codes, scale)
    except (AttributeError, RuntimeError):
        return False
    wanted = codes.sum(dim=1).bfloat16()[None]
    return bool(torch.equal(out, wanted))

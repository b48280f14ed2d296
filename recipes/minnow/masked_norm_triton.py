"""The Triton kernel behind ``masked_norm``; see there for what it computes."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _kernel(x, y, gain, bias, alpha, lengths, T, C, leak, SNAKE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths + row // C)
    start = row * T
    at = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    squares = tl.zeros([BLOCK], tl.float32)
    for t in range(0, T, BLOCK):
        v = tl.load(x + start + t + at, mask=(t + at) < length, other=0.0).to(tl.float32)
        total += v
        squares += v * v
    mean = tl.sum(total, 0) / length
    variance = tl.maximum(tl.sum(squares, 0) / length - mean * mean, 0.0)
    scale = (1.0 + tl.load(gain + row)) / tl.sqrt(variance + 1e-5)
    shift = tl.load(bias + row)
    slope = tl.load(alpha + row % C)
    for t in range(0, T, BLOCK):
        v = tl.load(x + start + t + at, mask=(t + at) < length, other=0.0).to(tl.float32)
        z = (v - mean) * scale + shift
        if SNAKE:
            wave = tl.sin(slope * z)
            z = z + wave * wave / slope
        else:
            z = tl.where(z > 0, z, leak * z)
        z = tl.where((t + at) < length, z, 0.0)
        tl.store(y + start + t + at, z.to(y.dtype.element_ty), mask=(t + at) < T)


def launch(
    x: Tensor, gain: Tensor, bias: Tensor, n: Tensor, alpha: Tensor | None, leak: float
) -> Tensor:
    """One program a (line, channel) row."""
    x = x.contiguous()
    batch, channels, length = x.shape
    y = torch.empty_like(x)
    gain, bias = (t.expand(batch, channels, 1).contiguous().float() for t in (gain, bias))
    slope = gain if alpha is None else alpha.contiguous().float()
    _kernel[(batch * channels,)](
        x,
        y,
        gain,
        bias,
        slope,
        n.to(torch.int32).contiguous(),
        length,
        channels,
        leak,
        SNAKE=alpha is not None,
        BLOCK=1024 if length > 600 else 256,
    )
    return y

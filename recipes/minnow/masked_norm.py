"""Instance norm over the true length of each line, with its activation, as one pass over memory.

The teacher's vocoder spends most of its time here. On a CUDA device a Triton kernel does it; the
plain functions are its specification and the CPU path, and ``check`` compares the two at start.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

EPSILON = 1e-5


def plain_norm(x: Tensor, gain: Tensor, bias: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    """(normalised and scaled float32, mask). x [B, C, T], gain and bias [B, C, 1], n [B]."""
    mask = (torch.arange(x.shape[2], device=x.device)[None] < n[:, None]).float()[:, None]
    count = n.float()[:, None, None]
    wide = x.float() * mask
    mean = wide.sum(2, keepdim=True) / count
    variance = (wide.square().sum(2, keepdim=True) / count - mean.square()).clamp(min=0)
    return (wide - mean) * torch.rsqrt(variance + EPSILON) * (1 + gain) + bias, mask


def plain_leaky(x: Tensor, gain: Tensor, bias: Tensor, n: Tensor, leak: float) -> Tensor:
    y, mask = plain_norm(x, gain, bias, n)
    return (F.leaky_relu(y, leak) * mask).to(x.dtype)


def plain_snake(x: Tensor, gain: Tensor, bias: Tensor, n: Tensor, alpha: Tensor) -> Tensor:
    y, mask = plain_norm(x, gain, bias, n)
    y = y * mask
    return (y + torch.sin(alpha * y).square() / alpha).to(x.dtype)


def norm_leaky(x: Tensor, gain: Tensor, bias: Tensor, n: Tensor, leak: float) -> Tensor:
    """Masked instance norm, then a leaky rectifier; zero beyond each length."""
    if not x.is_cuda:
        return plain_leaky(x, gain, bias, n, leak)
    from recipes.minnow.masked_norm_triton import launch

    return launch(x, gain, bias, n, None, leak)


def norm_snake(x: Tensor, gain: Tensor, bias: Tensor, n: Tensor, alpha: Tensor) -> Tensor:
    """Masked instance norm, then x + sin(alpha x)^2 / alpha; zero beyond each length."""
    if not x.is_cuda:
        return plain_snake(x, gain, bias, n, alpha)
    from recipes.minnow.masked_norm_triton import launch

    return launch(x, gain, bias, n, alpha, 0.0)


def check(device: torch.device) -> float:
    """Largest difference between the kernel and the plain function on awkward lengths."""
    torch.manual_seed(0)
    n = torch.tensor([1501, 700, 33], device=device)
    gain, bias = (torch.randn(3, 5, 1, device=device) * 0.3 for _ in range(2))
    alpha = torch.rand(1, 5, 1, device=device) + 0.5
    worst = 0.0
    for dtype in (torch.float16, torch.float32):
        x = (torch.randn(3, 5, 1501, device=device) * 2).to(dtype)
        pairs = (
            (norm_leaky(x, gain, bias, n, 0.2), plain_leaky(x, gain, bias, n, 0.2)),
            (norm_snake(x, gain, bias, n, alpha), plain_snake(x, gain, bias, n, alpha)),
        )
        worst = max(worst, *((a.float() - b.float()).abs().max().item() for a, b in pairs))
    return worst

"""The transformers of the codec of S2 Pro: causal, over a window, with positions from its start on.

Owns their layers under the names that checkpoints give them. Does not know what the positions are.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fishtts.codec.streaming import StreamState, window_mask, windowed_attention


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    """Sizes of a windowed transformer; the names are those of ``codec_config.json``."""

    n_layer: int = 8
    n_head: int = 16
    dim: int = 1024
    head_dim: int = 64
    intermediate_size: int = 3072
    window_size: int = 128
    rope_base: float = 10000
    norm_eps: float = 1e-5


class Attention(nn.Module):
    """Self-attention to the last ``window_size`` positions. x [B, T, E]."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.num_heads, self.window = config.n_head, config.window_size
        width = config.n_head * config.head_dim
        self.wqkv = nn.Linear(config.dim, 3 * width, bias=False)
        self.wo = nn.Linear(width, config.dim, bias=False)

    def forward(self, x: Tensor, rotation: Tensor, mask: Tensor, state: StreamState) -> Tensor:
        batch, length, _ = x.shape
        qkv = self.wqkv(x).view(batch, length, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        qkv = torch.cat((_rotate(qkv[:2], rotation), qkv[2:]))
        heads = windowed_attention(self, qkv, mask, self.window, state)
        result: Tensor = self.wo(heads.transpose(1, 2).reshape(batch, length, -1))
        return result


class FeedForward(nn.Module):
    """Gated two-layer network. x [B, T, E]."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.w1 = nn.Linear(config.dim, config.intermediate_size, bias=False)
        self.w3 = nn.Linear(config.dim, config.intermediate_size, bias=False)
        self.w2 = nn.Linear(config.intermediate_size, config.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.w2(F.silu(self.w1(x)) * self.w3(x))
        return result


class LayerScale(nn.Module):
    """One factor a channel."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


class TransformerLayer(nn.Module):
    """Attention and feed-forward, each normed before, scaled after, and added. x [B, T, E]."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.feed_forward = FeedForward(config)
        self.attention_norm = nn.RMSNorm(config.dim, eps=config.norm_eps)
        self.ffn_norm = nn.RMSNorm(config.dim, eps=config.norm_eps)
        self.attention_layer_scale = LayerScale(config.dim)
        self.ffn_layer_scale = LayerScale(config.dim)

    def forward(self, x: Tensor, rotation: Tensor, mask: Tensor, state: StreamState) -> Tensor:
        attended = self.attention(self.attention_norm(x), rotation, mask, state)
        x = x + self.attention_layer_scale(attended)
        result: Tensor = x + self.ffn_layer_scale(self.feed_forward(self.ffn_norm(x)))
        return result


class Transformer(nn.Module):
    """Windowed transformer over positions. [B, E, T] -> [B, E, T]."""

    def __init__(self, config: TransformerConfig, num_layers: int) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(TransformerLayer(config) for _ in range(num_layers))
        self.norm = nn.RMSNorm(config.dim, eps=config.norm_eps)

    def forward(self, x: Tensor, state: StreamState) -> Tensor:
        config, length = self.config, x.shape[-1]
        before = state.advance(self, length)
        rotation = rotation_table(config.head_dim, config.rope_base, before, length).to(x.device)
        mask = window_mask(length, config.window_size, before, x.device)
        x = x.transpose(1, 2)
        for layer in self.layers:
            x = layer(x, rotation, mask, state)
        result: Tensor = self.norm(x)
        return result.transpose(1, 2)


def rotation_table(head_dim: int, base: float, start: int, length: int) -> Tensor:
    """Rotary angles of ``length`` positions from ``start`` on, as complex64 [T, D / 2].

    Made on the CPU in float32, in exactly this form of the frequency, and rounded to bfloat16: the
    weights were trained with that rounding, and other forms flip some of the rounded values.
    """
    frequency = 1.0 / (base ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim))
    angle = torch.outer(torch.arange(start, start + length, dtype=torch.float32), frequency)
    table = torch.polar(torch.ones_like(angle), angle)
    return torch.view_as_complex(torch.view_as_real(table).bfloat16().float())


def _rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Turn neighbouring pairs (2i, 2i + 1), in float32. x [..., T, D]."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * rotation).flatten(-2).to(x.dtype)

"""Causal layers that go through a signal step by step, and the state that one signal leaves behind.

Owns left contexts and attention windows. The state is an object that is passed in, so one set of
layers serves any number of signals. Does not know what the signal is, or how long a step should be.
Shapes: x [B, C, T] unless said otherwise; a step is any number of positions that fits the strides.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class StreamState:
    """What one signal has left behind in the layers that it went through. Empty: it begins."""

    def __init__(self) -> None:
        self._tails: dict[nn.Module, Tensor] = {}
        self._positions: dict[nn.Module, int] = {}

    def join(self, layer: nn.Module, x: Tensor, length: int, dim: int = -1) -> Tensor:
        """Put the ``length`` positions before x in front of it (zeros where the signal begins), and
        keep its last ones for the next step."""
        if length == 0:
            return x
        tail = self._tails.get(layer)
        if tail is None:
            shape = list(x.shape)
            shape[dim] = length
            tail = x.new_zeros(shape)
        joined = torch.cat((tail, x), dim=dim)
        # A view would keep the whole step alive until the next one.
        self._tails[layer] = joined.narrow(dim, joined.shape[dim] - length, length).clone()
        return joined

    def advance(self, layer: nn.Module, steps: int) -> int:
        """Count positions that a layer has seen; answers how many there were before."""
        before = self._positions.get(layer, 0)
        self._positions[layer] = before + steps
        return before

    @property
    def num_bytes(self) -> int:
        """Memory that the state holds."""
        return sum(tail.numel() * tail.element_size() for tail in self._tails.values())


class CausalConv1d(nn.Module):
    """Convolution that sees only the past. [B, C_in, T] -> [B, C_out, T / stride].

    The signal begins after ``(kernel - 1) * dilation + 1 - stride`` zeros; T is a multiple of the
    stride.
    """

    def __init__(
        self,
        channels_in: int,
        channels_out: int,
        kernel: int,
        *,
        stride: int = 1,
        dilation: int = 1,
        groups: int = 1,
    ) -> None:
        super().__init__()
        self.conv = nn.Conv1d(
            channels_in, channels_out, kernel, stride=stride, dilation=dilation, groups=groups
        )
        self.stride = stride
        self.context = (kernel - 1) * dilation + 1 - stride

    def forward(self, x: Tensor, state: StreamState) -> Tensor:
        assert x.shape[-1] % self.stride == 0, "a step holds whole strides"
        result: Tensor = self.conv(state.join(self, x, self.context))
        return result


class CausalConvTranspose1d(nn.Module):
    """Transposed convolution without its look-ahead. [B, C_in, T] -> [B, C_out, T * stride]."""

    def __init__(self, channels_in: int, channels_out: int, kernel: int, *, stride: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose1d(channels_in, channels_out, kernel, stride=stride)
        self.stride = stride
        # Later inputs overlap the outputs of this many earlier ones. Computing those once more is
        # cheaper than to keep unfinished outputs apart from their bias.
        self.context = -(-kernel // stride) - 1

    def forward(self, x: Tensor, state: StreamState) -> Tensor:
        y: Tensor = self.conv(state.join(self, x, self.context))
        return y.narrow(-1, self.context * self.stride, x.shape[-1] * self.stride)


def window_mask(num_queries: int, window: int, before: int, device: torch.device) -> Tensor:
    """Which of the ``window - 1`` earlier and ``num_queries`` new keys each new query sees.

    These are the last ``window`` positions up to its own, as far as the signal goes back: it had
    ``before`` positions so far. Shape: bool [T, window - 1 + T].
    """
    key = torch.arange(window - 1 + num_queries, device=device)
    query = torch.arange(num_queries, device=device)[:, None]
    is_real = key >= window - 1 - before
    return (key >= query) & (key < query + window) & is_real


def windowed_attention(
    layer: nn.Module, qkv: Tensor, mask: Tensor, window: int, state: StreamState
) -> Tensor:
    """Attend to the last ``window`` positions; only their keys and values are kept.

    Shapes: qkv [3, B, H, T, D], mask as from ``window_mask`` -> [B, H, T, D].
    """
    keys, values = state.join(layer, qkv[1:], window - 1, dim=-2)
    return F.scaled_dot_product_attention(qkv[0], keys, values, attn_mask=mask)

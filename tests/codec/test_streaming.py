"""Layers step by step against the same layers over the whole signal."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fishtts.codec.streaming import (
    CausalConv1d,
    CausalConvTranspose1d,
    StreamState,
    window_mask,
    windowed_attention,
)

ATOL = 1e-5


def stepped(layer: nn.Module, x: Tensor, sizes: list[int]) -> Tensor:
    state = StreamState()
    with torch.inference_mode():
        return torch.cat([layer(part, state) for part in x.split(sizes, dim=-1)], dim=-1)


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "groups"),
    [
        (7, 1, 1, 1),
        (7, 1, 9, 1),
        (1, 1, 1, 1),
        (4, 2, 1, 1),
        (2, 2, 1, 1),
        (6, 3, 1, 1),
        (7, 1, 1, 4),
    ],
)
def test_convolution(kernel: int, stride: int, dilation: int, groups: int) -> None:
    torch.manual_seed(0)
    layer = CausalConv1d(4, 8, kernel, stride=stride, dilation=dilation, groups=groups)
    x = torch.randn(2, 4, 24)
    padded = F.pad(x, ((kernel - 1) * dilation + 1 - stride, 0))
    found = stepped(layer, x, [6, 12, 6])
    assert found.shape[-1] == 24 // stride
    torch.testing.assert_close(found, layer.conv(padded).detach(), atol=ATOL, rtol=0)


@pytest.mark.parametrize(("kernel", "stride"), [(2, 2), (4, 2), (6, 3), (7, 3), (16, 8)])
def test_transposed_convolution(kernel: int, stride: int) -> None:
    torch.manual_seed(0)
    layer = CausalConvTranspose1d(4, 3, kernel, stride=stride)
    x = torch.randn(2, 4, 11)
    whole = layer.conv(x).detach()[..., : 11 * stride]
    torch.testing.assert_close(stepped(layer, x, [1, 3, 7]), whole, atol=ATOL, rtol=0)


def test_half_a_stride_is_no_step() -> None:
    layer = CausalConv1d(1, 1, 4, stride=2)
    with pytest.raises(AssertionError, match="whole strides"):
        layer(torch.zeros(1, 1, 3), StreamState())


@pytest.mark.parametrize("sizes", [[20], [1] * 20, [7, 3, 10]])
@pytest.mark.parametrize("window", [1, 6, 50])
def test_attention_sees_the_window(window: int, sizes: list[int]) -> None:
    torch.manual_seed(0)
    layer, state, before = nn.Identity(), StreamState(), 0
    qkv = torch.randn(3, 2, 2, 20, 4)
    found = []
    for part in qkv.split(sizes, dim=-2):
        mask = window_mask(part.shape[-2], window, before, part.device)
        found.append(windowed_attention(layer, part, mask, window, state))
        before += part.shape[-2]
    place = torch.arange(20)
    distance = place[:, None] - place
    whole = F.scaled_dot_product_attention(
        *qkv.unbind(), attn_mask=(distance >= 0) & (distance < window)
    )
    torch.testing.assert_close(torch.cat(found, dim=-2), whole, atol=ATOL, rtol=0)


def test_state_keeps_the_end_of_the_signal_only() -> None:
    state, layer = StreamState(), nn.Identity()
    assert torch.equal(
        state.join(layer, torch.ones(1, 1, 2), 3), torch.tensor([[[0.0, 0, 0, 1, 1]]])
    )
    joined = state.join(layer, torch.full((1, 1, 1), 2.0), 3)
    assert torch.equal(joined, torch.tensor([[[0.0, 1, 1, 2]]]))
    assert state.num_bytes == 3 * 4
    assert (state.advance(layer, 5), state.advance(layer, 2)) == (0, 5)

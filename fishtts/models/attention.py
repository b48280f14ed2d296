"""Causal attention over keys and values that lie together. Knows nothing of where they are kept.

Shapes: B requests, T positions, H query heads, G key/value heads, D head size, S positions so far.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def attend(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Attend from the last T positions to all before and to themselves.

    Shapes: q [B, H, T, D], keys and values [B, G, S, D] -> [B, T, H * D].
    """
    batch, n, length, size = q.shape
    g = keys.shape[1]
    if length == 1:
        # The heads that share a key head become its query positions: nothing is repeated.
        grouped = q.reshape(batch, g, n // g, size)
        out = F.scaled_dot_product_attention(grouped, keys, values)
        return out.reshape(batch, 1, n * size)
    end = keys.shape[2]
    mask = None
    if end > length:
        at = torch.arange(end, device=q.device)
        mask = at <= at[end - length :, None]
    keys, values = (t.repeat_interleave(n // g, dim=1) for t in (keys, values))
    out = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, is_causal=mask is None)
    return out.transpose(1, 2).flatten(2)


def attend_masked(q: Tensor, keys: Tensor, values: Tensor, lengths: Tensor) -> Tensor:
    """Attend from one position a request to the first ``lengths`` of its own.

    Shapes: q [B, H, 1, D], keys and values [B, G, S, D], lengths int64 [B] -> [B, 1, H * D].
    """
    batch, n, _, size = q.shape
    g = keys.shape[1]
    mask = torch.arange(keys.shape[2], device=q.device) < lengths[:, None, None, None]
    grouped = q.reshape(batch, g, n // g, size)
    out = F.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask)
    return out.reshape(batch, 1, n * size)

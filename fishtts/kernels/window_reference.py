"""Attention of steps over a window whose keys and values lie in a ring, in plain torch.

Owns what ``window_attention_`` computes and how its rings lie in memory: the specification of the
kernel. Knows no model, and not how a GPU does it.

Shapes: B rows (signals), T positions of a step, H heads, D head size, S slots, R places of a ring.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def check_window(
    qkv: Tensor, rings: Tensor, slots: Tensor, positions: Tensor, turns: Tensor, window: int
) -> None:
    """Refuse operands that do not fit.

    Raises: ``ValueError`` naming the shapes.
    """
    fits = (
        qkv.ndim == rings.ndim == 5
        and qkv.is_contiguous()
        and rings.is_contiguous()
        and turns.is_contiguous()
        and qkv.dtype == rings.dtype
        and qkv.shape[2:] == (3, rings.shape[2], rings.shape[4])
        and slots.shape == positions.shape == qkv.shape[:1]
        and turns.ndim == 3
        and turns.shape[0] == 2
        and turns.shape[2] * 2 == qkv.shape[4]
        and rings.shape[3] >= window - 1 + qkv.shape[1]
    )
    if not fits:
        raise ValueError(
            f"Queries, keys and values {list(qkv.shape)} {qkv.dtype} do not go with rings"
            f" {list(rings.shape)} {rings.dtype}, turns {list(turns.shape)}, {len(slots)} slots,"
            f" {len(positions)} positions and a window of {window}."
        )


def window_attention_(
    qkv: Tensor, rings: Tensor, slots: Tensor, positions: Tensor, turns: Tensor, window: int
) -> Tensor:
    """Turn queries and keys, keep keys and values, and attend to the last ``window`` positions.

    ``positions`` int64 [B] is where each row's step begins; position p of a signal lies at place
    p mod R of the ring in its slot (``slots`` int64 [B]). A signal at position 0 begins, whatever
    its slot held. Rows with the same slot leave one of their ends behind.

    Shapes: qkv [B, T, 3, H, D], neighbouring pairs being turned; rings [2, S, H, R, D], keys and
    values, the even columns of turned keys before the odd ones, R at least window - 1 + T; turns
    float32 [2, P, D / 2], cosines and sines by position -> [B, T, H, D] in the type of qkv.
    Rounds: turned queries and keys; then weights and sums as an attention does.
    Tolerance: the order of the sums.
    """
    check_window(qkv, rings, slots, positions, turns, window)
    length, ring = qkv.shape[1], rings.shape[3]
    query = positions[:, None] + torch.arange(length, device=qkv.device)
    cosine, sine = (table[query][:, :, None, None] for table in turns)
    even, odd = qkv[:, :, :2].float().unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.cat((even * cosine - odd * sine, even * sine + odd * cosine), -1).to(qkv.dtype)
    places = (slots[:, None], slice(None), query % ring)
    rings[0][places], rings[1][places] = turned[:, :, 1], qkv[:, :, 2]
    last = query[:, -1:]
    # The latest position that lies at each place of the ring.
    key = (last - (last - torch.arange(ring, device=qkv.device)) % ring)[:, None]
    seer = query[..., None]
    mask = (key >= 0) & (key <= seer) & (key > seer - window)
    heads = F.scaled_dot_product_attention(
        turned[:, :, 0].transpose(1, 2), rings[0][slots], rings[1][slots], attn_mask=mask[:, None]
    )
    return heads.transpose(1, 2).contiguous()

"""Prompts and decode steps of both transformers by the fused ops of ``fishtts.kernels``.

Owns the order of the ops: a residual sum, a norm and a quantiser are one, and so are the norm of
the heads, the rotation and the writing of keys and values. Everything has fixed shapes and nothing
is read back, so that a whole frame can be one CUDA graph. ``net.py`` says what is computed; this
says it in other words, for rows of one position each, whosever they are.

Shapes: N rows, B requests, C codebooks, E width, H query heads, G key/value
heads, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from fishtts import kernels
from fishtts.kernels.attention_reference import KVPages
from fishtts.kernels.small_reference import HeadNorms, Places, Rotations
from fishtts.models.dual_ar.config import DualARConfig, TransformerConfig
from fishtts.models.dual_ar.net import Block, Draw, DualAR, FastTransformer, SlowTransformer
from fishtts.models.paged import PagedKV
from fishtts.models.quantized import QuantizedFeedForward, QuantizedLinear, feed_forward

_LEAST_PAGE = 16
"""Positions of a page of the transformer over codebooks at least; a frame is one page."""


class Rows(Protocol):
    """The rows of a pass: where each goes, and what it attends to."""

    @property
    def places(self) -> Places: ...
    def attend(self, q: Tensor, pages: KVPages) -> Tensor:
        """Attend from queries [N, H, D] -> [N, H, D]."""
        ...


@dataclass(frozen=True, slots=True)
class SingleRows:
    """Rows that each have a line of ``places.tables``, and attend to so many positions of it
    (``lengths`` int32 [N], themselves included); none to more than ``max_length``."""

    places: Places
    lengths: Tensor
    max_length: int
    deterministic: bool

    def attend(self, q: Tensor, pages: KVPages) -> Tensor:
        """See ``Rows``."""
        out: Tensor = kernels.paged_decode(
            q,
            pages,
            self.places.tables,
            self.lengths,
            max_length=self.max_length,
            deterministic=self.deterministic,
        )
        return out


@dataclass(frozen=True, slots=True)
class PromptRows:
    """Rows of which many belong to one request, one request's after another's.

    Those of request b are rows ``starts[b]`` to ``starts[b + 1]`` (int32 [B + 1]), at most
    ``max_rows``; ``lengths`` int32 [B] counts its positions until their end.
    """

    places: Places
    lengths: Tensor
    starts: Tensor
    max_rows: int

    def attend(self, q: Tensor, pages: KVPages) -> Tensor:
        """See ``Rows``; what comes of rows that are nobody's is anything."""
        tables = self.places.tables
        out: Tensor = kernels.paged_prefill(
            q, pages, tables, self.lengths, self.starts, max_queries=self.max_rows
        )
        return out


class FusedLayer:
    """One block."""

    def __init__(self, block: Block, config: TransformerConfig) -> None:
        attention = block.attention
        self._wqkv, self._wo = attention.wqkv.weight, attention.wo.weight
        self._gated = block.feed_forward
        self._dense_gated = None
        if not isinstance(self._gated, QuantizedFeedForward):
            self._dense_gated = feed_forward(self._gated)
        self._attention_norm, self._ffn_norm = block.attention_norm.weight, block.ffn_norm.weight
        self._eps = config.norm_eps
        self._head_norms = None
        if config.attention_qk_norm:
            weights = (attention.q_norm.weight, attention.k_norm.weight)
            self._head_norms = HeadNorms(*weights, config.norm_eps)

    def __call__(
        self,
        x: Tensor,
        residual: Tensor | None,
        rows: Rows,
        rotations: Rotations,
        pages: KVPages,
    ) -> tuple[Tensor, Tensor]:
        """Run the layer on the sum of x and ``residual`` [N, E]; answers such a pair again."""
        operands, residual = self._normed(self._wqkv, self._attention_norm, x, residual)
        qkv = _product(self._wqkv, operands, x.dtype)
        q = kernels.norm_rope_store(qkv, rows.places, rotations, self._head_norms, pages)
        attended = rows.attend(q, pages).flatten(1)
        x = _product(self._wo, _operands(self._wo, attended), x.dtype)
        if isinstance(self._gated, QuantizedFeedForward):
            operands, residual = self._normed(self._gated.w13, self._ffn_norm, x, residual)
            return self._gated.multiply(operands, x.dtype), residual
        assert self._dense_gated is not None, "set in __init__"
        normed, residual = kernels.residual_rms_norm(x, self._ffn_norm, self._eps, residual)
        return self._dense_gated(normed), residual

    def _normed(
        self, consumer: Tensor | QuantizedLinear, weight: Tensor, x: Tensor, residual: Tensor | None
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """Add, norm, and make it what ``consumer`` multiplies; answers the sum too."""
        if isinstance(consumer, QuantizedLinear):
            return consumer.normed_operands(x, weight, self._eps, residual)
        normed, total = kernels.residual_rms_norm(x, weight, self._eps, residual)
        return (normed,), total


def _operands(weight: Tensor | QuantizedLinear, x: Tensor) -> tuple[Tensor, ...]:
    return weight.operands(x) if isinstance(weight, QuantizedLinear) else (x,)


def _product(
    weight: Tensor | QuantizedLinear, operands: Sequence[Tensor], dtype: torch.dtype
) -> Tensor:
    if isinstance(weight, QuantizedLinear):
        return weight.multiply(tuple(operands), dtype)
    return F.linear(operands[0], weight)


class FusedStack:
    """The layers of a transformer and its last norm."""

    def __init__(
        self,
        module: SlowTransformer | FastTransformer,
        config: TransformerConfig,
        turns: Tensor,
        pages: Sequence[KVPages],
    ) -> None:
        """``turns`` are the rotations of all positions, complex [positions, D / 2]."""
        self._layers = [FusedLayer(_block(layer), config) for layer in module.layers]
        self._norm, self._eps = module.norm.weight, config.norm_eps
        self._rotations = Rotations(turns.real.contiguous(), turns.imag.contiguous())
        self._pages = pages

    def __call__(self, x: Tensor, rows: Rows, wanted: Tensor | None = None) -> Tensor:
        """Run x [N, E] -> final-normed hidden states, of the rows ``wanted`` int [K] only if given:
        [N or K, E]."""
        residual: Tensor | None = None
        for layer, pages in zip(self._layers, self._pages, strict=True):
            x, residual = layer(x, residual, rows, self._rotations, pages)
        if wanted is not None and residual is not None:
            x, residual = x[wanted], residual[wanted]
        hidden: Tensor = kernels.residual_rms_norm(x, self._norm, self._eps, residual)[0]
        return hidden


def _block(layer: torch.nn.Module) -> Block:
    assert isinstance(layer, Block), "made so in net.py"
    return layer


class FusedDualAR:
    """What ``DualAR`` does, with memory of its own for the codes of a frame."""

    def __init__(self, net: DualAR, pool: PagedKV, max_rows: int, deterministic: bool) -> None:
        config, stacks, device = net.config, net.stacks, pool.device
        self._net, self._config, self._page_size = net, config, pool.page_size
        fast, count = net.audio_decoder, config.num_codebooks
        turns = stacks[0].rotary.until(config.max_positions)
        self._deterministic = deterministic
        self._slow = FusedStack(net.slow, config.slow, turns, pool.layers())
        self._fast_page = max(_LEAST_PAGE, 1 << (count - 1).bit_length())
        fast_pool = stacks[1].new_pages(max_rows, self._fast_page)
        turns = stacks[1].rotary.until(count)
        self._fast = FusedStack(fast, config.fast, turns, fast_pool.layers())
        # Row i of a pass has page i; of the first pass, in which a request has two rows, page i/2.
        own = torch.arange(2 * max_rows, dtype=torch.int32, device=device)
        self._both = Places(own % 2, (own // 2)[:, None].contiguous())
        self._single = [
            Places(torch.full_like(own[:max_rows], at), own[:max_rows, None].contiguous())
            for at in range(count)
        ]

    def backbone(self, rows: Tensor, tables: Tensor, positions: Tensor) -> Tensor:
        """Final-normed hidden states. rows int64 [B, 1 + C], tables int32 [B, W], positions int32
        [B] -> [B, E]."""
        x = self._net.embed(rows[:, :, None])[:, 0]
        longest = tables.shape[1] * self._page_size
        return self._slow(x, self._rows(Places(positions, tables), longest))

    def prefill(
        self, rows: Tensor, places: Places, lengths: Tensor, starts: Tensor, wanted: Tensor
    ) -> Tensor:
        """Work out parts of prompts, each request's rows after another's; see ``PromptRows``.

        Shapes: rows int64 [N, 1 + C]; ``places`` of N rows with their requests, those with a
        negative position being nobody's; lengths int32 [B], starts int32 [B + 1], wanted int64 [B]
        -> final-normed hidden states of the rows ``wanted`` [B, E].
        """
        x = self._net.embed(rows.t()[None])[0]
        return self._slow(x, PromptRows(places, lengths, starts, len(rows)), wanted)

    def slow_logits(self, hidden: Tensor) -> Tensor:
        """As ``DualAR.slow_logits``."""
        return self._net.heads[0](hidden)

    def frame(self, hidden: Tensor, semantic: Tensor, draw: Draw) -> Tensor:
        """As ``DualAR.frame``."""
        fast, batch = self._net.audio_decoder, hidden.shape[0]
        table, head = fast.embeddings.weight, self._net.heads[1]
        codes = [semantic]
        pair = torch.stack((fast.project_in(hidden), F.embedding(semantic, table)), dim=1)
        last = self._fast(pair.flatten(0, 1), self._first(self._both, 2 * batch))[1::2]
        for k in range(1, self._config.num_codebooks):
            codes.append(draw(k, head(last)))
            if k + 1 < self._config.num_codebooks:
                rows = self._first(self._single[k + 1], batch)
                last = self._fast(F.embedding(codes[k], table), rows)
        return torch.stack(codes, dim=-1)

    def _first(self, places: Places, count: int) -> SingleRows:
        """The first rows of a pass over codebooks."""
        first = Places(places.positions[:count], places.tables[:count])
        return self._rows(first, self._fast_page)

    def _rows(self, places: Places, max_length: int) -> SingleRows:
        return SingleRows(places, places.positions + 1, max_length, self._deterministic)


def fits(config: DualARConfig, pool: PagedKV) -> bool:
    """Tell whether the kernels take a model: heads of 2^n numbers, in 16 or 32 bits."""
    sizes = (config.slow.head_dim, config.fast.head_dim)
    is_known = pool.dtype in (torch.bfloat16, torch.float16, torch.float32)
    return is_known and all(size >= 16 and size & (size - 1) == 0 for size in sizes)

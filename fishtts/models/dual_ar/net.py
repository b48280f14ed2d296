"""The slow and the fast transformer of S2, under the checkpoint's own tensor names.

Owns the arithmetic from rows of a prompt to hidden states, logits and codes. Does not know how a
code is drawn (it is given a ``draw``), who runs beside whom, or what any text says.

Shapes: B requests, T positions, C codebooks, E width, H query heads, G key/value heads, D head
size, S positions in the cache, V entries of a vocabulary. Rows are int64 [B, 1 + C, T]: token ids,
then one code per codebook.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fishtts.models.attention import attend
from fishtts.models.dual_ar.config import DualARConfig, TransformerConfig
from fishtts.models.paged import PagedKV
from fishtts.models.quantized import feed_forward, linear

if TYPE_CHECKING:
    from fishtts.models.dual_ar.fused import FusedDualAR

Product = Callable[[Tensor], Tensor]
"""A weight ready to multiply with."""

Draw = Callable[[int, Tensor], Tensor]
"""``draw(codebook, logits [B, V]) -> int64 [B]``."""


class Store(Protocol):
    """Keys and values of the positions so far, of one batch."""

    def turns(self, table: RotaryTable, length: int) -> Tensor: ...
    def attend(self, at: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor: ...
    def advance(self, length: int) -> None: ...


class RMSNorm(nn.Module):
    """The weight of ``rms_norm``; callable, for training."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x [..., E]."""
        return rms_norm(x, self.weight, self.eps)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x * rsqrt(mean(x^2) + eps) in float32, cast back, then times the weight.

    The order matters in bf16: the weight multiplies the already rounded value.
    """
    if x.dtype == torch.float32:
        return F.rms_norm(x, weight.shape, weight, eps)
    return F.rms_norm(x.float(), weight.shape, None, eps).to(x.dtype) * weight


def rope_table(length: int, head_dim: int, base: float, device: torch.device) -> Tensor:
    """Rotations as complex64 [length, D / 2], their parts rounded to bf16 as in training.

    The inverse frequency must be written in this form: the algebraically equal power of a negative
    exponent differs in the last bit and moves 1 % of the rounded entries.
    """
    exponent = torch.arange(0, head_dim, 2, device=device).float() / head_dim
    frequency = 1.0 / (base**exponent)
    angle = torch.outer(torch.arange(length, device=device).float(), frequency)
    turn = torch.polar(torch.ones_like(angle), angle)
    parts = torch.view_as_real(turn).to(torch.bfloat16).float()
    return torch.view_as_complex(parts.contiguous())


def rotate(x: Tensor, turns: Tensor) -> Tensor:
    """Interleaved rotary embedding in float32. x [..., T, D], turns [T, D / 2]."""
    shape = x.shape
    pairs = torch.view_as_complex(x.float().view(*shape[:-1], shape[-1] // 2, 2))
    return torch.view_as_real(pairs * turns).view(shape).to(x.dtype)


class Attention(nn.Module):
    """Weights of grouped-query attention; ``wqkv`` has rows Q, then K, then V."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        width = (config.n_head + 2 * config.n_local_heads) * config.head_dim
        self.wqkv = nn.Linear(config.dim, width, bias=False)
        self.wo = nn.Linear(config.n_head * config.head_dim, config.dim, bias=False)
        if config.attention_qk_norm:
            self.q_norm = RMSNorm(config.head_dim, config.norm_eps)
            self.k_norm = RMSNorm(config.head_dim, config.norm_eps)


class FeedForward(nn.Module):
    """Weights of SwiGLU: w2(silu(w1 x) * w3 x)."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)


class Block(nn.Module):
    """Weights of a pre-norm block; ``Layer`` has the arithmetic."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.feed_forward = FeedForward(config.dim, config.intermediate_size)
        self.attention_norm = RMSNorm(config.dim, config.norm_eps)
        self.ffn_norm = RMSNorm(config.dim, config.norm_eps)


def _table(size: int, dim: int) -> nn.Embedding:
    """An embedding without initial values: drawing them on the meta device imports a compiler,
    which takes longer than loading a small model."""
    return nn.Embedding.from_pretrained(torch.empty(size, dim), freeze=False)


class SlowTransformer(nn.Module):
    """Over time. The output head is the embedding table."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.embeddings = _table(config.vocab_size, config.dim)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = RMSNorm(config.dim, config.norm_eps)


class FastTransformer(nn.Module):
    """Over the codebooks of one frame; also holds the table that the slow input sums."""

    def __init__(self, config: TransformerConfig, num_codebooks: int, text_dim: int) -> None:
        super().__init__()
        self.codebook_embeddings = _table(num_codebooks * config.vocab_size, text_dim)
        self.embeddings = _table(config.vocab_size, config.dim)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = RMSNorm(config.dim, config.norm_eps)
        self.output = nn.Linear(config.dim, config.vocab_size, bias=False)
        self.project_in: nn.Module = nn.Identity()
        if text_dim != config.dim:
            self.project_in = nn.Linear(text_dim, config.dim)


class Norm:
    """``rms_norm`` ready to run.

    In float32 on a CPU, x sqrt(E) / hypot(|x|, sqrt(E eps)) is the same up to rounding, in half as
    many operations; at one position a step, operations are what it costs.
    """

    def __init__(self, weight: Tensor, eps: float) -> None:
        """``weight`` [E], or [..., E] where rows before the last axis have weights of their own."""
        size = weight.shape[-1]
        self._weight, self._eps = weight, eps
        self._scaled: Tensor | None = None
        if weight.dtype == torch.float32 and weight.device.type == "cpu":
            self._scaled = weight.detach() * math.sqrt(size)
            self._floor = torch.tensor(math.sqrt(size * eps))

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise x [..., E]."""
        if self._scaled is None:
            if self._weight.ndim > 1:
                return F.rms_norm(x, x.shape[-1:], None, self._eps) * self._weight
            return rms_norm(x, self._weight, self._eps)
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x.div(length.hypot_(self._floor)).mul_(self._scaled)


class HeadNorm:
    """The norm of queries and keys: unlike the others it multiplies before its one rounding."""

    def __init__(self, attention: Attention, config: TransformerConfig) -> None:
        each: list[Tensor] = [attention.q_norm.weight] * config.n_head
        each += [attention.k_norm.weight] * config.n_local_heads
        self._norm = Norm(torch.stack(each).detach().float()[:, None], config.norm_eps)

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise x [B, H + G, T, D]."""
        return self._norm(x.float()).to(x.dtype)


class Layer:
    """One block ready to run: its weights in plain attributes.

    At one position a step, looking weights up in nested modules takes as long as using them.
    """

    def __init__(self, block: Block, config: TransformerConfig) -> None:
        attention = block.attention
        self.num_heads, self.num_kv_heads = config.n_head, config.n_local_heads
        self.head_dim = config.head_dim
        self.wqkv, self.wo = linear(attention.wqkv.weight), linear(attention.wo.weight)
        self.feed_forward = feed_forward(block.feed_forward)
        self.attention_norm = Norm(block.attention_norm.weight, config.norm_eps)
        self.ffn_norm = Norm(block.ffn_norm.weight, config.norm_eps)
        self.head_norm = HeadNorm(attention, config) if config.attention_qk_norm else None

    def __call__(
        self, x: Tensor, turns: Tensor, store: Store, at: int, *, only_last: bool = False
    ) -> Tensor:
        """Run the layer ``at`` on x [B, T, E]; ``store`` keeps and gives keys and values.

        With ``only_last`` the earlier positions are stored, but not taken further: after the last
        layer nobody needs them.
        """
        q, k, v = self._project(self.attention_norm(x), turns)
        if only_last and x.shape[1] > 1:
            q, x = q[:, :, -1:], x[:, -1:]
        x = x + self.wo(store.attend(at, q, k, v))
        return x + self.feed_forward(self.ffn_norm(x))

    def _project(self, x: Tensor, turns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries [B, H, T, D] and keys [B, G, T, D], and values [B, G, T, D]."""
        n, g = self.num_heads, self.num_kv_heads
        batch, length, _ = x.shape
        heads = self.wqkv(x).view(batch, length, n + 2 * g, self.head_dim).transpose(1, 2)
        qk, v = heads.split_with_sizes((n + g, g), 1)
        if self.head_norm is not None:
            qk = self.head_norm(qk)
        q, k = rotate(qk, turns).split_with_sizes((n, g), 1)
        return q, k, v


class KVCache:
    """Keys and values of one batch: per layer [B, G, capacity, D]; the first ``length`` are live.

    Grows when needed, so that it is sized to the request and not to the model's longest context.
    """

    def __init__(self, config: TransformerConfig, batch: int, capacity: int, like: Tensor) -> None:
        like = like.detach()
        shape = (batch, config.n_local_heads, capacity, config.head_dim)
        self.keys = [like.new_empty(shape) for _ in range(config.n_layer)]
        self.values = [like.new_empty(shape) for _ in range(config.n_layer)]
        self.length = 0

    @property
    def capacity(self) -> int:
        """Positions that fit without growing."""
        return self.keys[0].shape[2]

    def turns(self, table: RotaryTable, length: int) -> Tensor:
        """Rotations of the next ``length`` positions [T, D / 2]."""
        return table.until(self.length + length).narrow(0, self.length, length)

    def attend(self, at: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store the next positions of a layer, and attend from the last of them.

        Shapes: q [B, H, T' <= T, D], k and v [B, G, T, D] -> [B, T', H * D].
        """
        length = k.shape[2]
        end = self.length + length
        self.reserve(end)
        keys, values = self.keys[at], self.values[at]
        keys.narrow(2, self.length, length).copy_(k)
        values.narrow(2, self.length, length).copy_(v)
        return attend(q, keys.narrow(2, 0, end), values.narrow(2, 0, end))

    def advance(self, length: int) -> None:
        """Take the positions that every layer has stored as done."""
        self.length += length

    def reserve(self, length: int) -> None:
        """Make room for ``length`` positions."""
        if length > self.capacity:
            self._move(max(length, self.capacity * 2))

    def _move(self, capacity: int) -> None:
        """Take the live positions to larger tensors."""
        for stores in (self.keys, self.values):
            for index, old in enumerate(stores):
                batch, heads, _, size = old.shape
                stores[index] = old.new_empty((batch, heads, capacity, size))
                live = stores[index].narrow(2, 0, self.length)
                live.copy_(old.narrow(2, 0, self.length))


class RotaryTable:
    """Rotations of the positions from 0, made as far as they are needed."""

    def __init__(self, config: TransformerConfig, device: torch.device) -> None:
        self._config, self._device = config, device
        self._turns = self._make(config.max_seq_len if config.max_seq_len <= 64 else 1024)

    def _make(self, length: int) -> Tensor:
        config = self._config
        return rope_table(length, config.head_dim, config.rope_base, self._device)

    def until(self, end: int) -> Tensor:
        """Rotations of at least the positions below ``end`` [.., D / 2]."""
        if end > self._turns.shape[0]:
            self._turns = self._make(2 * end)
        return self._turns


class Stack:
    """A transformer ready to run: its blocks, its last norm, its rotations. Not for training."""

    def __init__(
        self, module: SlowTransformer | FastTransformer, config: TransformerConfig
    ) -> None:
        self._config = config
        self.layers = [Layer(block, config) for block in _blocks(module.layers)]
        self.norm = Norm(module.norm.weight, config.norm_eps)
        self._like = module.norm.weight
        self.rotary = RotaryTable(config, self._like.device)

    def new_cache(self, batch: int, capacity: int) -> KVCache:
        """An empty cache for it."""
        return KVCache(self._config, batch, capacity, self._like)

    def new_pages(self, num_pages: int, page_size: int) -> PagedKV:
        """Pages for many requests of their own lengths."""
        config = self._config
        shape = (num_pages, page_size, config.n_local_heads, config.head_dim)
        return PagedKV(shape, config.n_layer, self._like.detach())

    def __call__(self, x: Tensor, store: Store, *, only_last: bool = False) -> Tensor:
        """Run x [B, T, E] at the positions that ``store`` says; the last norm is not applied.

        With ``only_last`` only the last position is worked out to the end: [B, 1, E].
        """
        length = x.shape[1]
        turns = store.turns(self.rotary, length)
        last = len(self.layers) - 1
        for at, layer in enumerate(self.layers):
            x = layer(x, turns, store, at, only_last=only_last and at == last)
        store.advance(length)
        return x


def _blocks(layers: nn.ModuleList) -> Iterator[Block]:
    for block in layers:
        assert isinstance(block, Block), "made so above"
        yield block


class DualAR(nn.Module):
    """Both transformers; the state dict's names are the checkpoint's."""

    def __init__(self, config: DualARConfig) -> None:
        super().__init__()
        self.config = config
        self.text_model = nn.Module()
        self.text_model.model = SlowTransformer(config.slow)
        self.audio_decoder = FastTransformer(config.fast, config.num_codebooks, config.slow.dim)
        self._stacks: tuple[Stack, Stack] | None = None
        self._heads: tuple[Product, Product] | None = None
        self.register_load_state_dict_post_hook(lambda net, _: net._forget())

    def _forget(self) -> None:
        """Drop what is derived from the weights: they move, or others take their place."""
        self._stacks = self._heads = None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> DualAR:
        self._forget()
        return super()._apply(fn, recurse)

    @property
    def slow(self) -> SlowTransformer:
        """The weights of the transformer over time."""
        model = self.text_model.model
        assert isinstance(model, SlowTransformer), "set in __init__"
        return model

    @property
    def stacks(self) -> tuple[Stack, Stack]:
        """The transformers over time and over codebooks, ready to run."""
        if self._stacks is None:
            config = self.config
            self._stacks = (
                Stack(self.slow, config.slow),
                Stack(self.audio_decoder, config.fast),
            )
        return self._stacks

    @property
    def heads(self) -> tuple[Product, Product]:
        """The outputs ready to run: E to the semantic ids and the end (V + 1), and to codes (V)."""
        if self._heads is None:
            config, table = self.config, self.slow.embeddings.weight
            semantic = table[config.semantic_begin : config.semantic_end + 1]
            end = table[config.end_id : config.end_id + 1]
            own = torch.cat((semantic, end)).detach()
            self._heads = (linear(own), linear(self.audio_decoder.output.weight))
        return self._heads

    def new_cache(self, batch: int, capacity: int) -> KVCache:
        """An empty cache of the transformer over time."""
        return self.stacks[0].new_cache(batch, capacity)

    def new_pages(self, num_pages: int, page_size: int) -> PagedKV:
        """Pages of the transformer over time, for many requests."""
        return self.stacks[0].new_pages(num_pages, page_size)

    def fused(self, pool: PagedKV, max_rows: int, *, deterministic: bool) -> FusedDualAR | None:
        """The decode step by the ops of ``fishtts.kernels``, for at most so many rows of a pool;
        None where a GPU's kernels do not take the model's sizes or type."""
        from fishtts.models.dual_ar.fused import FusedDualAR, fits

        if pool.device.type == "cuda" and not fits(self.config, pool):
            return None
        return FusedDualAR(self, pool, max_rows, deterministic)

    def embed(self, rows: Tensor) -> Tensor:
        """Input vectors. rows [B, 1 + C, T] -> [B, T, E].

        Only where the token is a semantic id do the codes take part, and only there is the sum
        divided by sqrt(C + 1).
        """
        config = self.config
        ids = rows[:, 0]
        base = F.embedding(ids, self.slow.embeddings.weight)
        audio = (ids >= config.semantic_begin) & (ids <= config.semantic_end)
        offset = torch.arange(config.num_codebooks, device=rows.device) * config.codebook_size
        # Codes of positions that are not audio are never looked at, so they may hold anything.
        codes = torch.where(audio[:, None], rows[:, 1:], 0) + offset[:, None]
        summed = F.embedding(codes, self.audio_decoder.codebook_embeddings.weight).sum(dim=1)
        scaled = (summed + base) / math.sqrt(config.num_codebooks + 1)
        return torch.where(audio[..., None], scaled, base)

    def hidden(self, rows: Tensor, cache: Store) -> Tensor:
        """Final-normed hidden states of every position. [B, 1 + C, T] -> [B, T, E]."""
        stack = self.stacks[0]
        return stack.norm(stack(self.embed(rows), cache))

    def backbone(self, rows: Tensor, cache: Store) -> Tensor:
        """Final-normed hidden state of the last position. [B, 1 + C, T] -> [B, E]."""
        stack = self.stacks[0]
        return stack.norm(stack(self.embed(rows), cache, only_last=True)[:, -1])

    def slow_logits(self, hidden: Tensor) -> Tensor:
        """Logits of the semantic ids, the end id last. [B, E] -> [B, V + 1].

        Every other id would get -inf before the softmax, so leaving it out changes nothing.
        """
        return self.heads[0](hidden)

    def full_logits(self, hidden: Tensor) -> Tensor:
        """Logits of the whole vocabulary, unconstrained. [..., E] -> [..., vocabulary]."""
        return F.linear(hidden, self.slow.embeddings.weight)

    def frame(self, hidden: Tensor, semantic: Tensor, draw: Draw) -> Tensor:
        """All codes of one frame. hidden [B, E], semantic codes [B] -> int64 [B, C].

        Positions 0 (the hidden state, whose logits nobody needs) and 1 (the semantic code) are one
        pass; every further code needs the one before it.
        """
        fast, stack, count = (
            self.audio_decoder,
            self.stacks[1],
            self.config.num_codebooks,
        )
        table, head = fast.embeddings.weight, self.heads[1]
        cache = stack.new_cache(hidden.shape[0], count)
        codes = [semantic]
        x = torch.stack((fast.project_in(hidden), F.embedding(semantic, table)), dim=1)
        for k in range(1, count):
            last = stack.norm(stack(x, cache, only_last=True)[:, -1])
            codes.append(draw(k, head(last)))
            x = F.embedding(codes[k], table)[:, None]
        return torch.stack(codes, dim=-1)

"""The slow and the fast transformer of S2, under the checkpoint's own tensor names.

Owns the arithmetic from rows of a prompt to hidden states, logits and codes. Does not know how a
code is drawn (it is given a ``draw``), who runs beside whom, or what any text says.

Shapes: B requests, T positions, C codebooks, E width, H query heads, G key/value heads, D head size,
S positions in the cache. Rows are int64 [B, 1 + C, T]: token ids, then one code per codebook.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fishtts.errors import ModelError

Draw = Callable[[int, Tensor], Tensor]
"""``draw(codebook, logits [B, V]) -> int64 [B]``."""

SUPPORTED = {"attention_qkv_bias": False, "attention_o_bias": False, "use_moe": False}
# Present in published configs without any effect on inference.
INERT = {
    "model_type", "dropout", "initializer_range", "use_gradient_checkpointing", "num_experts",
    "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob", "router_gamma",
    "use_aux_loss_free", "audio_hidden_dim", "use_bfloat16", "dtype", "num_codebooks", "text_dim",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    """One transformer's sizes, named as in ``config.json``."""

    vocab_size: int
    n_layer: int
    dim: int
    n_head: int
    n_local_heads: int
    head_dim: int
    intermediate_size: int
    rope_base: float
    norm_eps: float
    max_seq_len: int
    attention_qk_norm: bool
    tie_word_embeddings: bool

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str) -> TransformerConfig:
        """Strict: a missing key, or an unknown one, is a ``ModelError``."""
        known = set(cls.__dataclass_fields__)
        if missing := sorted(known - set(values)):
            raise ModelError(f"{where} of config.json lacks {', '.join(missing)}.")
        for key, value in values.items():
            if key in SUPPORTED and value != SUPPORTED[key]:
                raise ModelError(f"{where}.{key} is {value}; only {SUPPORTED[key]} is supported.")
            if key not in known and key not in SUPPORTED and key not in INERT:
                raise ModelError(f"{where} of config.json has an unknown key: {key}.")
        return cls(**{key: values[key] for key in known})


@dataclass(frozen=True, slots=True)
class DualARConfig:
    """The nested configuration of the whole model."""

    slow: TransformerConfig
    fast: TransformerConfig
    num_codebooks: int
    semantic_begin: int
    semantic_end: int
    end_id: int

    @property
    def codebook_size(self) -> int:
        """Entries of the semantic codebook; the others may use fewer."""
        return self.fast.vocab_size

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> DualARConfig:
        """From the parsed ``config.json`` of a ``fish_qwen3_omni`` checkpoint."""
        try:
            text, audio = values["text_config"], values["audio_decoder_config"]
            num_codebooks, text_dim = audio["num_codebooks"], audio["text_dim"]
            begin, end = values["semantic_start_token_id"], values["semantic_end_token_id"]
            end_id = values["eos_token_id"]
        except (KeyError, TypeError) as error:
            raise ModelError(f"config.json lacks {error}.") from error
        slow = TransformerConfig.from_dict(text, "text_config")
        # The reference takes these two of the fast transformer from the slow one.
        shared = {"rope_base": slow.rope_base, "norm_eps": slow.norm_eps}
        fast = TransformerConfig.from_dict({**audio, **shared}, "audio_decoder_config")
        if text_dim != slow.dim:
            raise ModelError(f"text_dim is {text_dim}, but text_config.dim is {slow.dim}.")
        if end - begin + 1 != fast.vocab_size:
            raise ModelError(
                f"The semantic ids {begin} to {end} are not the {fast.vocab_size} codes of the"
                " audio decoder."
            )
        return cls(slow, fast, num_codebooks, begin, end, end_id)


class RMSNorm(nn.Module):
    """x * rsqrt(mean(x^2) + eps) in float32, cast back, then times the weight.

    The order matters in bf16: the weight multiplies the already rounded value.
    """

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype == torch.float32:
            return F.rms_norm(x, x.shape[-1:], self.weight, self.eps)
        return F.rms_norm(x.float(), x.shape[-1:], None, self.eps).to(x.dtype) * self.weight


class HeadNorm(nn.Module):
    """RMS over one head, statistics and weight in float32 with a single cast at the end."""

    def __init__(self, head_dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(head_dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = F.rms_norm(x.float(), x.shape[-1:], self.weight.float(), self.eps)
        return wide.to(x.dtype)


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
    """Interleaved rotary embedding in float32. x [B, T, H, D], turns [T, D / 2]."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * turns[:, None]).flatten(-2).to(x.dtype)


class KVCache:
    """Keys and values of one batch: per layer [B, G, capacity, D]; the first ``length`` are live.

    Grows when needed, so that it is sized to the request and not to the model's longest context.
    """

    def __init__(self, config: TransformerConfig, batch: int, capacity: int, like: Tensor) -> None:
        shape = (2, batch, config.n_local_heads, capacity, config.head_dim)
        self.layers = [like.new_empty(shape) for _ in range(config.n_layer)]
        self.length = 0

    @property
    def capacity(self) -> int:
        """Positions that fit without growing."""
        return self.layers[0].shape[3]

    def reserve(self, length: int) -> None:
        """Make room for ``length`` positions."""
        if length <= self.capacity:
            return
        capacity = max(length, self.capacity * 2)
        for index, old in enumerate(self.layers):
            new = old.new_empty((*old.shape[:3], capacity, old.shape[4]))
            new[:, :, :, : self.length] = old[:, :, :, : self.length]
            self.layers[index] = new

    def copy(self, capacity: int) -> KVCache:
        """A cache of its own with the same live positions and room for ``capacity``."""
        twin = object.__new__(KVCache)
        twin.length = self.length
        twin.layers = []
        for old in self.layers:
            new = old.new_empty((*old.shape[:3], max(capacity, self.length), old.shape[4]))
            new[:, :, :, : self.length] = old[:, :, :, : self.length]
            twin.layers.append(new)
        return twin


class Attention(nn.Module):
    """Grouped-query attention with one fused input projection: rows Q, then K, then V."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.heads = (config.n_head, config.n_local_heads)
        self.head_dim = config.head_dim
        width = (config.n_head + 2 * config.n_local_heads) * config.head_dim
        self.wqkv = nn.Linear(config.dim, width, bias=False)
        self.wo = nn.Linear(config.n_head * config.head_dim, config.dim, bias=False)
        self.has_head_norm = config.attention_qk_norm
        if config.attention_qk_norm:
            self.q_norm = HeadNorm(config.head_dim, config.norm_eps)
            self.k_norm = HeadNorm(config.head_dim, config.norm_eps)

    def project(self, x: Tensor, turns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, T, H, D], keys and values [B, T, G, D], rotated."""
        n, g = self.heads
        q, k, v = self.wqkv(x).unflatten(-1, (-1, self.head_dim)).split([n, g, g], dim=2)
        if self.has_head_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        return rotate(q, turns), rotate(k, turns), v

    def forward(self, x: Tensor, turns: Tensor, store: Tensor, start: int) -> Tensor:
        """Attend from positions ``start``.. to everything up to themselves, storing K and V."""
        q, k, v = self.project(x, turns)
        batch, length = x.shape[:2]
        end = start + length
        store[0, :, :, start:end] = k.transpose(1, 2)
        store[1, :, :, start:end] = v.transpose(1, 2)
        keys, values = store[0, :, :, :end], store[1, :, :, :end]
        n, g = self.heads
        if length == 1:
            # The heads that share a key head become its query positions: nothing is repeated.
            grouped = q.view(batch, g, n // g, self.head_dim)
            out = F.scaled_dot_product_attention(grouped, keys, values)
            return self.wo(out.view(batch, 1, -1))
        keys, values = (t.repeat_interleave(n // g, dim=1) for t in (keys, values))
        mask = None
        if start > 0:
            at = torch.arange(end, device=x.device)
            mask = at[None, :] <= at[start:, None]
        out = F.scaled_dot_product_attention(
            q.transpose(1, 2), keys, values, attn_mask=mask, is_causal=mask is None
        )
        return self.wo(out.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """SwiGLU: w2(silu(w1 x) * w3 x)."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(dim, hidden, bias=False)
        self.w3 = nn.Linear(dim, hidden, bias=False)
        self.w2 = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    """Pre-norm attention and feed-forward with residuals."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.feed_forward = FeedForward(config.dim, config.intermediate_size)
        self.attention_norm = RMSNorm(config.dim, config.norm_eps)
        self.ffn_norm = RMSNorm(config.dim, config.norm_eps)

    def forward(self, x: Tensor, turns: Tensor, store: Tensor, start: int) -> Tensor:
        x = x + self.attention(self.attention_norm(x), turns, store, start)
        return x + self.feed_forward(self.ffn_norm(x))


class SlowTransformer(nn.Module):
    """Over time. The output head is the embedding table."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(config.vocab_size, config.dim)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = RMSNorm(config.dim, config.norm_eps)


class FastTransformer(nn.Module):
    """Over the codebooks of one frame; also holds the table that the slow input sums."""

    def __init__(self, config: TransformerConfig, num_codebooks: int, text_dim: int) -> None:
        super().__init__()
        self.codebook_embeddings = nn.Embedding(num_codebooks * config.vocab_size, text_dim)
        self.embeddings = nn.Embedding(config.vocab_size, config.dim)
        self.layers = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = RMSNorm(config.dim, config.norm_eps)
        self.output = nn.Linear(config.dim, config.vocab_size, bias=False)
        self.project_in: nn.Module = nn.Identity()
        if text_dim != config.dim:
            self.project_in = nn.Linear(text_dim, config.dim)


class DualAR(nn.Module):
    """Both transformers; the state dict's names are the checkpoint's."""

    def __init__(self, config: DualARConfig) -> None:
        super().__init__()
        self.config = config
        self.text_model = nn.Module()
        self.text_model.model = SlowTransformer(config.slow)
        self.audio_decoder = FastTransformer(config.fast, config.num_codebooks, config.slow.dim)
        self._turns: dict[str, Tensor] = {}
        self._head: Tensor | None = None

    @property
    def slow(self) -> SlowTransformer:
        """The transformer over time."""
        model = self.text_model.model
        assert isinstance(model, SlowTransformer)
        return model

    @property
    def fast(self) -> FastTransformer:
        """The transformer over codebooks."""
        return self.audio_decoder

    def new_cache(self, batch: int, capacity: int) -> KVCache:
        """An empty cache of the slow transformer."""
        return KVCache(self.config.slow, batch, capacity, self.slow.norm.weight.detach())

    def turns(self, which: str, length: int) -> Tensor:
        """The rotation table of ``slow`` or ``fast``, at least ``length`` positions, kept."""
        device = self.slow.norm.weight.device
        table = self._turns.get(which)
        if table is None or table.shape[0] < length or table.device != device:
            sizes = self.config.slow if which == "slow" else self.config.fast
            size = max(length, 2 * (0 if table is None else table.shape[0]))
            table = rope_table(size, sizes.head_dim, sizes.rope_base, device)
            self._turns[which] = table
        return table

    def embed(self, rows: Tensor) -> Tensor:
        """Input vectors. rows [B, 1 + C, T] -> [B, T, E].

        Only where the token is a semantic id do the codes take part, and only there is the sum
        divided by sqrt(C + 1).
        """
        config = self.config
        ids = rows[:, 0]
        base = self.slow.embeddings(ids)
        audio = (ids >= config.semantic_begin) & (ids <= config.semantic_end)
        offset = torch.arange(config.num_codebooks, device=rows.device) * config.codebook_size
        # Codes of positions that are not audio are never looked at, so they may hold anything.
        codes = torch.where(audio[:, None], rows[:, 1:], 0) + offset[:, None]
        summed = self.audio_decoder.codebook_embeddings(codes).sum(dim=1)
        scaled = (summed + base) / math.sqrt(config.num_codebooks + 1)
        return torch.where(audio[..., None], scaled, base)

    def hidden(self, rows: Tensor, cache: KVCache) -> Tensor:
        """Residual stream of every position, before the final norm. Extends the cache."""
        x = self.embed(rows)
        start, end = cache.length, cache.length + rows.shape[2]
        cache.reserve(end)
        turns = self.turns("slow", end)[start:end]
        for layer, store in zip(self.slow.layers, cache.layers, strict=True):
            x = layer(x, turns, store, start)
        cache.length = end
        return x

    def backbone(self, rows: Tensor, cache: KVCache) -> Tensor:
        """Final-normed hidden state of the last position. [B, 1 + C, T] -> [B, E]."""
        return self.slow.norm(self.hidden(rows, cache)[:, -1])

    def head(self) -> Tensor:
        """Rows of the output head that can ever be chosen: semantic ids, then the end id."""
        if self._head is None or self._head.device != self.slow.embeddings.weight.device:
            config, table = self.config, self.slow.embeddings.weight.detach()
            semantic = table[config.semantic_begin : config.semantic_end + 1]
            self._head = torch.cat((semantic, table[config.end_id : config.end_id + 1]))
        return self._head

    def slow_logits(self, hidden: Tensor) -> Tensor:
        """Logits of the semantic ids, the end id last. [B, E] -> [B, V + 1].

        Every other id would get -inf before the softmax, so leaving it out changes nothing.
        """
        return F.linear(hidden, self.head())

    def full_logits(self, hidden: Tensor) -> Tensor:
        """Logits of the whole vocabulary, unconstrained. [B, E] -> [B, vocabulary]."""
        return F.linear(hidden, self.slow.embeddings.weight)

    def frame(self, hidden: Tensor, semantic: Tensor, draw: Draw) -> Tensor:
        """All codes of one frame. hidden [B, E], semantic codes [B] -> int64 [B, C].

        Positions 0 (the hidden state, whose logits nobody needs) and 1 (the semantic code) are one
        pass; every further code needs the one before it.
        """
        fast, count = self.audio_decoder, self.config.num_codebooks
        codes = semantic.new_empty(semantic.shape[0], count)
        codes[:, 0] = semantic
        x = torch.stack((fast.project_in(hidden), fast.embeddings(semantic)), dim=1)
        cache = KVCache(self.config.fast, x.shape[0], count, x)
        turns = self.turns("fast", count)
        start = 0
        for k in range(1, count):
            end = start + x.shape[1]
            for layer, store in zip(fast.layers, cache.layers, strict=True):
                x = layer(x, turns[start:end], store, start)
            codes[:, k] = draw(k, fast.output(fast.norm(x[:, -1])))
            x = fast.embeddings(codes[:, k])[:, None]
            start = end
        return codes

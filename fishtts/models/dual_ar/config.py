"""The sizes of a model, read strictly from its ``config.json``.

Owns which keys are known, which have no effect, and which values are supported. Knows no tensors;
imports no torch, so that prompts can be built without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fishtts.errors import ModelError

_SUPPORTED = {"attention_qkv_bias": False, "attention_o_bias": False, "use_moe": False}

# Present in published configs without any effect on inference.
_INERT = {
    "_name_or_path", "architectures", "audio_hidden_dim", "dropout", "dtype", "initializer_range",
    "model_type", "moe_intermediate_size", "norm_topk_prob", "num_codebooks", "num_experts",
    "num_experts_per_tok", "router_gamma", "text_dim", "torch_dtype", "transformers_version",
    "use_aux_loss_free", "use_bfloat16", "use_gradient_checkpointing",
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
        """Read one half of the config; ``where`` names it in messages.

        Raises: ``ModelError`` for a key that is missing or unknown, or a value that makes no sense.
        """
        known = cls.__dataclass_fields__
        if missing := sorted(set(known) - set(values)):
            raise ModelError(f"{where} of config.json lacks {', '.join(missing)}.")
        for key, value in values.items():
            if key in _SUPPORTED and value != _SUPPORTED[key]:
                raise ModelError(f"{where}.{key} is {value}; only {_SUPPORTED[key]} is supported.")
            if key not in known and key not in _SUPPORTED and key not in _INERT:
                raise ModelError(f"{where} of config.json has an unknown key: {key}.")
        for key, spec in known.items():
            _check_kind(values[key], str(spec.type), f"{where}.{key}")
        config = cls(**{key: values[key] for key in known})
        if config.n_head % config.n_local_heads or config.head_dim % 2:
            raise ModelError(
                f"{where} of config.json makes no sense: {config.n_head} heads of"
                f" {config.head_dim} share {config.n_local_heads} key heads."
            )
        return config


def _check_kind(value: object, kind: str, where: str) -> None:
    if kind == "bool":
        fits = isinstance(value, bool)
    else:
        kinds = int if kind == "int" else (int, float)
        fits = isinstance(value, kinds) and not isinstance(value, bool) and value > 0
    if not fits:
        raise ModelError(f"{where} of config.json is {value!r}.")


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

    @property
    def max_positions(self) -> int:
        """Positions that a prompt and its speech may take together."""
        return self.slow.max_seq_len

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> DualARConfig:
        """Read the parsed ``config.json`` of a ``fish_qwen3_omni`` checkpoint.

        Raises: ``ModelError`` naming the key.
        """
        try:
            text, audio = values["text_config"], values["audio_decoder_config"]
            num_codebooks, text_dim = audio["num_codebooks"], audio["text_dim"]
            begin, end = values["semantic_start_token_id"], values["semantic_end_token_id"]
            end_id = values["eos_token_id"]
        except (KeyError, TypeError) as error:
            raise ModelError(f"config.json lacks {error}.") from None
        if not isinstance(text, Mapping):
            raise ModelError("text_config of config.json is no table of names and values.")
        slow = TransformerConfig.from_dict(text, "text_config")
        # The reference takes these two of the fast transformer from the slow one.
        shared = {"rope_base": slow.rope_base, "norm_eps": slow.norm_eps}
        fast = TransformerConfig.from_dict({**audio, **shared}, "audio_decoder_config")
        for key, value in (("num_codebooks", num_codebooks), ("text_dim", text_dim)):
            _check_kind(value, "int", f"audio_decoder_config.{key}")
        for value in (begin, end, end_id):
            _check_kind(value, "int", "A token id")
        config = cls(slow, fast, num_codebooks, begin, end, end_id)
        config._check(text_dim)
        return config

    def _check(self, text_dim: int) -> None:
        """Check what the two halves say of each other."""
        slow, fast = self.slow, self.fast
        if text_dim != slow.dim:
            raise ModelError(f"text_dim is {text_dim}, but text_config.dim is {slow.dim}.")
        if not slow.tie_word_embeddings or fast.tie_word_embeddings:
            raise ModelError(
                "Only models are supported whose text half shares its embeddings with its output,"
                " and whose audio half does not."
            )
        if self.semantic_end - self.semantic_begin + 1 != fast.vocab_size:
            raise ModelError(
                f"The semantic ids {self.semantic_begin} to {self.semantic_end} are not the"
                f" {fast.vocab_size} codes of the audio decoder."
            )
        if max(self.semantic_end, self.end_id) >= slow.vocab_size:
            raise ModelError(f"The token ids do not fit a vocabulary of {slow.vocab_size}.")

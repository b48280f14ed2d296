"""The sizes and names of `minnow`: its configs, its tokenizer, its token ids. No training here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

NUM_SEMANTIC = 1024
NUM_CODEBOOKS = 8
SPECIALS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|pad|>",
    "<|phoneme_start|>",
    "<|phoneme_end|>",
    "<|text|>",
    "<|voice|>",
    "<|interleave|>",
    "<|audio_start|>",
    "<|audio_end|>",
    "<|audio_pad|>",
)
# The constant pieces of the prompt, one token each: a byte vocabulary would spend a hundred
# positions on them.
PHRASES = (
    "system\n",
    "user\n",
    "assistant\n",
    "convert the provided text to speech",
    "convert the provided text to speech reference to the following:\n\nText:\n",
    "\n\nSpeech:\n",
)
SPECIAL_ID = {name: 256 + index for index, name in enumerate(SPECIALS)}
SEMANTIC_BEGIN = 256 + len(SPECIALS)
PHRASE_ID = {text: SEMANTIC_BEGIN + NUM_SEMANTIC + index for index, text in enumerate(PHRASES)}
END_ID = SPECIAL_ID["<|im_end|>"]
VOCAB_SIZE = 1408  # the next multiple of 128

# Every matrix dimension is a multiple of 128, so that block-scaled FP8 kernels can run it.
SLOW = {
    "dim": 512,
    "n_layer": 7,
    "n_head": 8,
    "n_local_heads": 2,
    "head_dim": 64,
    "intermediate_size": 1280,
}
FAST = {
    "dim": 256,
    "n_layer": 3,
    "n_head": 4,
    "n_local_heads": 2,
    "head_dim": 64,
    "intermediate_size": 640,
}


def model_config() -> dict[str, Any]:
    """``config.json``, in S2's layout."""
    shared = {
        "attention_o_bias": False,
        "attention_qkv_bias": False,
        "dropout": 0.0,
        "initializer_range": 0.02,
        "norm_eps": 1e-6,
        "rope_base": 1000000,
        "use_gradient_checkpointing": False,
        "use_moe": False,
    }
    return {
        "model_type": "fish_qwen3_omni",
        "dtype": "bfloat16",
        "eos_token_id": END_ID,
        "pad_token_id": SPECIAL_ID["<|pad|>"],
        "audio_pad_token_id": SPECIAL_ID["<|audio_pad|>"],
        "semantic_start_token_id": SEMANTIC_BEGIN,
        "semantic_end_token_id": SEMANTIC_BEGIN + NUM_SEMANTIC - 1,
        "text_config": {
            "model_type": "fish_qwen3",
            "vocab_size": VOCAB_SIZE,
            "max_seq_len": 4096,
            "attention_qk_norm": True,
            "tie_word_embeddings": True,
            **SLOW,
            **shared,
        },
        "audio_decoder_config": {
            "model_type": "fish_qwen3_audio_decoder",
            "vocab_size": NUM_SEMANTIC,
            "max_seq_len": NUM_CODEBOOKS + 1,
            "num_codebooks": NUM_CODEBOOKS,
            "text_dim": SLOW["dim"],
            "attention_qk_norm": False,
            "tie_word_embeddings": False,
            **FAST,
            **shared,
        },
    }


def byte_symbols() -> list[str]:
    """The printable character that byte-level tokenizers write for each byte, in byte order."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]


def write_tokenizer(folder: Path) -> None:
    """Write ``tokenizer.json``: bytes, special tokens, semantic tokens, prompt phrases."""
    vocabulary = {symbol: byte for byte, symbol in enumerate(byte_symbols())}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    names = [*SPECIALS, *[f"<|semantic:{code}|>" for code in range(NUM_SEMANTIC)], *PHRASES]
    tokenizer.add_special_tokens([AddedToken(n, normalized=False, special=True) for n in names])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")

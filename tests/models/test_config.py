"""What ``config.json`` may say, and how nonsense in it is refused."""

from __future__ import annotations

import pytest

from fishtts.errors import ModelError
from fishtts.models.dual_ar.config import DualARConfig
from tests.goldens import config_values


def test_the_fast_half_takes_its_rotations_from_the_slow_one() -> None:
    values = config_values()
    values["text_config"]["rope_base"] = 5000
    assert DualARConfig.from_dict(values).fast.rope_base == 5000


@pytest.mark.parametrize(
    ("half", "key", "value", "said"),
    [
        ("text_config", "n_layer", None, "text_config of config.json lacks n_layer"),
        ("text_config", "novelty", 3, "unknown key: novelty"),
        ("text_config", "use_moe", True, "use_moe is True"),
        ("text_config", "attention_qkv_bias", True, "attention_qkv_bias is True"),
        ("text_config", "n_head", 3, "3 heads of 32 share 2 key heads"),
        ("text_config", "dim", "64", "text_config.dim of config.json is '64'"),
        ("text_config", "head_dim", 0, "text_config.head_dim of config.json is 0"),
        ("text_config", "tie_word_embeddings", False, "shares its embeddings"),
        ("text_config", "vocab_size", 200, "do not fit a vocabulary of 200"),
        ("audio_decoder_config", "text_dim", 32, "text_dim is 32"),
        ("audio_decoder_config", "num_codebooks", 0, "num_codebooks of config.json is 0"),
        ("audio_decoder_config", "vocab_size", 64, "are not the 64 codes"),
        ("", "eos_token_id", None, "lacks 'eos_token_id'"),
        ("", "text_config", [], "text_config of config.json is no table"),
    ],
)
def test_nonsense_is_refused_by_name(half: str, key: str, value: object, said: str) -> None:
    values = config_values()
    part = values[half] if half else values
    part[key] = value
    if value is None:
        del part[key]
    with pytest.raises(ModelError, match=said):
        DualARConfig.from_dict(values)

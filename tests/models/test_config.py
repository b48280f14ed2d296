"""config.json: S2 Pro's own is understood to the last parameter; nonsense is refused by name."""

from __future__ import annotations

import json

import pytest
import torch

from fishtts.errors import ModelError
from fishtts.models.dual_ar.config import DualARConfig
from fishtts.models.dual_ar.net import DualAR
from tests.fakes import GOLDEN
from tests.goldens import config_values


def s2_pro_shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of the published checkpoint, written out from its description."""

    def block(qk_norm: bool) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {
            "attention.wqkv": (6144, 2560),
            "attention.wo": (2560, 4096),
            "attention_norm": (2560,),
            "ffn_norm": (2560,),
            "feed_forward.w1": (9728, 2560),
            "feed_forward.w2": (2560, 9728),
            "feed_forward.w3": (9728, 2560),
        }
        return shapes | (
            {"attention.q_norm": (128,), "attention.k_norm": (128,)} if qk_norm else {}
        )

    slow: dict[str, tuple[int, ...]] = {"embeddings": (155776, 2560), "norm": (2560,)}
    fast: dict[str, tuple[int, ...]] = {
        "codebook_embeddings": (40960, 2560),
        "embeddings": (4096, 2560),
        "norm": (2560,),
        "output": (4096, 2560),
    }
    slow |= {f"layers.{i}.{k}": v for i in range(36) for k, v in block(True).items()}
    fast |= {f"layers.{i}.{k}": v for i in range(4) for k, v in block(False).items()}
    return {f"text_model.model.{k}.weight": v for k, v in slow.items()} | {
        f"audio_decoder.{k}.weight": v for k, v in fast.items()
    }


def test_s2_pro_has_its_published_tensors() -> None:
    values = json.loads((GOLDEN / "s2-pro-config.json").read_bytes())
    with torch.device("meta"):
        net = DualAR(DualARConfig.from_dict(values))
    shapes = {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
    assert shapes == s2_pro_shapes()
    assert len(shapes) == 358
    assert sum(tensor.numel() for tensor in net.state_dict().values()) == 4_561_852_416


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

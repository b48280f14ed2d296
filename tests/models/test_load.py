"""A folder to a model that can speak, or one sentence that says why not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from fishtts.errors import ModelError
from fishtts.models import load_model
from fishtts.weights import identity
from tests.fakes import GOLDEN
from tests.goldens import config_values, tiny


def load(folder: Path) -> None:
    load_model(folder, device="cpu", dtype=torch.float32)


def test_weights_are_ready_to_run_and_named() -> None:
    model = tiny(torch.bfloat16)
    assert all(not p.requires_grad and p.dtype == torch.bfloat16 for p in model.net.parameters())
    assert not model.net.training
    assert model.identity == identity(sorted(GOLDEN.glob("model-*.safetensors")))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, r"config\.json cannot be read"),
        ("{", r"config\.json is damaged"),
        ("[]", 'of the type "None"'),
        ('{"model_type": "dual_ar"}', 'of the type "dual_ar"'),
        ('{"model_type": ["fish_qwen3_omni"]}', "of the type"),
        ('{"model_type": "fish_qwen3_omni"}', r"config\.json lacks 'text_config'"),
        ('{"model_type": "fish_qwen3_omni", "text_config": 3}', "lacks"),
        ('{"model_type": "fish_qwen3_omni", "text_config": 3, "audio_decoder_config": 4}', "lacks"),
    ],
)
def test_a_config_that_is_no_config(tmp_path: Path, content: str | None, said: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelError, match=said):
        load(tmp_path)


def test_a_config_of_other_sizes_than_the_weights(tmp_path: Path) -> None:
    for path in [*GOLDEN.glob("model*"), GOLDEN / "tokenizer.json"]:
        shutil.copy(path, tmp_path)
    values = config_values()
    values["text_config"]["intermediate_size"] = 192
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(ModelError, match=r"feed_forward\.w1\.weight.* \[160, 64\], and not \[192"):
        load(tmp_path)


def test_a_model_without_a_tokenizer(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "config.json", tmp_path)
    with pytest.raises(ModelError, match=r"tokenizer\.json is missing"):
        load(tmp_path)

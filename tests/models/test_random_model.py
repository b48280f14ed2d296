"""Models with random weights: the sizes that are known, and weights that follow from the seed."""

from __future__ import annotations

import json

import pytest
import torch

from fishtts.errors import ModelError
from fishtts.models.dual_ar.config import DualARConfig
from fishtts.models.dual_ar.net import DualAR
from fishtts.models.quantized import format_of, quantize_net
from fishtts.models.random_model import name_of_size, random_model, size_names, size_values
from tests.fakes import GOLDEN
from tests.models.test_quantized import fitting_values


def test_s2_pro_is_known_by_its_size_and_other_models_are_not() -> None:
    assert size_names() == ["s2-pro"]
    values = size_values("s2-pro")
    assert name_of_size(DualARConfig.from_dict(values)) == "s2-pro"
    values["text_config"]["n_layer"] -= 1
    assert name_of_size(DualARConfig.from_dict(values)) == ""


def test_a_seed_gives_one_model_in_every_type() -> None:
    made = [
        random_model(fitting_values(), device="cpu", dtype=dtype, seed=seed)
        for dtype, seed in ((torch.bfloat16, 3), (torch.float32, 3), (torch.float32, 4))
    ]
    narrow, wide, other = (dict(model.net.named_parameters()) for model in made)  # type: ignore[attr-defined]
    assert {w.dtype for w in narrow.values()} == {torch.bfloat16}
    assert {w.dtype for w in wide.values()} == {torch.float32}
    for name, weight in wide.items():
        assert torch.equal(narrow[name].float(), weight), name
        assert weight.ndim == 1 or not torch.equal(other[name], weight), name


def test_products_keep_the_size_of_what_they_are_given() -> None:
    model = random_model(fitting_values(), device="cpu", dtype=torch.float32)
    assert isinstance(model.net, DualAR)
    for name, weight in model.net.named_parameters():
        if weight.ndim > 1:
            out = torch.randn(50, weight.shape[1]) @ weight.T
            assert 0.9 < out.std() < 1.1, name


def test_the_format_of_a_net_is_told() -> None:
    nets = {}
    for keep in ({}, {"audio_decoder.*": "bf16"}, {"*.layers.0.*": "w8a16"}):
        net = random_model(fitting_values(), device="cpu", dtype=torch.float32).net
        assert isinstance(net, DualAR)
        assert format_of(net) == "bf16"
        quantize_net(net, "bsfp8", keep)
        nets[str(keep)] = format_of(net)
    assert list(nets.values()) == ["bsfp8", "mixed", "mixed"]


def test_a_quantised_config_is_refused() -> None:
    values = json.loads((GOLDEN / "config.json").read_bytes())
    with pytest.raises(ModelError, match="quantised"):
        random_model({**values, "quantization_config": {}}, device="cpu", dtype=torch.float32)

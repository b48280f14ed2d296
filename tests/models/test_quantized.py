"""Quantised layers are the reference's products; their table in config.json is read strictly."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fishtts.errors import ModelError, UsageError
from fishtts.kernels import reference
from fishtts.models.dual_ar.net import DualAR
from fishtts.models.quantized import (
    FORMATS,
    Quantization,
    QuantizedFeedForward,
    QuantizedLinear,
    choose,
    feed_forward,
    install,
    linear,
    make_deterministic,
    quantize_net,
    quantize_unit,
    runs_by_kernels,
    use_backend,
)
from tests.goldens import config_values, random_net
from tests.kernels.tolerances import cosine_loss


def fitting_values() -> dict[str, Any]:
    """The tiny model's config with sizes that can be quantised."""
    values = config_values()
    for half in ("text_config", "audio_decoder_config"):
        values[half] |= {"dim": 128, "intermediate_size": 256, "n_head": 4, "head_dim": 32}
        values[half] |= {"n_local_heads": 2}
    values["audio_decoder_config"]["text_dim"] = 128
    return values


def narrow_values() -> dict[str, Any]:
    """Sizes of which none is a multiple of 128."""
    values = config_values()
    for half in ("text_config", "audio_decoder_config"):
        values[half] |= {"n_head": 2, "n_local_heads": 1}
    return values


def net_in(form: str) -> DualAR:
    net = random_net(fitting_values())
    quantize_net(net, form)
    return net


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layer_is_the_references_product(dtype: torch.dtype) -> None:
    weight, x = torch.randn(200, 256), torch.randn(2, 3, 256).to(dtype)
    rows = x.flatten(0, 1)
    codes, scale = reference.quantize_128x128(weight)
    wanted = {
        "bsfp8": reference.bsgemm(*reference.quantize_1x128(rows), codes, scale, out_dtype=dtype),
        "w8a16": reference.w8a16_linear(rows, codes, scale),
        "mxfp8": reference.mxfp8_linear(
            *reference.quantize_1x32(rows), *reference.quantize_1x32(weight), out_dtype=dtype
        ),
    }
    for form in FORMATS:
        out = linear(QuantizedLinear.from_dense(weight, form).weight)(x)
        assert (out.shape, out.dtype) == ((2, 3, 200), dtype)
        torch.testing.assert_close(out.flatten(0, 1), wanted[form], rtol=2.0**-7, atol=1e-4)
    dense = linear(weight)(x.float())
    assert torch.equal(dense, F.linear(x.float(), weight))


def test_a_net_can_be_put_on_another_backend() -> None:
    net = net_in("bsfp8")
    layers = [module for module in net.modules() if isinstance(module, QuantizedLinear)]
    assert not runs_by_kernels(net)
    use_backend(net, "triton")
    assert runs_by_kernels(net)
    assert {layer.backend_name for layer in layers} == {"triton"}
    use_backend(net, "reference")
    assert not runs_by_kernels(net)


@pytest.mark.parametrize("form", FORMATS)
def test_swiglu_stays_near_the_dense_one(form: str) -> None:
    w1, w3 = torch.randn(2, 256, 128) / 128**0.5
    w2, x = torch.randn(128, 256) / 256**0.5, torch.randn(5, 7, 128)
    block = nn.Module()
    for name, weight in (("w1", w1), ("w2", w2), ("w3", w3)):
        layer = nn.Linear(*reversed(weight.shape), bias=False)
        layer.weight = nn.Parameter(weight, requires_grad=False)
        setattr(block, name, layer)
    dense = feed_forward(block)(x)
    assert torch.equal(dense, F.linear(F.silu(F.linear(x, w1)) * F.linear(x, w3), w2))
    quantized = quantize_unit(block, form)
    assert isinstance(quantized, QuantizedFeedForward)
    assert feed_forward(quantized) is quantized
    ours = quantized(x)
    assert ours.shape == x.shape
    assert cosine_loss(ours, dense) < 3e-3  # two FP8 products, one after the other


@pytest.mark.parametrize("form", FORMATS)
def test_a_whole_net_stays_near_the_dense_one(form: str) -> None:
    values = fitting_values()
    dense, ours = random_net(values), net_in(form)
    assert len(choose(dense, form).formats) == 3 * (
        values["text_config"]["n_layer"] + values["audio_decoder_config"]["n_layer"]
    )
    rows = torch.zeros(1, 1 + dense.config.num_codebooks, 9, dtype=torch.long)
    rows[0, 0] = torch.arange(9)
    with torch.inference_mode():
        theirs, mine = (net.hidden(rows, net.new_cache(1, 16)) for net in (dense, ours))
    assert cosine_loss(mine, theirs) < 0.02
    assert not torch.equal(mine, theirs)


def test_moving_a_layer_keeps_its_types() -> None:
    layer = QuantizedLinear.from_dense(torch.randn(128, 128), "bsfp8")
    before = layer.codes.clone()
    layer.to(torch.bfloat16)
    assert layer.codes.dtype == reference.FP8
    assert torch.equal(layer.codes.view(torch.uint8), before.view(torch.uint8))
    assert layer.get_buffer("scale").dtype == torch.float32


def test_new_weights_replace_what_was_derived_from_the_old() -> None:
    one, two = (QuantizedLinear.from_dense(torch.randn(128, 128), "bsfp8") for _ in range(2))
    x = torch.randn(3, 128)
    wanted = two(x)
    assert not torch.equal(one(x), wanted)
    one.load_state_dict(two.state_dict())
    assert torch.equal(one(x), wanted)


def test_every_layer_can_be_told_to_be_deterministic() -> None:
    net = net_in("mxfp8")
    layers = [m for m in net.modules() if isinstance(m, QuantizedLinear)]
    make_deterministic(net)
    assert all(layer.deterministic for layer in layers)
    make_deterministic(net, False)
    assert not any(layer.deterministic for layer in layers)


def test_layers_are_kept_by_pattern_and_the_first_that_matches_counts() -> None:
    net = random_net(fitting_values())
    keep = {"*layers.0.attention.*": "w8a16", "audio_decoder.*": "bf16"}
    formats = choose(net, "bsfp8", keep).formats
    assert formats["text_model.model.layers.0.attention.wqkv"] == "w8a16"
    assert formats["text_model.model.layers.0.feed_forward"] == "bsfp8"
    assert formats["audio_decoder.layers.0.attention.wo"] == "w8a16"
    assert "audio_decoder.layers.0.feed_forward" not in formats


def test_wishes_that_cannot_be_met_are_refused() -> None:
    net = random_net(fitting_values())
    with pytest.raises(UsageError, match='no format "int4"'):
        choose(net, "int4")
    with pytest.raises(UsageError, match=r'No layer is called "nothing\*"'):
        choose(net, "bsfp8", {"nothing*": "bf16"})
    with pytest.raises(ModelError, match="multiple of 128"):
        choose(random_net(narrow_values()), "bsfp8")
    with pytest.raises(ModelError, match="Nothing in this model"):
        choose(net, "bsfp8", {"*": "bf16"})


def table(**changes: object) -> dict[str, Any]:
    made = Quantization({"text_model.model.layers.0.attention.wo": "bsfp8"}).as_dict()
    return {"quantization_config": {**made, **changes}}


def test_the_table_in_config_json_comes_back() -> None:
    read = Quantization.from_dict(json.loads(json.dumps(table())))
    assert read == Quantization({"text_model.model.layers.0.attention.wo": "bsfp8"})
    assert Quantization.from_dict({}) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"quant_method": "fp8"}, "another program"),
        ({"version": 2}, "version 2"),
        ({"surprise": 1}, "unknown or missing"),
        ({"formats": {"layers.0.attention.wo": "int3"}}, "int3"),
        ({"formats": {"norm": "bsfp8"}}, "norm"),
    ],
)
def test_a_table_that_is_not_understood_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        Quantization.from_dict(table(**changes))


def test_a_layer_that_the_model_has_not_is_named() -> None:
    net = random_net(fitting_values())
    wrong = Quantization({"text_model.model.layers.99.attention.wo": "bsfp8"})
    with pytest.raises(ModelError, match=r"layers\.99"):
        install(net, wrong)

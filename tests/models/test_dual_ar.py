"""The net against the numeric goldens; tests/golden/README.md says where the margins are from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from fishtts.errors import ModelError
from fishtts.models import LoadedModel, load_model
from fishtts.models.dual_ar.config import DualARConfig
from fishtts.models.dual_ar.net import DualAR, rope_table
from fishtts.models.random_model import size_values
from fishtts.weights import read_tensors
from tests.fakes import GOLDEN

CPU = torch.device("cpu")
# Float noise of one matrix product order against another; the goldens' own recomputation stayed
# within 1.6e-5, and float32 rotary tables would be off by 4e-2.
LOGITS = 3e-5


@pytest.fixture(scope="module")
def golden() -> dict[str, Tensor]:
    return load_file(GOLDEN / "ar_goldens.safetensors")


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return load_model(GOLDEN, device=CPU, dtype=torch.float32)


@pytest.fixture
def net(model: LoadedModel) -> DualAR:
    assert isinstance(model.net, DualAR)
    return model.net


def close(ours: Tensor, theirs: Tensor, margin: float) -> None:
    assert ours.shape == theirs.shape
    assert (ours.float() - theirs).abs().max() <= margin


def test_rotary_tables_are_rounded_to_bf16(golden: dict[str, Tensor]) -> None:
    for name, length, size in (("slow_first64", 64, 32), ("fast", 10, 16)):
        table = torch.view_as_real(rope_table(length, size, 1e6, CPU))
        assert torch.equal(table, golden[f"rope.{name}"])


@torch.inference_mode()
def test_embedding_scales_audio_positions_only(net: DualAR, golden: dict[str, Tensor]) -> None:
    close(net.embed(golden["trace.prompt"][None]), golden["trace.embed"], 0.0)


@torch.inference_mode()
def test_every_layer_and_every_logit_of_the_trace(net: DualAR, golden: dict[str, Tensor]) -> None:
    rows = golden["trace.prompt"][None]
    after = net.embed(rows)
    cache = net.new_cache(1, rows.shape[2])
    turns = rope_table(rows.shape[2], 32, 1e6, CPU)
    for index, layer in enumerate(net.stacks[0].layers):
        after = layer(after, turns, cache, index)
        close(after, golden[f"trace.layer{index}_out"], LOGITS)
    hidden = net.hidden(rows, net.new_cache(1, 4))
    close(hidden, golden["trace.all_hidden"], LOGITS)
    close(net.full_logits(hidden), golden["trace.all_logits"], LOGITS)


@torch.inference_mode()
def test_greedy_steps_give_the_golden_logits_and_frames(
    net: DualAR, golden: dict[str, Tensor]
) -> None:
    config = net.config
    cache = net.new_cache(1, 8)
    hidden = net.backbone(golden["trace.prompt"][None], cache)
    for index in range(12):
        close(hidden[0], golden["greedy.slow_hidden"][index], LOGITS)
        close(net.full_logits(hidden)[0], golden["greedy.slow_logits"][index], LOGITS)
        chosen = net.slow_logits(hidden).argmax(-1)
        seen: list[Tensor] = []

        def draw(_: int, logits: Tensor, seen: list[Tensor] = seen) -> Tensor:
            seen.append(logits[0])
            return logits.argmax(-1)

        codes = net.frame(hidden, chosen, draw)
        # Position 0 is not worked out: its logits are discarded by definition.
        close(torch.stack(seen), golden["greedy.fast_logits"][index, 1:], LOGITS)
        frame = torch.cat((chosen + config.semantic_begin, codes[0]))
        assert torch.equal(frame, golden["greedy.frames"][:, index])
        hidden = net.backbone(frame[None, :, None], cache)


@torch.inference_mode()
def test_bf16_stays_near_float32(golden: dict[str, Tensor]) -> None:
    model = load_model(GOLDEN, device=CPU, dtype=torch.bfloat16)
    net = model.net
    assert isinstance(net, DualAR)
    cache = net.new_cache(1, 200)
    hidden = net.backbone(golden["trace.prompt"][None], cache)
    for index in range(12):
        close(net.full_logits(hidden)[0], golden["greedy.slow_logits"][index], 0.3)
        hidden = net.backbone(golden["greedy.frames"][None, :, index : index + 1], cache)


@torch.inference_mode()
def test_rows_of_a_batch_do_not_meet(net: DualAR, golden: dict[str, Tensor]) -> None:
    rows = torch.stack((golden["trace.prompt"], golden["trace.prompt"].flip(0).clamp(max=15)))
    together = net.backbone(rows, net.new_cache(2, 8))
    for index in range(2):
        alone = net.backbone(rows[index : index + 1], net.new_cache(1, 8))
        close(together[index], alone[0], LOGITS)


@torch.inference_mode()
def test_a_prompt_in_parts_is_the_prompt(net: DualAR, golden: dict[str, Tensor]) -> None:
    rows = golden["trace.prompt"][None]
    whole = net.backbone(rows, net.new_cache(1, 200))
    cache = net.new_cache(1, 1)
    for part in rows.split((1, 63, 100, 3), dim=2):
        hidden = net.backbone(part, cache)
    close(hidden, whole, LOGITS)
    assert cache.length == rows.shape[2]


@torch.inference_mode()
def test_codes_of_text_positions_are_never_looked_at(
    net: DualAR, golden: dict[str, Tensor]
) -> None:
    rows = golden["trace.prompt"][None].clone()
    is_text = (rows[:, 0] < net.config.semantic_begin) | (rows[:, 0] > net.config.semantic_end)
    rows[:, 1:] = torch.where(is_text[:, None], 999_999, rows[:, 1:])
    assert torch.equal(net.embed(rows), golden["trace.embed"])


@pytest.mark.parametrize("layout", ["shards", "one file", "torch file"])
def test_every_layout_of_a_checkpoint_loads(tmp_path: Path, layout: str, net: DualAR) -> None:
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(GOLDEN / name, tmp_path / name)
    shards = sorted(GOLDEN.glob("model-*.safetensors"))
    tensors = {k: v for path in shards for k, v in read_tensors(path).items()}
    if layout == "shards":
        for path in (*shards, GOLDEN / "model.safetensors.index.json"):
            shutil.copy(path, tmp_path / path.name)
    elif layout == "one file":
        save_file(tensors, tmp_path / "model.safetensors")
    else:
        torch.save(tensors, tmp_path / "model.pth")
    loaded = load_model(tmp_path, device=CPU, dtype=torch.float32).net
    assert isinstance(loaded, DualAR)
    state = loaded.state_dict()
    assert state.keys() == net.state_dict().keys()
    assert all(torch.equal(state[k], v) for k, v in net.state_dict().items())


@pytest.mark.parametrize("damage", ["missing", "unknown", "shape"])
def test_a_checkpoint_that_does_not_fit_names_the_tensor(tmp_path: Path, damage: str) -> None:
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(GOLDEN / name, tmp_path / name)
    tensors = {k: v for p in GOLDEN.glob("model-*.safetensors") for k, v in read_tensors(p).items()}
    name = "text_model.model.norm.weight"
    if damage == "missing":
        del tensors[name]
    elif damage == "unknown":
        name = "text_model.model.surprise"
        tensors[name] = torch.zeros(1)
    else:
        tensors[name] = torch.zeros(3)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=name):
        load_model(tmp_path, device=CPU, dtype=torch.float32)


def test_s2_pro_has_its_tensors_and_parameters() -> None:
    """All names, shapes and the count, built without memory from the published sizes."""
    config = DualARConfig.from_dict(size_values("s2-pro"))
    with torch.device("meta"):
        state = DualAR(config).state_dict()
    assert len(state) == 358
    assert sum(t.numel() for t in state.values()) == 4_561_852_416
    width, inner, qkv = 2560, 9728, 6144
    wanted = {
        "text_model.model.embeddings.weight": (155776, width),
        "text_model.model.norm.weight": (width,),
        "audio_decoder.codebook_embeddings.weight": (40960, width),
        "audio_decoder.embeddings.weight": (4096, width),
        "audio_decoder.norm.weight": (width,),
        "audio_decoder.output.weight": (4096, width),
    }
    for prefix, layers in (("text_model.model", 36), ("audio_decoder", 4)):
        for i in range(layers):
            stem = f"{prefix}.layers.{i}"
            wanted |= {
                f"{stem}.attention.wqkv.weight": (qkv, width),
                f"{stem}.attention.wo.weight": (width, 4096),
                f"{stem}.attention_norm.weight": (width,),
                f"{stem}.ffn_norm.weight": (width,),
                f"{stem}.feed_forward.w1.weight": (inner, width),
                f"{stem}.feed_forward.w3.weight": (inner, width),
                f"{stem}.feed_forward.w2.weight": (width, inner),
            }
            if prefix == "text_model.model":
                wanted[f"{stem}.attention.q_norm.weight"] = (128,)
                wanted[f"{stem}.attention.k_norm.weight"] = (128,)
    assert {name: tuple(t.shape) for name, t in state.items()} == wanted


@pytest.mark.parametrize(
    ("where", "key", "value"),
    [
        ("text_config", "n_layer", None),
        ("text_config", "attention_qkv_bias", True),
        ("audio_decoder_config", "new_thing", 3),
    ],
)
def test_a_config_that_is_not_understood_is_refused(where: str, key: str, value: object) -> None:
    values = json.loads((GOLDEN / "config.json").read_text())
    if value is None:
        del values[where][key]
    else:
        values[where][key] = value
    with pytest.raises(ModelError, match=key):
        DualARConfig.from_dict(values)


def test_numpy_matrices_of_prompts_are_int64(model: LoadedModel) -> None:
    assert model.prompts.build("Hello.").matrix.dtype == np.int64

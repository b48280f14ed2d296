"""What the net promises besides the goldens in test_dual_ar.py: other sizes, other ways to cut up
the work, weights that change."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from fishtts.models.dual_ar.net import DualAR, Norm, rms_norm
from tests.goldens import ATOL, config_values, golden, random_net, tiny

BF16_SLOW, BF16_FAST = 0.16, 0.29
"""As far as bf16 lies from float32 in the reference itself."""


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.no_grad():
        yield


def net_of(dtype: torch.dtype = torch.float32) -> DualAR:
    net = tiny(dtype).net
    assert isinstance(net, DualAR)
    return net


def near(got: Tensor, expected: Tensor, atol: float = ATOL) -> None:
    torch.testing.assert_close(got.float(), expected, atol=atol, rtol=0)


def first(codebook: int, logits: Tensor) -> Tensor:
    """Draw the best code."""
    return logits.argmax(dim=-1)


@pytest.mark.parametrize(
    ("run", "dtype", "slow", "fast"),
    [
        ("greedy", torch.float32, ATOL, ATOL),
        ("bf16", torch.bfloat16, BF16_SLOW, BF16_FAST),
    ],
)
def test_forced_frames_give_the_reference_logits(
    run: str, dtype: torch.dtype, slow: float, fast: float
) -> None:
    net, expected = net_of(dtype), golden()
    frames = expected["greedy.frames"]
    rows, cache = expected["trace.prompt"][None], net.new_cache(1, 4)
    for i in range(frames.shape[1]):
        hidden = net.backbone(rows, cache)
        near(hidden[0], expected[f"{run}.slow_hidden"][i], slow)
        near(net.full_logits(hidden)[0], expected[f"{run}.slow_logits"][i], slow)
        codes = net.frame(hidden, frames[1, i][None], forced(run, i, fast))
        assert torch.equal(codes[0], frames[1:, i])
        rows = frames[None, :, i, None]


def forced(run: str, frame: int, atol: float) -> Callable[[int, Tensor], Tensor]:
    """Compare logits, and draw what the reference drew."""

    def draw(codebook: int, logits: Tensor) -> Tensor:
        near(logits[0], golden()[f"{run}.fast_logits"][frame, codebook], atol)
        return golden()["greedy.frames"][1 + codebook, frame][None]

    return draw


def test_a_sliced_head_is_part_of_the_whole_one() -> None:
    net = net_of()
    hidden = golden()["greedy.slow_hidden"]
    whole = net.full_logits(hidden)
    part = torch.cat((whole[:, 268:300], whole[:, 258:259]), dim=1)
    near(net.slow_logits(hidden), part)


@pytest.mark.parametrize("cut", [1, 50, 166])
def test_a_prompt_in_two_parts_is_the_prompt(cut: int) -> None:
    net, rows = net_of(), golden()["trace.prompt"][None]
    cache = net.new_cache(1, 8)
    net.backbone(rows[:, :, :cut], cache)
    assert cache.length == cut
    near(net.backbone(rows[:, :, cut:], cache)[0], golden()["trace.all_hidden"][0, -1])


def test_alone_and_beside_others_are_the_same() -> None:
    net = net_of()
    first_rows = golden()["trace.prompt"][None]
    rows = torch.cat((first_rows, first_rows.roll(5, dims=2), first_rows.flip(2)))
    cache = net.new_cache(3, 200)
    caches = [net.new_cache(1, 200) for _ in range(3)]
    for _ in range(4):
        hidden = net.backbone(rows, cache)
        alone = [net.backbone(rows[i, None], caches[i]) for i in range(3)]
        near(hidden, torch.cat(alone))
        semantic = net.slow_logits(hidden)[:, :-1].argmax(dim=-1)
        codes = net.frame(hidden, semantic, first)
        for i in range(3):
            assert torch.equal(codes[i], net.frame(alone[i], semantic[i, None], first)[0])
        rows = torch.cat((semantic[:, None] + 268, codes), dim=1)[:, :, None]


def test_only_audio_is_scaled_and_both_ends_of_the_range_count() -> None:
    net = net_of()
    rows = torch.zeros(1, 11, 4, dtype=torch.int64)
    rows[0, 0] = torch.tensor([267, 268, 299, 300])
    base = net.slow.embeddings.weight[rows[0, 0]]
    codes = net.audio_decoder.codebook_embeddings.weight[torch.arange(10) * 32].sum(0)
    expected = torch.stack((base[0], *((base[1:3] + codes) / 11**0.5), base[3]))
    near(net.embed(rows)[0], expected)


def test_norm_for_one_step_is_the_norm() -> None:
    torch.manual_seed(0)
    weight = torch.randn(64)
    for size in (1e-4, 1.0, 1e4):
        x = torch.randn(2, 3, 64) * size
        torch.testing.assert_close(Norm(weight, 1e-6)(x), rms_norm(x, weight, 1e-6))
    half = torch.randn(3, 64).bfloat16()
    small = weight.bfloat16()
    assert torch.equal(Norm(small, 1e-6)(half), rms_norm(half, small, 1e-6))
    assert torch.equal(Norm(weight, 1e-6)(torch.zeros(64)), torch.zeros(64))


@pytest.mark.parametrize("num_codebooks", [1, 2, 8])
def test_halves_of_different_width_and_any_number_of_codebooks(num_codebooks: int) -> None:
    values = config_values()
    values["audio_decoder_config"] |= {
        "dim": 48,
        "num_codebooks": num_codebooks,
        "max_seq_len": num_codebooks + 1,
        "attention_qk_norm": True,
    }
    net = random_net(values)
    assert net.audio_decoder.project_in.weight.shape == (48, 64)
    rows = torch.randint(0, 32, (2, 1 + num_codebooks, 9))
    rows[:, 0] += 268
    hidden = net.backbone(rows, net.new_cache(2, 9))
    codes = net.frame(hidden, torch.tensor([3, 31]), first)
    assert codes.shape == (2, num_codebooks)
    assert codes[:, 0].tolist() == [3, 31]
    near(codes.float(), slow_frame(net, hidden, torch.tensor([3, 31])).float())


def slow_frame(net: DualAR, hidden: Tensor, semantic: Tensor) -> Tensor:
    """A frame without a cache: everything from the start for each code."""
    stack, fast = net.stacks[1], net.audio_decoder
    codes = [semantic]
    for _ in range(1, net.config.num_codebooks):
        inputs = [fast.project_in(hidden), *[fast.embeddings(code) for code in codes]]
        x = torch.stack(inputs, dim=1)
        out = stack(x, stack.new_cache(x.shape[0], x.shape[1]))
        codes.append(fast.output(stack.norm(out[:, -1])).argmax(dim=-1))
    return torch.stack(codes, dim=1)


def test_what_is_derived_from_weights_follows_them() -> None:
    net = random_net(config_values())
    rows = golden()["trace.prompt"][None]
    before = net.backbone(rows, net.new_cache(1, 8))
    state = {name: tensor.clone() for name, tensor in net_of().state_dict().items()}
    net.load_state_dict(state)
    near(net.backbone(rows, net.new_cache(1, 8))[0], golden()["trace.all_hidden"][0, -1])
    assert not torch.allclose(before[0], golden()["trace.all_hidden"][0, -1])
    net.double()
    wide = net.backbone(rows, net.new_cache(1, 8))
    assert wide.dtype == torch.float64
    near(wide[0], golden()["trace.all_hidden"][0, -1])


def test_training_code_can_use_the_modules() -> None:
    """Every weight gets a gradient through the modules that hold it."""
    net = random_net(config_values()).requires_grad_(True)
    with torch.enable_grad():
        block = net.slow.layers[0]
        x = torch.randn(2, 5, 64)
        n = block.ffn_norm(x)
        y = block.feed_forward.w2(block.feed_forward.w1(n) * block.feed_forward.w3(n))
        (net.slow.norm(y).sum() + net.embed(golden()["trace.prompt"][None]).sum()).backward()
    for weight in (block.ffn_norm.weight, net.audio_decoder.codebook_embeddings.weight):
        assert weight.grad is not None
        assert weight.grad.abs().sum() > 0

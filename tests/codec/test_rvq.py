"""Quantisation against the same thing said plainly."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fishtts.codec.rvq import SplitQuantizer, VectorQuantizer


@pytest.fixture
def quantizer() -> SplitQuantizer:
    torch.manual_seed(0)
    return SplitQuantizer(12, 4, semantic_size=20, residual_size=9, num_residual=3).eval()


def nearest(stage: VectorQuantizer, z: Tensor) -> Tensor:
    """The row whose direction is closest to that of the projected vector. z [D, T] -> [T]."""
    e = stage.in_proj(z[None])[0].t()
    return torch.cosine_similarity(e[:, None], stage.codebook.weight[None], dim=-1).argmax(1)


@torch.inference_mode()
def test_each_stage_codes_what_the_ones_before_left(quantizer: SplitQuantizer) -> None:
    z = torch.randn(12, 30)
    codes = quantizer.encode(z[None])[0]
    assert codes.shape == (4, 30)
    left = z
    for stage, found in zip(quantizer.stages, codes, strict=True):
        assert torch.equal(found, nearest(stage, left))
        left = left - stage.out_proj(stage.codebook(found).t()[None])[0]
    torch.testing.assert_close(quantizer.decode(codes[None])[0], z - left)


@torch.inference_mode()
def test_codes_beyond_a_codebook_mean_its_last_row(quantizer: SplitQuantizer) -> None:
    codes = torch.tensor([[[20, 3000], [8, 9], [9, 0], [4, 19]]])
    given = codes.clone()
    within = torch.tensor([[[19, 19], [8, 8], [8, 0], [4, 8]]])
    assert torch.equal(quantizer.decode(codes), quantizer.decode(within))
    assert torch.equal(codes, given)


def test_names_are_those_of_checkpoints(quantizer: SplitQuantizer) -> None:
    names = quantizer.state_dict().keys()
    assert "semantic_quantizer.quantizers.0.codebook.weight" in names
    assert "quantizer.quantizers.2.out_proj.bias" in names
    assert len(names) == 4 * 5

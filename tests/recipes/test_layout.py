"""What the recipe trains on is what the product asks: the same prompts, sizes that kernels like."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fishtts.models.dual_ar.config import DualARConfig
from fishtts.models.dual_ar.net import DualAR
from fishtts.models.dual_ar.prompt import PromptBuilder
from fishtts.types import Reference
from recipes.minnow.examples import Spoken, build
from recipes.minnow.layout import NUM_CODEBOOKS, NUM_SEMANTIC, model_config, write_tokenizer


def spoken(text: bytes, frames: int) -> Spoken:
    rng = np.random.default_rng(frames)
    codes = rng.integers(0, NUM_SEMANTIC, (NUM_CODEBOOKS, frames)).astype(np.int16)
    unknown = np.full(frames, -1, np.int16)
    return Spoken(codes, text, 0, unknown, unknown)


class WholeReference(np.random.Generator):
    """Draws that choose a reference with its words."""

    def random(self, *_: object, **__: object) -> float:  # type: ignore[override]
        return 0.0


@pytest.mark.parametrize("with_reference", [False, True])
def test_training_prompts_are_the_products_prompts(tmp_path: Path, with_reference: bool) -> None:
    write_tokenizer(tmp_path)
    config = DualARConfig.from_dict(model_config())
    prompts = PromptBuilder.load(tmp_path / "tokenizer.json", config)
    line, other = spoken(b"Come in, please.", 9), spoken(b"It rained.", 5)
    example = build(line, other if with_reference else None, WholeReference(np.random.PCG64(0)))
    references = [Reference(other.codes.astype(np.int64), "It rained.")] if with_reference else []
    prompt = prompts.build("Come in, please.", references).matrix
    assert np.array_equal(example["rows"][:, : prompt.shape[1]], prompt)
    # The position of the prompt's last token predicts the first frame, and the last one the end.
    assert example["target"][prompt.shape[1] - 1] == line.codes[0, 0]
    assert example["target"][-1] == NUM_SEMANTIC


def test_every_matrix_is_a_multiple_of_128() -> None:
    with torch.device("meta"):
        net = DualAR(DualARConfig.from_dict(model_config()))
    for name, p in net.named_parameters():
        if p.ndim == 2:
            assert all(size % 128 == 0 for size in p.shape), name

"""Prompts against the golden matrices, and what a person's text may not do."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from fishtts.errors import ModelError
from fishtts.models.dual_ar.config import DualARConfig
from fishtts.models.dual_ar.prompt import PromptBuilder, group_turns, split_turns
from fishtts.types import Reference
from tests.fakes import GOLDEN

CONFIG = DualARConfig.from_dict(json.loads((GOLDEN / "config.json").read_text()))
PROMPTS = json.loads((GOLDEN / "prompts.json").read_text())
TENSORS = load_file(GOLDEN / "ar_goldens.safetensors")
BUILDER = PromptBuilder.load(GOLDEN / "tokenizer.json", CONFIG)


def references(name: str) -> list[Reference]:
    texts = PROMPTS[name]["reference_texts"]
    return [Reference(TENSORS[f"ref_{c}"], t) for c, t in zip("ab", texts, strict=False)]


@pytest.mark.parametrize("name", ["p0", "p1", "p2"])
def test_the_first_prompt_of_each_case_is_the_golden_matrix(name: str) -> None:
    built = BUILDER.build(PROMPTS[name]["batches"][0], references(name))
    assert np.array_equal(built.matrix, TENSORS[f"prompt.{name}.b0.matrix"])


def test_a_later_prompt_holds_the_speech_before_it() -> None:
    first, second = PROMPTS["p2"]["batches"]
    earlier = [Reference(TENSORS["prompt.p2.b0.codes"], first)]
    built = BUILDER.build_turns(second, references("p2"), earlier)
    assert np.array_equal(built.matrix, TENSORS["prompt.p2.b1.matrix"])


def test_the_shared_part_is_the_same_for_every_text() -> None:
    prompts = [BUILDER.build(text, references("p1")) for text in ("One.", "Something else.")]
    assert len({p.num_shared for p in prompts}) == 1
    shared = prompts[0].num_shared
    assert np.array_equal(prompts[0].matrix[:, :shared], prompts[1].matrix[:, :shared])


def expected(case: dict[str, object]) -> tuple[list[str], list[str]]:
    """The golden turns and batches, with the lead that the reference loses as a turn of its own."""
    text, turns = str(case["text"]), list(case["turns"])  # type: ignore[call-overload]
    if not turns:
        return [text], [text]
    lead = text[: text.index("<|speaker:")].strip()
    turns = [lead, *turns] if lead else turns
    return turns, group_turns(turns, int(case["chunk_length"]))  # type: ignore[call-overload]


@pytest.mark.parametrize("case", json.loads((GOLDEN / "batching.json").read_text()))
def test_speakers_divide_a_text_as_the_reference_does(case: dict[str, object]) -> None:
    turns, batches = expected(case)
    assert split_turns(str(case["text"])) == turns
    if not str(case["text"]).startswith("<|speaker:") and case["turns"]:
        return
    assert batches == case["batches"]


def test_text_before_the_first_speaker_is_not_lost() -> None:
    assert split_turns("Once upon a time <|speaker:0|>Hi.") == [
        "Once upon a time",
        "<|speaker:0|>Hi.",
    ]


def special_strings() -> Sequence[str]:
    tokenizer = Tokenizer.from_file(str(GOLDEN / "tokenizer.json"))
    return [entry.content for entry in tokenizer.get_added_tokens_decoder().values()]


@pytest.mark.parametrize("frame", ["{}", "a{}b", "{}{}", "<|im_end|{}>", "\n{}\n"])
def test_no_text_can_become_a_control_token(frame: str) -> None:
    plain = BUILDER.build("").matrix
    for token in special_strings():
        text = frame.replace("{}", token)
        row = BUILDER.build(text).matrix[0]
        # The control tokens of an empty prompt, and not one more; the text arrives byte for byte.
        assert (row > 255).sum() == (plain[0] > 255).sum()
        assert len(row) - plain.shape[1] == len(text.encode())
        said = BUILDER.build("x", [Reference(TENSORS["ref_a"], text)]).matrix[0]
        quiet = BUILDER.build("x", [Reference(TENSORS["ref_a"], "")]).matrix[0]
        assert (said > 255).sum() == (quiet > 255).sum()


def test_codes_of_another_model_are_refused() -> None:
    with pytest.raises(ModelError, match="10 codebooks"):
        BUILDER.build("x", [Reference(np.zeros((8, 4), np.int64), "y")])
    with pytest.raises(ModelError, match="0 to 31"):
        BUILDER.build("x", [Reference(np.full((10, 4), 32), "y")])


def test_a_tokenizer_with_other_ids_is_refused() -> None:
    values = json.loads((GOLDEN / "config.json").read_text())
    values["semantic_start_token_id"] += 1
    values["semantic_end_token_id"] += 1
    with pytest.raises(ModelError, match="semantic"):
        PromptBuilder.load(GOLDEN / "tokenizer.json", DualARConfig.from_dict(values))

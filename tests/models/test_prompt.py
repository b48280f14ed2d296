"""Prompts against the golden matrices, and what a person's text may not do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

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


@given(st.lists(st.sampled_from([*special_strings(), "<|", "|>", "im_end", "a", "\n"]), max_size=8))
def test_no_pieces_of_control_tokens_make_one(pieces: list[str]) -> None:
    text = "".join(pieces)
    row = BUILDER.build(text).matrix[0]
    empty = BUILDER.build("").matrix[0]
    assert (row > 255).sum() == (empty > 255).sum()


def tokenizer_with(added: Sequence[str], merges: Sequence[tuple[str, str]] = ()) -> Tokenizer:
    """A byte-level tokenizer with the control and semantic tokens of the tiny model, and more."""
    tiny = Tokenizer.from_file(str(GOLDEN / "tokenizer.json"))
    vocabulary = {tiny.id_to_token(at): at for at in range(256)}
    vocabulary |= {a + b: 2000 + i for i, (a, b) in enumerate(merges)}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIALS])
    made.add_tokens([AddedToken(t, special=False, normalized=False) for t in added])
    return made


SPECIALS = special_strings()


def builder_of(tokenizer: Tokenizer) -> PromptBuilder:
    begin = tokenizer.token_to_id("<|semantic:0|>")
    end_id = tokenizer.token_to_id("<|im_end|>")
    config = replace(CONFIG, semantic_begin=begin, semantic_end=begin + 31, end_id=end_id)
    return PromptBuilder(tokenizer, config)


def test_a_phrase_with_a_token_of_its_own_is_that_token_only_where_it_is_ours() -> None:
    phrase = "user\n"
    tokenizer = tokenizer_with([phrase])
    at = tokenizer.token_to_id(phrase)
    row = builder_of(tokenizer).build(f"{phrase}x{phrase}", []).matrix[0]
    assert (row == at).sum() == 1


def test_a_model_with_tokens_for_speakers_is_given_them() -> None:
    tokenizer = tokenizer_with(["<|speaker:0|>", "<|speaker:1|>"])
    ids = [tokenizer.token_to_id(f"<|speaker:{i}|>") for i in (0, 1)]
    row = builder_of(tokenizer).build("a<|speaker:1|>b<|speaker:7|>").matrix[0]
    assert [at for at in row if at in ids] == [ids[1]]
    joined = np.array([97, ids[1], 98, *b"<|speaker:7|>"])
    assert joined.tobytes() in row.tobytes()
    said = builder_of(tokenizer).build("x", [Reference(TENSORS["ref_a"], "y")]).matrix[0]
    assert (said == ids[0]).sum() == 1


def test_pieces_are_read_apart() -> None:
    """A merge over the border of two pieces must not happen; one within a piece must."""
    newline, two = "\u010a", "h"
    tokenizer = tokenizer_with([], [(newline, two), ("t", two)])
    across, within = (tokenizer.token_to_id(t) for t in (newline + two, "t" + two))
    row = builder_of(tokenizer).build("hi\nhth").matrix[0]
    # "user\n" ends before the text's own "h"; "\nh" in the text is one piece.
    assert (row == across).sum() == 1
    assert (row == within).sum() >= 1


@pytest.mark.parametrize("token", ["<|im_start|>", "<|im_end|>", "<|voice|>"])
def test_a_tokenizer_without_a_control_token_is_refused(token: str) -> None:
    whole = json.loads((GOLDEN / "tokenizer.json").read_bytes())
    for entry in whole["added_tokens"]:
        if entry["content"] == token:
            entry["content"] = "<|other|>"
    with pytest.raises(ModelError, match="lacks the token"):
        PromptBuilder(Tokenizer.from_str(json.dumps(whole)), CONFIG)


def test_semantic_tokens_with_a_gap_or_too_many_are_refused() -> None:
    whole = json.loads((GOLDEN / "tokenizer.json").read_bytes())
    at = {entry["content"]: entry for entry in whole["added_tokens"]}
    one, two = at["<|semantic:7|>"], at["<|semantic:8|>"]
    one["content"], two["content"] = two["content"], one["content"]
    with pytest.raises(ModelError, match=r'"<\|semantic:7\|>" at 276.*without gaps'):
        PromptBuilder(Tokenizer.from_str(json.dumps(whole)), CONFIG)
    with pytest.raises(ModelError, match="more semantic tokens than the model's 32"):
        PromptBuilder(tokenizer_of("<|semantic:32|>"), CONFIG)


def tokenizer_of(more: str) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(GOLDEN / "tokenizer.json"))
    tokenizer.add_special_tokens([more])
    return tokenizer


def test_another_end_token_is_refused() -> None:
    with pytest.raises(ModelError, match=r"at 258, and config\.json at 257"):
        PromptBuilder.load(GOLDEN / "tokenizer.json", replace(CONFIG, end_id=257))


def test_a_tokenizer_file_that_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(ModelError, match=r"tokenizer\.json is missing"):
        PromptBuilder.load(path, CONFIG)
    path.write_text('{"version": "1.0", "model"')
    with pytest.raises(ModelError, match=r"tokenizer\.json cannot be used"):
        PromptBuilder.load(path, CONFIG)


@given(st.text(alphabet="ab<|speaker:01|>\n ", max_size=60), st.integers(1, 80))
def test_no_turn_is_lost_and_no_limit_passed(text: str, limit: int) -> None:
    turns = split_turns(text)
    groups = group_turns(turns, limit)
    assert "".join("".join(turns).split()) == "".join(text.split())
    assert "\n".join(groups) == "\n".join(turns)
    sizes = iter([len(turn.encode()) for turn in turns])
    at = 0
    for group in groups:
        count = 1
        while "\n".join(turns[at : at + count]) != group:
            count += 1
        held = [next(sizes) for _ in range(count)]
        assert count <= 5
        assert count == 1 or sum(held) <= limit
        at += count

"""``fishtts verify`` and ``fishtts models quantize``: what passes, what does not, what is said."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fishtts.errors import ExitCode, ModelError, VoiceError
from fishtts.models import LoadedModel, load_model, read_config
from fishtts.models.dual_ar.config import DualARConfig
from fishtts.models.dual_ar.net import DualAR
from fishtts.models.random_model import random_model
from fishtts.verify import command
from fishtts.verify.command import RANDOM_LENGTHS, GateError, Request, random_cases, verify
from fishtts.verify.comparison import (
    MAX_LOGITS_ERROR,
    MIN_COSINE,
    Case,
    Trace,
    dense_of,
    judge,
    trace,
)
from fishtts.verify.prompts import NUM_FRAMES
from tests.fakes import run_fishtts, tiny_model
from tests.goldens import config_values
from tests.models.test_quantize_folder import model_folder
from tests.models.test_quantized import fitting_values


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return model_folder(tmp_path / "model", fitting_values())


@pytest.fixture(autouse=True)
def few_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "PROMPTS", ("Hello.", "Is it late?"))


def judged(output: str) -> dict[str, object]:
    answer = json.loads(output)
    assert isinstance(answer, dict)
    return answer


def test_a_trace_is_greedy_decoding(folder: Path) -> None:
    model = load_model(folder, device="cpu", dtype=torch.float32)
    assert isinstance(model.net, DualAR)
    made = trace(model, model.prompts.build("Hello."))
    assert len(made.tokens) == len(made.hidden) == NUM_FRAMES
    config: DualARConfig = model.config  # type: ignore[assignment]
    assert len(made.layers) == config.slow.n_layer + config.fast.n_layer
    for tokens, logits in zip(made.tokens, made.logits, strict=True):
        assert [int(values.argmax()) for values in logits] == tokens
    again = trace(model, model.prompts.build("Hello."), follow=made)
    assert again.tokens == made.tokens
    assert all(
        torch.equal(a, b)
        for left, right in zip(made.logits, again.logits, strict=True)
        for a, b in zip(left, right, strict=True)
    )


def test_following_a_trace_takes_its_tokens_and_not_ones_own(folder: Path) -> None:
    model = load_model(folder, device="cpu", dtype=torch.float32)
    prompt = model.prompts.build("Hello.")
    made = trace(model, prompt)
    other = Trace([[(t + 1) % 8 for t in frame] for frame in made.tokens])
    followed = trace(model, prompt, follow=other)
    assert followed.tokens == other.tokens
    assert torch.equal(followed.logits[0][0], made.logits[0][0])
    assert not torch.equal(followed.logits[1][0], made.logits[1][0])


def mixed_cases(model: LoadedModel) -> list[Case]:
    """Cases of uneven lengths, one of them longer than a chunk of a prompt."""
    texts = ("Hello.", "Is it late? " * 30, "No.", "The harbour was empty.")
    return [Case(text, "", model.prompts.build(text)) for text in texts]


def test_a_batch_says_what_each_of_it_says_alone(folder: Path) -> None:
    model = load_model(folder, device="cpu", dtype=torch.float32)
    cases = mixed_cases(model)
    dense = dense_of(model, cases)
    assert [len(tokens) for tokens in dense.together] == [NUM_FRAMES] * len(cases)
    assert dense.num_same_together == len(cases)
    verdict = judge("itself", "tokens", dense, model, model)
    assert verdict.passed
    assert verdict.num_equal == verdict.num_equal_together == len(cases)


def test_a_token_that_differs_in_the_batch_only_fails_and_is_told(folder: Path) -> None:
    model = load_model(folder, device="cpu", dtype=torch.float32)
    dense = dense_of(model, mixed_cases(model))
    frames = [list(frame) for frame in dense.together[2]]
    logits = dense.alone[2].logits[3][4]
    best, second = logits.topk(2)[1].tolist()
    assert frames[3][4] == best
    frames[3][4] = second
    tampered = replace(dense, together=(*dense.together[:2], frames, dense.together[3]))
    verdict = judge("itself", "tokens", tampered, model, model)
    assert not verdict.passed
    assert (verdict.num_equal, verdict.num_equal_together) == (4, 3)
    (miss,) = verdict.mismatches
    assert (miss.text, miss.in_batch, miss.frame, miss.codebook) == ("No.", True, 3, 4)
    assert miss.margin == pytest.approx(float(logits[second] - logits[best]), abs=1e-4)


def test_an_end_where_the_other_goes_on_is_a_mismatch(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model(folder, device="cpu", dtype=torch.float32)
    ending = load_model(folder, device="cpu", dtype=torch.float32)
    end = torch.zeros(1, model.config.codebook_size + 1)
    end[:, -1] = 1e6
    heard = ending.net.slow_logits
    monkeypatch.setattr(ending.net, "slow_logits", lambda hidden: heard(hidden) + end)
    cases = mixed_cases(model)[:2]
    for dense_model, other in ((model, ending), (ending, model)):
        verdict = judge("x", "tokens", dense_of(dense_model, cases), dense_model, other)
        assert (verdict.num_equal, verdict.num_equal_together) == (0, 0)
        assert {(miss.frame, miss.codebook) for miss in verdict.mismatches} == {(0, 0)}


def test_a_model_passes_against_itself(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twin = shutil.copytree(folder, tmp_path / "twin")
    verify(Request(str(folder), quantized=str(twin), device="cpu", as_json=True))
    (verdict,) = judged(capsys.readouterr().out)["verdicts"]  # type: ignore[misc]
    assert verdict["passed"]
    assert verdict["num_cases"] == verdict["num_equal"] == verdict["num_equal_together"] == 2
    assert verdict["num_draws"] == verdict["num_draws_equal"]
    assert verdict["logits_error"] == 0
    assert min(verdict["layer_cosines"]) == pytest.approx(1)


def test_a_format_that_changes_tokens_fails_and_says_where(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(GateError, match="bsfp8") as error:
        verify(Request(str(folder), ("bsfp8",), device="cpu"))
    assert error.value.exit_code == ExitCode.FELL_SHORT
    output = capsys.readouterr().out
    assert "bsfp8: FAILED" in output
    assert "margin" in output
    assert '"Hello."' in output


def test_the_yardstick_is_shown_and_passes_no_gate(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(GateError) as error:
        verify(Request(str(folder), device="cpu"))
    assert "float32" not in error.value.message
    assert "float32: for comparison" in capsys.readouterr().out


def test_a_copy_of_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    other = model_folder(tmp_path / "other", config_values())
    with pytest.raises(ModelError, match="sizes differ"):
        verify(Request(str(folder), quantized=str(other), device="cpu"))


def test_the_commands_quantise_and_judge_a_copy(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    arguments = ("models", "quantize", folder, "-o", copy, "--format", "w8a16")
    done = run_fishtts(*arguments, "--keep", "audio_decoder.*=bf16")
    assert done.returncode == 0, done.stderr.decode()
    assert b"w8a16" in done.stdout
    judged_copy = run_fishtts("verify", "-m", folder, "--quantized", copy, "--json")
    assert judged_copy.returncode in (ExitCode.OK, ExitCode.FELL_SHORT)
    (verdict,) = judged(judged_copy.stdout.decode())["verdicts"]  # type: ignore[misc]
    assert verdict["num_cases"] == 2
    assert verdict["passed"] == (judged_copy.returncode == ExitCode.OK)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--format", "int4"), "no format"),
        (("--format", "bsfp8", "--keep", "w8a16"), "--keep takes a pattern"),
        (("--format", "bsfp8", "--keep", "nothing.*=bf16"), "No layer is called"),
    ],
)
def test_wishes_that_make_no_sense_are_refused(
    folder: Path, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    done = run_fishtts("models", "quantize", folder, "-o", tmp_path / "copy", *arguments)
    assert done.returncode == ExitCode.USAGE
    assert words in done.stderr.decode()
    assert not (tmp_path / "copy").exists()


def test_half_of_the_prompts_are_spoken_by_the_voice_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    tiny_model(folder, {"name": "tiny", "default_voice": "ada"}, voices=("ada", "ben"))
    for voice, spoken in (("", "ada"), ("ben", "ben")):
        request = Request(str(folder), quantized=str(folder), voice=voice, device="cpu")
        verify(request)
        cases = command._cases(request, load_model(folder, device="cpu", dtype=torch.float32))
        assert [case.voice for case in cases] == ["", spoken] * 2
        assert cases[1].prompt.matrix.shape[1] > cases[0].prompt.matrix.shape[1]
    with pytest.raises(VoiceError, match="nobody"):
        verify(Request(str(folder), quantized=str(folder), voice="nobody", device="cpu"))


def test_random_weights_are_judged_by_values_and_not_by_tokens(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(GateError, match="not near bf16 in: w8a16"):
        verify(Request(str(folder), ("w8a16",), random=True, device="cpu", as_json=True))
    answer = judged(capsys.readouterr().out)
    (verdict,) = answer["verdicts"]  # type: ignore[misc]
    assert answer["random"]
    assert verdict["gate"] == "values"
    assert verdict["num_cases"] == 2 * len(RANDOM_LENGTHS)
    slow, fast = 2, 2
    assert len(verdict["layer_cosines"]) == slow + fast
    assert len(verdict["own_cosines"]) == slow
    # Random weights add to the stream as much as it holds: more of FP8 shows than in trained ones.
    assert 0.98 < min(verdict["layer_cosines"]) < MIN_COSINE
    assert 0.98 < verdict["hidden_cosine"] < MIN_COSINE
    assert MAX_LOGITS_ERROR < verdict["logits_error"] < 0.15
    assert min(verdict["own_cosines"]) > min(verdict["layer_cosines"][:slow])


def test_values_that_stray_fail(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same model with one layer's weights a fifth larger: far from it by every measure."""
    values = read_config(folder)
    dense_model, other = (random_model(values, device="cpu", dtype=torch.float32) for _ in range(2))
    assert isinstance(other.net, DualAR)
    other.net.slow.layers[1].feed_forward.w2.weight.mul_(1.2)  # type: ignore[union-attr,operator]
    dense = dense_of(dense_model, random_cases(dense_model.config)[:2], "values")
    assert judge("itself", "values", dense, dense_model, dense_model).passed
    verdict = judge("x", "values", dense, dense_model, other)
    assert not verdict.passed
    assert not verdict.cosines_hold
    assert not verdict.logits_hold
    assert verdict.own_cosines[0] == pytest.approx(1)
    assert verdict.own_cosines[1] < MIN_COSINE
    assert not judge("x", "tokens", dense, dense_model, other).passed
    assert judge("x", "none", dense, dense_model, other).passed


def test_a_layers_own_error_is_told_from_what_came_to_it(folder: Path) -> None:
    values = read_config(folder)
    dense_model, other = (random_model(values, device="cpu", dtype=torch.float32) for _ in range(2))
    assert isinstance(other.net, DualAR)
    other.net.slow.layers[0].attention.wo.weight.mul_(1.5)  # type: ignore[union-attr,operator]
    dense = dense_of(dense_model, random_cases(dense_model.config)[:2], "values")
    verdict = judge("x", "values", dense, dense_model, other)
    assert verdict.layer_cosines[1] < 0.999
    assert verdict.own_cosines[1] == pytest.approx(1)


def test_random_weights_of_models_that_are_not_here(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ModelError, match="not known here"):
        verify(Request("someone/model", random=True, device="cpu"))


def test_without_a_baseline_one_sentence_says_so_and_nothing_fails(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twin = shutil.copytree(folder, tmp_path / "twin")
    verify(Request(str(folder), quantized=str(twin), device="cpu"))
    output = capsys.readouterr().out
    assert output.count("Speed was not compared") == 1
    verify(Request(str(folder), quantized=str(twin), device="cpu", speed=False))
    assert "Speed" not in capsys.readouterr().out


@pytest.mark.gpu
def test_both_gates_run_on_a_gpu(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    twin = shutil.copytree(folder, tmp_path / "twin")
    verify(Request(str(folder), quantized=str(twin), device="cuda", as_json=True))
    (verdict,) = judged(capsys.readouterr().out)["verdicts"]  # type: ignore[misc]
    assert verdict["num_equal"] == verdict["num_equal_together"] == 2
    with pytest.raises(GateError, match="not near bf16"):
        verify(Request(str(folder), ("bsfp8",), random=True, device="cuda", as_json=True))
    ours, reference = judged(capsys.readouterr().out)["verdicts"]  # type: ignore[misc]
    assert reference["format"] == "bsfp8 by the reference"
    # What the format costs is not the kernels' doing.
    assert ours["logits_error"] == pytest.approx(reference["logits_error"], rel=0.1)
    assert min(ours["layer_cosines"]) == pytest.approx(min(reference["layer_cosines"]), abs=1e-3)

"""The surface of the command line: help, names, options that contradict, manners, exit codes.

No model is loaded here; ``test_say.py`` speaks.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fishtts
from fishtts import hub
from tests.fakes import clean_env, hollow_model, run_fishtts, run_process, write_files


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder that is good enough for a dry run."""
    return write_files(tmp_path / "hollow", hollow_model())


@pytest.fixture
def normalising(tmp_path: Path) -> Path:
    """The same for a model with an alphabet of its own."""
    card = {
        "name": "small",
        "languages": ["en"],
        "scripts": ["Latin"],
        "normalise": True,
        "unit_chars": 180,
    }
    files = {**hollow_model(), "fishtts.json": json.dumps(card).encode()}
    return write_files(tmp_path / "small", files)


def refused(code: int, *arguments: str | Path, stdin: bytes = b"") -> str:
    """Run a command that must fail; answer the one line that it says."""
    result = run_fishtts(*arguments, stdin=stdin)
    message = result.stderr.decode()
    assert result.returncode == code, message
    assert result.stdout == b""
    assert message.startswith("fishtts: ")
    assert message.count("\n") == 1, message
    return message


def dry_run(model: Path, *arguments: str | Path, stdin: bytes = b"") -> dict[str, object]:
    result = run_fishtts("say", "--model", model, "--dry-run", "--json", *arguments, stdin=stdin)
    assert result.returncode == 0, result.stderr.decode()
    plan = json.loads(result.stdout)
    assert isinstance(plan, dict)
    return plan


def texts(plan: dict[str, object]) -> list[str]:
    assert isinstance(plan["units"], list)
    return [unit["text"] for unit in plan["units"]]


# Help, version, completion


def test_help_is_quick_and_loads_nothing_slow() -> None:
    code = (
        "import sys; sys.argv = ['fishtts', '--help']\n"
        "from fishtts.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "slow = {'torch', 'triton', 'librosa', 'numpy', 'huggingface_hub', 'rich', 'soundfile'}\n"
        "print(sorted(slow & set(sys.modules)), file=sys.stderr)"
    )
    start = time.perf_counter()
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=clean_env(), check=True
    )
    assert time.perf_counter() - start < 1.5  # a busy machine; alone it takes a tenth of that
    assert result.stderr.decode().strip() == "[]"
    for command in ("say", "models", "voices", "doctor"):
        assert f"  {command} " in result.stdout.decode()


def test_version() -> None:
    result = run_fishtts("--version")
    assert result.stdout.decode() == f"fishtts {fishtts.__version__}\n"


def test_no_arguments_show_the_help() -> None:
    result = run_fishtts()
    assert "Usage: fishtts" in (result.stdout + result.stderr).decode()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(shell: str) -> None:
    env = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    result = run_process("--show-completion", shell, env=env)
    assert result.returncode == 0
    assert "_FISHTTS_COMPLETE" in result.stdout.decode()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("fishtts mod", {"models"}),
        ("fishtts models s", {"show"}),
        ("fishtts models pull s2", {"s2-pro"}),
        ("fishtts say --dty", {"--dtype"}),
        ("fishtts say --dtype bf", {"bfloat16"}),
    ],
)
def test_completion_answers(words: str, expected: set[str]) -> None:
    env = {
        "_FISHTTS_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    result = run_process(env=env)
    assert set(result.stdout.decode().split()) == expected, result.stderr.decode()


def test_the_command_reference_is_up_to_date() -> None:
    docs = Path(__file__).parent.parent / "docs"
    document = runpy.run_path(str(docs / "make_cli.py"))["document"]()
    assert document == (docs / "cli.md").read_text("utf-8"), "run: python docs/make_cli.py"


# What is a command and what is text


@pytest.mark.parametrize("word", ["modles", "model", "voice", "docter", "sya", "Models", "help"])
def test_a_word_near_a_command_is_refused_with_a_suggestion(word: str) -> None:
    message = refused(2, word)
    assert "Did you mean: fishtts" in message
    assert f"fishtts say {word}" in message


@pytest.mark.parametrize(
    "arguments", [["Good morning."], ["hello"], ["--seed", "3", "Good morning."], ["two", "words"]]
)
def test_text_without_a_command_is_said(model: Path, arguments: list[str]) -> None:
    result = run_fishtts(*arguments, "--model", model, "--dry-run", "--json")
    assert result.returncode == 0, result.stderr.decode()
    words = arguments if arguments[0] != "--seed" else arguments[2:]
    assert texts(json.loads(result.stdout)) == [" ".join(words)]


def test_text_that_looks_like_an_option(model: Path) -> None:
    assert texts(dry_run(model, "--", "-5 degrees")) == ["-5 degrees"]


# Where the text comes from


def test_text_as_an_argument_leaves_standard_input_alone(model: Path) -> None:
    loop = 'while read -r line; do "$0" -m fishtts say "$line" --model "$1" --dry-run; done'
    result = subprocess.run(
        ["bash", "-c", loop, sys.executable, str(model)],
        input=b"Line one.\nLine two.\nLine three.\n",
        capture_output=True,
        env=clean_env(),
        check=True,
    )
    said = result.stdout.decode()
    assert all(f"Line {number}." in said for number in ("one", "two", "three")), said


def test_text_from_a_pipe_a_file_and_a_dash(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("From a file.")
    assert texts(dry_run(model, stdin=b"From a pipe.\n")) == ["From a pipe."]
    assert texts(dry_run(model, "-", stdin=b"From a pipe.\n")) == ["From a pipe."]
    assert texts(dry_run(model, "-f", "-", stdin=b"From a pipe.\n")) == ["From a pipe."]
    assert texts(dry_run(model, "-f", path, stdin=b"Not this.")) == ["From a file."]
    assert "one of them" in refused(2, "say", "Words.", "-f", path, "--model", model)


def test_d05_byte_order_mark_and_line_ends(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "bom.txt"
    path.write_bytes(b"\xef\xbb\xbfThe first line.\r\nThe second line.\r\n\r\nThe third line.\r\n")
    for env in ({}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        result = run_process("say", "-f", path, "--model", model, "--dry-run", "--json", env=env)
        assert result.returncode == 0, result.stderr.decode()
        assert b"\xef\xbb\xbf" not in result.stdout
        assert b"\\r" not in result.stdout
        assert b"\\ufeff" not in result.stdout
        expected = ["The first line.", "The second line.", "The third line."]
        assert texts(json.loads(result.stdout)) == expected


def test_a_dialogue_is_given_to_the_voices_of_its_cast(model: Path, tmp_path: Path) -> None:
    write_files(model, {"voices/ada.safetensors": b"", "voices/miles.safetensors": b""})
    path = tmp_path / "play.txt"
    path.write_text("The door opened.\nMIRA: Who is there?\nMiles: It is me. [pause:2s]\n")
    plan = dry_run(model, "-f", path, "--cast", "MIRA=ada")
    assert isinstance(plan["units"], list)
    said = [(unit["voice"], unit["text"], unit["pause_s"]) for unit in plan["units"]]
    assert said[1:] == [("ada", "Who is there?", 0.25), ("miles", "It is me.", 2.0)]
    plain = run_fishtts("say", "-f", path, "--model", model, "--dry-run", "--cast", "MIRA=ada")
    assert "ada: Who is there?" in plain.stdout.decode()


def test_an_unknown_speaker_is_refused_before_the_model_loads(model: Path, tmp_path: Path) -> None:
    write_files(model, {"voices/ada.safetensors": b""})
    path = tmp_path / "play.txt"
    path.write_text("ADA: Who is there?\n\nTOM: It is me.\n")
    arguments = ("say", "-f", path, "--model", model, "-o", tmp_path / "a.wav")
    message = refused(2, *arguments)
    assert 'line 3: there is no voice for the speaker "TOM". Known: ada.' in message
    assert 'no voice "bob" for TOM' in refused(2, *arguments, "--cast", "TOM=bob")
    assert "no recording" in refused(2, *arguments, "--cast", "TOM=./bob.wav")
    assert "NAME=VOICE" in refused(2, *arguments, "--cast", "TOM")
    assert not (tmp_path / "a.wav").exists()


def test_output_is_utf_8_whatever_the_locale(model: Path) -> None:
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    arguments = ("say", "--model", model, "--dry-run")
    result = run_process(*arguments, stdin="Grüße aus Köln.".encode(), env=env)
    assert "Grüße aus Köln." in result.stdout.decode()


def test_d03_abbreviations_and_decimals_do_not_split(model: Path, normalising: Path) -> None:
    text = (
        "Dr. Vale paid $1,250.50 at 9:30 a.m. to Mrs. Orr of the U.S. office."
        " It rose 3.14 percent.\n"
    )
    for plan in (
        dry_run(model, "--pause", "0.2", stdin=text.encode()),
        dry_run(normalising, stdin=text.encode()),
    ):
        assert texts(plan) == [text[:68], text[69:].strip()]


def test_a_dry_run_shows_what_the_model_is_given(normalising: Path) -> None:
    plan = dry_run(normalising, "“Dr. Orr’s” 2 cats 😀 cost $5.")
    assert isinstance(plan["units"], list)
    assert plan["units"][0]["model_text"].lower().startswith("doctor orr's two cats")
    assert "five dollars" in plan["units"][0]["model_text"]


def test_a_megabyte_is_planned_quickly(model: Path) -> None:
    text = b"The quick brown fox jumps over the lazy dog. " * 23000
    start = time.perf_counter()
    plan = dry_run(model, stdin=text)
    assert time.perf_counter() - start < 30
    assert "".join(" ".join(texts(plan)).split()) == "".join(text.decode().split())


# Bad input


@pytest.mark.parametrize(
    ("stdin", "said"),
    [
        (b"", "empty"),
        (b" \n\t\n", "empty"),
        (b"... !! -- \xe2\x80\x94", "nothing to say"),
        (b"Nu\x00l.", "NUL"),
        (b"caf\xe9", "byte 3"),
        (b"half \xed\xa0\x80 pair", "byte 5"),
    ],
)
def test_text_that_cannot_be_said(model: Path, stdin: bytes, said: str) -> None:
    assert said in refused(2, "say", "--model", model, "-o", "a.wav", stdin=stdin)


def test_arguments_that_cannot_be_said(model: Path) -> None:
    assert "empty" in refused(2, "say", "", "--model", model, "-o", "a.wav")
    assert "empty" in refused(2, "")
    broken = os.fsdecode(b"caf\xe9")
    assert "surrogate" in refused(2, "say", broken, "--model", model, "-o", "a.wav")


def test_a_file_in_another_encoding(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "old.txt"
    path.write_bytes("“Café”".encode("cp1252"))
    assert "--encoding cp1252" in refused(2, "say", "-f", path, "--model", model, "--dry-run")
    assert texts(dry_run(model, "-f", path, "--encoding", "cp1252")) == ["“Café”"]
    assert "unknown" in refused(2, "say", "-f", path, "--encoding", "nope", "--model", model)


@pytest.mark.parametrize(
    ("code", "arguments", "said"),
    [
        (2, ["--speed", "9", "-o", "a.wav"], "speed"),
        (2, ["--pause", "-1", "-o", "a.wav"], "pause"),
        (2, ["--seed", "-1", "-o", "a.wav"], "seed"),
        (2, ["--retries", "-1", "-o", "a.wav"], "retries"),
        (2, ["--dtype", "float8", "-o", "a.wav"], "float8"),
        (2, ["--raw", "--format", "wav", "-o", "-"], "--raw"),
        (2, ["--json"], "--json"),
        (2, ["--json", "-o", "-"], "--json"),
        (2, ["--ref-text", "Words.", "-o", "a.wav"], "--ref-text"),
        (2, ["-v", "nobody", "-o", "a.wav"], "nobody"),
        (2, ["-v", "none.wav", "-o", "a.wav"], "none.wav"),
        (2, ["-f", "none.txt", "-o", "a.wav"], "one of them"),
        (2, ["-o", "a.xyz"], ".xyz"),
        (2, ["-o", "no/such/folder/a.wav"], "no/such/folder"),
        (2, ["-o", "."], "."),
        (2, ["-o", "a.wav", "--format", "flac"], "flac"),
        (4, ["--model", "no-such-model", "-o", "a.wav"], "no-such-model"),
        (4, ["--model", "./none", "-o", "a.wav"], "./none"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    model: Path, tmp_path: Path, code: int, arguments: list[str], said: str
) -> None:
    before = sorted(tmp_path.iterdir())
    if "--model" not in arguments:
        arguments = [*arguments, "--model", str(model)]
    result = run_fishtts("say", "Some words.", *arguments, cwd=tmp_path)
    assert said in result.stderr.decode()
    assert result.returncode == code
    assert result.stderr.decode().count("\n") == 1
    assert b"Traceback" not in result.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_an_unknown_option_is_a_usage_error() -> None:
    result = run_fishtts("say", "Words.", "--no-such-option")
    assert result.returncode == 2
    assert b"No such option" in result.stderr


def test_an_existing_file_is_kept_and_nothing_is_loaded_for_it(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "kept.wav"
    path.write_bytes(b"mine")
    assert "--force" in refused(2, "say", "Words.", "-o", path, "--model", model)
    assert path.read_bytes() == b"mine"


def test_a_folder_that_cannot_be_written_to(model: Path, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        target = Path("/proc/a.wav")  # nobody can make a file there, not even root
    else:
        target = tmp_path / "locked" / "a.wav"
        target.parent.mkdir(mode=0o500)
    result = run_fishtts("say", "Words.", "-o", target, "--model", model)
    assert result.returncode == 2
    assert result.stderr.decode().count("\n") == 1


def test_without_minnow_say_tells_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(hub, "BUILTIN", tmp_path)
    message = refused(4, "say", "Good morning.", "-o", "a.wav")
    assert message.startswith("fishtts: This build of fishtts comes without")
    assert "--model" in message


def test_a_language_or_script_that_the_card_lacks(normalising: Path) -> None:
    arguments = ("say", "Hello Москва there.", "--model", normalising, "--dry-run", "--json")
    result = run_fishtts(*arguments)
    assert result.returncode == 3
    assert "Москва" in result.stderr.decode()
    assert json.loads(result.stdout)["shortfalls"]
    assert "Москва" in refused(2, *arguments, "--strict")
    assert "Москва" in refused(3, "say", "Москва", "--model", normalising, "-o", "a.wav")


# A reader that went away, a standard output that is full


def test_a_closed_pipe_ends_quietly(model: Path) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 3000
    command = f'"{sys.executable}" -m fishtts say --model "{model}" --dry-run --json'
    result = subprocess.run(
        ["bash", "-c", f"{command} | head -c 100 | wc -c; echo ${{PIPESTATUS[0]}}"],
        input=text.encode(),
        capture_output=True,
        env=clean_env(),
        check=True,
    )
    assert result.stdout.split() == [b"100", b"141"]
    assert result.stderr == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_standard_output(model: Path) -> None:
    with open("/dev/full", "wb") as full:
        result = run_process("models", "list", stdout=full)
    assert result.returncode == 5
    assert result.stderr.decode() == "fishtts: Standard output is full. Free some space.\n"

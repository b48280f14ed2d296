"""The examples run, on a model that speaks noise."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import soundfile

from tests.fakes import TINY_MODEL, clean_env

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(folder: Path, name: str, *arguments: str) -> str:
    result = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments, TINY_MODEL],
        cwd=folder,
        capture_output=True,
        env=clean_env(),
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.decode()


def test_speak(tmp_path: Path) -> None:
    assert "44100 Hz" in run(tmp_path, "speak.py")
    assert soundfile.info(tmp_path / "tide.wav").frames > 0


def test_stream(tmp_path: Path) -> None:
    said = run(tmp_path, "stream.py")
    assert "Then, very slowly, the door began to open." in said
    assert soundfile.info(tmp_path / "lamp.wav").frames > 0


def test_imitate(tmp_path: Path) -> None:
    noise = 0.1 * np.random.default_rng(3).standard_normal(44100 * 2)
    soundfile.write(tmp_path / "mira.wav", noise, 44100)
    assert "The voice of mira" in run(tmp_path, "imitate.py", "mira.wav", "Its words.")
    assert soundfile.info(tmp_path / "imitated.wav").frames > 0


def test_fp8_linear(tmp_path: Path) -> None:
    errors = re.findall(r"relative error ([0-9.]+)", run(tmp_path, "fp8_linear.py"))
    assert len(errors) == 3
    assert all(0.01 < float(error) < 0.05 for error in errors)


def test_every_example_is_run() -> None:
    names = {"speak.py", "stream.py", "imitate.py", "fp8_linear.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} == names
    assert all(len(path.read_text().splitlines()) < 40 for path in EXAMPLES.glob("*.py"))

"""The promise that speech can be understood, kept by a recogniser.

Optional: ``FISHTTS_JUDGES`` names the folder that ``recipes/minnow/judges.py`` made, and
``pytest -m quality`` asks for these tests.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.quality

MAX_WER = 0.4
"""Far above what the model is measured at (docs/quality.md): a gate against broken speech."""


@pytest.fixture(scope="module")
def judges_folder() -> Path:
    folder = os.environ.get("FISHTTS_JUDGES", "")
    if not folder:
        pytest.skip("FISHTTS_JUDGES names no folder")
    pytest.importorskip("faster_whisper")
    pytest.importorskip("num2words")
    return Path(folder)


@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("default")  # the judges' libraries warn about themselves
def test_a_recogniser_understands_what_is_said(judges_folder: Path) -> None:
    from fishtts import TTS
    from recipes.minnow.evaluate import SENTENCES
    from recipes.minnow.score import Recogniser, compare, judges_audio, word_error_rate

    recogniser = Recogniser(judges_folder / "whisper-base")
    tts = TTS(device="cpu", offline=True)
    errors = []
    for text in SENTENCES.read_text("utf-8").splitlines()[:5]:
        speech = tts.say(text, seed=0)
        heard = recogniser.transcribe(judges_audio(speech.samples, speech.sample_rate))
        errors.append(compare(text, heard))
    assert word_error_rate(errors) <= MAX_WER


@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("default")
def test_a_batch_is_verified_by_a_recogniser(
    judges_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.fakes import run_fishtts
    from tests.jobs.stand_ins import records

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    script, out = tmp_path / "s.txt", tmp_path / "out"
    script.write_text("The tide came in before anyone noticed.\nShe paid $12.50 on March 3rd.\n")
    flags = ("--verify", "--asr-model", judges_folder / "whisper-base", "--offline", "-q")
    result = run_fishtts("batch", script, "-o", out, *flags)
    assert result.returncode == 0, result.stderr.decode()
    assert all(record["wer"] <= 0.2 for record in records(out))

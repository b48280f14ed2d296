"""The benchmark of the engine runs from end to end without a GPU, as ``bench/kernels.py`` does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "bench" / "engine.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_dry_run_measures_every_format_and_its_last_line_is_json() -> None:
    done = run("--gpu", "--dry-run", "--formats", "bf16", "w8a16", "--lines", "2")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout.splitlines()[-1])["rows"]
    assert [(row["format"], row["streams"]) for row in rows] == [("bf16", 2), ("w8a16", 2)]
    assert all(row["frames_per_s"] > 0 and row["occupancy"] == 1 for row in rows)
    assert {"context", "kv", "ttfb_ms", "audio_s_per_s", "model"} <= rows[0].keys()


@pytest.mark.parametrize("choice", [["--dry-run"], ["--deterministic"], ["--lines", "4"]])
def test_only_what_users_get_can_be_frozen(choice: list[str]) -> None:
    done = run("--gpu", "--write-baseline", *choice)
    assert done.returncode == 2
    assert "what users get" in done.stderr

"""The benchmark runs from end to end without a GPU, so that it does not fail on one for nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "bench" / "kernels.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def result(*arguments: str) -> dict[str, Any]:
    done = run("--dry-run", *arguments)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert answer["is_complete"]
    return answer


def test_a_dry_run_makes_every_row_and_its_last_line_is_json(tmp_path: Path) -> None:
    answer = result("--output", str(tmp_path / "rows.json"))
    rows = answer["rows"]
    assert json.loads((tmp_path / "rows.json").read_text()) == answer
    assert all(row["us"] > 0 and not row["fault"] for row in rows)
    made = {(row["name"], row["form"], row["num_tokens"]) for row in rows}
    for form in ("bsfp8", "w8a16 pdl", "mxfp8"):
        for num_tokens in (1, 16, 64, 128):
            for name in ("mlp", "wqkv", "wo", "gate_up", "down", "four products"):
                assert (name, form, num_tokens) in made
    assert ("copy", "torch", 0) in made
    assert ("mlp", "torch bf16", 64) in made


def test_a_dry_sweep_writes_every_plan_and_prints_the_best(tmp_path: Path) -> None:
    best = result("--sweep", "--only", "bsfp8 pdl", "--output", str(tmp_path / "sweep.json"))[
        "best"
    ]
    rows = json.loads((tmp_path / "sweep.json").read_text())["sweep"]
    assert {row["plan"]["splits"] for row in rows} == {1, 2}
    assert {row["name"] for row in rows} == {"wqkv", "wo", "gate_up", "down"}
    assert len(best) == 4 * 3
    for entry in best:
        same = [r for r in rows if r["name"] == entry["name"]]
        same = [r for r in same if r["num_tokens"] == entry["num_tokens"]]
        assert entry["us"] == min(r["us"] for r in same)


def test_without_a_gpu_it_says_what_to_do() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = run()
    assert done.returncode == 2
    assert "--dry-run" in done.stderr

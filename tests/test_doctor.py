"""The doctor looks at everything, says what is wrong, and its exit code agrees."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

from fishtts.doctor import Finding, examine, print_findings
from fishtts.errors import DeviceError, ModelError
from tests.fakes import run_process

TOPICS = {
    "fishtts", "cpu", "torch", "cuda", "triton", "kernels", "codecs", "formats", "player",
    "models", "voices", "network", "disk",
}  # fmt: skip


def test_it_looks_at_everything_and_prints_json(tmp_path: Path) -> None:
    result = run_process("doctor", "--json", env={"HF_HOME": str(tmp_path)})
    findings = json.loads(result.stdout)
    assert {finding["topic"] for finding in findings} == TOPICS
    broken = [finding for finding in findings if finding["state"] == "broken"]
    expected = 0 if not broken else 4 if {f["topic"] for f in broken} == {"models"} else 5
    assert result.returncode == expected
    assert b"Traceback" not in result.stderr
    texts = " ".join(finding["text"] for finding in findings)
    assert str(tmp_path) in texts
    assert "off (HF_HUB_OFFLINE)" in texts


def test_it_prints_one_line_a_finding(capfd: pytest.CaptureFixture[str]) -> None:
    findings = [Finding("torch", "ok", "2.13"), Finding("player", "note", "none found")]
    print_findings(findings, as_json=False)
    assert capfd.readouterr().out == "ok  torch   2.13\n--  player  none found\n"


@pytest.mark.parametrize(
    ("topics", "error"),
    [(["models"], ModelError), (["torch"], DeviceError), (["torch", "models"], DeviceError)],
)
def test_what_is_broken_decides_the_exit_code(topics: list[str], error: type[Exception]) -> None:
    with pytest.raises(error, match="is broken"):
        print_findings([Finding(topic, "broken", "is broken") for topic in topics], as_json=True)


def test_a_machine_without_torch_is_still_looked_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_module(name: str, package: str | None = None) -> ModuleType:
        if name == "torch":
            raise ImportError("No module named 'torch'")
        return real(name, package)

    real = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", import_module)
    states = {finding.topic: finding.state for finding in examine()}
    assert states["torch"] == "broken"
    assert states["disk"] in ("ok", "note")


def test_a_damaged_voice_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FISHTTS_VOICES", str(tmp_path))
    (tmp_path / "torn.fishvoice").write_bytes(b"torn")
    found = [finding for finding in examine() if finding.topic == "voices"]
    assert [finding.state for finding in found] == ["ok", "note"]
    assert found[0].text == f"0 of your own in {tmp_path}"
    assert "torn.fishvoice" in found[1].text

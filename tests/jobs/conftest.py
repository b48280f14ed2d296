"""A model folder and scripts that the tests of batches share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jobs.stand_ins import model_folder


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep this machine's memory of its speed out of it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture
def forty(tmp_path: Path) -> Path:
    """The script of D06: forty lines."""
    path = tmp_path / "40.txt"
    path.write_text("".join(f"{number}. A short line to read.\n" for number in range(1, 41)))
    return path

"""Names, downloads and the cache, against a hub on loopback and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest
from safetensors.numpy import save

from fishtts import hub
from fishtts.errors import ModelError, UsageError
from tests.fakes import SHARD, FakeHub, hollow_model, run_process, write_files

Run = Callable[..., CompletedProcess[bytes]]


@pytest.fixture
def fake_hub() -> Iterator[FakeHub]:
    with FakeHub({"fishaudio/s2-pro": hollow_model(), "us/ours": hollow_model()}).serve() as it:
        yield it


@pytest.fixture
def fishtts(fake_hub: FakeHub, tmp_path: Path) -> Run:
    online = {"HF_ENDPOINT": fake_hub.url, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "0"}
    return lambda *arguments, **env: run_process(*arguments, env={**online, **env})


def one_line(result: CompletedProcess[bytes], code: int) -> str:
    """Check that a command failed the way it must, and answer what it said."""
    message = result.stderr.decode()
    assert result.returncode == code, message
    assert "Traceback" not in message
    lines = [line for line in message.splitlines() if line.startswith("fishtts: ")]
    assert len(lines) >= 1, message
    return lines[-1]


def test_pull_fetches_what_is_needed_and_nothing_else(fishtts: Run, fake_hub: FakeHub) -> None:
    result = fishtts("models", "pull", "us/ours")
    assert result.returncode == 0, result.stderr.decode()
    folder = Path(result.stdout.decode().strip())
    wanted = hollow_model()
    del wanted["overview.png"]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == wanted
    assert sorted(fake_hub.fetched()) == sorted(wanted)
    assert result.stderr == b""  # no bars where nobody looks


def test_what_is_on_disk_needs_no_network(fishtts: Run, fake_hub: FakeHub) -> None:
    folder = fishtts("models", "pull", "us/ours").stdout
    fake_hub.requests.clear()
    assert fishtts("models", "path", "us/ours").stdout == folder
    assert fishtts("models", "path", "us/ours", HF_HUB_OFFLINE="1").stdout == folder
    assert fake_hub.requests == []


def test_a_broken_connection_is_taken_up_where_it_broke(fishtts: Run, fake_hub: FakeHub) -> None:
    shard = save({"b": np.arange(3_000_000, dtype=np.float32)})
    fake_hub.repos["us/ours"][SHARD] = shard
    fake_hub.breaks[SHARD] = 11_000_000  # beyond the chunk that the library keeps as a whole
    result = fishtts("models", "pull", "us/ours")
    assert result.returncode == 0, result.stderr.decode()
    assert (Path(result.stdout.decode().strip()) / SHARD).read_bytes() == shard
    ranges = [r for _, path, r in fake_hub.requests if path.endswith(SHARD) and r]
    assert len(ranges) == 1
    assert int(ranges[0].removeprefix("bytes=").rstrip("-")) > 1_000_000


def test_a_gated_model_names_the_licence_and_the_login(fishtts: Run, fake_hub: FakeHub) -> None:
    fake_hub.gate = 401
    message = one_line(fishtts("models", "pull", "s2-pro", "-q"), 4)
    assert f"{fake_hub.url}/fishaudio/s2-pro" in message
    assert "hf auth login" in message
    fake_hub.gate = 403
    message = one_line(fishtts("models", "pull", "s2-pro", "-q"), 4)
    assert f"{fake_hub.url}/fishaudio/s2-pro" in message
    assert "hf auth login" not in message


def test_pull_states_the_licence_of_s2_pro(fishtts: Run) -> None:
    assert b"non-commercial" in fishtts("models", "pull", "s2-pro").stderr


def test_a_model_that_the_hub_does_not_have(fishtts: Run) -> None:
    assert "us/nothing" in one_line(fishtts("models", "pull", "us/nothing"), 4)


def test_a_hub_that_does_not_answer(fishtts: Run) -> None:
    result = fishtts("models", "pull", "us/ours", HF_ENDPOINT="http://127.0.0.1:1")
    assert "fishtts models pull us/ours" in one_line(result, 4)


def test_a_file_missing_on_the_hub_is_named(fishtts: Run, fake_hub: FakeHub) -> None:
    del fake_hub.repos["us/ours"][SHARD]
    assert SHARD in one_line(fishtts("models", "pull", "us/ours"), 4)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        (SHARD, "cut short"),
        ("config.json", "cut short"),
        ("tokenizer.json", "missing"),
    ],
)
def test_what_is_missing_or_cut_short_is_named_and_mended(
    fishtts: Run, fake_hub: FakeHub, name: str, how: str
) -> None:
    folder = Path(fishtts("models", "pull", "us/ours").stdout.decode().strip())
    if how == "missing":
        (folder / name).unlink()
    else:
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[:-1])
    message = one_line(fishtts("models", "path", "us/ours", HF_HUB_OFFLINE="1"), 4)
    assert name in message
    assert "fishtts models pull us/ours" in message
    fake_hub.requests.clear()
    assert fishtts("models", "pull", "us/ours").returncode == 0
    assert (folder / name).read_bytes() == hollow_model()[name]
    assert fake_hub.fetched() in ([name], [])  # a link that was lost needs no download
    assert fishtts("models", "path", "us/ours", HF_HUB_OFFLINE="1").returncode == 0


def test_offline_and_not_on_disk(fishtts: Run, fake_hub: FakeHub) -> None:
    for arguments in (["say", "Hi.", "-o", "a.wav", "--offline"], ["say", "Hi.", "--dry-run"]):
        message = one_line(fishtts(*arguments, "--model", "us/ours"), 4)
        assert "fishtts models pull us/ours" in message
    assert "HF_HUB_OFFLINE" in one_line(fishtts("models", "pull", "us/ours", HF_HUB_OFFLINE="1"), 4)
    assert fake_hub.requests == []


def test_say_fetches_a_model_once_and_says_so(fishtts: Run, fake_hub: FakeHub) -> None:
    say = ("say", "Good morning.", "--model", "s2-pro", "-o", "a.wav")
    first = fishtts(*say)
    assert b"Fetching the model s2-pro" in first.stderr
    assert b"non-commercial" in first.stderr
    assert "config.json" in one_line(first, 4)  # there is nothing in the files of this one
    fake_hub.requests.clear()
    assert b"Fetching" not in fishtts(*say).stderr
    assert fake_hub.requests == []


def test_list_show_and_rm(fishtts: Run, tmp_path: Path) -> None:
    before = json.loads(fishtts("models", "list", "--json").stdout)
    assert [row["name"] for row in before] == ["minnow", "s2-pro"]
    fishtts("models", "pull", "us/ours")
    rows = {row["name"]: row for row in json.loads(fishtts("models", "list", "--json").stdout)}
    assert rows["us/ours"]["whole"]
    assert rows["us/ours"]["bytes"] > 16000
    assert b"us/ours" in fishtts("models", "list").stdout
    card = json.loads(fishtts("models", "show", "us/ours", "--json").stdout)
    assert (card["name"], card["licence"], card["languages"]) == ("hollow", "CC0", ["en"])
    assert b"Removed us/ours" in fishtts("models", "rm", "us/ours").stdout
    assert not [path for path in (tmp_path / "hf").rglob("*") if path.name == SHARD]
    assert "us/ours" in one_line(fishtts("models", "rm", "us/ours"), 4)
    assert "package" in one_line(fishtts("models", "rm", "minnow"), 2)


def test_show_states_the_licence_before_anything_is_fetched(
    fishtts: Run, fake_hub: FakeHub
) -> None:
    shown = fishtts("models", "show", "s2-pro").stdout.decode()
    assert "Fish Audio Research License" in shown
    assert "non-commercial" in shown
    assert fake_hub.requests == []


@pytest.mark.parametrize(
    "name", ["../up", "a/../b", "a/b/c", "/no/such", "./none", "a/b..c", "a/-b", "no-such", "a b/c"]
)
def test_what_is_no_name_never_becomes_a_path_or_a_request(name: str) -> None:
    with pytest.raises(ModelError):
        hub.parse(name)


def test_names_and_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path / "us" / "ours", hollow_model())
    assert hub.parse(str(tmp_path / "us")).kind == "folder"
    assert hub.parse("us/ours").kind == "hub"
    monkeypatch.chdir(tmp_path)
    assert hub.parse("us/ours").kind == "folder"
    assert hub.parse("s2-pro").repo_id == "fishaudio/s2-pro"
    with pytest.raises(UsageError):
        hub.remove(hub.parse("us/ours"))
    with pytest.raises(ModelError, match="minnow"):
        hub.parse("minow")


def test_a_folder_lacking_a_file_is_not_told_to_pull(tmp_path: Path) -> None:
    files = hollow_model()
    del files["codec.safetensors"]
    source = hub.parse(str(write_files(tmp_path, files)))
    with pytest.raises(ModelError, match=r"codec\.safetensors or codec\.pth") as caught:
        hub.locate(source)
    assert "pull" not in caught.value.hint


@pytest.mark.parametrize(
    "card", ['{"colour": "red"}', '{"languages": "en"}', "[]", '{"name": ', '{"normalise": 1}']
)
def test_a_card_that_says_what_no_card_says_is_refused(tmp_path: Path, card: str) -> None:
    folder = write_files(tmp_path, {**hollow_model(), "fishtts.json": card.encode()})
    with pytest.raises(ModelError, match="card"):
        hub.card(hub.parse(str(folder)), folder)

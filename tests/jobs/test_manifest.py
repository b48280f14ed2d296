"""The manifest outlives any sudden end, and nothing in it leads out of its folder."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fishtts.errors import ModelError, UsageError
from fishtts.jobs import manifest
from fishtts.jobs.manifest import ManifestWriter, Record, read_manifest, rewrite_manifest
from fishtts.jobs.plan import line_seed, next_seed, select
from fishtts.jobs.shard import Shard, parse_shard
from fishtts.types import ScriptLine
from tests.jobs.stand_ins import records as lines_of
from tests.jobs.stand_ins import run

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
made = st.builds(
    Record,
    id=texts,
    line=st.integers(1, 10**6),
    text=texts,
    status=st.sampled_from(["ok", "skipped", "fell_short", "failed"]),
    seconds=st.floats(0, 10**6),
    seed=st.integers(0, 2**63 - 1),
    warnings=st.lists(texts, max_size=2).map(tuple),
    wer=st.none() | st.floats(0, 2),
    start_s=st.none() | st.floats(0, 10**6),
    error=texts,
)


@settings(max_examples=40)
@given(st.lists(made, max_size=4), st.lists(made, min_size=1, max_size=2), st.data())
def test_a_manifest_cut_off_anywhere_loses_only_the_line_that_was_cut(
    before: list[Record], after: list[Record], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / manifest.NAME
        with ManifestWriter(path) as writer:
            for record in before:
                writer.append(record)
        whole = path.read_bytes()
        cut = data.draw(st.integers(0, len(whole)))
        path.write_bytes(whole[:cut])
        num_whole = whole[:cut].count(b"\n")
        with ManifestWriter(path) as writer:
            for record in after:
                writer.append(record)
        found = read_manifest(path).records
        assert found[:num_whole] == tuple(before[:num_whole])
        assert found[-len(after) :] == tuple(after)
        assert len(found) - num_whole - len(after) in (0, 1)
        rewrite_manifest(path, found)
        assert read_manifest(path).records == found
        assert os.listdir(folder) == [manifest.NAME]


def test_no_manifest_is_an_empty_one(tmp_path: Path) -> None:
    assert read_manifest(tmp_path / manifest.NAME).records == ()


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_other_versions_are_refused(tmp_path: Path, version: object) -> None:
    path = tmp_path / manifest.NAME
    with ManifestWriter(path) as writer:
        writer.append(Record("a", 1, "", "ok", version=version))  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="upgrade"):
        read_manifest(path)


@pytest.mark.parametrize("file", ["../a.wav", "/etc/passwd", "a/../../b", "C:\\a", "\\a"])
def test_names_that_lead_out_of_the_folder_count_for_nothing(tmp_path: Path, file: str) -> None:
    path = tmp_path / manifest.NAME
    rewrite_manifest(path, [Record("a", 1, "", "ok", file=file)])
    assert read_manifest(path).records == ()


@pytest.mark.parametrize("number", range(1, 17))
def test_a_run_that_ends_while_files_change_names_loses_none(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    script, out = tmp_path / "s.txt", tmp_path / "out"
    names = ["One", "Two", "Three", "Four"]
    script.write_text("".join(f"{name} is here.\n" for name in names))
    run(model, script, out)
    before = {record["text"]: record["sha256"] for record in lines_of(out)}
    script.write_text("".join(f"{name} is here.\n" for name in names[::-1]))
    calls = 0
    replace = os.replace

    class Dead(BaseException):
        """The end of the process: nothing is cleaned up after it."""

    def die(*paths: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == (number + 1) // 2 and number % 2:
            raise Dead
        replace(*paths)
        if calls == (number + 1) // 2:
            raise Dead

    monkeypatch.setattr(os, "replace", die)
    with pytest.raises(Dead):
        run(model, script, out)
    monkeypatch.setattr(os, "replace", replace)
    assert run(model, script, out).spoken == []
    assert {record["text"]: record["sha256"] for record in lines_of(out)} == before
    assert not list(out.glob(".*"))


@given(st.lists(texts, unique=True), st.integers(1, 9))
def test_every_line_is_in_exactly_one_share(ids: list[str], count: int) -> None:
    shares = [parse_shard(f"{number}/{count}") for number in range(count)]
    for line_id in ids:
        assert sum(share.holds(line_id) for share in shares) == 1


def test_shares_are_about_equal() -> None:
    held = [sum(Shard(n, 4).holds(f"L{i:04d}") for i in range(4000)) for n in range(4)]
    assert min(held) > 900


@given(texts, st.integers(0, 2**63 - 1), st.integers(1, 5))
def test_seeds_fit_and_differ(identity: str, seed: int, take: int) -> None:
    seeds = [
        line_seed(seed, identity, take=take),
        line_seed(seed, f"{identity}x", take=take),
        line_seed(seed, identity, take=take + 1),
        next_seed(seed, "retry", take),
        next_seed(seed, "again", take),
    ]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert len(set(seeds)) == len(seeds)
    assert line_seed(1, identity, seed) == seed


@given(st.lists(st.text("ab1", min_size=1, max_size=5), unique=True, min_size=2), st.data())
def test_a_selection_holds_what_lies_between(ids: list[str], data: st.DataObject) -> None:
    lines = [ScriptLine(name, number, "x") for number, name in enumerate(ids, start=1)]
    first = data.draw(st.integers(0, len(ids) - 1))
    last = data.draw(st.integers(first, len(ids) - 1))
    assert select(lines, ids[first]) == {ids[first]}
    assert select(lines, f"{ids[first]}-{ids[last]}") == set(ids[first : last + 1])


def test_a_selection_of_nothing() -> None:
    assert select([], "") == set()
    with pytest.raises(UsageError):
        select([ScriptLine("a", 1, "x")], "b")

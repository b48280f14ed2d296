"""Tables come from records alone, and a record read back is the record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("num2words")

from recipes.minnow.records import Line, Record, cases
from recipes.minnow.score import compare
from recipes.minnow.tables import as_markdown, as_text, table


def line(text: str, heard: str, **more: object) -> Line:
    made = Line(text, heard, compare(text, heard), 4.0, 3.0, 2.0, 1.0)
    return replace(made, **more)  # type: ignore[arg-type]


def record(mode: str, voices: dict[str, list[Line]]) -> Record:
    environment = {"processor": "some", "threads": "1", "fishtts": "0"}
    return Record(mode, "sentences.txt", "abc", environment, voices)  # type: ignore[arg-type]


def test_a_record_comes_back_from_its_file(tmp_path: Path) -> None:
    lines = [line("One two.", "one two", faults=("limit",), similarity=0.7, ceiling=0.9, rank=2)]
    made = record("clone", {"real/anna": lines})
    made.write(tmp_path / "a.json")
    assert Record.read(tmp_path / "a.json") == made


def test_endings_count_each_bad_line_once() -> None:
    lines = [
        line("one two three four", "one two three four"),
        line("one two three four", "one", faults=("short", "silent")),
        line("one two three four", "five six three four"),
        line("one two", "nothing at all"),
    ]
    rows = table(record("endings", {"ada": lines}))
    assert rows[-1] == ("all", "4", "0", "1", "1", "0", "2", "50.0%")


def test_clones_are_summed_up_by_where_their_references_come_from() -> None:
    first = [line("a b", "a b", similarity=0.8, ceiling=0.9, rank=1)]
    second = [line("a b", "a c", similarity=0.6, ceiling=0.8, rank=3)]
    rows = table(record("clone", {"held out/x": first, "real/y": second, "real/z": first}))
    named = {row[0]: row for row in rows}
    assert named["all real"][1] == "0.250"
    assert named["all real"][5:8] == ("0.700", "0.850", "50%")
    assert named["all held out"][7] == "100%"


@pytest.mark.parametrize("mode", ["say", "speed", "endings"])
def test_every_table_is_laid_out_for_terminal_and_page(mode: str) -> None:
    made = record(mode, {"ada": [line("a b", "a b")], "nora": [line("a b", "a b")]})
    assert "ada" in as_text(made)
    assert "| nora |" in as_markdown(made)


def test_cases_say_every_sentence_before_one_is_said_again_by_another_voice() -> None:
    pairs = cases(["x", "y", "z"], ["ada", "nora"], 6)
    assert sorted(text for _, text in pairs[:3]) == ["x", "y", "z"]
    assert len(set(pairs)) == 6

"""A rerun goes on: done work is known by what it is, wherever it lies and whatever it is called."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fishtts.cloning.voice_file import write_voice
from fishtts.errors import LimitError, ModelError, OutputError, UsageError
from tests.fakes import tiny_voice
from tests.jobs.stand_ins import StandIn, check_manifest, model_folder, records, run

LINES = [f"Line {name} is here." for name in ("one", "two", "three", "four", "five", "six")]


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return write(tmp_path / "script.txt", LINES)


@pytest.fixture
def out(tmp_path: Path, model: Path, script: Path) -> Path:
    """A folder in which all is finished."""
    run(model, script, tmp_path / "out")
    return tmp_path / "out"


def audio(out: Path) -> dict[str, str]:
    return {record["text"]: record["sha256"] for record in records(out)}


def spoken(speaker: StandIn) -> list[str]:
    return sorted(line.plan.units[0].unit.text for line in speaker.spoken)


def test_a_rerun_makes_nothing_and_touches_nothing(model: Path, script: Path, out: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in out.glob("*.wav")}
    manifest = (out / "manifest.jsonl").read_bytes()
    assert run(model, script, out).spoken == []
    assert {path: path.stat().st_mtime_ns for path in out.glob("*.wav")} == before
    assert (out / "manifest.jsonl").read_bytes() == manifest
    assert not list(out.glob(".*"))


def test_a_folder_that_was_moved_and_a_voice_that_was_renamed(
    model: Path, script: Path, tmp_path: Path
) -> None:
    voice = tmp_path / "ada.safetensors"
    write_voice(tiny_voice("otto"), voice)
    run(model, script, tmp_path / "a", voice=str(voice))
    (tmp_path / "a").rename(tmp_path / "b")
    renamed = voice.rename(tmp_path / "eve.safetensors")
    assert run(model, script, tmp_path / "b", voice=str(renamed)).spoken == []
    assert records(tmp_path / "b")[0]["voice"] == str(renamed)
    # The same voice as one of the model's own is still the same voice.
    assert run(model, script, tmp_path / "b", voice="otto").spoken == []


def test_a_line_that_comes_in_changes_no_other(model: Path, script: Path, out: Path) -> None:
    before = audio(out)
    write(script, [*LINES[:2], "Something new.", *LINES[2:]])
    assert spoken(run(model, script, out)) == ["Something new."]
    assert audio(out).items() > before.items()
    assert [record["file"] for record in records(out)] == [f"L{n:04d}.wav" for n in range(1, 8)]
    check_manifest(out)


def test_lines_that_trade_places(model: Path, script: Path, out: Path) -> None:
    before = audio(out)
    write(script, LINES[::-1])
    assert run(model, script, out).spoken == []
    assert audio(out) == before
    assert [record["text"] for record in records(out)] == LINES[::-1]
    check_manifest(out)


def test_equal_lines_differ_and_keep_their_order(model: Path, tmp_path: Path) -> None:
    script = write(tmp_path / "same.txt", ["The same words.", "Other words.", "The same words."])
    run(model, script, tmp_path / "out")
    first, _, second = (record["sha256"] for record in records(tmp_path / "out"))
    assert first != second
    write(script, ["The same words.", "The same words."])
    with pytest.raises(UsageError):
        run(model, script, tmp_path / "out")
    run(model, script, tmp_path / "out", changed=True)
    assert [r["sha256"] for r in records(tmp_path / "out")][:2] == [first, second]


def test_finished_audio_is_only_replaced_with_changed(model: Path, script: Path, out: Path) -> None:
    before = audio(out)
    write(script, [*LINES[:3], "Line four was rewritten.", *LINES[4:]])
    with pytest.raises(UsageError, match=r"1 line .* L0004\. Add --changed") as refused:
        run(model, script, out)
    assert int(refused.value.exit_code) == 2
    assert audio(out) == before
    check_manifest(out)
    assert spoken(run(model, script, out, changed=True)) == ["Line four was rewritten."]
    after = audio(out)
    assert len(after) == 6
    assert {text: after[text] for text in LINES if text in after}.items() <= before.items()
    check_manifest(out)


@pytest.mark.parametrize(
    "other", [{"voice": "otto"}, {"seed": 8}, {"speed": 1.5}, {"pause_s": 0.1}, {"format": "flac"}]
)
def test_other_settings_are_other_work(
    model: Path, script: Path, out: Path, other: dict[str, object]
) -> None:
    if "pause_s" in other:
        write(script, [f"{line} It has two sentences." for line in LINES])
        run(model, script, out, changed=True)
    with pytest.raises(UsageError, match="6 lines"):
        run(model, script, out, **other)
    assert len(run(model, script, out, changed=True, **other).spoken) == 6


def test_another_model_is_other_work(script: Path, out: Path, tmp_path: Path) -> None:
    other = model_folder(tmp_path / "other")
    (other / "tokenizer.json").write_text('{"another": 1}')
    with pytest.raises(UsageError, match="6 lines"):
        run(other, script, out)


def test_files_of_somebody_else_are_left_alone(model: Path, script: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "L0002.wav").write_bytes(b"mine")
    with pytest.raises(OutputError, match=r"L0002\.wav\. Add --force"):
        run(model, script, out)
    assert (out / "L0002.wav").read_bytes() == b"mine"
    run(model, script, out, force=True)
    check_manifest(out)


def test_only_some_lines(model: Path, script: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert spoken(run(model, script, out, only="L0002-L0003,L0006")) == sorted(
        [LINES[1], LINES[2], LINES[5]]
    )
    assert [record["line"] for record in records(out)] == [2, 3, 6]
    assert len(run(model, script, out).spoken) == 3
    with pytest.raises(UsageError, match='"L0007"'):
        run(model, script, out, only="L0007")
    with pytest.raises(UsageError, match="comes before"):
        run(model, script, out, only="L0003-L0001")


def test_ids_with_dashes(model: Path, tmp_path: Path) -> None:
    script = tmp_path / "s.csv"
    script.write_text("id,text\na-1,One here.\na-2,Two here.\na-3,Three here.\n")
    speaker = run(model, script, tmp_path / "out", only="a-1-a-2")
    assert spoken(speaker) == ["One here.", "Two here."]


def test_redo_makes_another_version_and_remembers_it(model: Path, script: Path, out: Path) -> None:
    before = audio(out)
    run(model, script, out, redo="L0002")
    once = audio(out)
    assert {text for text in before if before[text] != once[text]} == {LINES[1]}
    run(model, script, out, redo="L0002")
    twice = audio(out)
    assert len({before[LINES[1]], once[LINES[1]], twice[LINES[1]]}) == 3
    assert run(model, script, out).spoken == []
    assert audio(out) == twice
    check_manifest(out)


def test_takes_are_kept_side_by_side(model: Path, script: Path, out: Path) -> None:
    speaker = run(model, script, out, only="L0004", takes=3)
    assert len(speaker.spoken) == 2
    names = sorted(path.name for path in out.glob("L0004*"))
    assert names == ["L0004.take2.wav", "L0004.take3.wav", "L0004.wav"]
    takes = [record for record in records(out) if record["id"] == "L0004"]
    assert [record["take"] for record in takes] == [1, 2, 3]
    assert len({record["sha256"] for record in takes}) == 3
    assert run(model, script, out).spoken == []
    assert len(records(out)) == 8, "a run without takes forgets none"
    check_manifest(out)


def test_a_row_that_was_taken_out_keeps_its_audio(model: Path, tmp_path: Path) -> None:
    script, out = tmp_path / "s.csv", tmp_path / "out"
    script.write_text("id,text\na,One here.\nb,Two here.\nc,Three here.\n")
    run(model, script, out)
    script.write_text("id,text\na,One here.\nc,Three here.\n")
    assert run(model, script, out).spoken == []
    assert sorted(record["id"] for record in records(out)) == ["a", "b", "c"]
    check_manifest(out)


def test_ids_that_are_given_carry_the_seed(model: Path, tmp_path: Path) -> None:
    script, out = tmp_path / "s.csv", tmp_path / "out"
    script.write_text("id,text,seed\na,One here.,\nb,Two here.,\nc,Three here.,77\n")
    run(model, script, out)
    seeds = {record["id"]: record["seed"] for record in records(out)}
    assert seeds["c"] == 77
    script.write_text("id,text,seed\nb,Two was here.,\nc,Three here.,77\n")
    run(model, script, out, changed=True)
    after = {record["id"]: record["seed"] for record in records(out)}
    assert after == seeds


def test_rows_that_ask_for_the_very_same_get_a_file_each(model: Path, tmp_path: Path) -> None:
    script, out = tmp_path / "s.csv", tmp_path / "out"
    script.write_text("id,text,seed\na,One here.,5\nb,One here.,5\n")
    run(model, script, out)
    first, second = records(out)
    assert first["sha256"] == second["sha256"]
    assert run(model, script, out).spoken == []
    check_manifest(out)


def test_failed_lines_can_be_fed_straight_back_in(
    model: Path, script: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    speaker = StandIn(faulty={LINES[1]}, failing={LINES[3]: LimitError("It was too long for it.")})
    with pytest.raises(LimitError, match=r"2 of 6 .*failed\.jsonl"):
        run(model, script, out, speaker=speaker)
    failed = [json.loads(line) for line in (out / "failed.jsonl").read_text().splitlines()]
    assert [line["id"] for line in failed] == ["L0002", "L0004"]
    assert failed[1]["error"] == "It was too long for it."
    again = run(model, out / "failed.jsonl", out)
    assert spoken(again) == sorted([LINES[1], LINES[3]])
    assert [record["id"] for record in records(out)] == [f"L{n:04d}" for n in range(1, 7)]
    assert {record["status"] for record in records(out)} == {"ok"}
    assert not (out / "failed.jsonl").exists()
    # The whole script knows them as its own now.
    assert run(model, script, out).spoken == []
    assert {record["status"] for record in records(out)} == {"ok"}
    check_manifest(out)


def test_what_fell_short_is_tried_again_only_with_more_tries(
    model: Path, script: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for retries, num_spoken in ((0, 6), (0, 0), (3, 1)):
        speaker = StandIn(faulty={LINES[1]})
        with pytest.raises(LimitError):
            run(model, script, out, speaker=speaker, retries=retries)
        assert len(speaker.spoken) == num_spoken


def test_a_manifest_of_a_later_version_is_refused(model: Path, script: Path, out: Path) -> None:
    manifest = out / "manifest.jsonl"
    text = manifest.read_text().replace('"version": 1', '"version": 2')
    manifest.write_text(text)
    with pytest.raises(ModelError, match="version 2") as refused:
        run(model, script, out)
    assert int(refused.value.exit_code) == 4
    assert manifest.read_text() == text

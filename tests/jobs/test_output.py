"""What a run leaves behind: files, one joined file, subtitles, chapters, shares, events."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from fishtts.errors import LimitError, OutputError, UsageError
from fishtts.jobs import join
from fishtts.jobs.manifest import Record
from fishtts.jobs.stopping import Stopping
from tests.jobs.stand_ins import RATE, StandIn, check_manifest, noise, records, run


def samples_of(path: Path) -> np.ndarray:
    samples, rate = soundfile.read(path, dtype="int16")
    assert rate == RATE
    return np.asarray(samples)


def expected(speaker: StandIn, gap: int) -> np.ndarray:
    """Join what the stand-in said, in the order of its texts."""
    said = sorted(speaker.spoken, key=lambda line: line.plan.units[0].unit.text)
    parts = [np.rint(noise(line) * 32767).astype(np.int16) for line in said]
    gaps = itertools.repeat(np.zeros(gap, np.int16), len(parts) - 1)
    woven = [part for pair in itertools.zip_longest(parts, gaps) for part in pair]
    return np.concatenate([part for part in woven if part is not None])


@pytest.mark.parametrize("ending", ["wav", "flac"])
@pytest.mark.parametrize(("pause_s", "gap"), [(0.125, 1000), (0.70007, 5601), (0.0, 0)])
def test_a_joined_file_is_exact_to_the_sample(
    model: Path, tmp_path: Path, ending: str, pause_s: float, gap: int
) -> None:
    script, book = tmp_path / "s.txt", tmp_path / f"book.{ending}"
    script.write_text("A is first.\nB is second.\nC is third.\n")
    speaker = run(model, script, book, pause_s=pause_s)
    assert np.array_equal(samples_of(book), expected(speaker, gap))
    parts = tmp_path / "book.parts"
    starts = [round(record["start_s"] * RATE) for record in records(parts)]
    lengths = [record["samples"] for record in records(parts)]
    assert starts == [0, lengths[0] + gap, lengths[0] + lengths[1] + 2 * gap]


@pytest.mark.parametrize("ending", ["mp3", "opus", "ogg"])
def test_a_joined_file_in_lossy_formats(model: Path, tmp_path: Path, ending: str) -> None:
    script, book = tmp_path / "s.txt", tmp_path / f"book.{ending}"
    script.write_text("A is first.\nB is second.\n")
    speaker = run(model, script, book, pause_s=0.5)
    seconds = len(expected(speaker, 4000)) / RATE
    assert abs(soundfile.info(book).duration - seconds) < 0.1


def test_a_joined_file_is_written_again_only_when_it_changes(model: Path, tmp_path: Path) -> None:
    script, book = tmp_path / "s.txt", tmp_path / "book.wav"
    script.write_text("A is first.\nB is second.\n")
    run(model, script, book)
    before = book.stat()
    run(model, script, book)
    assert book.stat() == before
    script.write_text("A is first.\nAnother came.\nB is second.\n")
    speaker = run(model, script, book)
    assert len(speaker.spoken) == 1
    assert book.stat().st_size > before.st_size
    book.write_bytes(b"mine")
    with pytest.raises(OutputError, match="exists already"):
        run(model, script, book)
    run(model, script, book, force=True)
    assert len(samples_of(book)) > 4


def test_what_failed_of_a_book_is_never_joined_alone(model: Path, tmp_path: Path) -> None:
    script, book, parts = tmp_path / "s.txt", tmp_path / "book.wav", tmp_path / "book.parts"
    script.write_text("A is first.\nB is second.\nC is third.\n")
    speaker = StandIn(failing={"B is second.": LimitError("It was too long.")})
    with pytest.raises(LimitError):
        run(model, script, book, speaker=speaker)
    short = book.stat().st_size
    run(model, parts / "failed.jsonl", book)
    assert book.stat().st_size == short
    assert [record["status"] for record in records(parts)] == ["ok", "ok", "ok"]
    assert run(model, script, book).spoken == []
    assert book.stat().st_size > short


def test_a_wav_file_of_more_than_four_gib_is_refused(tmp_path: Path) -> None:
    hours = 14
    record = Record("a", 1, "", "ok", samples=hours * 3600 * 44100, sample_rate=44100)
    placed = [join.Placed(record, "", 0, 0)]
    with pytest.raises(OutputError, match=r"14\.0 hours .*\.flac"):
        join.check_size(placed, tmp_path / "book.wav")
    join.check_size(placed, tmp_path / "book.flac")


def test_joining_needs_no_more_memory_for_a_longer_book(tmp_path: Path) -> None:
    import tracemalloc

    long = np.zeros(1 << 21, np.int16)
    soundfile.write(tmp_path / "part.wav", long, RATE)
    record = Record("a", 1, "", "ok", samples=len(long), sample_rate=RATE, file="part.wav")
    peaks = []
    for number in (2, 8):
        placed = [join.Placed(record, "", 0, at * len(long)) for at in range(number)]
        target = tmp_path / f"{number}.wav"
        tracemalloc.start()
        join.join(tmp_path, placed, target, force=False, stopping=Stopping())
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert target.stat().st_size == 44 + 2 * number * len(long)
    assert peaks[1] < 1.1 * peaks[0]


def test_cues_begin_no_sooner_than_they_should(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, book, srt = tmp_path / "s.srt", tmp_path / "book.wav", tmp_path / "new.srt"
    script.write_text(
        "1\n00:00:01,000 --> 00:00:01,100\nThis is far too long for its time.\n\n"
        "2\n00:00:01,100 --> 00:00:02,000\nLate.\n\n"
        "3\n00:00:09,500 --> 00:00:11,000\nOn time.\n"
    )
    run(model, script, book, srt=str(srt), quiet=False)
    first, second, third = records(tmp_path / "book.parts")
    assert first["start_s"] == 1.0
    assert second["start_s"] == 1.0 + first["seconds"]
    assert third["start_s"] == 9.5
    late_s = second["start_s"] - 1.1
    assert f"{second['id']} begins {late_s:.2f} s after its cue" in capsys.readouterr().err
    assert len(samples_of(book)) == round((9.5 + third["seconds"]) * RATE)
    assert "00:00:09,500 --> 00:00:09," in srt.read_text()
    run(model, script, book, srt=str(srt))


def test_chapters_of_a_joined_file(model: Path, tmp_path: Path) -> None:
    script, book = tmp_path / "b.md", tmp_path / "b.flac"
    script.write_text(
        "# One\nShort text here.\n\n# Two\nMore text here.\n\n# Three\nThe last part.\n"
    )
    run(model, script, book, vtt=str(tmp_path / "b.vtt"))
    chapters = json.loads((tmp_path / "b.parts" / "chapters.json").read_text())
    assert [chapter["title"] for chapter in chapters] == ["One", "Two", "Three"]
    assert chapters[0]["start_s"] == 0
    assert chapters[0]["end_s"] == chapters[1]["start_s"]
    assert chapters[2]["end_s"] == pytest.approx(len(samples_of(book)) / RATE)
    starts = {r["heading"]: r["start_s"] for r in records(tmp_path / "b.parts") if "heading" in r}
    assert starts == {chapter["title"]: chapter["start_s"] for chapter in chapters}
    assert "Short text here." in (tmp_path / "b.vtt").read_text()


def test_d11_hostile_titles(model: Path, tmp_path: Path) -> None:
    script, out = tmp_path / "s.jsonl", tmp_path / "out"
    ids = ['11/22/63: A "Novel"?', "a" * 200, "a" * 199 + "b", "con", "NUL.txt", "x.", "x ", "X"]
    script.write_text("".join(json.dumps({"id": i, "text": "Words here."}) + "\n" for i in ids))
    run(model, script, out)
    names = [path.name for path in out.glob("*.wav")]
    assert len(names) == len(ids)
    assert len({name.casefold() for name in names}) == len(ids)
    for name in names:
        assert not set(name) & set('<>:"/\\|?*')
        assert not name.removesuffix(".wav").endswith((".", " "))
        assert len(name.encode()) <= 120
        assert name.split(".")[0].casefold() not in ("con", "nul")
    assert [record["id"] for record in records(out)] == ids
    assert run(model, script, out).spoken == []


@pytest.mark.parametrize("path", ["../up.wav", "/tmp/abs.wav", "C:\\x.wav", "a/../../b.wav"])
def test_no_path_leads_out_of_the_folder(model: Path, tmp_path: Path, path: str) -> None:
    script = tmp_path / "s.jsonl"
    script.write_text(json.dumps({"id": "a", "text": "Words.", "out": path}) + "\n")
    with pytest.raises(Exception, match="line 1") as refused:
        run(model, script, tmp_path / "out")
    assert int(getattr(refused.value, "exit_code", 1)) == 2
    assert not (tmp_path / "out").exists()


def test_files_in_folders_of_their_own(model: Path, tmp_path: Path) -> None:
    script, out = tmp_path / "s.jsonl", tmp_path / "out"
    script.write_text(json.dumps({"id": "a", "text": "Words.", "out": "en/a.flac"}) + "\n")
    run(model, script, out, format="flac")
    assert soundfile.info(out / "en" / "a.flac").format == "FLAC"
    check_manifest(out)


def test_all_that_is_wrong_is_said_before_anything_is_made(model: Path, tmp_path: Path) -> None:
    script = tmp_path / "s.csv"
    script.write_text("id,text,voice\na,Words.,oto\nb,Words.,mira\nc,Words.,nobody.wav\n")
    with pytest.raises(Exception, match=r'(?s)line 2.*"otto".*line 4.*nobody\.wav') as refused:
        run(model, script, tmp_path / "out")
    assert int(getattr(refused.value, "exit_code", 1)) == 2
    assert not (tmp_path / "out").exists()


def test_nothing_to_say_is_skipped_and_unspeakable_text_is_told(
    model: Path, tmp_path: Path
) -> None:
    script, out = tmp_path / "s.txt", tmp_path / "out"
    script.write_text("Some words.\n...\nПриветствую вас, друзья.\nMore words.\n")
    with pytest.raises(LimitError, match="1 of 4"):
        run(model, script, out)
    assert [record["status"] for record in records(out)] == ["ok", "skipped", "skipped", "ok"]
    assert "Cyrillic" in records(out)[2]["error"]


# Shares


def test_shares_are_merged_into_what_one_run_makes(
    model: Path, forty: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    num_spoken = 0
    for number in range(3):
        num_spoken += len(run(model, forty, out, shard=f"{number}/3").spoken)
        check_manifest(out / f"shard-{number}-of-3")
        if number < 2:
            with pytest.raises(UsageError, match="not made yet"):
                run(model, forty, out, merge=True)
    assert num_spoken == 40
    assert run(model, forty, out, merge=True).spoken == []
    run(model, forty, tmp_path / "one")
    assert records(out) == records(tmp_path / "one")
    for record in records(out):
        assert (out / record["file"]).exists()
    assert run(model, forty, out).spoken == []


def test_incomplete_shares_are_merged_when_told(model: Path, forty: Path, tmp_path: Path) -> None:
    out = tmp_path / "book.wav"
    first = run(model, forty, out, shard="0/2")
    assert not out.exists()
    run(model, forty, out, merge=True, incomplete=True)
    assert out.exists()
    assert len(records(tmp_path / "book.parts")) == len(first.spoken)
    rest = run(model, forty, out)
    assert len(first.spoken) + len(rest.spoken) == 40


@pytest.mark.parametrize("shard", ["4/4", "-1/4", "a", "1/0", "1", "1/4/5"])
def test_a_share_that_is_none_is_refused(
    model: Path, forty: Path, tmp_path: Path, shard: str
) -> None:
    with pytest.raises(UsageError, match="share"):
        run(model, forty, tmp_path / "out", shard=shard)


# Progress


def test_a_reader_of_events_that_goes_away_loses_nothing(
    model: Path, forty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(text: str) -> None:
        raise BrokenPipeError

    speaker = StandIn()
    speaker.after[10] = lambda: monkeypatch.setattr("fishtts.jobs.progress.print_line", gone)
    with pytest.raises(BrokenPipeError):
        run(model, forty, tmp_path / "out", speaker=speaker, as_json=True)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert len(records(tmp_path / "out")) == 10
    assert len(run(model, forty, tmp_path / "out").spoken) == 30


def test_events_are_one_json_object_a_line(
    model: Path, forty: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(model, forty, tmp_path / "out", as_json=True)
    captured = capsys.readouterr()
    events = [json.loads(line) for line in captured.out.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds[0] == "started"
    assert kinds[-1] == "finished"
    assert kinds.count("line") == 40
    assert events[0]["lines"] == 40
    assert events[-1]["ok"] == 40
    made_s = sum(record["seconds"] for record in records(tmp_path / "out"))
    assert events[-1]["made_s"] == pytest.approx(made_s, abs=0.01)
    assert captured.err == ""


def test_a_summary_for_people_and_silence_for_scripts(
    model: Path, forty: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(model, forty, tmp_path / "out", quiet=False)
    captured = capsys.readouterr()
    assert "40 ok" in captured.err
    assert captured.out == ""
    run(model, forty, tmp_path / "out")
    assert capsys.readouterr() == ("", "")


def test_a_bar_on_a_terminal(model: Path, forty: Path, tmp_path: Path) -> None:
    import pty
    import sys
    import termios

    main, other = pty.openpty()
    termios.tcsetwinsize(other, (24, 200))
    before = sys.stderr
    try:
        with open(other, "w", encoding="utf-8", closefd=False) as terminal:
            sys.stderr = terminal
            run(model, forty, tmp_path / "out", quiet=False)
    finally:
        sys.stderr = before
    shown = os.read(main, 1 << 16).decode("utf-8", "replace")
    os.close(other)
    os.close(main)
    assert "/40" in shown
    assert "h of audio" in shown
    assert "batch 75% full" in shown


def test_a_dry_run_knows_how_fast_the_last_run_was(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "s.txt"
    script.write_text("".join(f"Line number {n}. {'A long sentence. ' * 20}\n" for n in range(20)))
    plans = []
    for dry_run in (True, False, True):
        run(model, script, tmp_path / "out", dry_run=dry_run, as_json=dry_run)
        if dry_run:
            plans.append(json.loads(capsys.readouterr().out))
    assert plans[0]["estimated_work_seconds"] is None
    assert plans[1]["estimated_work_seconds"] > 0
    assert plans[1]["estimated_seconds"] == plans[0]["estimated_seconds"] > 60


# Verifying


class Listener:
    """A recogniser that hears what it is told to: by the loudness of what it gets."""

    def __init__(self, deaf_for: int = 0) -> None:
        self.deaf_for = deaf_for
        self.num_heard = 0

    def transcribe(self, samples: Any, sample_rate: int, language: str) -> str:
        assert sample_rate == RATE
        assert language == "en"
        self.num_heard += 1
        return "nothing at all" if self.num_heard <= self.deaf_for else "a is first"


def test_verified_lines_are_tried_again_until_they_are_understood(
    model: Path, tmp_path: Path
) -> None:
    script, out = tmp_path / "s.txt", tmp_path / "out"
    script.write_text("A is first.\n")
    listener = Listener(deaf_for=2)
    speaker = run(model, script, out, verify=True, recogniser=listener, retries=2)
    assert len({line.config.seed for line in speaker.spoken}) == 3
    (record,) = records(out)
    assert record["status"] == "ok"
    assert record["retries"] == 2
    assert record["wer"] == 0
    assert record["seed"] == speaker.spoken[-1].config.seed
    assert run(model, script, out, verify=True, recogniser=listener, retries=2).spoken == []
    assert run(model, script, out).spoken == []


def test_verified_lines_that_nobody_understands_fall_short(model: Path, tmp_path: Path) -> None:
    script, out = tmp_path / "s.txt", tmp_path / "out"
    script.write_text("A is first.\n")
    with pytest.raises(LimitError, match="1 of 1") as short:
        run(model, script, out, verify=True, recogniser=Listener(99), retries=1)
    assert int(short.value.exit_code) == 3
    (record,) = records(out)
    assert record["status"] == "fell_short"
    assert record["stop_reason"] == "retry_exhausted"
    assert record["missed"] == ["a", "is", "first"]
    assert record["file"] == "L0001.wav"
    check_manifest(out)


def test_lines_that_were_made_without_are_listened_to_and_not_made_again(
    model: Path, tmp_path: Path
) -> None:
    script, out = tmp_path / "s.txt", tmp_path / "out"
    script.write_text("A is first.\n")
    run(model, script, out)
    before = (out / "L0001.wav").read_bytes()
    assert run(model, script, out, verify=True, recogniser=Listener()).spoken == []
    assert records(out)[0]["wer"] == 0
    assert (out / "L0001.wav").read_bytes() == before
    # A stricter ear, later, makes it anew.
    (out / "manifest.jsonl").write_text(
        (out / "manifest.jsonl").read_text().replace('"wer": 0.0', '"wer": 0.5')
    )
    run(model, script, out, verify=True, recogniser=Listener(1), max_wer=0.1, retries=1)
    assert (out / "L0001.wav").read_bytes() != before
    check_manifest(out)

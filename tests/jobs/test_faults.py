"""A run survives what machines do: it is killed, told to stop, finds the disk full, meets another.

The runs are real processes; only the speaker is a stand-in that answers at once.
"""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fishtts.errors import DeviceError, FishTTSError, LimitError, OutputError, VoiceError
from fishtts.jobs.lock import NAME as LOCK
from tests.jobs.stand_ins import (
    StandIn,
    Zygote,
    check_manifest,
    records,
    run,
    zygote,
)


@pytest.fixture(scope="module")
def warm() -> Iterator[Zygote]:
    with zygote() as process:
        yield process


def arguments(model: Path, script: Path, output: Path, **more: Any) -> dict[str, Any]:
    return {"model": str(model), "script": str(script), "output": str(output), **more}


@contextmanager
def held(
    warm: Zygote, tmp_path: Path, model: Path, script: Path, number: int, **more: Any
) -> Iterator[int]:
    """A run that has answered so many lines and waits; answers its process id."""
    pipe = tmp_path / f"pipe-{number}"
    os.mkfifo(pipe)
    hold = [str(pipe), number]
    process = warm.start(**arguments(model, script, tmp_path / "out", hold=hold, **more))
    with pipe.open("wb"):
        yield process


def test_killed_twenty_times_at_random_moments_and_then_finished(
    warm: Zygote, model: Path, tmp_path: Path
) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    moments = random.Random(seed)
    script, out, whole = tmp_path / "script.txt", tmp_path / "out", tmp_path / "whole"
    script.write_text("".join(f"Line number {number}.\n" for number in range(50)))
    for folder in (tmp_path / "warm", whole):
        start = time.monotonic()
        warm.start(**arguments(model, script, folder))
        assert warm.wait() == (0, "")
        whole_s = time.monotonic() - start
    num_killed = 0
    for _ in range(20):
        process = warm.start(**arguments(model, script, out))
        time.sleep(moments.uniform(0, whole_s / 2))  # waits for nothing: the moment is the test
        os.kill(process, signal.SIGKILL)
        code, message = warm.wait()
        assert code in (0, -signal.SIGKILL), message
        num_killed += code != 0
        assert all(record["status"] == "ok" for record in records_so_far(out))
    assert num_killed >= 3, "it was killed often enough to mean something"
    before = finished_files(out)
    warm.start(**arguments(model, script, out))
    assert warm.wait() == (0, "")
    assert [record["id"] for record in records(out)] == [f"L{n:04d}" for n in range(1, 51)]
    check_manifest(out)
    assert finished_files(out).items() >= before.items(), "what was finished was not touched"
    assert records(out) == records(whole)


def records_so_far(out: Path) -> list[dict[str, Any]]:
    """Read a manifest that may end torn."""
    try:
        data = (out / "manifest.jsonl").read_bytes()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in data.split(b"\n")[:-1] if line.endswith(b"}")]


def finished_files(out: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in out.glob("*.wav")}


def test_d06_kill_and_resume(warm: Zygote, model: Path, forty: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with held(warm, tmp_path, model, forty, 20) as process:
        os.kill(process, signal.SIGKILL)
    assert warm.wait()[0] == -signal.SIGKILL
    before = finished_files(out)
    assert len(before) == 19
    moved = tmp_path / "moved"
    out.rename(moved)
    speaker = run(model, forty, moved)
    assert len(speaker.spoken) == 21
    assert finished_files(moved).items() >= before.items()
    ids = [record["id"] for record in records(moved)]
    assert len(ids) == len(set(ids)) == 40
    check_manifest(moved)


def test_a_half_written_file_or_record_counts_as_nothing(
    model: Path, forty: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run(model, forty, out)
    whole = (out / "L0003.wav").read_bytes()
    (out / "L0003.wav").write_bytes(whole[:50])
    (out / "L0004.wav").unlink()
    manifest = out / "manifest.jsonl"
    manifest.write_bytes(manifest.read_bytes()[:-40])
    speaker = run(model, forty, out)
    assert sorted(line.key for line in speaker.spoken) == sorted(
        record["key"] for record in records(out) if record["line"] in (3, 4, 40)
    )
    assert (out / "L0003.wav").read_bytes() == whole
    check_manifest(out)


def test_sigterm_finishes_what_is_in_flight_and_exits_75(
    warm: Zygote, model: Path, forty: Path, tmp_path: Path
) -> None:
    with held(warm, tmp_path, model, forty, 10, quiet=False) as process:
        os.kill(process, signal.SIGTERM)
    start = time.monotonic()
    code, message = warm.wait()
    assert time.monotonic() - start < 10
    assert code == 75, message
    assert "Stopped on request. 13 of 40 lines are finished. Run the same" in message
    check_manifest(tmp_path / "out")
    assert len(records(tmp_path / "out")) == 13, "four were in work, and none were begun after that"
    run(model, forty, tmp_path / "out")
    assert len(records(tmp_path / "out")) == 40


def test_what_takes_too_long_is_dropped_after_sigterm(
    warm: Zygote, model: Path, forty: Path, tmp_path: Path
) -> None:
    with held(warm, tmp_path, model, forty, 10, grace_s=0.1) as process:
        os.kill(process, signal.SIGTERM)
        code, message = warm.wait()
    assert code == 75, message
    assert len(records(tmp_path / "out")) == 9
    check_manifest(tmp_path / "out")


def test_ctrl_c_saves_and_exits_130(warm: Zygote, model: Path, forty: Path, tmp_path: Path) -> None:
    with held(warm, tmp_path, model, forty, 10, quiet=False) as process:
        os.kill(process, signal.SIGINT)
        code, message = warm.wait()
    assert code == 130
    assert "9 of 40 lines are finished" in message
    assert "Traceback" not in message
    assert len(records(tmp_path / "out")) == 9
    check_manifest(tmp_path / "out")


def test_a_second_run_in_the_same_folder_is_refused(
    warm: Zygote, model: Path, forty: Path, tmp_path: Path
) -> None:
    with held(warm, tmp_path, model, forty, 10) as process:
        with pytest.raises(OutputError, match=rf"process {process}") as refused:
            run(model, forty, tmp_path / "out")
        assert int(refused.value.exit_code) == 2
    assert warm.wait() == (0, "")
    assert len(records(tmp_path / "out")) == 40
    check_manifest(tmp_path / "out")


def test_a_lock_that_was_left_behind_locks_nothing(
    model: Path, forty: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / LOCK).write_text(f"{os.getppid()}\n")  # as after a crash, its number used again
    run(model, forty, out)
    assert not (out / LOCK).exists()


def test_a_full_disk_keeps_what_is_finished(model: Path, forty: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    speaker = StandIn()

    def fill() -> None:
        # The kernel refuses to let any file grow beyond this size, as a full disk does.
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))

    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    speaker.after[10] = fill
    try:
        with pytest.raises(DeviceError, match="Free some space") as full:
            run(model, forty, out, speaker=speaker)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, before)
    assert int(full.value.exit_code) == 5
    done = finished_files(out)
    assert len(done) == 9
    again = run(model, forty, out)
    assert len(again.spoken) == 31
    assert finished_files(out).items() >= done.items()
    check_manifest(out)


def test_a_manifest_that_cannot_grow_ends_the_run(
    model: Path, forty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    speaker = StandIn()

    def fail(number: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    speaker.after[10] = lambda: monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(DeviceError) as full:
        run(model, forty, out, speaker=speaker)
    assert int(full.value.exit_code) == 5
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run(model, forty, out)
    assert len(records(out)) == 40
    check_manifest(out)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
def test_a_folder_that_cannot_be_written(model: Path, forty: Path) -> None:
    with pytest.raises(OutputError, match="/proc/out") as refused:  # not even by root
        run(model, forty, Path("/proc/out"))
    assert int(refused.value.exit_code) == 2


def test_a_folder_whose_place_a_file_takes(model: Path, forty: Path, tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(OutputError, match="is a file") as refused:
        run(model, forty, tmp_path / "out")
    assert int(refused.value.exit_code) == 2


def test_a_line_whose_file_cannot_be_written(model: Path, forty: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "L0003.wav").mkdir(parents=True)
    with pytest.raises(OutputError, match=r"L0003\.wav"):
        run(model, forty, out)
    assert not list(out.glob("*0001*"))


def test_a_voice_deleted_midway_is_in_memory_already(
    model: Path, forty: Path, tmp_path: Path
) -> None:
    voice = tmp_path / "mine.safetensors"
    voice.write_bytes((model / "voices" / "otto.safetensors").read_bytes())
    speaker = StandIn()
    speaker.after[5] = voice.unlink
    run(model, forty, tmp_path / "out", speaker=speaker, voice=str(voice))
    assert {record["status"] for record in records(tmp_path / "out")} == {"ok"}
    with pytest.raises(FishTTSError, match="no recording or voice file"):
        run(model, forty, tmp_path / "out", voice=str(voice))


def test_bad_lines_never_stop_a_run(model: Path, forty: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    speaker = StandIn(
        faulty={"7. A short line to read."},
        failing={"9. A short line to read.": VoiceError("The voice went away.")},
    )
    with pytest.raises(LimitError, match="2 of 40 lines") as bad:
        run(model, forty, out, speaker=speaker)
    assert int(bad.value.exit_code) == 3
    assert len(speaker.spoken) == 40
    by_line = {record["line"]: record for record in records(out)}
    assert by_line[7]["status"] == "fell_short"
    assert by_line[7]["stop_reason"] == "retry_exhausted"
    assert by_line[9]["status"] == "failed"
    assert by_line[9]["error"] == "The voice went away."
    assert by_line[9]["file"] == ""
    check_manifest(out)


def test_failures_are_tried_again_with_other_seeds(
    model: Path, forty: Path, tmp_path: Path
) -> None:
    text = "9. A short line to read."
    speaker = StandIn(failing={text: LimitError("It was too long.")})
    with pytest.raises(LimitError):
        run(model, forty, tmp_path / "out", speaker=speaker, retries=3)
    tries = [line for line in speaker.spoken if line.plan.units[0].unit.text == text]
    assert len({line.config.seed for line in tries}) == len(tries) == 4
    assert records(tmp_path / "out")[8]["retries"] == 3


def test_the_clock_may_jump(
    model: Path, forty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def backwards() -> float:
        raise AssertionError("the time of day is nobody's business here")

    monkeypatch.setattr(time, "time", backwards)
    run(model, forty, tmp_path / "out")
    assert len(records(tmp_path / "out")) == 40

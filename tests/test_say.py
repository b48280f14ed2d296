"""``fishtts say`` from text to sound, on a tiny model with random weights.

What it says is noise of a random length: everything but the words is real.
"""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import soundfile

from fishtts.cloning.voice_file import write_voice
from fishtts.types import Reference, Voice
from tests.fakes import TINY_MODEL, clean_env, run_fishtts, run_process, tiny_model, tiny_voice

SAY = ("say", "--model", TINY_MODEL)
PATIENT = ("--retries", "20")
"""Random weights often end too soon; with so many tries they do not always."""

ONE = "The first sentence stands here."
TWO = "The second sentence stands there."


@pytest.fixture(scope="module")
def voice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A voice of the tiny model: with it, each unit is spoken independently of the others."""
    folder = tmp_path_factory.mktemp("voices")
    write_voice(tiny_voice("mira"), folder / "mira.safetensors")
    return folder / "mira.safetensors"


def say(*arguments: str | Path, code: int = 0, stdin: bytes = b"") -> bytes:
    result = run_fishtts(*SAY, *arguments, stdin=stdin)
    assert result.returncode == code, result.stderr.decode()
    assert b"Traceback" not in result.stderr
    return result.stdout


def samples_of(data: bytes | Path) -> np.ndarray:
    source = io.BytesIO(data) if isinstance(data, bytes) else data
    samples, sample_rate = soundfile.read(source, dtype="int16")
    assert sample_rate == 44100
    return np.asarray(samples)


def only_file(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Where audio goes


def test_a_file_holds_what_the_report_says(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    report = json.loads(say(ONE, "-o", path, "--json", *PATIENT))
    samples = samples_of(path)
    assert len(samples) == round(report["seconds"] * 44100)
    assert len(path.read_bytes()) == 44 + 2 * len(samples)
    assert report["units"][0]["status"] == "ok"
    assert report["units"][0]["stop_reason"] == "eos"
    assert report["sample_rate"] == 44100
    assert report["timings"]["rtf"] > 0
    assert only_file(tmp_path) == ["a.wav"]


def test_d01_wav_on_a_pipe_with_several_sentences(voice: Path) -> None:
    flags = ("-v", voice, "-o", "-", "--pause", "0.1", *PATIENT)
    both = say(*flags, stdin=f"{ONE} {TWO}\n".encode())
    first, second = (samples_of(say(text, *flags)) for text in (ONE, TWO))
    assert both[:4] == b"RIFF"
    assert (len(both) - 44) % 2 == 0
    gap = np.zeros(4410, np.int16)
    assert np.array_equal(samples_of(both), np.concatenate([first, gap, second]))


@pytest.mark.parametrize(("pause", "gap"), [("0.125", 5512), ("0.7", 30870)])
def test_d02_a_pause_that_is_an_odd_number_of_bytes(
    tmp_path: Path, voice: Path, pause: str, gap: int
) -> None:
    path = tmp_path / "p.wav"
    text = b"One stands here.\nTwo stands here.\n"
    flags = ("--pause", pause, "-v", voice, "-o", path, "--json", *PATIENT)
    first, second = json.loads(say(*flags, stdin=text))["units"]
    samples = samples_of(path) / 32768
    join = round(second["start_s"] * 44100)
    assert (path.stat().st_size - 44) % 2 == 0
    assert not samples[join - gap : join].any()
    assert samples[join - gap - 400 : join - gap].any()
    assert samples[join : join + 400].any()
    near = 44  # a millisecond; further off, the steps are those of the model's own noise
    for edge in (join - gap, join):
        assert np.abs(np.diff(samples[edge - near : edge + near])).max() < 0.05
    assert round(first["seconds"] * 44100) == join


def test_sizes_are_true_where_standard_output_is_a_file(tmp_path: Path) -> None:
    with open(tmp_path / "a.wav", "wb") as file:
        assert run_process(*SAY, ONE, *PATIENT, stdout=file).returncode == 0
    data = (tmp_path / "a.wav").read_bytes()
    assert int.from_bytes(data[40:44], "little") == len(data) - 44


def test_raw_samples_and_their_rate() -> None:
    wav = samples_of(say(ONE, "-o", "-", *PATIENT))
    result = run_fishtts(*SAY, ONE, "--raw", *PATIENT)
    assert np.array_equal(np.frombuffer(result.stdout, "<i2"), wav)
    assert b"44100 Hz" in result.stderr


@pytest.mark.parametrize("ending", ["flac", "mp3", "ogg", "opus"])
def test_formats_by_ending(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    seconds = json.loads(say(ONE, "-o", path, "--json", *PATIENT))["seconds"]
    assert abs(soundfile.info(path).duration - seconds) < 0.1


def test_force_replaces_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(b"old")
    say(ONE, "-o", path, "--force", *PATIENT)
    assert path.read_bytes()[:4] == b"RIFF"


def test_a_named_pipe_gets_the_sound_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.wav"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        heard = pool.submit(pipe.read_bytes)
        say(ONE, "-o", pipe, *PATIENT)
        assert np.array_equal(samples_of(heard.result()), samples_of(say(ONE, *PATIENT)))


def test_progress_is_shown_to_people_only(tmp_path: Path) -> None:
    text = " ".join(f"Sentence number {number} is here." for number in range(6))
    flags = (*SAY, text, "--pause", "0.1", "--max-frames", "2", "--retries", "0", "--force")
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))
    subprocess.run(
        [sys.executable, "-m", "fishtts", *map(str, flags), "-o", str(tmp_path / "a.wav")],
        stdin=subprocess.DEVNULL,
        stderr=theirs,
        env=clean_env(),
        check=False,
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # the end of a terminal whose other side is closed
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    assert b"characters" in shown
    assert b"characters" not in run_fishtts(*flags, "-o", tmp_path / "a.wav").stderr


def test_play_sends_the_sound_to_a_player(tmp_path: Path) -> None:
    player = tmp_path / "bin" / "aplay"
    player.parent.mkdir()
    player.write_text(f'#!/bin/sh\necho "$@" > "{tmp_path}/args"\ncat > "{tmp_path}/heard"\n')
    player.chmod(0o755)
    env = {"PATH": f"{player.parent}:/usr/bin:/bin"}
    path = tmp_path / "a.wav"
    result = run_process(*SAY, ONE, "--play", "-o", path, *PATIENT, env=env)
    assert result.returncode == 0, result.stderr.decode()
    assert result.stdout == b""
    assert np.array_equal(np.frombuffer((tmp_path / "heard").read_bytes(), "<i2"), samples_of(path))
    assert "44100" in (tmp_path / "args").read_text()


def on_a_terminal(*arguments: str | Path, path: str) -> tuple[int, str]:
    """Run with standard output on a terminal; answer the exit code and standard error."""
    ours, theirs = pty.openpty()
    try:
        result = run_process(*arguments, stdout=theirs, env={"PATH": path})
        return result.returncode, result.stderr.decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_terminal_gets_no_audio(tmp_path: Path) -> None:
    for arguments in ([ONE], [ONE, "-o", "-"], [ONE, "--raw"]):
        code, message = on_a_terminal(*SAY, *arguments, path=str(tmp_path))
        assert code == 2
        assert "-o" in message
        assert message.count("\n") == 1


# What is said


def test_the_same_seed_gives_the_same_audio_and_another_gives_another() -> None:
    first, again, other = (say(ONE, "--seed", seed, "--raw", "-q", *PATIENT) for seed in "773")
    assert first == again != other


def test_a_line_that_comes_in_changes_no_other_line(tmp_path: Path, voice: Path) -> None:
    def spoken(text: str) -> dict[str, bytes]:
        path = tmp_path / f"{len(text)}.wav"
        flags = ("-v", voice, "-o", path, "--json", "--pause", "0.1", *PATIENT)
        units = json.loads(say(*flags, stdin=text.encode()))["units"]
        samples = samples_of(path)
        starts = [round(unit["start_s"] * 44100) for unit in units]
        ends = [*(start - 4410 for start in starts[1:]), len(samples)]
        return {
            unit["text"]: samples[start:end].tobytes()
            for unit, start, end in zip(units, starts, ends, strict=True)
        }

    before = spoken(f"{ONE}\n{TWO}\n")
    after = spoken(f"{ONE}\nSomething else came in between.\n{TWO}\n")
    assert len(after) == 3
    assert before.items() <= after.items()


def test_speed_changes_the_length(tmp_path: Path) -> None:
    lengths = {}
    for speed in ("1", "2"):
        path = tmp_path / f"{speed}.wav"
        say(ONE, "-o", path, "--speed", speed, *PATIENT)
        lengths[speed] = len(samples_of(path))
    assert abs(lengths["1"] / lengths["2"] - 2) < 0.01


def test_d12_no_words_are_lost_in_silence(tmp_path: Path) -> None:
    items = [f"Item {number} is on the list." for number in range(1, 61)]
    path = tmp_path / "p.wav"
    result = run_fishtts(
        *SAY, " ".join(items), "-o", path, "--json", "--max-frames", "5", "--retries", "1"
    )
    assert result.returncode == 3
    report = json.loads(result.stdout)
    assert " ".join(unit["text"] for unit in report["units"]) == " ".join(items)
    for unit in report["units"]:
        assert unit["stop_reason"] in ("limit", "eos")
        assert unit["num_frames"] <= 5
        assert unit["tries"] == 2
        assert unit["faults"]
        assert unit["status"] == "fell_short"
    assert len(report["problems"]) == len(report["units"])
    assert "Item 1 is on the list." in result.stderr.decode()
    frames = sum(unit["num_frames"] for unit in report["units"])
    assert len(samples_of(path)) > frames * 2048
    assert only_file(tmp_path) == ["p.wav"]


def test_one_sentence_that_falls_short_is_named(tmp_path: Path) -> None:
    flags = ("-o", tmp_path / "a.wav", "--max-frames", "3", "--retries", "0")
    result = run_fishtts(*SAY, ONE, *flags)
    assert result.returncode == 3
    assert result.stderr.decode() == (
        f'fishtts: Words may be missing or wrong in "{ONE}": it did not come to an end (1 try).\n'
    )


def test_timings_and_quiet(tmp_path: Path) -> None:
    flags = ("-o", tmp_path / "a.wav", "--force", *PATIENT)
    result = run_fishtts(*SAY, ONE, "--timings", *flags)
    assert "RTF" in result.stderr.decode()
    assert result.stderr.decode().count("\n") == 1
    assert run_fishtts(*SAY, ONE, "-q", *flags).stderr == b""


# Voices


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    noise = 0.1 * np.random.default_rng(5).standard_normal(22050 * 2)
    soundfile.write(tmp_path / "ref.wav", noise, 22050)
    return tmp_path / "ref.wav"


def test_a_recording_needs_its_words(recording: Path, tmp_path: Path) -> None:
    result = run_fishtts(*SAY, ONE, "-v", recording, "-o", tmp_path / "a.wav")
    assert result.returncode == 2
    assert "--ref-text" in result.stderr.decode()
    result = run_fishtts(
        *SAY, ONE, "-v", recording, "--ref-text", "Its words.", "-o", tmp_path / "a.wav", *PATIENT
    )
    assert result.returncode == 0, result.stderr.decode()
    assert "2.0 s long" in result.stderr.decode()


def test_a_voice_of_another_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    write_voice(Voice("other", (Reference(np.ones((3, 5), np.int64), "Words."),)), path)
    result = run_fishtts(*SAY, ONE, "-v", path, "-o", tmp_path / "a.wav")
    assert result.returncode == 4
    assert "another model" in result.stderr.decode()


@pytest.fixture(scope="module")
def talkative(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a card and two voices, as ``minnow`` has them."""
    card = {
        "name": "talkative",
        "languages": ["en"],
        "scripts": ["Latin"],
        "normalise": True,
        "needs_transcript": False,
        "default_voice": "mira",
        "sampling": {"temperature": 0.7, "top_p": 0.9, "top_k": 20},
        "unit_chars": 120,
    }
    return tiny_model(tmp_path_factory.mktemp("talkative"), card, ["mira", "otto"])


def test_voices_are_listed_and_chosen_by_name(talkative: Path, tmp_path: Path) -> None:
    listed = json.loads(run_fishtts("voices", "list", "--model", talkative, "--json").stdout)
    assert [(voice["name"], voice["is_default"]) for voice in listed] == [
        ("mira", True),
        ("otto", False),
    ]
    table = run_fishtts("voices", "list", "--model", talkative).stdout.decode()
    assert "mira" in table
    assert "(default)" in table
    say_it = ("say", ONE, "--model", talkative, "--raw", "-q", *PATIENT)
    default, mira, otto = (
        run_fishtts(*say_it, *v).stdout for v in ([], ["-v", "mira"], ["-v", "otto"])
    )
    assert default == mira != otto
    result = run_fishtts(*say_it, "-v", "oto")
    assert result.returncode == 2
    assert 'Did you mean "otto"?' in result.stderr.decode()


def test_a_voice_can_be_heard(talkative: Path, tmp_path: Path) -> None:
    path = tmp_path / "mira.wav"
    play = ("voices", "play", "mira", "--model", talkative, "-o", path)
    assert run_fishtts(*play).returncode == 0
    assert len(samples_of(path)) == tiny_voice("mira").references[0].codes.shape[1] * 2048
    assert run_fishtts(*play).returncode == 2
    assert run_fishtts("voices", "play", "nobody", "--model", talkative).returncode == 2


def test_a_recording_without_its_words_where_the_model_allows(
    talkative: Path, recording: Path, tmp_path: Path
) -> None:
    flags = ("--model", talkative, "-v", recording, "-o", tmp_path / "a.wav", *PATIENT)
    assert run_fishtts("say", ONE, *flags).returncode == 0


def test_what_the_model_cannot_say_is_left_out_and_told(talkative: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    text = "This sentence holds Москва in it."
    flags = ("--model", talkative, "-o", path, "--json", *PATIENT)
    result = run_fishtts("say", text, *flags)
    assert result.returncode == 3
    report = json.loads(result.stdout)
    assert report["units"][0]["model_text"] == "This sentence holds in it."
    assert "Москва" in report["problems"][0]
    assert "Москва" in result.stderr.decode()
    assert path.exists()
    result = run_fishtts("say", text, "--strict", "--force", *flags)
    assert result.returncode == 2


# What goes wrong on the way


def test_a_device_that_is_not_there(tmp_path: Path) -> None:
    for device in ("cuda:99", "abacus"):
        result = run_fishtts(*SAY, ONE, "--device", device, "-o", tmp_path / "a.wav")
        assert result.returncode == 5
        assert f'"{device}"' in result.stderr.decode()
        assert result.stderr.decode().count("\n") == 1
    assert only_file(tmp_path) == []


LONG = " ".join(f"Sentence number {number} goes on and on." for number in range(200)).encode()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk() -> None:
    result = run_fishtts(*SAY, ONE, "-o", "/dev/full")
    assert result.returncode == 5
    assert result.stderr.decode().count("\n") == 1
    with open("/dev/full", "wb") as full:
        process = run_process(*SAY, ONE, stdout=full)
    assert process.returncode == 5
    assert b"Traceback" not in process.stderr


def test_a_reader_that_goes_away() -> None:
    arguments = " ".join(f'"{part}"' for part in ("-m", "fishtts", *SAY, "--max-frames", "20"))
    result = subprocess.run(
        [
            "bash",
            "-c",
            f'"$0" {arguments} | head -c 100 | wc -c; echo ${{PIPESTATUS[0]}}',
            sys.executable,
        ],
        input=LONG,
        capture_output=True,
        env=clean_env(),
        check=True,
    )
    assert result.stdout.split() == [b"100", b"141"]
    assert result.stderr == b""


@pytest.fixture
def half_way(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A long text that is being spoken into a file."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fishtts", *map(str, SAY), "-o", str(tmp_path / "a.wav")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_env(),
        # A shell lets what it runs in the background ignore Ctrl-C, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdin is not None
    process.stdin.write(LONG)
    process.stdin.close()
    deadline = time.monotonic() + 60
    while not any(part.stat().st_size > 44 for part in tmp_path.glob(".*.part")):
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline, "no audio within a minute"
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.02)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def test_ctrl_c_midway_leaves_nothing(half_way: subprocess.Popen[bytes], tmp_path: Path) -> None:
    half_way.send_signal(signal.SIGINT)
    assert half_way.wait(timeout=30) == 130
    assert half_way.stderr is not None
    assert half_way.stderr.read() == b""
    assert only_file(tmp_path) == []


def test_deterministic_is_the_same_into_a_file_and_through_a_pipe(
    voice: Path, tmp_path: Path
) -> None:
    """A file's sentences are spoken beside each other, a pipe's one after the other."""
    options = (*PATIENT, "--voice", voice, "--deterministic", "--raw")
    text = f"{ONE} {TWO}\n\nAnd so does the third of them.".encode()
    piped = say(*options, "-o", "-", stdin=text)
    say(*options, "-o", tmp_path / "a.raw", stdin=text)
    assert len(piped) > 10_000
    assert (tmp_path / "a.raw").read_bytes() == piped

"""What ``fishtts say`` does: where its text comes from, where its audio goes, what it tells of it.

Owns the manners of the command towards terminals, pipes and files. Loads torch only when there is
something to say and a place to say it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fishtts import hub
from fishtts.audio.play import find_player, open_player
from fishtts.audio.tempo import check_speed
from fishtts.audio.write import Writer, choose_format, open_file, open_stdout
from fishtts.cloning.store import Store, find_voice
from fishtts.cloning.voice_file import is_voice_file, read_voice
from fishtts.config import DEFAULT_ENGINE, DEFAULT_MODEL, EngineConfig, SpeechConfig
from fishtts.errors import LimitError, ScriptError, UsageError, VoiceError
from fishtts.model_folder import is_file_name, voice_names
from fishtts.plan import Plan, make_plan
from fishtts.printing import note, print_json, print_line
from fishtts.text.dialogue import read_cast
from fishtts.text.read import clean, read_file, read_stream
from fishtts.types import Audio, Card, Voice

if TYPE_CHECKING:
    from fishtts.report import Report
    from fishtts.tts import SpeechStream

_MIN_UNITS_WITH_PROGRESS = 5
_MAX_NOTES = 20


@dataclass(frozen=True, slots=True)
class Request:
    """All that was asked for on the command line."""

    words: tuple[str, ...] = ()
    file: str = ""
    encoding: str = "utf-8"
    model: str = DEFAULT_MODEL
    voice: str = ""
    ref_text: str = ""
    cast: tuple[str, ...] = ()
    output: str = ""
    format: str = ""
    raw: bool = False
    play: bool = False
    force: bool = False
    strict: bool = False
    dry_run: bool = False
    as_json: bool = False
    quiet: bool = False
    timings: bool = False
    offline: bool = False
    engine: EngineConfig = DEFAULT_ENGINE
    speech: SpeechConfig = SpeechConfig()  # noqa: RUF009 (it is frozen)

    @property
    def format_name(self) -> str | None:
        """The format asked for by name."""
        return "raw" if self.raw else self.format or None


def say(request: Request, *, started: float) -> None:
    """Speak a text. ``started`` is when the command did (``time.perf_counter``).

    Raises: ``LimitError`` after the audio is out, if words may be missing from it.
    """
    _check_options(request)
    text = _read_text(request)
    if not text.strip():
        raise ScriptError("The text is empty.")
    source = hub.parse(request.model)
    folder = locate(source, offline=request.offline or request.dry_run, quiet=request.quiet)
    card = hub.card(source, folder)
    cast = read_cast(request.cast)
    plan = make_plan(
        text,
        card,
        request.speech,
        strict=request.strict,
        voices=known_voices(folder, cast),
        cast=cast,
    )
    voice = _find_voice(request, folder, card)
    _print_notes(request, plan)
    if request.dry_run:
        _print_plan(request, plan, card)
        return
    request = _with_target(request)
    from fishtts.tts import TTS

    tts = TTS(
        str(folder) if source.kind == "folder" else request.model,
        device=request.engine.device,
        dtype=request.engine.dtype,
        deterministic=request.engine.deterministic,
        offline=True,
    )
    stream = tts.stream(
        text,
        request.speech,
        voice=voice,
        ref_text=request.ref_text,
        live=request.play or request.output == "-",
        plan=plan,
    )
    for remark in stream.report.notes:
        _note(request, remark)
    before_s = time.perf_counter() - started
    _write(request, stream, plan)
    _print_report(request, stream.report, before_s)


def locate(source: hub.Source, *, offline: bool, quiet: bool) -> Path:
    """Find the model; say so, and under which licence it is, before it is fetched."""
    if source.kind == "hub" and not hub.is_offline(offline) and hub.cached(source) is None:
        licence = hub.card(source).licence
        terms = f" Its licence: {licence}" if licence else ""
        if not quiet:
            note(f"Fetching the model {source.name} into {hub.cache_folder()}.{terms}")
    return hub.locate(source, offline=offline, quiet=quiet or not sys.stderr.isatty())


def _check_options(request: Request) -> None:
    """Refuse what contradicts itself, before anything is read or loaded."""
    if request.words and request.file:
        raise UsageError("There is a text and a file to read it from.", hint="Give one of them.")
    if request.raw and request.format not in ("", "raw"):
        raise UsageError(f"--raw and --format {request.format} exclude each other.")
    check_speed(request.speech.speed)
    if request.ref_text and not (request.voice and is_file_name(request.voice)):
        raise UsageError("--ref-text goes with a recording: -v recording.wav")
    if request.dry_run:
        return
    audio_on_stdout = request.output == "-" or not (
        request.output or request.play or sys.stdout.isatty()
    )
    if request.as_json and audio_on_stdout:
        raise UsageError(
            "--json and the audio cannot both go to standard output.",
            hint="Write the audio to a file: -o speech.wav",
        )


def _read_text(request: Request) -> str:
    """Get the text from the arguments, a file or standard input; never from two of them.

    Words on the command line leave standard input alone: a shell loop may be reading it.
    """
    if request.words and request.words != ("-",):
        return clean(" ".join(request.words), source="the text")
    if request.file and request.file != "-":
        return read_file(Path(request.file), encoding=request.encoding)
    if not request.words and not request.file and sys.stdin.isatty():
        raise ScriptError(
            "There is nothing to say.",
            hint='Try: fishtts say "Hello there." (or -f FILE, or text on a pipe)',
        )
    return read_stream(sys.stdin.buffer, encoding=request.encoding)


def _find_voice(request: Request, folder: Path, card: Card) -> Voice | Path | None:
    """Read the voice, or find the recording, before a model is loaded for it."""
    if not request.voice:
        return None
    if not is_file_name(request.voice):
        found = find_voice(request.voice, folder, card.name)
        if found.note:
            _note(request, found.note)
        return found.voice
    path = _existing(request.voice)
    return read_voice(path) if is_voice_file(request.voice) else path


def known_voices(folder: Path, cast: Mapping[str, str]) -> list[str]:
    """List the voices that a dialogue may use: own ones, the model's, and files of the cast."""
    files = [voice for voice in cast.values() if is_file_name(voice)]
    for voice in files:
        _existing(voice)
    return [*dict.fromkeys([*Store().names(), *voice_names(folder)]), *files]


def _existing(voice: str) -> Path:
    path = Path(voice).expanduser()
    if not path.exists():
        raise VoiceError(f'There is no recording or voice file "{voice}".')
    return path


def _with_target(request: Request) -> Request:
    """Decide where the audio goes, and refuse places that it cannot go to.

    Left open: a terminal means the loudspeaker, anything else WAV on standard output.
    """
    if request.play and not find_player():
        open_player(1).abort()  # says what is missing
    if request.raw and not request.output and not request.play:
        request = replace(request, output="-")
    if not request.output and not request.play:
        if not sys.stdout.isatty():
            request = replace(request, output="-")
        elif find_player():
            request = replace(request, play=True)
        else:
            raise UsageError(
                "There is no player on this machine, and no file to write to.",
                hint="Name a file: -o speech.wav",
            )
    if request.output == "-":
        choose_format("-", request.format_name)
        if sys.stdout.isatty():
            open_stdout(sys.stdout.buffer, sample_rate=1, is_terminal=True)  # refuses
    elif request.output:
        _check_file(Path(request.output), request)
    return request


def _check_file(path: Path, request: Request) -> None:
    """Open and discard a file, to find out before the work that it can be written.

    Not so a named pipe or a device: whoever reads it would believe that this was all.
    """
    choose_format(str(path), request.format_name)
    if path.is_file() or path.is_dir() or not path.exists():
        name = request.format_name
        open_file(path, sample_rate=48000, format_name=name, force=request.force).abort()


def _open_writers(request: Request, sample_rate: int) -> Iterator[Writer]:
    if request.output == "-":
        yield open_stdout(
            sys.stdout.buffer, sample_rate=sample_rate, format_name=request.format_name
        )
    elif request.output:
        yield open_file(
            Path(request.output),
            sample_rate=sample_rate,
            format_name=request.format_name,
            force=request.force,
        )
    if request.play:
        yield open_player(sample_rate)


def _write(request: Request, stream: SpeechStream, plan: Plan) -> None:
    """Send chunks out as they come; an error on the way leaves no file behind."""
    if request.raw or request.format == "raw":
        _note(request, f"{stream.sample_rate} Hz, 16 bits signed little-endian, mono")
    with ExitStack() as stack:
        bar = _progress(request, stack, plan)
        writers = [
            stack.enter_context(writer) for writer in _open_writers(request, stream.sample_rate)
        ]
        num_units = 0
        for samples in stream:
            for writer in writers:
                writer.write(samples)
            done = stream.report.units[num_units:]
            num_units += len(done)
            if bar is not None:
                bar.update(sum(len(unit.text) for unit in done))


def _progress(request: Request, stack: ExitStack, plan: Plan) -> Any:
    """Show how far it is, for a long text and somebody who looks."""
    if request.quiet or not sys.stderr.isatty() or len(plan.units) < _MIN_UNITS_WITH_PROGRESS:
        return None
    from tqdm import tqdm

    total = sum(len(planned.unit.text) for planned in plan.units)
    bar = tqdm(total=total, unit=" characters", file=sys.stderr, leave=False)
    return stack.enter_context(bar)


def _print_notes(request: Request, plan: Plan) -> None:
    notes = dict.fromkeys(warning for planned in plan.units for warning in planned.unit.warnings)
    for warning in list(notes)[:_MAX_NOTES]:
        _note(request, warning)
    if len(notes) > _MAX_NOTES:
        _note(request, f"{len(notes) - _MAX_NOTES} more notes like these (--dry-run --json).")


def _note(request: Request, text: str) -> None:
    if not request.quiet:
        note(text)


def _print_plan(request: Request, plan: Plan, card: Card) -> None:
    """Print what would be said; raise where words would be missing."""
    if request.as_json:
        units = [
            {
                **asdict(planned.unit),
                "voice": planned.voice or request.voice or card.default_voice,
                "seed": planned.seed,
                "estimated_seconds": round(planned.expected_s, 2),
            }
            for planned in plan.units
        ]
        print_json(
            {
                "model": card.name,
                "voice": request.voice or card.default_voice,
                "seed": request.speech.seed,
                "estimated_seconds": round(plan.expected_s, 2),
                "shortfalls": list(plan.shortfalls),
                "units": units,
            }
        )
    else:
        for number, planned in enumerate(plan.units, start=1):
            speaker = f"{planned.voice}: " if planned.voice else ""
            words = planned.unit.model_text or "(nothing to say)"
            print_line(f"{number:4}  {speaker}{words}")
        print_line(f"{len(plan.units)} units, about {plan.expected_s:.0f} s of speech")
    _raise_shortfalls(list(plan.shortfalls))


def _print_report(request: Request, report: Report, before_s: float) -> None:
    first_audio_s = before_s + report.first_audio_s
    rtf = report.work_s / report.seconds if report.seconds else 0.0
    timings = {
        "load_s": round(report.load_s, 3),
        "first_audio_s": round(first_audio_s, 3),
        "work_s": round(report.work_s, 3),
        "rtf": round(rtf, 3),
    }
    if request.timings:
        print(
            f"fishtts: loaded in {report.load_s:.2f} s, first audio after {first_audio_s:.2f} s,"
            f" {report.seconds:.2f} s of audio in {report.work_s:.2f} s (RTF {rtf:.2f})",
            file=sys.stderr,
        )
    if request.as_json:
        print_json(
            {
                "file": request.output or None,
                "model": report.model,
                "voice": report.voice,
                "seed": report.seed,
                "sample_rate": report.sample_rate,
                "seconds": round(report.seconds, 6),
                "problems": report.problems,
                "timings": timings,
                "units": [{"status": unit.status, **asdict(unit)} for unit in report.units],
            }
        )
    _raise_shortfalls(report.problems)


def _raise_shortfalls(problems: list[str]) -> None:
    """Say what fell short, and let the exit code say so too."""
    if len(problems) == 1:
        raise LimitError(problems[0])
    for problem in problems[:_MAX_NOTES]:
        print(f"fishtts: {problem}", file=sys.stderr)
    if problems:
        raise LimitError(f"Finished, but {len(problems)} things fell short.")


def play_audio(audio: Callable[[], Audio], *, output: str, force: bool) -> Audio:
    """Let something be heard, or write it to a file; made only once there is a place for it."""
    request = _with_target(Request(output=output, force=force, play=not output))
    made = audio()
    with ExitStack() as stack:
        for writer in _open_writers(request, made.sample_rate):
            stack.enter_context(writer).write(made.samples)
    return made

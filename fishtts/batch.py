"""What ``fishtts batch`` does: which script, into which folder, what is told of it.

Owns the order of a run: everything is checked before a model is loaded, and everything finished is
saved however it ends. Loads torch only when there is something to say.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fishtts import hub
from fishtts.asr.recogniser import Recogniser, Whisper, check_installed
from fishtts.audio.tempo import check_speed
from fishtts.audio.write import choose_format
from fishtts.config import (
    DEFAULT_ASR_MODEL,
    DEFAULT_ENGINE,
    DEFAULT_MAX_WER,
    DEFAULT_MODEL,
    EngineConfig,
    SpeechConfig,
)
from fishtts.errors import FishTTSError, OutputError, StoppedError, UsageError
from fishtts.jobs import speeds
from fishtts.jobs.dry_run import print_plan
from fishtts.jobs.folder import Permissions, open_folder
from fishtts.jobs.join import is_ours
from fishtts.jobs.plan import Job, Planner, Settings, model_identity, select
from fishtts.jobs.progress import Manner, Progress
from fishtts.jobs.run import Speak
from fishtts.jobs.shard import parse_shard
from fishtts.jobs.stopping import Stopped, Stopping
from fishtts.jobs.verify import Verifier
from fishtts.jobs.voices import VoiceLoader
from fishtts.jobs.work import FAILED, Wishes, Work
from fishtts.say import known_voices, locate
from fishtts.text.dialogue import find_speakers, read_cast
from fishtts.text.names import file_names
from fishtts.text.script import Script, read_script
from fishtts.text.split import Limits
from fishtts.types import Voice

if TYPE_CHECKING:
    from fishtts.codec import Codec
    from fishtts.engine.engine import Metrics
    from fishtts.tts import TTS, Line, SpokenLine

_LINE_FORMATS = ("wav", "flac", "mp3", "ogg", "opus")
_MAX_NOTES = 20
_NICENESS = 15
_GENTLE_BATCH = 8
"""Sentences that are spoken together while others want the machine: it costs little memory."""


@dataclass(frozen=True, slots=True)
class Request:
    """All that was asked for on the command line."""

    script: str
    output: str = ""
    format: str = ""
    input_format: str = ""
    split: str = "auto"
    encoding: str = "utf-8"
    columns: tuple[str, ...] = ()
    model: str = DEFAULT_MODEL
    voice: str = ""
    ref_text: str = ""
    cast: tuple[str, ...] = ()
    only: str = ""
    redo: str = ""
    takes: int = 1
    changed: bool = False
    force: bool = False
    strict: bool = False
    shard: str = ""
    merge: bool = False
    incomplete: bool = False
    srt: str = ""
    vtt: str = ""
    verify: bool = False
    max_wer: float = DEFAULT_MAX_WER
    asr_model: str = DEFAULT_ASR_MODEL
    yield_to_others: bool = False
    dry_run: bool = False
    as_json: bool = False
    quiet: bool = False
    progress: bool = True
    offline: bool = False
    engine: EngineConfig = DEFAULT_ENGINE
    speech: SpeechConfig = SpeechConfig()  # noqa: RUF009 (it is frozen)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where lines go, how they are written, and the joined file if there is to be one."""

    folder: Path
    format_name: str
    joined: Path | None = None


class Speaker(Protocol):
    """What speaks lines: a ``TTS``."""

    def lines(self, lines: Iterable[Line]) -> Iterator[SpokenLine]: ...
    @property
    def codec(self) -> Codec: ...
    @property
    def metrics(self) -> Metrics: ...
    @property
    def max_batch(self) -> int: ...


def batch(
    request: Request, *, speaker: Speaker | None = None, recogniser: Recogniser | None = None
) -> None:
    """Speak a script. ``speaker`` and ``recogniser`` take the place of those that are loaded when
    they are needed.

    Raises: ``LimitError`` after everything is saved, if lines failed or fell short;
    ``StoppedError`` after SIGTERM.
    """
    _check_options(request, recogniser)
    stopping = Stopping()
    with stopping.listening():
        try:
            _batch(request, stopping, speaker, recogniser)
        except Stopped:
            raise StoppedError("Stopped on request before anything was begun.") from None


def _batch(
    request: Request,
    stopping: Stopping,
    speaker: Speaker | None,
    recogniser: Recogniser | None,
) -> None:
    place = _place(request)
    script = read_script(
        request.script,
        format=request.input_format,
        split=request.split,
        encoding=request.encoding,
        columns=_columns(request.columns),
        suffix=f".{place.format_name}",
    )
    progress = Progress(Manner(request.as_json, request.quiet, request.progress))
    for remark in script.notes[:_MAX_NOTES]:
        progress.note(remark)
    planner, jobs = _plan(request, place, script)
    wishes = _wishes(request, place, script)
    if request.dry_run:
        chosen = [job for job in jobs if wishes.include(job)]
        print_plan(chosen, script, planner, device=request.engine.device, as_json=request.as_json)
        return
    _check_files(wishes, place.folder)
    if request.yield_to_others and hasattr(os, "nice"):
        os.nice(_NICENESS)
    path = place.folder / wishes.shard.folder_name if wishes.shard else place.folder
    with open_folder(path) as folder:
        work = Work(folder, jobs, planner, wishes, progress, stopping)
        _run(work, _Tools(request, planner, progress, speaker, recogniser))


def _check_options(request: Request, recogniser: Recogniser | None) -> None:
    """Refuse what contradicts itself, before anything is read or loaded."""
    if not request.output and not request.dry_run:
        raise UsageError(
            "Where the audio goes is not said.",
            hint="Name a folder, -o out/, or one file for all of it, -o book.wav",
        )
    if request.output == "-":
        raise UsageError("A batch is not written to standard output.", hint="Name a folder: -o out")
    if request.merge and request.shard:
        raise UsageError("--shard makes a share and --merge gathers all: one at a time.")
    if request.incomplete and not request.merge:
        raise UsageError("--incomplete goes with --merge.")
    if not 1 <= request.takes <= 1000:
        raise UsageError(f"The takes are {request.takes}; they must lie between 1 and 1000.")
    if not 0 <= request.max_wer <= 1:
        raise UsageError(f"--max-wer is {request.max_wer:g}; it must lie between 0 and 1.")
    if request.max_wer != DEFAULT_MAX_WER and not request.verify:
        raise UsageError("--max-wer goes with --verify.")
    check_speed(request.speech.speed)
    if request.verify and recogniser is None:
        check_installed()


def _place(request: Request) -> _Place:
    """Tell a folder from a joined file by the ending."""
    output = request.output or "out"
    path = Path(output)
    is_file = bool(path.suffix) and not output.endswith(("/", os.sep)) and not path.is_dir()
    if not is_file:
        return _Place(path, _line_format(request.format or "wav"))
    choose_format(output, request.format or None)
    return _Place(path.with_name(f"{path.stem}.parts"), "wav", joined=path)


def _line_format(name: str) -> str:
    if name not in _LINE_FORMATS:
        raise OutputError(
            f'The format "{name}" cannot be written.',
            hint=f"Choose from {', '.join(_LINE_FORMATS)}.",
        )
    return name


def _columns(named: Sequence[str]) -> dict[str, str] | None:
    """Read ``text=text_de``."""
    columns = {}
    for pair in named:
        key, equals, name = pair.partition("=")
        if not equals or not key.strip() or not name.strip():
            raise UsageError(f'"{pair}" names no column.', hint="Write --column text=text_de")
        columns[key.strip()] = name.strip()
    return columns or None


def _plan(request: Request, place: _Place, script: Script) -> tuple[Planner, list[Job]]:
    """Plan the whole script: all that may be wrong with it is found here."""
    source = hub.parse(request.model)
    offline = request.offline or request.dry_run
    model_folder = locate(source, offline=offline, quiet=request.quiet)
    card = hub.card(source, model_folder)
    settings = Settings(
        speech=request.speech,
        format_name=place.format_name,
        voice=request.voice,
        takes=request.takes,
        strict=request.strict,
        model="" if request.dry_run else model_identity(model_folder),
    )
    cast = read_cast(request.cast)
    rows = (row for line in script.lines for row in line.text.split("\n"))
    speakers = find_speakers(rows, known_voices(model_folder, cast), cast)
    voices = VoiceLoader(model_folder, card, ref_text=request.ref_text)
    planner = Planner(card, voices, settings, speakers)
    files = file_names([(line.id, line.out) for line in script.lines], f".{place.format_name}")
    return planner, planner.plan(script, files)


def _wishes(request: Request, place: _Place, script: Script) -> Wishes:
    """Say what is to be done, once it is known which lines there are."""
    lines = script.lines
    redo = select(lines, request.redo)
    chosen = select(lines, request.only) | redo if request.only or redo else None
    limits = Limits()
    pause_s = limits.pause_s if request.split == "sentence" else limits.paragraph_pause_s
    if request.speech.pause_s is not None:
        pause_s = request.speech.pause_s
    return Wishes(
        format_name=place.format_name,
        retries=request.speech.retries,
        chosen=chosen,
        redo=redo,
        shard=parse_shard(request.shard) if request.shard else None,
        merges=request.merge,
        may_be_incomplete=request.incomplete,
        allowed=Permissions(request.changed or bool(redo), request.force),
        joined=place.joined,
        subtitles=_subtitles(request),
        pause_s=pause_s,
        max_wer=request.max_wer if request.verify else None,
        is_rest=Path(request.script).resolve() == (place.folder / FAILED).resolve(),
    )


def _check_files(wishes: Wishes, folder: Path) -> None:
    """Find out before the work that the files beside the lines can be written."""
    for target in filter(None, (wishes.joined, *wishes.subtitles)):
        if not target.parent.is_dir():
            raise OutputError(
                f'The folder "{target.parent}" does not exist.', hint="Make it first."
            )
        if target.is_dir():
            raise OutputError(f'"{target}" is a folder, not a file.')
        if target.exists() and not (wishes.allowed.force or is_ours(folder, target)):
            raise OutputError(
                f'The file "{target}" exists already.', hint="Add --force to replace it."
            )


def _subtitles(request: Request) -> tuple[Path, ...]:
    named = {".srt": request.srt, ".vtt": request.vtt}
    for suffix, name in named.items():
        if name and Path(name).suffix.lower() != suffix:
            raise OutputError(f'The name "{name}" does not end in {suffix}.')
    return tuple(Path(name) for name in named.values() if name)


def _run(work: Work, tools: _Tools) -> None:
    """Do the work, and save what is finished however it ends."""
    try:
        work.look()
        work.make(tools)
        tools.remember_speed()
        work.join()
    except KeyboardInterrupt:
        work.save()
        work.stopped()
        tools.progress.note(f"Interrupted. {work.kept()}")
        raise
    except Stopped:
        work.save()
        work.stopped()
        raise StoppedError(f"Stopped on request. {work.kept()}") from None
    except (FishTTSError, BrokenPipeError):
        tools.progress.end()
        with suppress(FishTTSError):
            work.save()
        raise
    work.save()
    work.finish()


class _Tools:
    """What speaks and what listens, loaded when there is something to speak or to hear."""

    def __init__(
        self,
        request: Request,
        planner: Planner,
        progress: Progress,
        speaker: Speaker | None,
        recogniser: Recogniser | None,
    ) -> None:
        self.progress = progress
        self._speaker = speaker
        self._request = request
        self._planner = planner
        self._recogniser = recogniser

    def speaker(self, jobs: Sequence[Job]) -> tuple[Speak, dict[str, Voice | None]]:
        """Load the model, and encode the voices of these jobs for it."""
        tts = self._speaker or _load(self._request)
        loaded = {job.voice.identity: job.voice for job in jobs}
        voices = {}
        for identity, voice in loaded.items():
            for remark in voice.notes:
                self.progress.note(remark)
            voices[identity] = voice.encoded(tts.codec)
        self.progress.watch(lambda: tts.metrics.rows_a_step / tts.max_batch)
        return tts.lines, voices

    def remember_speed(self) -> None:
        """Keep how fast it was, for the next dry run."""
        speed = self.progress.speed()
        speeds.remember(self._planner.card.name, self._request.engine.device, speed)

    def verifier(self) -> Verifier | None:
        """Load the recogniser, if somebody is to listen."""
        request = self._request
        if not request.verify:
            return None
        recogniser = self._recogniser or Whisper(
            request.asr_model, device=request.engine.device, offline=request.offline
        )
        languages = self._planner.card.languages
        language = languages[0] if len(languages) == 1 else ""
        return Verifier(recogniser, request.max_wer, language)


def _load(request: Request) -> TTS:
    """Load the model now, so that the time it takes is not counted as speaking."""
    from fishtts.tts import TTS

    source = hub.parse(request.model)
    tts = TTS(
        str(source.folder) if source.kind == "folder" else request.model,
        device=request.engine.device,
        dtype=request.engine.dtype,
        max_batch=request.engine.max_batch or (_GENTLE_BATCH if request.yield_to_others else 0),
        deterministic=request.engine.deterministic,
        offline=True,
    )
    tts.speaking  # noqa: B018 (it is loaded when it is first asked for)
    return tts

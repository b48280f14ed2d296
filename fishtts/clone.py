"""What ``fishtts clone`` does: recordings to a voice, kept under a name or in a file, and the truth
about how good they are.

Owns the manners of the command. Knows nothing of how a recording is judged or a voice is kept, and
loads torch only when every option is found to be right.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fishtts import hub
from fishtts.asr.recogniser import Whisper, check_installed
from fishtts.cloning.recordings_folder import name_from
from fishtts.cloning.store import Store, check_name
from fishtts.cloning.transcript import Transcribe, check_words, words_beside
from fishtts.cloning.voice_checks import check_note
from fishtts.cloning.voice_file import SUFFIX, write_voice
from fishtts.config import DEFAULT_ASR_MODEL, DEFAULT_ENGINE, DEFAULT_MODEL
from fishtts.errors import AudioError, OutputError, ScriptError, UsageError
from fishtts.printing import print_json, print_line
from fishtts.text.read import read_file
from fishtts.types import Audio, Card, Voice

if TYPE_CHECKING:
    from fishtts.cloning.prepare import Facts, Prepared

_NOTICE = (
    "A voice is somebody's: clone your own, or one whose owner has agreed to what you do with it."
    " --consent self, licensed or a note of yours writes that into the voice."
)


@dataclass(frozen=True, slots=True)
class Request:
    """All that was asked for on the command line."""

    recordings: tuple[str, ...]
    name: str = ""
    text: str = ""
    text_file: str = ""
    transcribe: bool = False
    asr_model: str = DEFAULT_ASR_MODEL
    start_s: float | None = None
    end_s: float | None = None
    consent: str = ""
    with_clip: bool = True
    language: str = ""
    description: str = ""
    model: str = DEFAULT_MODEL
    output: str = ""
    force: bool = False
    as_json: bool = False
    quiet: bool = False
    offline: bool = False


def clone(request: Request, *, started: float) -> None:
    """Make a voice. ``started`` is when the command did (``time.perf_counter``).

    Raises: ``FishTTSError`` before anything is kept.
    """
    _check_notes(request)
    place = _place(request)
    source = hub.parse(request.model)
    folder = hub.locate(source, offline=request.offline, quiet=request.quiet)
    card = hub.card(source, folder)
    paths = [Path(recording).expanduser() for recording in request.recordings]
    text = _words(request)
    transcribe = _transcriber(request, card, has_words=bool(text) or all(map(words_beside, paths)))
    is_first = not Store().names()
    from fishtts.cloning.prepare import prepare

    with _one_thread():
        prepared = prepare(
            paths,
            start_s=request.start_s,
            end_s=request.end_s,
            text=text,
            max_s=card.reference_s,
            transcribe=transcribe,
        )
    _check_words_known(prepared, card)
    voice = _encoded(prepared, folder, card, place, request)
    file = place.keep(voice, force=request.force)
    if is_first and not request.consent:
        _note(request, _NOTICE)
    _report(request, prepared, voice, file, card, took_s=time.perf_counter() - started)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the voice goes: among one's own under its name, or into a file."""

    name: str
    path: Path | None

    def keep(self, voice: Voice, *, force: bool) -> Path:
        if self.path is None:
            return Store().add(voice, force=force)
        write_voice(voice, self.path)
        return self.path


def _place(request: Request) -> _Place:
    """Decide it, and refuse before the work what would be refused after it."""
    if not request.output:
        if not request.name:
            raise UsageError(
                "The voice needs a name.", hint="Add --name mira (or -o mira.fishvoice for a file)"
            )
        Store().place_for(request.name, force=request.force)
        return _Place(check_name(request.name), None)
    path = Path(request.output).expanduser()
    if path.suffix.lower() != SUFFIX:
        raise UsageError(f'"{path}" does not end in {SUFFIX}, as voice files do.')
    if path.exists() and not request.force:
        raise OutputError(f'The file "{path}" exists already.', hint="Add --force to replace it.")
    if not path.parent.is_dir():
        raise OutputError(f'There is no folder "{path.parent}".')
    return _Place(check_name(request.name or name_from(path.stem) or "voice"), path)


def _check_notes(request: Request) -> None:
    for option, value in (
        ("--consent", request.consent),
        ("--description", request.description),
        ("--language", request.language),
    ):
        try:
            check_note(value)
        except ValueError as error:
            raise UsageError(f"{option} cannot be kept: {error}.") from None


def _words(request: Request) -> str:
    """Get the words from the command line or a file."""
    if request.text and request.text_file:
        raise UsageError("There are words and a file to read them from.", hint="Give one of them.")
    text = read_file(Path(request.text_file)) if request.text_file else request.text
    if (request.text or request.text_file) and not text.strip():
        raise ScriptError("The transcript is empty.")
    return check_words(text)


def _transcriber(request: Request, card: Card, *, has_words: bool) -> Transcribe | None:
    """Get a recogniser where it was asked for. Without words, a model that needs them is told of
    before the work."""
    if request.transcribe:
        check_installed()
        recogniser = Whisper(request.asr_model, offline=request.offline)

        def transcribe(clip: Audio) -> str:
            return recogniser.transcribe(clip.samples, clip.sample_rate, request.language)

        return transcribe
    if card.needs_transcript and not has_words:
        raise UsageError(
            f"The model {card.name} needs to know what is said in the recording.",
            hint="Write it down (--text 'the words'), or let it be heard: --transcribe",
        )
    return None


def _check_words_known(prepared: Prepared, card: Card) -> None:
    """Refuse a clip without words, for a model that needs them."""
    for facts, text in zip(prepared.facts, prepared.texts, strict=True):
        if card.needs_transcript and not text:
            raise AudioError(
                f'No words were heard in "{facts.file}", and the model {card.name} needs them.',
                hint="Write them down: --text 'the words'",
            )


def _encoded(
    prepared: Prepared, folder: Path, card: Card, place: _Place, request: Request
) -> Voice:
    """Turn clips into the codes of the model's codec."""
    from fishtts.cloning.assemble import assemble
    from fishtts.codec import load_codec
    from fishtts.tts import resolve

    codec = load_codec(folder, device=resolve(DEFAULT_ENGINE).device)
    voice = assemble(prepared, codec, name=place.name, model=card.name, consent=request.consent)
    return replace(
        voice,
        language=request.language,
        description=request.description,
        clips=voice.clips if request.with_clip else (),
    )


@contextmanager
def _one_thread() -> Iterator[None]:
    """Listen on one thread: these networks are so small that sharing their work costs more than it
    saves."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _report(
    request: Request, prepared: Prepared, voice: Voice, file: Path, card: Card, *, took_s: float
) -> None:
    for facts in prepared.facts:
        _note(request, _told(facts))
    for warning in prepared.warnings:
        _note(request, warning)
    if not all(prepared.texts):
        _note(
            request,
            f"What is said in it is not known. The model {card.name} can do without; others, such"
            " as s2-pro, cannot (--text, or --transcribe).",
        )
    if not voice.clips:
        _note(request, f"Without its clip, it speaks through {card.name} only.")
    if request.as_json:
        print_json(_as_json(prepared, voice, file, took_s))
    else:
        print_line(str(file))


def _told(facts: Facts) -> str:
    """Say what was kept of a recording, and why."""
    channels = {1: "mono", 2: "stereo"}.get(facts.channels_in, f"{facts.channels_in} channels")
    bandwidth = f"bandwidth {facts.bandwidth_hz / 1000:.1f} kHz"
    gain = f", {facts.gain_db:+.0f} dB" if facts.gain_db else ""
    return (
        f'"{facts.file}": {facts.seconds_in:.1f} s, {facts.rate_in} Hz, {channels},'
        f" {facts.speech_seconds:.1f} s of speech. Kept {facts.kept_from:.1f} to"
        f" {facts.kept_to:.1f} s ({facts.kept_seconds:.1f} s): speech {facts.snr_db:.0f} dB above"
        f" the noise, {bandwidth}{gain}."
    )


def _as_json(prepared: Prepared, voice: Voice, file: Path, took_s: float) -> dict[str, Any]:
    """Lay it out for scripts: the facts of a single recording stand at the top as well."""
    recordings = [
        {**asdict(facts), "text": text}
        for facts, text in zip(prepared.facts, prepared.texts, strict=True)
    ]
    single = recordings[0] if len(recordings) == 1 else {}
    return {
        **{key: value for key, value in single.items() if key not in ("file", "gain_db")},
        "kept_seconds": round(sum(facts.kept_seconds for facts in prepared.facts), 3),
        "speech_seconds": round(sum(facts.speech_seconds for facts in prepared.facts), 2),
        "warnings": list(prepared.warnings),
        "voice": voice.name,
        "file": str(file),
        "model": voice.model,
        "consent": voice.consent,
        "has_clip": bool(voice.clips),
        "took_s": round(took_s, 3),
        "recordings": recordings,
    }


def _note(request: Request, text: str) -> None:
    if not request.quiet:
        print(f"fishtts: {text}", file=sys.stderr)

"""The one place where all rooms meet: text in, speech out.

Owns the wiring and the order of the units. Knows nothing of how a step or a kernel works, and
nothing of files that audio goes to.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from fishtts import hub
from fishtts.audio.join import Joiner
from fishtts.audio.tempo import change_tempo, check_speed
from fishtts.cloning.reference_audio import encode_reference, read_reference
from fishtts.cloning.voice_file import read_voice
from fishtts.codec import Codec, load_codec
from fishtts.config import (
    DEFAULT_ENGINE,
    DEFAULT_MODEL,
    DEFAULT_SPEECH,
    EngineConfig,
    SpeechConfig,
)
from fishtts.errors import DeviceError, FishTTSError, ModelError, UsageError
from fishtts.model_folder import find_voice, is_file_name, voice_names
from fishtts.models import LoadedModel, load_model
from fishtts.plan import Plan, PlannedUnit, make_plan
from fishtts.report import Report, UnitReport
from fishtts.speaking import Try, UnitSpeaker, memory_errors
from fishtts.types import Audio, Card, Reference, Samples, SamplingParams, Voice

_SMALL_MODEL = 200_000_000
"""Parameters up to which one thread is the fastest: measured at 26 million, where two threads take
1.4 times as long; at S2 Pro's four billion every core counts."""

VoiceLike = str | Path | Voice | Audio | None
"""A voice by name, a file of one or a recording, a voice, a recording; or the model's default."""


@dataclass(frozen=True, slots=True)
class Speech:
    """Finished speech: mono samples, their rate, and the report."""

    samples: Samples
    sample_rate: int
    report: Report

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write a sound file; its ending tells the format."""
        from fishtts.audio.write import open_file

        with open_file(Path(path), sample_rate=self.sample_rate, force=force) as writer:
            writer.write(self.samples)


class SpeechStream:
    """Speech as it is made: iterate over chunks of samples; the report is complete at the end."""

    def __init__(self, chunks: Iterator[Samples], report: Report) -> None:
        self._chunks = chunks
        self.sample_rate = report.sample_rate
        self.report = report

    def __iter__(self) -> Iterator[Samples]:
        return self._chunks


@dataclass(frozen=True, slots=True)
class Line:
    """A text to be spoken as one piece of audio beside others. ``key`` is the caller's own name for
    it; the plan's units may have voices of their own, by name."""

    key: str
    plan: Plan
    voice: VoiceLike = None
    config: SpeechConfig = DEFAULT_SPEECH


@dataclass(frozen=True, slots=True)
class SpokenLine:
    """What became of a line: its speech, or the error that kept it from being spoken."""

    key: str
    speech: Speech | None
    error: FishTTSError | None = None


class TTS:
    """A model ready to speak. It is loaded when it is first needed.

    ``model`` is a built-in name, a name or id on the hub, or a folder.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        device: str = DEFAULT_ENGINE.device,
        dtype: str = DEFAULT_ENGINE.dtype,
        offline: bool = False,
    ) -> None:
        source = hub.parse(model)
        self._config = resolve(EngineConfig(device, dtype))
        self._folder = hub.locate(source, offline=offline)
        self.card: Card = hub.card(source, self._folder)
        self._model: LoadedModel | None = None
        self._codec: Codec | None = None
        self._load_s = 0.0

    @property
    def model(self) -> LoadedModel:
        """The model, loaded."""
        if self._model is None:
            start = time.perf_counter()
            with memory_errors():
                self._model = load_model(
                    self._folder,
                    device=self._config.device,
                    dtype=getattr(torch, self._config.dtype),
                )
            self._settle_threads(self._model)
            self._load_s += time.perf_counter() - start
        return self._model

    def _settle_threads(self, model: LoadedModel) -> None:
        """Let a small model run on one thread of the CPU, for the whole process.

        Its steps are so short that sharing them out costs more than it saves, and sums that are
        always made in one order give the same audio on every number of cores.
        """
        num_parameters = sum(p.numel() for p in model.net.parameters())
        if model.device.type == "cpu" and num_parameters < _SMALL_MODEL:
            torch.set_num_threads(1)

    @property
    def codec(self) -> Codec:
        """The model's codec, loaded; it runs in float32 everywhere."""
        if self._codec is None:
            start = time.perf_counter()
            with memory_errors():
                self._codec = load_codec(self._folder, device=self._config.device)
            self._load_s += time.perf_counter() - start
        return self._codec

    @property
    def sample_rate(self) -> int:
        """Samples a second, in Hz."""
        return self.codec.sample_rate

    def voices(self) -> list[Voice]:
        """List the voices that come with the model."""
        return [self.voice(name) for name in voice_names(self._folder)]

    def voice(self, name: str) -> Voice:
        """Get a voice by name.

        Raises: ``VoiceError`` for a name that the model does not have.
        """
        return read_voice(find_voice(self._folder, self.card.name, name))

    def play_voice(self, name: str) -> Audio:
        """Decode the recordings that a voice was made from."""
        voice = self.voice(name)
        self._check_codec(voice)
        codes = np.concatenate([reference.codes for reference in voice.references], axis=1)
        with torch.inference_mode():
            samples = self.codec.decode(torch.from_numpy(codes)).float().cpu().numpy()
        return Audio(samples, self.sample_rate)

    def plan(self, text: str, config: SpeechConfig = DEFAULT_SPEECH) -> Plan:
        """Say how a text would be spoken, without speaking it."""
        return make_plan(text, self.card, config)

    def say(
        self,
        text: str,
        *,
        voice: VoiceLike = None,
        ref_text: str = "",
        seed: int = DEFAULT_SPEECH.seed,
        temperature: float | None = DEFAULT_SPEECH.temperature,
        top_p: float | None = DEFAULT_SPEECH.top_p,
        top_k: int | None = DEFAULT_SPEECH.top_k,
        speed: float = DEFAULT_SPEECH.speed,
        pause: float | None = DEFAULT_SPEECH.pause_s,
        retries: int = DEFAULT_SPEECH.retries,
    ) -> Speech:
        """Speak a text of any length.

        ``ref_text`` is what is said in a recording given as ``voice``. What fell short is in the
        report, and not raised.
        """
        config = SpeechConfig(seed, temperature, top_p, top_k, speed, pause, retries)
        stream = self.stream(text, config, voice=voice, ref_text=ref_text, live=False)
        samples = np.concatenate([np.zeros(0, np.float32), *stream])
        return Speech(samples, stream.sample_rate, stream.report)

    def stream(
        self,
        text: str,
        config: SpeechConfig = DEFAULT_SPEECH,
        *,
        voice: VoiceLike = None,
        ref_text: str = "",
        live: bool = True,
        plan: Plan | None = None,
    ) -> SpeechStream:
        """Speak a text chunk by chunk.

        ``live`` lets a unit go out while it is made, as soon as it is long enough to be whole; what
        goes wrong after that is reported, but cannot be tried again. Otherwise a unit goes out when
        it has passed its checks.
        """
        return self._stream(
            plan or make_plan(text, self.card, config), config, voice, ref_text, live=live
        )

    def _stream(
        self, plan: Plan, config: SpeechConfig, voice: VoiceLike, ref_text: str, *, live: bool
    ) -> SpeechStream:
        check_speed(config.speed)
        params = self._params(config)
        speaker, notes = self._speaker(voice, ref_text)
        units = UnitSpeaker(
            self.model,
            self.codec,
            params,
            retries=config.retries,
            live=live and config.speed == 1.0,
        )
        report = Report(
            model=self.card.name,
            voice=speaker.name,
            sample_rate=self.sample_rate,
            seed=config.seed,
            shortfalls=plan.shortfalls,
            notes=tuple(notes),
            load_s=self._load_s,
        )
        chunks = _joined(plan, units, speaker.references, config.speed, report)
        return SpeechStream(chunks, report)

    def lines(self, lines: Iterable[Line]) -> Iterator[SpokenLine]:
        """Speak many lines together; each is answered when it is whole, in whatever order.

        Lines are taken from ``lines`` as there is room for them. An error of one line is answered
        in its place; a ``DeviceError`` is raised, since the next line would meet it too.
        """
        for line in lines:
            try:
                stream = self._stream(line.plan, line.config, line.voice, "", live=False)
                samples = np.concatenate([np.zeros(0, np.float32), *stream])
            except DeviceError:
                raise
            except FishTTSError as error:
                yield SpokenLine(line.key, None, error)
            else:
                yield SpokenLine(line.key, Speech(samples, stream.sample_rate, stream.report))

    def _params(self, config: SpeechConfig) -> SamplingParams:
        """Fill in what the caller left to the model's card."""
        card = self.card
        return SamplingParams(
            temperature=card.temperature if config.temperature is None else config.temperature,
            top_p=card.top_p if config.top_p is None else config.top_p,
            top_k=card.top_k if config.top_k is None else config.top_k,
            max_frames=config.max_frames,
        )

    def _speaker(self, voice: VoiceLike, ref_text: str) -> tuple[Voice, list[str]]:
        """Turn what a caller names into a voice, with notes; without one, the model's default."""
        notes: list[str] = []
        if voice is None:
            voice = self.card.default_voice or Voice("", ())
        if isinstance(voice, str):
            voice = Path(voice) if is_file_name(voice) else self.voice(voice)
        if isinstance(voice, Path) and voice.suffix == ".safetensors":
            voice = read_voice(voice)
        if isinstance(voice, Voice):
            if ref_text:
                raise UsageError(
                    "A transcript goes with a recording; a voice has its words already."
                )
            self._check_codec(voice)
        elif isinstance(voice, Audio):
            reference = encode_reference(voice, self.codec, text=ref_text)
            voice = Voice("recording", (reference,))
        else:
            self._check_transcript(ref_text)
            reference, notes = read_reference(voice, self.codec, text=ref_text)
            voice = Voice(voice.stem, (reference,))
        for reference in voice.references:
            self._check_transcript(reference.text)
        return voice, notes

    def _check_transcript(self, text: str) -> None:
        if self.card.needs_transcript and not text.strip():
            raise UsageError(
                f"The model {self.card.name} needs to know what is said in the recording.",
                hint="Write it down: --ref-text 'the words'",
            )

    def _check_codec(self, voice: Voice) -> None:
        fits = all(r.codes.shape[0] == self.codec.num_codebooks for r in voice.references)
        if not fits or voice.codec not in ("", self.codec.identity):
            raise ModelError(
                f'The voice "{voice.name}" was made for another model than {self.card.name}.',
                hint="Use the recording that it was made from.",
            )


def resolve(config: EngineConfig) -> EngineConfig:
    """Replace ``auto`` by what this machine has.

    Raises: ``DeviceError`` for a device that it has not.
    """
    name = config.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise DeviceError(
            f'The device "{name}" cannot be used: {reason}.', hint="See: fishtts doctor"
        ) from None
    dtype = config.dtype
    if dtype == "auto":
        dtype = "float32" if device.type == "cpu" else "bfloat16"
    return replace(config, device=name, dtype=dtype)


def _joined(
    plan: Plan,
    units: UnitSpeaker,
    references: tuple[Reference, ...],
    speed: float,
    report: Report,
) -> Iterator[Samples]:
    """Speak unit after unit, join them, and keep the report as it goes.

    Without a voice, whoever speaks the first unit goes on: it is the reference of the others.
    """
    start = time.perf_counter()
    joiner = Joiner(report.sample_rate)
    num_samples = 0
    for planned in plan.units:
        begin = num_samples
        kept: Try | None = None
        for chunk in _chunks(planned, units, references, joiner, speed):
            if isinstance(chunk, Try):
                kept = chunk
            elif len(chunk):
                num_samples += len(chunk)
                report.work_s = time.perf_counter() - start
                report.first_audio_s = report.first_audio_s or report.work_s
                report.seconds = num_samples / report.sample_rate
                yield chunk
        if kept is not None and not references and not kept.faults:
            references = (Reference(kept.codes, planned.unit.model_text),)
        span_s = (begin / report.sample_rate, (num_samples - begin) / report.sample_rate)
        report.units.append(_unit_report(planned, kept, *span_s))
    report.work_s = time.perf_counter() - start


def _chunks(
    planned: PlannedUnit,
    units: UnitSpeaker,
    references: tuple[Reference, ...],
    joiner: Joiner,
    speed: float,
) -> Iterator[Samples | Try]:
    """Answer one unit's samples, faded and with its pause, and the try that was kept."""
    if planned.is_silent:
        return
    for item in units.speak(planned, references):
        if not isinstance(item, Try):
            yield joiner.push(item)
            continue
        if not item.is_out:
            yield joiner.push(change_tempo(item.samples, units.sample_rate, speed))
        yield joiner.end_unit(planned.unit.pause_s)
        yield item


def _unit_report(
    planned: PlannedUnit, kept: Try | None, start_s: float, seconds: float
) -> UnitReport:
    unit = planned.unit
    if kept is None:
        return UnitReport(unit.text, "", planned.seed, 0, start_s, seconds, warnings=unit.warnings)
    return UnitReport(
        text=unit.text,
        model_text=unit.model_text,
        seed=kept.seed,
        tries=kept.number,
        start_s=start_s,
        seconds=seconds,
        num_frames=kept.codes.shape[1],
        stop_reason=kept.stop_reason,
        faults=kept.faults,
        warnings=unit.warnings,
    )

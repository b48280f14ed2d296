"""The one place where all rooms meet: text in, speech out.

Owns the wiring and the order of the units. Knows nothing of how a step or a kernel works, and
nothing of files that audio goes to.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from fishtts import hub, model_folder
from fishtts.audio.tempo import check_speed
from fishtts.cloning.likeness import decoded
from fishtts.cloning.reencode import voice_for
from fishtts.cloning.reference_audio import encode_reference, read_reference
from fishtts.cloning.store import find_voice
from fishtts.cloning.voice_file import is_voice_file, read_voice
from fishtts.codec import Codec, load_codec
from fishtts.config import (
    DEFAULT_ENGINE,
    DEFAULT_MODEL,
    DEFAULT_SPEECH,
    EngineConfig,
    SpeechConfig,
)
from fishtts.engine.engine import Engine, Metrics
from fishtts.engine.runner import Runner
from fishtts.errors import DeviceError, FishTTSError, UsageError
from fishtts.model_folder import is_file_name, voice_names
from fishtts.models import LoadedModel
from fishtts.models.precision import load_in
from fishtts.plan import Plan, make_plan
from fishtts.reading import Reading
from fishtts.report import Report
from fishtts.speaking import Speaking, batch_decoder, memory_errors
from fishtts.types import Audio, Card, Samples, SamplingParams, Voice

_SMALL_MODEL = 200_000_000
"""Parameters up to which one thread is the fastest: measured at 26 million, where two threads take
1.4 times as long; at S2 Pro's four billion every core counts."""

_BUDGET = {"cpu": 256}
_BUDGET_ELSEWHERE = 4096
"""Positions of prompts that are worked out beside a frame: on a CPU they hold up those who speak,
a GPU is idle without them."""

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

    ``model`` is a built-in name, a name or id on the hub, or a folder; what the others mean, says
    ``EngineConfig``.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        device: str = DEFAULT_ENGINE.device,
        dtype: str = DEFAULT_ENGINE.dtype,
        max_batch: int = DEFAULT_ENGINE.max_batch,
        deterministic: bool = DEFAULT_ENGINE.deterministic,
        kernels: bool | None = DEFAULT_ENGINE.kernels,
        offline: bool = False,
    ) -> None:
        source = hub.parse(model)
        self._config = resolve(EngineConfig(device, dtype, max_batch, deterministic, kernels))
        self._folder = hub.locate(source, offline=offline)
        self.card: Card = hub.card(source, self._folder)
        self._model: LoadedModel | None = None
        self._codec: Codec | None = None
        self._engine: Engine | None = None
        self._speaking: Speaking | None = None
        self._load_s = 0.0

    @property
    def model(self) -> LoadedModel:
        """The model, loaded."""
        if self._model is None:
            start = time.perf_counter()
            with memory_errors():
                self._model = load_in(
                    self._folder, device=self._config.device, wish=self._config.dtype
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
        """The model's codec, loaded; it runs in float32, but for units that a GPU decodes beside
        each other."""
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
        return find_voice(name, self._folder, self.card.name).voice

    def play_voice(self, name: str) -> Audio:
        """Decode the recordings that a voice was made from."""
        return decoded(self.voice(name), self.codec)

    def plan(
        self,
        text: str,
        config: SpeechConfig = DEFAULT_SPEECH,
        *,
        cast: Mapping[str, str] | None = None,
    ) -> Plan:
        """Say how a text would be spoken, without speaking it.

        With a ``cast`` (names in the text to voices; it may be empty) the text may be a dialogue.
        """
        voices = None if cast is None else [*voice_names(self._folder), *cast.values()]
        return make_plan(text, self.card, config, voices=voices, cast=cast)

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
        reading = self._reading(
            Line("", plan or make_plan(text, self.card, config), voice, config),
            ref_text,
            live=live,
        )
        # Who listens wants the first unit soon, and not all of them at once later.
        return SpeechStream(
            self._read(reading, width=1 if live else self.max_batch), reading.report
        )

    def lines(self, lines: Iterable[Line]) -> Iterator[SpokenLine]:
        """Speak many lines together; each is answered when it is whole, in whatever order.

        Lines are taken from ``lines`` as there is room for them. An error of one line is answered
        in its place.
        Raises: ``DeviceError``, since the next line would meet it too.
        """
        waiting = iter(lines)
        # Read once each: what happens to a voice's file after that changes no line.
        voices: dict[str, Voice] = {}
        in_work: dict[str, Reading] = {}
        made: dict[str, list[Samples]] = {}
        more = True
        try:
            while more or in_work:
                for reading in in_work.values():
                    reading.fill(self.max_batch)
                while more and self.speaking.num_units < self.max_batch:
                    line = next(waiting, None)
                    more = line is not None
                    if line is None:
                        break
                    assert line.key not in in_work, f"two lines in work are called {line.key}"
                    try:
                        in_work[line.key] = self._reading(line, "", live=False, known=voices)
                    except DeviceError:
                        raise
                    except FishTTSError as error:
                        yield SpokenLine(line.key, None, error)
                        continue
                    made[line.key] = []
                    in_work[line.key].fill(self.max_batch)
                self.speaking.step()
                for key, reading in list(in_work.items()):
                    made[key].extend(reading.take())
                    if reading.is_done:
                        del in_work[key]
                        yield _spoken(key, reading, made.pop(key))
        finally:
            for reading in in_work.values():
                reading.drop()

    @property
    def speaking(self) -> Speaking:
        """Where units are spoken beside each other: the model, its codec and the engine, loaded."""
        if self._speaking is None:
            model, codec = self.model, self.codec
            with memory_errors():
                engine = Engine(
                    Runner(model, self._config),
                    budget=_BUDGET.get(model.device.type, _BUDGET_ELSEWHERE),
                )
            deterministic = self._config.deterministic
            decoder = None
            if self._config.kernels:
                num = engine.capacity.max_batch
                decoder = batch_decoder(codec, num, deterministic=deterministic)
            self._speaking = Speaking(
                model, codec, engine, in_chunks=deterministic, decoder=decoder
            )
            self._engine = engine
        return self._speaking

    @property
    def metrics(self) -> Metrics:
        """What the engine has done so far."""
        return self._engine.metrics if self._engine is not None else Metrics()

    @property
    def max_batch(self) -> int:
        """Units that are spoken together at most."""
        self.speaking  # noqa: B018 (it makes the engine)
        assert self._engine is not None
        return self._engine.capacity.max_batch

    def _read(self, reading: Reading, width: int) -> Iterator[Samples]:
        """Speak one text to its end."""
        try:
            while not reading.is_done:
                reading.fill(width)
                self.speaking.step()
                yield from reading.take()
        finally:
            reading.drop()
        if reading.error is not None:
            raise reading.error

    def _reading(
        self,
        line: Line,
        ref_text: str,
        *,
        live: bool,
        known: dict[str, Voice] | None = None,
    ) -> Reading:
        """Get a line ready to be spoken: its parameters, its voices, its report.

        ``known`` are voices by name that were read before; it is added to.
        """
        config, plan = line.config, line.plan
        check_speed(config.speed)
        params = self._params(config)
        known = {} if known is None else known
        speaker, notes = self._speaker(line.voice, ref_text)
        cast = {}
        for name in plan.voices:
            known[name] = self._speaker(known.get(name, name), "")[0]
            cast[name] = known[name].references
        cast[""] = speaker.references
        report = Report(
            model=self.card.name,
            voice=speaker.name,
            sample_rate=self.sample_rate,
            seed=config.seed,
            shortfalls=plan.shortfalls,
            notes=tuple(notes),
            load_s=self._load_s,
        )
        return Reading(
            plan,
            self.speaking,
            cast.__getitem__,
            params,
            report,
            speed=config.speed,
            retries=config.retries,
            live=live,
        )

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
            voice = self._default_voice()
        if isinstance(voice, str):
            voice = Path(voice) if is_file_name(voice) else self.voice(voice)
        if isinstance(voice, Path) and is_voice_file(voice.name):
            voice = read_voice(voice)
        if isinstance(voice, Voice):
            if ref_text:
                raise UsageError(
                    "A transcript goes with a recording; a voice has its words already."
                )
            voice = voice_for(voice, self.codec)
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

    def _default_voice(self) -> Voice:
        """Read the model's own default voice, whatever the user's own are called."""
        name = self.card.default_voice
        if not name:
            return Voice("", ())
        return read_voice(model_folder.find_voice(self._folder, self.card.name, name))


def resolve(config: EngineConfig) -> EngineConfig:
    """Replace an ``auto`` device by what this machine has. What an ``auto`` type is, the model
    tells when it is loaded.

    Raises: ``DeviceError`` for a device that it has not.
    """
    name = config.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(1, device=torch.device(name))
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).split("\n")[0].rstrip(".")
        raise DeviceError(
            f'The device "{name}" cannot be used: {reason}.', hint="See: fishtts doctor"
        ) from None
    return replace(config, device=name)


def _spoken(key: str, reading: Reading, chunks: list[Samples]) -> SpokenLine:
    if reading.error is not None:
        return SpokenLine(key, None, reading.error)
    samples = np.concatenate([np.zeros(0, np.float32), *chunks])
    return SpokenLine(key, Speech(samples, reading.report.sample_rate, reading.report))

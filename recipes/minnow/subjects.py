"""What speaks in an evaluation: the teacher, the codec alone, the product, and its clones.

Owns the way from (text, voice) to samples for each of them. Knows no judge and no table.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import soxr

from recipes.minnow.score import Samples
from recipes.minnow.synthesise import HELD_OUT_VOICES
from recipes.minnow.teacher_onnx import SAMPLE_RATE as TEACHER_RATE
from recipes.minnow.teacher_onnx import Teacher

TEACHER_VOICES = {
    "en": ("af_heart", "am_michael", "bf_emma", "bm_george"),
    "es": ("ef_dora", "em_alex"),
    "fr": ("ff_siwis",),
    "it": ("if_sara", "im_nicola"),
    "pt": ("pf_dora", "pm_alex"),
}
NO_VOICE = "no voice"
"""The row of a model that comes without voices: it speaks as it likes."""
REFERENCE_TEXT = (
    "When I was a child, we spent every summer in a wooden house beside a lake. "
    "In the evening my father used to row across to the island and bring back fresh bread."
)
"""What a held-out voice of the teacher says to be cloned from: about ten seconds."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """Audio, the seconds that it took to make, and what the speaker itself found wrong."""

    samples: Samples
    sample_rate: int
    took_s: float
    faults: tuple[str, ...] = ()


class TeacherSpeech:
    """The teacher; what it has said once is kept in the work folder, with the time it took."""

    def __init__(self, work: Path, threads: int) -> None:
        self._work, self._threads = work, threads
        self._teacher: Teacher | None = None

    def __call__(self, text: str, voice: str) -> Spoken:
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        kept = self._work / "audio" / "teacher" / voice / f"{key}.npz"
        if not kept.exists():
            if self._teacher is None:
                self._teacher = Teacher(self._work / "teacher", threads=self._threads)
                self._teacher.speak("Warm up.", voice)
            start = time.perf_counter()
            samples = self._teacher.speak(text, voice)
            took_s = time.perf_counter() - start
            kept.parent.mkdir(parents=True, exist_ok=True)
            np.savez(kept, samples=samples, took_s=took_s)
        with np.load(kept) as file:
            return Spoken(file["samples"], TEACHER_RATE, float(file["took_s"]))


class CodecSpeech:
    """The teacher's audio through a model's codec and back."""

    def __init__(self, folder: Path, teacher: TeacherSpeech) -> None:
        from fishtts.codec import load_codec

        self._codec, self._teacher = load_codec(folder), teacher

    def __call__(self, text: str, voice: str) -> Spoken:
        spoken = self._teacher(text, voice)
        start = time.perf_counter()
        samples = self.resynthesise(spoken.samples, spoken.sample_rate)
        return Spoken(samples, self._codec.sample_rate, time.perf_counter() - start)

    def resynthesise(self, samples: Samples, sample_rate: int) -> Samples:
        """Encode and decode; the answer has the codec's sample rate."""
        import torch

        if sample_rate != self._codec.sample_rate:
            samples = soxr.resample(samples, sample_rate, self._codec.sample_rate)
        with torch.inference_mode():
            decoded = self._codec.decode(self._codec.encode(torch.from_numpy(samples).float()))
        out: Samples = decoded.float().cpu().numpy()
        return out


class ProductSpeech:
    """The product, as a Python program uses it. ``retries`` as in ``say``."""

    def __init__(self, model: str, *, retries: int, seed: int = 0) -> None:
        from fishtts import TTS

        self.tts = TTS(model=model, device="cpu", offline=True)
        self._options = {"retries": retries, "seed": seed}
        names = tuple(voice.name for voice in self.tts.voices())
        self.voices = names or (NO_VOICE,)
        self.languages = self.tts.card.languages
        self.sample_rate = self.tts.sample_rate
        # The first request pays for loading; bench/say.py measures that.
        self("Warm up.", self.voices[0])

    def __call__(self, text: str, voice: str) -> Spoken:
        return self._say(text, None if voice == NO_VOICE else voice)

    def _say(self, text: str, voice: object, **more: str) -> Spoken:
        start = time.perf_counter()
        speech = self.tts.say(text, voice=voice, **self._options, **more)  # type: ignore[arg-type]
        faults = tuple(fault for unit in speech.report.units for fault in unit.faults)
        took_s = time.perf_counter() - start
        return Spoken(speech.samples, speech.sample_rate, took_s, faults)


@dataclass(frozen=True, slots=True)
class Person:
    """A recording to clone. ``words`` are what is said in it, or empty."""

    name: str
    samples: Samples
    sample_rate: int
    words: str


class CloneSpeech(ProductSpeech):
    """The product in the voice of a recording."""

    def __init__(self, model: str, people: Sequence[Person], *, retries: int) -> None:
        self._people = {person.name: person for person in people}
        super().__init__(model, retries=retries)

    def __call__(self, text: str, voice: str) -> Spoken:
        from fishtts.types import Audio

        if voice not in self._people:
            return super().__call__(text, voice)
        person = self._people[voice]
        audio = Audio(person.samples, person.sample_rate)
        return self._say(text, audio, ref_text=person.words)


def held_out_people(teacher: TeacherSpeech) -> list[Person]:
    """The teacher's voices that were never trained on, with their words."""
    people = []
    for voice in HELD_OUT_VOICES:
        spoken = teacher(REFERENCE_TEXT, voice)
        people.append(Person(voice, spoken.samples, spoken.sample_rate, REFERENCE_TEXT))
    return people


def real_people(work: Path, longest_s: float = 12.0) -> list[Person]:
    """The recordings of people, cut to ``longest_s``; their words are not known yet."""
    people = []
    for path in sorted((work / "people").glob("*.wav")):
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
        mono = samples.mean(1)[: int(longest_s * rate)]
        people.append(Person(path.stem, mono, rate, ""))
    return people

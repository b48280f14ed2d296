"""What crosses the border between two rooms: voices, prompts, sampling parameters, audio.

Frozen records only; no behaviour beyond checking themselves, no files, no torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from fishtts.errors import UsageError

Codes = npt.NDArray[np.int64]
"""Codec codes, shape ``[C, F]``: row 0 semantic, the others residual."""

Samples = npt.NDArray[np.float32]
"""Mono audio, shape ``[N]``, values in [-1, 1]."""

StopReason = Literal["eos", "limit", "aborted"]
"""Why a request ended: the model's end token, its frame limit, or the caller."""


@dataclass(frozen=True, slots=True)
class Audio:
    """Mono samples and their rate in Hz."""

    samples: Samples
    sample_rate: int

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return len(self.samples) / self.sample_rate


@dataclass(frozen=True, slots=True)
class Reference:
    """One recording as the prompt sees it: its codes and the words said in it.

    ``text`` is empty where the transcript is unknown (only some models accept that).
    """

    codes: Codes
    text: str


@dataclass(frozen=True, slots=True)
class Voice:
    """A named speaker: the references that make a model sound like them.

    ``codec`` names the codec that made the codes (its identity hash); codes of another codec are
    meaningless. ``clips`` are the cleaned recordings behind the references, one for each, or none
    where they were left out: with them a voice can be encoded anew for any codec. ``encodings`` are
    the same references in the codes of further codecs. ``embedding`` is the speaker encoder's,
    float32 [256], of length 1, and ``encoder`` which encoder's: only those of one can be compared.
    ``model`` names a model that ``codec`` belongs to, for people.
    """

    name: str
    references: tuple[Reference, ...]
    codec: str = ""
    language: str = ""
    description: str = ""
    clips: tuple[Audio, ...] = ()
    embedding: npt.NDArray[np.float32] | None = None
    sources: tuple[Source, ...] = ()
    consent: str = ""
    model: str = ""
    encoder: str = ""
    encodings: tuple[Encoding, ...] = ()


@dataclass(frozen=True, slots=True)
class Encoding:
    """A voice's references in the codes of one more codec, in their order."""

    codec: str
    codes: tuple[Codes, ...]
    model: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a reference came from: its recording's hash and length, the stretch that was kept, in
    seconds of the recording, and the day (ISO 8601)."""

    sha256: str
    seconds: float
    kept_from_s: float
    kept_to_s: float
    date: str = ""


@dataclass(frozen=True, slots=True)
class ScriptLine:
    """One item of a script, as a reader found it; what the script does not say is None or empty.

    ``number`` is the line of the file that it begins at, from 1. ``id`` is unique in the script;
    ``has_own_id`` tells that the script gave it, rather than the line's number. ``out`` is the
    file's name asked for, relative. ``start_s`` and ``end_s`` are a cue's times, ``heading`` the
    title of the chapter that begins here.
    """

    id: str
    number: int
    text: str
    has_own_id: bool = False
    voice: str = ""
    seed: int | None = None
    speed: float | None = None
    pause_s: float | None = None
    out: str = ""
    start_s: float | None = None
    end_s: float | None = None
    heading: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model is asked to continue: ``matrix`` is int64 ``[1 + C, T]``.

    Row 0 holds token ids, rows 1 to C the codes (zero where a position is not audio). Built by the
    model family's ``prompt.py``; the engine never sees text. The first ``num_shared`` positions
    depend on the references alone, so that they need to be worked out once for a voice.
    """

    matrix: npt.NDArray[np.int64]
    num_shared: int = 0


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to draw. ``max_frames`` counts true frames, 0 means up to the model's length limit."""

    temperature: float = 0.8
    top_p: float = 0.8
    top_k: int = 30
    seed: int = 0
    max_frames: int = 0

    def __post_init__(self) -> None:
        if not 0.0 < self.temperature < 2.0:
            raise UsageError(f"The temperature is {self.temperature}; it must lie between 0 and 2.")
        if not 0.0 < self.top_p <= 1.0:
            raise UsageError(f"top-p is {self.top_p}; it must be above 0 and at most 1.")
        if self.top_k < 1:
            raise UsageError(f"top-k is {self.top_k}; it must be 1 or more (1 is greedy).")
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"The seed is {self.seed}; it must lie between 0 and 2^63 - 1.")
        if self.max_frames < 0:
            raise UsageError(f"The frame limit is {self.max_frames}; it cannot be negative.")


@dataclass(frozen=True, slots=True)
class Unit:
    """One stretch of text that the model speaks in one request.

    ``text`` is the user's own words (units joined in order give the whole input, white space
    apart), ``model_text`` what the model is given, ``pause_s`` the silence after it.
    """

    text: str
    model_text: str
    pause_s: float = 0.0
    paragraph_end: bool = False
    warnings: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Card:
    """What a model says of itself: how to feed it, and what it is good for.

    Read from ``fishtts.json`` in the model's folder; a family brings the defaults for folders
    without one. Empty ``languages`` or ``scripts`` mean any. ``reference_s`` is how many seconds of
    a voice's recordings it imitates well.
    """

    name: str
    description: str = ""
    licence: str = ""
    languages: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    normalise: bool = False
    needs_transcript: bool = True
    default_voice: str = ""
    unit_chars: int = 300
    temperature: float = 0.8
    top_p: float = 0.8
    top_k: int = 30
    reference_s: float = 30.0
    trained_on: str = ""
    not_for: str = ""

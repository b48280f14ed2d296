"""The defaults, frozen, and the checks of what a person may set. Nothing else: no files, no torch.

The command line and the Python API both read their defaults here, so that they cannot differ.
``None`` and ``auto`` stand for "what the model or the machine says"; whoever resolves them makes a
new object.
"""

from __future__ import annotations

from dataclasses import dataclass

from fishtts.errors import UsageError

DEFAULT_MODEL = "minnow"
"""The model that comes with the package."""

DEFAULT_ASR_MODEL = "base"
"""The recogniser: a name that faster-whisper knows."""

DEFAULT_MAX_WER = 0.2
"""Share of words that may be heard wrongly: recognisers mishear a name here and there, and a
sentence that lost its way loses far more."""

MAX_BATCH = 1024
"""Requests that may run together at the very most."""

MIN_SPEED = 0.5
MAX_SPEED = 2.0
"""Beyond these, speech is no longer good to listen to."""

MAX_PAUSE_S = 60.0

WEIGHT_FORMATS = ("bsfp8", "mxfp8", "w8a16")
"""FP8 formats of weights; ``fishtts/models/quantized.py`` says what they are."""

DTYPES = ("auto", "float32", "bfloat16", "float16", *WEIGHT_FORMATS)
"""What a model may be loaded in: a type of weights and activations, or a format of weights."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Where a model runs, and how exactly. ``auto``: CUDA where there is one, else the CPU;
    float32 on a CPU, on a GPU bfloat16 or what was accepted there for the model
    (``fishtts/models/precision.py``).

    ``max_batch`` caps the requests that run together (0: as many as suit the device).
    ``deterministic`` makes a request's bits independent of whatever runs beside it. ``kernels``
    decodes by our own kernels (True: speech too, many units at a time, which has not run on a GPU
    as a whole yet) or by plain torch; None: frames by kernels where the GPU has them."""

    device: str = "auto"
    dtype: str = "auto"
    max_batch: int = 0
    deterministic: bool = False
    kernels: bool | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.max_batch <= MAX_BATCH:
            raise UsageError(
                f"The largest batch is {self.max_batch}; it must lie between 1 and {MAX_BATCH}."
            )
        if self.dtype not in DTYPES:
            raise UsageError(
                f'The dtype "{self.dtype}" is unknown.', hint=f"Choose from {', '.join(DTYPES)}."
            )


@dataclass(frozen=True, slots=True)
class SpeechConfig:
    """How a text is spoken.

    ``temperature``, ``top_p`` and ``top_k`` come from the model's card where they are ``None``, the
    pauses from the text where ``pause_s`` is. ``retries`` counts the further tries that a unit gets
    when it fails its checks. ``max_frames`` caps every unit below the limit that follows from its
    text (0: no cap).
    """

    seed: int = 0
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    speed: float = 1.0
    pause_s: float | None = None
    retries: int = 2
    max_frames: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"The seed is {self.seed}; it must lie between 0 and 2^63 - 1.")
        if self.pause_s is not None and not 0 <= self.pause_s <= MAX_PAUSE_S:
            raise UsageError(
                f"The pause is {self.pause_s:g} s; it must lie between 0 and {MAX_PAUSE_S:g}."
            )
        if not 0 <= self.retries <= 100:
            raise UsageError(f"The retries are {self.retries}; they must lie between 0 and 100.")
        if self.max_frames < 0:
            raise UsageError(f"The frame limit is {self.max_frames}; it cannot be negative.")


DEFAULT_ENGINE = EngineConfig()
DEFAULT_SPEECH = SpeechConfig()

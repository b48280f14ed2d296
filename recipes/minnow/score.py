"""How speech is judged: the words heard in it, whether it sounds broken, whose voice it is.

Owns the error rates and the wrappers of the recogniser, of the two predictors of opinion scores and
of the speaker encoder. Knows nothing of where the audio came from (``subjects.py``) or of how the
judges' folder was made (``judges.py``). Which words are the same: ``normaliser.py``.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soxr

from recipes.minnow.normaliser import normalise

Samples = npt.NDArray[np.float32]

JUDGE_RATE = 16000
"""What the judges listen to, in Hz."""

# --- error rates -------------------------------------------------------------------------------


def edit_distance(reference: Sequence[str], heard: Sequence[str]) -> int:
    """Count the insertions, deletions and substitutions between two sequences."""
    row = list(range(len(heard) + 1))
    for i, expected in enumerate(reference, 1):
        diagonal, row[0] = row[0], i
        for j, got in enumerate(heard, 1):
            diagonal, row[j] = (
                row[j],
                min(row[j] + 1, row[j - 1] + 1, diagonal + (expected != got)),
            )
    return row[-1]


@dataclass(frozen=True, slots=True)
class LineErrors:
    """How one transcript differs from its sentence, in words and in characters."""

    word_errors: int
    words: int
    char_errors: int
    chars: int


def compare(sentence: str, heard: str, language: str = "en") -> LineErrors:
    """Count the errors of a transcript. Both texts are normalised first."""
    expected, got = normalise(sentence, language), normalise(heard, language)
    expected_line, got_line = " ".join(expected), " ".join(got)
    return LineErrors(
        word_errors=edit_distance(expected, got),
        words=len(expected),
        char_errors=edit_distance(expected_line, got_line),
        chars=len(expected_line),
    )


def word_error_rate(lines: Sequence[LineErrors]) -> float:
    """Errors over words, both summed over all lines."""
    return sum(line.word_errors for line in lines) / sum(line.words for line in lines)


def char_error_rate(lines: Sequence[LineErrors]) -> float:
    """Errors over characters (spaces between words count), both summed over all lines."""
    return sum(line.char_errors for line in lines) / sum(line.chars for line in lines)


def bootstrap_interval(
    lines: Sequence[LineErrors], *, draws: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """Get the 95 % interval of the word error rate over lines drawn with replacement."""
    errors = np.array([line.word_errors for line in lines])
    words = np.array([line.words for line in lines])
    drawn = np.random.default_rng(seed).integers(0, len(lines), (draws, len(lines)))
    low, high = np.quantile(errors[drawn].sum(axis=1) / words[drawn].sum(axis=1), (0.025, 0.975))
    return float(low), float(high)


# --- judges ------------------------------------------------------------------------------------


def judges_audio(samples: Samples, sample_rate: int) -> Samples:
    """Resample to what the judges hear."""
    if sample_rate == JUDGE_RATE:
        return samples.astype(np.float32)
    resampled: Samples = soxr.resample(samples, sample_rate, JUDGE_RATE).astype(np.float32)
    return resampled


class Recogniser:
    """Whisper base, told which language it hears, with nothing left to chance."""

    def __init__(self, folder: Path, *, threads: int = 2) -> None:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        from faster_whisper import WhisperModel

        self._model = WhisperModel(
            str(folder), device="cpu", compute_type="int8", cpu_threads=threads
        )

    def transcribe(self, audio: Samples, language: str = "en") -> str:
        """Write down what is said in audio at ``JUDGE_RATE``."""
        segments, _ = self._model.transcribe(
            audio,
            language=language,
            beam_size=5,
            temperature=0.0,
            condition_on_previous_text=False,
        )
        return " ".join(segment.text.strip() for segment in segments)


class DistillMos:
    """DistillMOS: an opinion score from 1 to 5 that catches broken sound.

    It saturates: it cannot rank one clean voice above another.
    """

    def __init__(self, folder: Path) -> None:
        with _importable(folder), contextlib.redirect_stdout(io.StringIO()):
            from distillmos import ConvTransformerSQAModel

            self._model = ConvTransformerSQAModel().eval()

    def score(self, audio: Samples) -> float:
        """Score audio at ``JUDGE_RATE``."""
        import torch

        with torch.inference_mode():
            return float(self._model(torch.from_numpy(audio)[None])[0])


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let the judge's code be imported, which names torchaudio but needs it only as a program."""
    stub = "torchaudio" not in sys.modules
    sys.path.insert(0, str(folder))
    if stub:
        sys.modules["torchaudio"] = types.ModuleType("torchaudio")
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        if stub:
            del sys.modules["torchaudio"]


class Dnsmos:
    """DNSMOS P.835, the overall score: another catcher of noise and damage."""

    _SECONDS = 9.01
    # The publisher's map from the network's output to the scale of the listeners.
    _OVERALL = np.poly1d([-0.06766283, 1.11546468, 0.04602535])

    def __init__(self, folder: Path, *, threads: int = 2) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(
            str(folder / "sig_bak_ovr.onnx"), options, providers=["CPUExecutionProvider"]
        )

    def score(self, audio: Samples) -> float:
        """Score audio at ``JUDGE_RATE``; shorter audio is repeated, as the publisher does."""
        length = int(self._SECONDS * JUDGE_RATE)
        audio = np.clip(audio, -1.0, 1.0)
        if len(audio) < length:
            audio = np.tile(audio, -(-length // max(1, len(audio))))
        starts = range(0, len(audio) - length + 1, JUDGE_RATE)
        scores = []
        for start in starts:
            window = audio[None, start : start + length].astype(np.float32)
            _, _, overall = self._session.run(None, {"input_1": window})[0][0]
            scores.append(float(self._OVERALL(overall)))
        return float(np.mean(scores))


class SpeakerEncoder:
    """A d-vector network that nothing here was trained or tuned on: whose voice is it?"""

    _WINDOW, _STRIDE, _MELS = 80, 40, 40

    def __init__(self, folder: Path, *, threads: int = 2) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            str(folder / "embedder.int8.onnx"), options, providers=["CPUExecutionProvider"]
        )

    def embed(self, audio: Samples) -> Samples:
        """Map audio at ``JUDGE_RATE`` to a direction. Shape [256], length one."""
        import librosa

        power = librosa.feature.melspectrogram(
            y=audio,
            sr=JUDGE_RATE,
            n_fft=512,
            win_length=400,
            hop_length=160,
            n_mels=self._MELS,
            window="hamming",
            center=False,
        )
        features = np.log10(power + 1e-10).T.astype(np.float32)
        missing = max(0, self._WINDOW - len(features))
        features = np.pad(features, ((0, missing), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(features, self._WINDOW, axis=0)
        windows = np.ascontiguousarray(windows[:: self._STRIDE].transpose(0, 2, 1))
        rows = self._session.run(None, {"mel_window": windows})[0]
        mean = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).mean(0)
        direction: Samples = (mean / np.linalg.norm(mean)).astype(np.float32)
        return direction


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judges make of one piece of speech."""

    heard: str
    mos: float
    dnsmos: float


class Judges:
    """The judges of single lines, opened from the folder that ``judges.py`` made."""

    def __init__(self, work: Path, *, threads: int = 2) -> None:
        self._recogniser = Recogniser(work / "whisper-base", threads=threads)
        self._mos = DistillMos(work / "distillmos")
        self._dnsmos = Dnsmos(work / "dnsmos", threads=threads)

    def hear(self, samples: Samples, sample_rate: int, language: str = "en") -> Verdict:
        """Judge mono samples of any rate."""
        audio = judges_audio(samples, sample_rate)
        if len(audio) < JUDGE_RATE // 20:
            return Verdict("", 1.0, 1.0)  # nothing to hear; the networks need a few frames
        return Verdict(
            self._recogniser.transcribe(audio, language),
            self._mos.score(audio),
            self._dnsmos.score(audio),
        )

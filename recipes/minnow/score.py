"""How speech is judged: the words that a recogniser hears in it, and whether it sounds broken.

Owns the text normaliser, the error rates, and the wrappers of the recogniser and of the two
predictors of opinion scores. Knows nothing of where the audio came from (``evaluate.py``) or of how
the judges' folder was made (``judges.py``). The normaliser is frozen: figures made with two
versions of it cannot be compared.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import types
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soxr
from num2words import num2words

Samples = npt.NDArray[np.float32]

JUDGE_RATE = 16000
"""What all three judges listen to, in Hz."""

# --- words -------------------------------------------------------------------------------------

_PUNCTUATION = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "–": "-", "—": "-"})
_CURRENCIES = {"$": ("dollar", "cent"), "£": ("pound", "pence"), "€": ("euro", "cent")}
_CONTRACTIONS = (
    (r"\bwon't\b", "will not"),
    (r"\bcan't\b", "can not"),
    (r"\bcannot\b", "can not"),
    (r"\bshan't\b", "shall not"),
    (r"n't\b", " not"),
    (r"'re\b", " are"),
    (r"'ll\b", " will"),
    (r"'ve\b", " have"),
    (r"\bi'm\b", "i am"),
)
_SAME_WORD = (
    # one sound, several spellings
    (r"\bmr\b\.?", "mister"),
    (r"\bmrs\b\.?", "missus"),
    (r"\bdr\b\.?", "doctor"),
    (r"\bo\.?k\b\.?", "okay"),
    (r"\b([ap])\.\s?m\b\.?", r"\1m"),
    (r"\b([ap]) m\b", r"\1m"),
    (r"\ball right\b", "alright"),
    (r"\bany more\b", "anymore"),
    (r"\bfor ever\b", "forever"),
    (r"\bwindow sill\b", "windowsill"),
    (r"\bpercent\b", "per cent"),
    (r"\ba (?=hundred\b|thousand\b|million\b)", "one "),
    (r"\bplough", "plow"),
    (r"\bsheikh", "sheik"),
    (r"\bcatalogue(?=[dr])", "cataloge"),
    (r"\bcatalogue", "catalog"),
    (r"%", " per cent"),
    (r"&", " and "),
)
_AMERICAN = {
    "grey": "gray",
    "cheque": "check",
    "centre": "center",
    "theatre": "theater",
    "metre": "meter",
    "litre": "liter",
    "kilometre": "kilometer",
    "programme": "program",
    "tyre": "tire",
    "pyjamas": "pajamas",
    "jewellery": "jewelry",
    "moustache": "mustache",
    "storey": "story",
    "towards": "toward",
    "afterwards": "afterward",
    "practise": "practice",
    "licence": "license",
    "defence": "defense",
    "mould": "mold",
    "sceptical": "skeptical",
    "aeroplane": "airplane",
    "dialogue": "dialog",
}
_OUR = re.compile(
    r"\b(arm|behavi|col|endeav|fav|flav|harb|hon|hum|lab|neighb|od|parl|rig|rum|tum|vap|vig)our"
)
_DOUBLED_L = re.compile(r"\b(cance|fue|jewe|labe|leve|marve|mode|quarre|signa|trave)ll(ed|ing|er)")
_ISE = re.compile(r"\b(real|organ|recogn|apolog|critic|memor|special|final|emphas)is(e[ds]?|ing)\b")
_AND_IN_NUMBER = re.compile(
    r"\b(hundred|thousand|million) and "
    r"(?=(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|\w+ty|first|second"
    r"|third|\w+th)\b)"
)


def normalise(text: str) -> list[str]:
    """Bring a sentence into the words that are compared: spoken forms, no case, no punctuation."""
    text = unicodedata.normalize("NFKC", text.translate(_PUNCTUATION)).lower()
    for pattern, replacement in _SAME_WORD:
        text = re.sub(pattern, replacement, text)
    text = _numbers_to_words(text)
    for pattern, replacement in _CONTRACTIONS:
        text = re.sub(pattern, replacement, text)
    text = re.sub(r"'", "", text)
    text = re.sub(r"[^a-z]+", " ", _without_accents(text)).strip()
    text = _AND_IN_NUMBER.sub(r"\1 ", text)
    text = _OUR.sub(r"\1or", text)
    text = _DOUBLED_L.sub(r"\1l\2", text)
    text = _ISE.sub(r"\1iz\2", text)
    return [_american(word) for word in text.split()]


def _american(word: str) -> str:
    if word in _AMERICAN:
        return _AMERICAN[word]
    singular = word.removesuffix("s")
    return _AMERICAN[singular] + "s" if singular in _AMERICAN else word


def _without_accents(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))


def _numbers_to_words(text: str) -> str:
    """Write digits as they are read aloud: money, times, ordinals, years, decimals, the rest."""
    text = re.sub(r"([$£€])(\d[\d,]*)(?:\.(\d\d))?\b", _money, text)
    text = re.sub(r"\b\d{1,3}(?:,\d{3})+\b", _grouped, text)
    text = re.sub(r"\b(\d{1,2}):(\d\d)\b", _time, text)
    text = re.sub(
        r"\b(\d+)(?:st|nd|rd|th)\b", lambda m: f" {num2words(int(m[1]), to='ordinal')} ", text
    )
    text = re.sub(r"\b(\d\d)(\d)0s\b", _decade, text)
    text = re.sub(r"\d+\.\d+", lambda m: f" {num2words(float(m[0]))} ", text)
    return re.sub(r"\d+", _whole_number, text)


def _money(match: re.Match[str]) -> str:
    whole, part = _CURRENCIES[match[1]]
    amount, cents = int(match[2].replace(",", "")), int(match[3] or 0)
    words = f" {num2words(amount)} {whole}{'' if amount == 1 else 's'} "
    if not cents:
        return words
    plural = "" if cents == 1 or part == "pence" else "s"
    return f"{words}and {num2words(cents)} {part}{plural} "


def _time(match: re.Match[str]) -> str:
    hour, minute = num2words(int(match[1])), int(match[2])
    if minute == 0:
        return f" {hour} "
    return f" {hour} {'oh ' if minute < 10 else ''}{num2words(minute)} "


def _grouped(match: re.Match[str]) -> str:
    return f" {num2words(int(match[0].replace(',', '')))} "


def _decade(match: re.Match[str]) -> str:
    century, tens = num2words(int(match[1])), int(match[2])
    return f" {century} {num2words(tens * 10).removesuffix('y') + 'ies' if tens else 'hundreds'} "


def _whole_number(match: re.Match[str]) -> str:
    digits, value = match[0], int(match[0])
    if len(digits) > 1 and digits.startswith("0"):
        return " " + " ".join("oh" if d == "0" else num2words(int(d)) for d in digits) + " "
    is_year = len(digits) == 4 and (1100 <= value < 2000 or 2010 <= value < 2100)
    return f" {num2words(value, to='year' if is_year else 'cardinal')} "


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


def compare(sentence: str, heard: str) -> LineErrors:
    """Count the errors of a transcript. Both texts are normalised first."""
    expected, got = normalise(sentence), normalise(heard)
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
    """Whisper base, told that it hears English, with nothing left to chance."""

    def __init__(self, folder: Path, *, threads: int = 2) -> None:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        from faster_whisper import WhisperModel

        self._model = WhisperModel(
            str(folder), device="cpu", compute_type="int8", cpu_threads=threads
        )

    def transcribe(self, audio: Samples) -> str:
        """Write down what is said in audio at ``JUDGE_RATE``."""
        segments, _ = self._model.transcribe(
            audio,
            language="en",
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


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judges make of one piece of speech."""

    heard: str
    mos: float
    dnsmos: float


class Judges:
    """The three judges, opened from the folder that ``judges.py`` made."""

    def __init__(self, work: Path, *, threads: int = 2) -> None:
        self._recogniser = Recogniser(work / "whisper-base", threads=threads)
        self._mos = DistillMos(work / "distillmos")
        self._dnsmos = Dnsmos(work / "dnsmos", threads=threads)

    def hear(self, samples: Samples, sample_rate: int) -> Verdict:
        """Judge mono samples of any rate."""
        audio = judges_audio(samples, sample_rate)
        if len(audio) < JUDGE_RATE // 20:
            return Verdict("", 1.0, 1.0)  # nothing to hear; the networks need a few frames
        return Verdict(
            self._recogniser.transcribe(audio), self._mos.score(audio), self._dnsmos.score(audio)
        )

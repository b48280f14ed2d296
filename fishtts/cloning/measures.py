"""How good a clip is as a recording: bandwidth, clipping, echo, and whether one person speaks.

Each measure is a number with a threshold beside it, and what the threshold was measured on. Knows
nothing of files, and never refuses: ``prepare.py`` does.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fishtts.cloning.speech_detector import Stretch
from fishtts.types import Samples

GOOD_BANDWIDTH_HZ = 7000.0
"""A telephone ends at 3.4 kHz, wideband telephony at 7."""

POOR_SNR_DB = 15.0
BAD_SNR_DB = 5.0

CLIPPED_SHARE = 0.003
"""Share of the samples at the very peak. The worst of 67 clean readings has 0.0015; cut off 6 dB
below their peaks, nine of ten have 0.006 or more."""

ECHO_S = 0.7
"""Decay to -60 dB. Of 67 clean readings none is above 0.67; in a made-up room of 1 s, those that
pause at all come out at 0.9 to 1.1."""

TWO_SPEAKERS, MAYBE_TWO_SPEAKERS = 0.77, 0.83
"""Likeness of the two most different halves of a clip. Of 116 clips of one speaker none lies below
0.77 and 2 % lie below 0.83; of 150 clips made of two speakers 76 % and 91 % do."""

DOUBT = 0.1
"""How far below ``SAME_SPEAKER`` two recordings are still only doubtful: one in forty pairs of one
person lies below it, as short clips of one reader on several days do (0.74)."""

_BAND_DB = 60.0
_FFT_S = 0.032
_LEVEL_S = 0.016
_MIN_ENDS = 2
_MIN_PARTS = 3


def bandwidth_hz(samples: Samples, sample_rate: int) -> float:
    """Find the highest frequency at which speech still has energy, within 60 dB of its strongest.

    The loudest twentieth of the moments counts at each frequency: hisses are short.
    """
    size = 2 ** round(np.log2(_FFT_S * sample_rate))
    num_frames = len(samples) // (size // 2) - 1
    if num_frames < 1:
        return 0.0
    starts = np.arange(num_frames) * (size // 2)
    window = np.hanning(size)
    spectra = np.abs(np.fft.rfft(samples[starts[:, None] + np.arange(size)] * window, axis=1)) ** 2
    loud = np.quantile(spectra, 0.95, axis=0)
    bin_hz = sample_rate / size
    width = max(1, round(200 / bin_hz))
    smooth = np.convolve(loud, np.ones(width) / width, "same")
    above = np.flatnonzero(smooth > smooth.max() * 10 ** (-_BAND_DB / 10))
    return float((above[-1] + 0.5) * bin_hz) if len(above) and smooth.max() > 0 else 0.0


def clipped_share(samples: Samples) -> float:
    """Count the samples within 1 % of the peak: a wave that was cut off stays there."""
    peak = float(np.abs(samples).max()) if len(samples) else 0.0
    return float(np.mean(np.abs(samples) >= 0.99 * peak)) if peak else 0.0


def decay_s(samples: Samples, sample_rate: int, speech: Sequence[Stretch]) -> float:
    """Estimate how long a sound takes to fade by 60 dB in the room, from the ends of stretches of
    speech (in seconds of the samples): the time from 5 to 25 dB below the speech, three times.

    The voice's own fading is in it, so that even a dry recording has some. A hint, not acoustics:
    the median of the ends, 0.0 where noise or too few of them leave nothing to tell by.
    """
    size = max(1, round(_LEVEL_S * sample_rate))
    frames = samples[: len(samples) // size * size].reshape(-1, size)
    level_db = 10 * np.log10(np.mean(frames.astype(np.float64) ** 2, axis=1) + 1e-12)
    decays = []
    for number, stretch in enumerate(speech):
        end = round(stretch.end_s / _LEVEL_S)
        last = speech[number + 1].start_s / _LEVEL_S if number + 1 < len(speech) else len(level_db)
        begin = max(0, end - round(0.5 / _LEVEL_S))
        tail = level_db[begin : round(last)]
        if len(tail) < 10:
            continue
        loud_db = float(np.quantile(tail[: end - begin], 0.9)) if end > begin else tail[0]
        fading = int(np.flatnonzero(tail > loud_db - 5)[-1]) if (tail > loud_db - 5).any() else 0
        faded = np.flatnonzero(tail[fading:] < loud_db - 25)
        if len(faded):
            decays.append(3 * int(faded[0]) * _LEVEL_S)
    return float(np.median(decays)) if len(decays) >= _MIN_ENDS else 0.0


def unity(parts: npt.NDArray[np.float32]) -> float:
    """Divide the speaker embeddings of a clip's parts in two by likeness; answer how alike the two
    sides are. 1.0 where one of them is too short to be a person's turn."""
    if len(parts) < 2 * _MIN_PARTS:
        return 1.0
    scores = parts @ parts.T
    centres = parts[list(np.unravel_index(int(scores.argmin()), scores.shape))]
    side = np.zeros(len(parts), np.intp)
    for _ in range(20):
        side = (parts @ centres.T).argmax(axis=1)
        if min(np.sum(side == 0), np.sum(side == 1)) < _MIN_PARTS:
            return 1.0
        centres = np.stack([parts[side == number].mean(axis=0) for number in (0, 1)])
        centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    return float(centres[0] @ centres[1])

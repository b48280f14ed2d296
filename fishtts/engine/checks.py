"""Is a finished unit of speech plausible? Judged by codes, samples and length.

No recogniser is needed. Owns the thresholds and the reasons for them. Knows no text (only how long
it should take to say) and no model.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fishtts.types import Codes, Samples, StopReason

Fault = Literal["limit", "short", "silent", "repeats"]

REASONS: dict[Fault, str] = {
    "limit": "it did not come to an end",
    "short": "it ended far too soon",
    "silent": "it fell silent",
    "repeats": "it repeated the same sound",
}
"""What a person is told."""

_SHORTEST = 0.45
"""Least share of the expected length: the fastest intelligible readers are twice as fast as the
estimate, and a unit that is shorter has lost words."""

_SHORTEST_SLACK_S = 0.1
_LONGEST = 3.0
"""Most times the expected length: the slowest voices take half as long again, an emotion or
a number written in digits up to twice. Beyond this a model has lost its way: its frame limit is set
here."""

_LONGEST_SLACK_S = 3.0
_LONGEST_AT_PACE = 1.5
"""The same where the voice's own pace is known: a unit that goes on for half as long again says
something that is not in its text, as a rule the words of the voice's recording."""

_LEAST_PACE = 0.7
_SLACK_AT_PACE_S = 1.0
""""No." may take a second more than it should, and a hurried recording says little of a long text.
"""

_WINDOW_S = 0.05
_SILENCE = 0.0016
"""RMS of a silent window: -56 dB of full scale, below the noise of a decoded pause."""

_SILENCE_OF_PEAK = 0.01
"""The same for a voice that is loud or quiet as a whole: 40 dB below its loudest window."""

_LONGEST_SILENCE_S = 3.0
"""Pauses inside a sentence last up to a second; where a pause was asked for by a tag, up to two."""

_LEAST_SOUND = 0.25
"""Least share of a unit that must be sound: in speech it is more than half."""

_LONGEST_REPEAT_S = 1.5
"""How long whole frames may go on repeating: codes of speech differ all the time, and codes of a
pause may be equal for as long as a pause lasts."""

_LONGEST_CYCLE = 8
"""Most frames in a cycle that is looked for."""


def longest_s(expected_s: float, pace: float | None = None) -> float:
    """Say how long a unit may become before it is given up.

    ``pace`` is how many seconds the voice itself takes for each that is expected, where it is
    known.
    """
    if pace is None:
        return _LONGEST * expected_s + _LONGEST_SLACK_S
    share = _LONGEST_AT_PACE * min(max(pace, _LEAST_PACE), _LONGEST / _LONGEST_AT_PACE)
    return share * expected_s + _SLACK_AT_PACE_S


def shortest_s(expected_s: float) -> float:
    """Say how long a unit must at least be."""
    return max(0.0, _SHORTEST * expected_s - _SHORTEST_SLACK_S)


def code_faults(
    codes: Codes, *, frame_rate: float, expected_s: float, stop_reason: StopReason | None
) -> tuple[Fault, ...]:
    """Find what is wrong with a unit as far as its codes tell, before it is decoded.

    ``stop_reason`` is ``None`` while it is still being made: then its length is not judged.
    Shapes: codes ``[C, F]``.
    """
    faults: list[Fault] = []
    if stop_reason == "limit":
        faults.append("limit")
    if stop_reason == "eos" and codes.shape[1] < shortest_s(expected_s) * frame_rate:
        faults.append("short")
    if _longest_repeat(codes) > _LONGEST_REPEAT_S * frame_rate:
        faults.append("repeats")
    return tuple(faults)


def sound_faults(samples: Samples, *, sample_rate: int) -> tuple[Fault, ...]:
    """Find what is wrong with the sound of a unit, finished or not. Shapes: samples ``[N]``."""
    return ("silent",) if _falls_silent(samples, sample_rate) else ()


def _falls_silent(samples: Samples, sample_rate: int) -> bool:
    window = max(1, round(_WINDOW_S * sample_rate))
    count = len(samples) // window
    if count == 0:
        return True
    levels = np.sqrt(np.square(samples[: count * window].reshape(count, window)).mean(axis=1))
    is_silent = levels < max(_SILENCE, _SILENCE_OF_PEAK * float(levels.max()))
    if np.count_nonzero(~is_silent) < _LEAST_SOUND * count:
        return True
    return _longest_run(is_silent) * window / sample_rate > _LONGEST_SILENCE_S


def _longest_repeat(codes: Codes) -> int:
    """Count the frames of the longest stretch in which each frame equals the one a cycle before."""
    longest = 0
    for period in range(1, min(_LONGEST_CYCLE, codes.shape[1] - 1) + 1):
        same = (codes[:, period:] == codes[:, :-period]).all(axis=0)
        run = _longest_run(same)
        if run:
            longest = max(longest, run + period)
    return longest


def _longest_run(flags: np.ndarray) -> int:
    """Count the longest row of true values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]])))
    return int((edges[1::2] - edges[::2]).max(initial=0))

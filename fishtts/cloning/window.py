"""Which stretch of a recording to keep: the cleanest 10 to 30 seconds, cut where nobody speaks.

Works on what was heard, frame by frame; never sees a sample. Knows nothing of voices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fishtts.cloning.listening import Heard, frame_range
from fishtts.cloning.speech_detector import FRAME_S, Stretch

MIN_SECONDS = 10.0
MAX_SECONDS = 30.0
"""Models imitate 10 to 30 s well, and get worse beyond."""

MARGIN_S = 0.15
"""Of the silence around the speech, so much is kept: breath and the last consonant are in it."""

_ENOUGH_S = 20.0
"""Speech beyond this adds nothing to a window's worth."""

_MAX_SNR_DB = 35.0
_FLOOR = 1e-10
_SECOND_DB = 1.0
_SHORT_DB = 100.0
"""Shorter windows are for recordings that hold no other."""

_SILENCE_DB = 20.0
_GOOD_GAP_S = 0.3
_GAP_DB = 6.0
_MIN_DIP_S = 2.0


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch to keep, margins included, and the speech in it. ``is_whole`` says that nothing
    that was said in the recording lies outside of it."""

    kept: Stretch
    speech: tuple[Stretch, ...]
    snr_db: float
    is_whole: bool

    @property
    def speech_s(self) -> float:
        """Seconds of speech in it."""
        return sum(stretch.seconds for stretch in self.speech)


def best_windows(heard: Heard, *, max_s: float = MAX_SECONDS, count: int = 4) -> list[Window]:
    """Rank the windows that are worth a closer look, the best first, none over another.

    A recording whose speech fits into one window has that one only. Answers none where there is no
    speech.
    """
    speech = _breathing(heard, max_s - 2 * MARGIN_S)
    if not speech:
        return []
    whole = Stretch(speech[0].start_s, speech[-1].end_s)
    if whole.seconds + 2 * MARGIN_S <= max_s:
        return [_window(heard, speech, 0, len(speech) - 1)]
    ranked = sorted(
        _candidates(heard, speech, max_s - 2 * MARGIN_S), key=lambda c: c[0], reverse=True
    )
    chosen: list[Window] = []
    for _, first, last in ranked:
        window = _window(heard, speech, first, last)
        if all(_apart(window.kept, other.kept) for other in chosen):
            chosen.append(window)
            if len(chosen) == count:
                break
    return chosen


def window_between(heard: Heard, start_s: float, end_s: float) -> Window:
    """Make a window of a stretch that a person chose, cut exactly there."""
    inside = (
        Stretch(max(start_s, stretch.start_s), min(end_s, stretch.end_s))
        for stretch in heard.speech
        if stretch.end_s > start_s and stretch.start_s < end_s
    )
    speech = tuple(inside)
    kept = Stretch(start_s, end_s)
    is_whole = sum(s.seconds for s in speech) >= heard.speech_s - FRAME_S
    return Window(kept, speech, _snr_db(heard, speech, kept), is_whole)


def _apart(one: Stretch, other: Stretch) -> bool:
    return one.end_s <= other.start_s or other.end_s <= one.start_s


def _breathing(heard: Heard, longest_s: float) -> list[Stretch]:
    """Cut speech without a pause, longer than any window, at its quietest moments."""
    found: list[Stretch] = []
    waiting = list(reversed(heard.speech))
    while waiting:
        stretch = waiting.pop()
        if stretch.seconds <= longest_s:
            found.append(stretch)
            continue
        frames = frame_range(stretch)
        edge = round(_MIN_DIP_S / FRAME_S)
        inner = heard.powers[frames][edge:-edge]
        cut_s = (frames.start + edge + int(np.argmin(inner)) + 0.5) * FRAME_S
        waiting += [Stretch(cut_s, stretch.end_s), Stretch(stretch.start_s, cut_s)]
    return found


def _candidates(
    heard: Heard, speech: Sequence[Stretch], longest_s: float
) -> Iterator[tuple[float, int, int]]:
    """Go through all runs of stretches of a fitting length; answer each one's worth in dB.

    Sums over frames are taken once, so that an hour of speech is a matter of a moment.
    """
    is_speech = np.zeros(len(heard.powers), bool)
    for stretch in speech:
        is_speech[frame_range(stretch)] = True
    speech_power = _running(heard.powers * is_speech)
    noise_power = _running(heard.powers * ~is_speech)
    num_speech = _running(is_speech.astype(np.float64))
    margin = round(1.0 / FRAME_S)
    for first, start in enumerate(speech):
        for last in range(first, len(speech)):
            end = speech[last]
            seconds = end.end_s - start.start_s
            if seconds > longest_s:
                break
            frames = frame_range(Stretch(start.start_s, end.end_s))
            a, b = frames.start, min(frames.stop, len(is_speech))
            # The silence around tells about the noise as well as that inside.
            c, d = max(0, a - margin), min(len(is_speech), b + margin)
            spoken = num_speech[b] - num_speech[a]
            silent = (d - c) - (num_speech[d] - num_speech[c])
            level = (speech_power[b] - speech_power[a]) / max(1.0, spoken)
            noise = (noise_power[d] - noise_power[c]) / max(1.0, silent)
            snr_db = 10 * np.log10(max(level, _FLOOR) / max(noise, _FLOOR))
            speech_s = spoken * FRAME_S
            before_s = start.start_s - (speech[first - 1].end_s if first else -1.0)
            after_s = (speech[last + 1].start_s if last + 1 < len(speech) else np.inf) - end.end_s
            worth = (
                (0.0 if seconds + 2 * MARGIN_S >= MIN_SECONDS else -_SHORT_DB)
                + min(_MAX_SNR_DB, snr_db)
                + _SECOND_DB * min(_ENOUGH_S, speech_s)
                - _SILENCE_DB * max(0.0, 1 - speech_s / seconds - 0.2)
                - _GAP_DB * sum(max(0.0, _GOOD_GAP_S - gap) for gap in (before_s, after_s))
            )
            yield float(worth), first, last


def _running(values: np.ndarray) -> np.ndarray:
    return np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])


def _window(heard: Heard, speech: Sequence[Stretch], first: int, last: int) -> Window:
    """Take a run of stretches with some of the silence around it, never of its neighbours."""
    before_s = speech[first - 1].end_s if first else 0.0
    after_s = speech[last + 1].start_s if last + 1 < len(speech) else heard.seconds
    start, end = speech[first].start_s, speech[last].end_s
    kept = Stretch(
        max(start - MARGIN_S, (before_s + start) / 2 if first else 0.0),
        min(end + MARGIN_S, (end + after_s) / 2 if last + 1 < len(speech) else heard.seconds),
    )
    inside = tuple(speech[first : last + 1])
    is_whole = first == 0 and last == len(speech) - 1
    return Window(kept, inside, _snr_db(heard, inside, kept), is_whole)


def _snr_db(heard: Heard, speech: Sequence[Stretch], kept: Stretch) -> float:
    """Compare the speech of a window with the silences in it and within a second of it."""
    is_speech = np.zeros(len(heard.powers), bool)
    for stretch in heard.speech:
        frames = frame_range(stretch)
        is_speech[max(0, frames.start - 2) : frames.stop + 2] = True  # soft beginnings, tails
    around = np.zeros_like(is_speech)
    around[frame_range(Stretch(max(0.0, kept.start_s - 1), kept.end_s + 1))] = True
    noise = heard.powers[around & ~is_speech]
    spoken = [heard.powers[frame_range(stretch)] for stretch in speech]
    if not spoken:
        return 0.0
    level = np.concatenate(spoken)
    # The quietest moments of speech are no louder than it and the noise: all there is where nobody
    # pauses, and a bound where something loud that is no speech stands beside it.
    floor = float(np.quantile(level, 0.05))
    if len(noise) > 3:
        floor = min(floor, float(np.quantile(noise, 0.25)))
    ratio = max(float(level.mean()) - floor, _FLOOR) / max(floor, _FLOOR)
    return float(10 * np.log10(ratio))

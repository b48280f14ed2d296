"""The window that is kept: long enough, never too long, cut where nobody speaks, the cleanest."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fishtts.cloning.listening import Heard
from fishtts.cloning.speech_detector import FRAME_S, Stretch, stretches
from fishtts.cloning.window import MAX_SECONDS, MIN_SECONDS, best_windows, window_between


def heard(pattern: list[tuple[float, float]], *, noise: float = 1e-6, level: float = 1e-2) -> Heard:
    """Make what would be heard of a pattern of (seconds of speech, seconds of silence)."""
    probabilities = np.concatenate(
        [np.repeat([0.9, 0.0], [round(s / FRAME_S), round(p / FRAME_S)]) for s, p in pattern]
    ).astype(np.float32)
    powers = np.where(probabilities > 0.5, level, noise).astype(np.float32)
    return Heard(len(powers) * FRAME_S, 0.5, powers, probabilities, tuple(stretches(probabilities)))


patterns = st.lists(st.tuples(st.floats(0.3, 45), st.floats(0.2, 6)), min_size=1, max_size=40).map(
    heard
)


short_ones = st.tuples(st.floats(0.3, 8), st.floats(0.2, 3))
many_ones = st.tuples(st.floats(1, 8), st.floats(0.2, 1))


@given(patterns, st.floats(6, MAX_SECONDS))
def test_windows_are_never_too_long_and_never_overlap(recording: Heard, max_s: float) -> None:
    windows = best_windows(recording, max_s=max_s)
    assert windows
    for window in windows:
        assert 0 <= window.kept.start_s < window.kept.end_s <= recording.seconds + FRAME_S
        assert window.kept.seconds <= max_s + FRAME_S
        assert window.speech_s > 0
    for one in windows:
        for other in windows:
            assert one is other or (
                one.kept.end_s <= other.kept.start_s or other.kept.end_s <= one.kept.start_s
            )


@given(
    st.lists(st.tuples(st.floats(0.3, 8), st.floats(0.2, 3)), min_size=1, max_size=60).map(heard)
)
def test_cuts_lie_in_silence(recording: Heard) -> None:
    for window in best_windows(recording):
        for cut_s in (window.kept.start_s, window.kept.end_s):
            assert not any(s.start_s < cut_s < s.end_s for s in recording.speech)


@given(st.lists(many_ones, min_size=20, max_size=40).map(heard))
def test_where_there_is_enough_speech_enough_is_kept(recording: Heard) -> None:
    assert best_windows(recording)[0].kept.seconds >= MIN_SECONDS


def test_a_recording_that_fits_is_kept_whole_and_its_silent_ends_are_not() -> None:
    recording = heard([(0.0, 5), (3, 1), (4, 1), (5, 8)])
    (window,) = best_windows(recording)
    assert window.is_whole
    assert 4.5 < window.kept.start_s < 5
    assert 19 < window.kept.end_s < 19.5
    # A budget that is smaller leaves something out.
    assert not best_windows(recording, max_s=8)[0].is_whole


def test_the_cleaner_stretch_wins() -> None:
    noisy, clean = heard([(3, 0.5)] * 6, noise=1e-3), heard([(3, 0.5)] * 6, noise=1e-7)
    for first, second in ((noisy, clean), (clean, noisy)):
        both = Heard(
            first.seconds + second.seconds,
            0.5,
            np.concatenate([first.powers, second.powers]),
            np.concatenate([first.probabilities, second.probabilities]),
            tuple(stretches(np.concatenate([first.probabilities, second.probabilities]))),
        )
        best = best_windows(both)[0]
        middle = (best.kept.start_s + best.kept.end_s) / 2
        assert (middle < first.seconds) == (first is clean)
        assert best.snr_db > 40


def test_speech_without_a_pause_is_cut_at_its_quietest_moment() -> None:
    recording = heard([(100, 0.2)])
    dip = round(50 / FRAME_S)
    recording.powers[dip] = 1e-5
    ends = {
        round(end, 1)
        for window in best_windows(recording, max_s=60)
        for end in (window.kept.start_s, window.kept.end_s)
    }
    assert any(abs(end - 50) < 0.1 for end in ends)
    assert all(window.kept.seconds <= 60 for window in best_windows(recording, max_s=60))


def test_a_stretch_that_was_asked_for_is_kept_to_the_moment() -> None:
    recording = heard([(5, 1)] * 10)
    window = window_between(recording, 2.5, 14.25)
    assert window.kept == Stretch(2.5, 14.25)
    assert not window.is_whole
    assert window_between(recording, 0, recording.seconds).is_whole


def test_silence_has_no_window() -> None:
    assert best_windows(heard([(0.0, 20)])) == []

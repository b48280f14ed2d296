"""Subtitles can be read: short lines, short cues, times that never run backwards."""

from __future__ import annotations

import errno
import os
import re
from html import unescape
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fishtts.audio.subtitles import MAX_CUE_S, Cue, as_srt, as_vtt, write_subtitles
from fishtts.errors import OutputError

LONG = (
    "The tide came in before anyone noticed, and by the time the lamps were lit, half of the"
    " causeway had gone under the grey water; nobody said a word."
)
TIMES = re.compile(r"(\d+):(\d\d):(\d\d)[,.](\d{3}) --> (\d+):(\d\d):(\d\d)[,.](\d{3})")


def parsed(text: str) -> list[tuple[int, int, list[str]]]:
    """Read subtitles back: milliseconds and lines, and nothing else in between."""
    found = []
    for block in text.removeprefix("WEBVTT\n\n").strip("\n").split("\n\n"):
        lines = block.split("\n")
        if lines[0].isdigit() and lines[0] == str(len(found) + 1):
            lines.pop(0)
        times = TIMES.fullmatch(lines[0])
        assert times, block
        h1, m1, s1, ms1, h2, m2, s2, ms2 = map(int, times.groups())
        start, end = (
            ((h1 * 60 + m1) * 60 + s1) * 1000 + ms1,
            ((h2 * 60 + m2) * 60 + s2) * 1000 + ms2,
        )
        found.append((start, end, lines[1:]))
    return found


def test_cues_as_they_stand_in_the_files() -> None:
    cues = [Cue(0.0, 1.2345, "Hello."), Cue(3599.9996, 3601.0, "Tea & <b>cake</b> --> 3 < 4")]
    assert as_srt(cues) == (
        "1\n00:00:00,000 --> 00:00:01,234\nHello.\n"
        "\n"
        "2\n01:00:00,000 --> 01:00:01,000\n"
        "Tea & <\u2060b>cake<\u2060/b> --\u2060> 3 < 4\n"
    )
    assert as_vtt(cues) == (
        "WEBVTT\n"
        "\n"
        "00:00:00.000 --> 00:00:01.234\nHello.\n"
        "\n"
        "01:00:00.000 --> 01:00:01.000\n"
        "Tea &amp; &lt;b&gt;cake&lt;/b&gt; --&gt; 3 &lt; 4\n"
    )


def test_long_cues_are_split_and_wrapped_by_their_share_of_the_words() -> None:
    found = parsed(as_srt([Cue(10.0, 22.0, LONG)]))
    assert " ".join(" ".join(lines) for _, _, lines in found) == LONG
    assert (found[0][0], found[-1][1]) == (10_000, 22_000)
    assert found[0][2][-1].endswith(",")
    rates = [sum(map(len, lines)) / (end - start) for start, end, lines in found]
    assert max(rates) < 1.1 * min(rates)


def test_a_slow_cue_is_split_too() -> None:
    found = parsed(as_srt([Cue(0.0, 20.0, "One two three four five six.")]))
    assert len(found) >= 3
    assert all(end - start <= 1000 * MAX_CUE_S + 1 for start, end, _ in found)


def test_scripts_without_spaces_are_wrapped_by_their_width() -> None:
    text = "他在海边走了很久，没有遇见任何人。" * 4
    found = parsed(as_vtt([Cue(0.0, 9.0, text)]))
    assert "".join("".join(lines) for _, _, lines in found) == text
    assert all(len(line) <= 21 and line[0] not in "，。" for _, _, lines in found for line in lines)


def test_cues_that_overlap_or_run_backwards_are_put_right() -> None:
    cues = [Cue(1.0, 5.0, "a"), Cue(3.0, 4.0, "b"), Cue(2.0, 2.5, "c"), Cue(4.0, 4.0, "d")]
    times = [(start, end) for start, end, _ in parsed(as_srt(cues))]
    assert times == [(1000, 3000), (3000, 3001), (3001, 3002), (4000, 4001)]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0, 40),
            st.floats(0, 1),
            st.text(st.sampled_from("ab c.,<>&{}\\/-!\n他é\u200b"), max_size=300),
        ),
        max_size=6,
    )
)
def test_times_never_run_backwards_and_no_word_is_lost(
    rows: list[tuple[float, float, str]],
) -> None:
    cues, now = [], 0.0
    for length, gap, text in rows:
        cues.append(Cue(now, now + length, text))
        now += length + gap
    wanted = "".join("".join(cue.text for cue in cues).split())
    for made in (as_srt(cues), unescape(as_vtt(cues))):
        found = parsed(made) if any(cue.text.strip() for cue in cues) else []
        end_before = 0
        for start, end, lines in found:
            assert end_before <= start < end
            end_before = end
            assert 1 <= len(lines) <= 2
            visible = [re.sub("[\u2060\u200b]", "", line) for line in lines]
            assert all(len(line) + line.count("他") <= 42 for line in visible)
        said = "".join("".join(lines) for _, _, lines in found).replace("\u2060", "")
        assert "".join(said.split()) == wanted


def test_a_file_appears_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.srt"
    write_subtitles(path, [Cue(0.0, 1.0, "Grüße 他")])
    assert path.read_text("utf-8") == "1\n00:00:00,000 --> 00:00:01,000\nGrüße 他\n"
    with pytest.raises(OutputError, match="exists already"):
        write_subtitles(path, [])
    write_subtitles(path, [Cue(0.0, 1.0, "New.")], force=True)
    assert "New." in path.read_text("utf-8")

    def refuse(*_: object) -> None:
        raise OSError(errno.EACCES, "no")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OutputError):
        write_subtitles(path, [Cue(0.0, 1.0, "Newer.")], force=True)
    assert [p.name for p in tmp_path.iterdir()] == ["a.srt"]
    assert "New." in path.read_text("utf-8")


def test_places_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        write_subtitles(tmp_path / "a.txt", [])
    with pytest.raises(OutputError, match="does not exist"):
        write_subtitles(tmp_path / "none" / "a.vtt", [])

"""Scripts become lines with ids, places and facts; all that is wrong is said at once, by line."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fishtts.errors import ScriptError, UsageError
from fishtts.text.records import record_of
from fishtts.text.script import FORMATS, Script, read_script
from fishtts.types import ScriptLine


def read(text: str | bytes, **options: object) -> Script:
    data = text if isinstance(text, bytes) else text.encode()
    return read_script(io.BytesIO(data), **options)  # type: ignore[arg-type]


def ids(script: Script) -> list[str]:
    return [line.id for line in script.lines]


def texts(script: Script) -> list[str]:
    return [line.text for line in script.lines]


def faults(text: str | bytes, **options: object) -> str:
    with pytest.raises(ScriptError) as caught:
        read(text, **options)
    return str(caught.value)


ABBREVIATIONS = (
    "Dr. Vale paid $1,250.50 at 9:30 a.m. to Mrs. Orr of the U.S. office. It rose 3.14 percent.\n"
)
PUNCTUATION = "A normal line.\n...\n\n\u2014\n***\n   \nAnother normal line.\n"
WINDOWS = b"\xef\xbb\xbfThe first line.\r\nThe second line.\r\n\r\nThe third line.\r\n"

BOOK = """\
THE LAMP AND THE TIDE

CHAPTER I.

It was the last week of October when the keeper of the light, an old man
with one good eye, climbed the stairs for what he swore would be the final
time. The wind had been rising since noon; by four o'clock the glass was so
thick with salt that he could not see the boats come in.

"You will stay," said the girl, "until the oil is brought. You promised my
mother, and a promise to the dead is not to be broken by anyone, least of
all by you." She had a well-
known temper.

***

    The sea is wide,
    The sea is deep,
    And I must watch
    While others sleep.

He stayed.
"""


def test_sentences_are_not_split_at_abbreviations_and_decimals() -> None:
    script = read(ABBREVIATIONS, split="sentence")
    assert " ".join(texts(script)) == ABBREVIATIONS.strip()
    assert ids(script) == ["L0001.1", "L0001.2"]
    assert ids(read(ABBREVIATIONS)) == ["L0001"]


def test_lines_of_bare_punctuation_are_kept_and_nothing_is_renumbered() -> None:
    script = read(PUNCTUATION)
    assert [(line.number, line.text) for line in script.lines] == [
        (1, "A normal line."),
        (2, "..."),
        (4, "\u2014"),
        (5, "***"),
        (7, "Another normal line."),
    ]
    assert ids(script) == ["L0001", "L0002", "L0004", "L0005", "L0007"]


def test_byte_order_mark_and_windows_line_ends_vanish(tmp_path: Path) -> None:
    path = tmp_path / "bom.txt"
    path.write_bytes(WINDOWS)
    script = read_script(path)
    assert texts(script) == ["The first line.", "The second line.", "The third line."]
    assert script.source == str(path)


def test_the_locale_plays_no_part(tmp_path: Path) -> None:
    code = (
        "from fishtts.text.script import read_script\n"
        "print(ascii([line.text for line in read_script('-').lines]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        input="\ufeffCaf\u00e9.\r\n".encode(),
        env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        check=True,
    )
    assert run.stdout.decode().strip() == "['Caf\\xe9.']"


def test_a_wrapped_book_is_joined_to_paragraphs_and_the_reader_is_told() -> None:
    script = read(BOOK)
    assert [(line.id, line.text[:24]) for line in script.lines] == [
        ("L0001", "THE LAMP AND THE TIDE"),
        ("L0003", "CHAPTER I."),
        ("L0005", "It was the last week of "),
        ("L0010", '"You will stay," said th'),
        ("L0015", "***"),
        ("L0017", "The sea is wide,\nThe sea"),
        ("L0022", "He stayed."),
    ]
    assert "\n" not in script.lines[2].text
    assert script.lines[3].text.endswith("She had a well-known temper.")
    assert "16 lines joined to 7 paragraphs" in script.notes[0]
    words = "".join(text.replace("\n", " ") for text in texts(script))
    assert "".join(words.split()) == "".join(BOOK.split())


def test_lines_of_a_book_stay_apart_when_asked() -> None:
    script = read(BOOK, split="line")
    assert len(script.lines) == len([line for line in BOOK.split("\n") if line.strip()])
    assert script.notes == ()


def test_sentences_of_a_wrapped_book_know_the_line_they_begin_in() -> None:
    script = read(BOOK, split="sentence")
    found = {line.text[:12]: line.id for line in script.lines}
    assert found["It was the l"] == "L0005"
    assert found["The wind had"] == "L0007"
    assert found["She had a we"] == "L0012"


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{number}. A short line to read.\n" for number in range(1, 41)),
        "Buy the bread and the milk\nCall the plumber about the leaking kitchen tap\nSleep\n",
        "The first of these sentences is a rather long one, as you see.\nThe second is short.\n"
        "The third of these sentences is again a rather long one, I fear.\n",
        "Shall I compare thee to a summer's day?\nThou art more lovely and more temperate:\n"
        "Rough winds do shake the darling buds of May,\nAnd summer's lease hath all too short a "
        "date:\n",
        "今天天气很好。\n我们去海边散步。\n没有遇见任何人。\n",
    ],
    ids=["numbered", "list", "sentences", "verse", "chinese"],
)
def test_lists_of_lines_stay_lines(text: str) -> None:
    script = read(text)
    assert texts(script) == text.strip().split("\n")
    assert script.notes == ()


@pytest.mark.parametrize(
    "text",
    [
        "Es war in der letzten Woche des Oktobers, als der alte Mann, der das\n"
        "Licht bewachte, zum letzten Mal die Treppe hinaufstieg. Der Wind war\n"
        "seit dem Mittag stärker geworden, und um vier Uhr war das Glas so dick\n"
        "mit Salz bedeckt, dass er die Boote nicht mehr sehen konnte.\n",
        "他在海边走了很久没有遇见任何人风从北方吹来海浪拍打着\n岩石灯塔的光在黑暗中闪烁老人想起了年轻时的"
        "日子那时\n海边还有许多渔船。\n",
    ],
    ids=["german", "chinese"],
)
def test_wrapped_prose_of_other_languages_is_noticed(text: str) -> None:
    assert len(read(text).lines) == 1
    assert len(read(text, split="paragraph").lines) == 1


def test_a_speaker_keeps_a_line_of_their_own_in_wrapped_text() -> None:
    text = (
        "MIRA: I have walked along the shore for a very long time without meeting\n"
        "anyone at all, and the wind was cold, so cold that I could not feel my own\n"
        "TOM: You should have stayed at home, then, and made yourself a cup of tea,\n"
        "and waited until the rain had stopped, as anyone else would have done too.\n"
    )
    assert [part[:5] for part in read(text).lines[0].text.split("\n")] == ["MIRA:", "TOM: "]


def test_signs_that_end_lines_do_not_count_as_lines() -> None:
    script = read("One.\x0cTwo.\nThree.\u2028Four.\n")
    assert list(zip(ids(script), texts(script), strict=True)) == [
        ("L0001.1", "One."),
        ("L0001.2", "Two."),
        ("L0002.1", "Three."),
        ("L0002.2", "Four."),
    ]


def test_ids_are_as_wide_as_the_file_needs() -> None:
    script = read("x.\n" * 12345)
    assert script.lines[0].id == "L00001"
    assert script.lines[-1].id == "L12345"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.text(st.sampled_from("abC .,:-!?\"'*\téß他。"), max_size=90), max_size=12),
    st.sampled_from(["auto", "line", "paragraph", "sentence"]),
)
def test_no_text_is_lost_however_it_is_split(rows: list[str], split: str) -> None:
    text = "\n".join(rows)
    if not text.strip():
        assert "nothing to say" in faults(text, split=split)
        return
    script = read(text, split=split)
    assert "".join("".join(texts(script)).split()) == "".join(text.split())
    assert len(set(ids(script))) == len(script.lines)


MARKDOWN = """\
---
title: The Lamp
---
# The *Lamp*

It was a **dark** and _stormy_ night,
and [rain](https://example.org/a_(b) "now") fell on `a*b`.\\
After a hard break. <!-- not
this --> 2 * 3 * 4 stays.

- one
- [x] two,
  going on
1. First
2. Second

```python
print("code")
```

The Second Chapter
------------------
> A quotation
> goes on.

| name | age |
| ---- | --- |
| Mira | 9   |

**MIRA:** Hello.
**TOM:** Hi.

[ref]: https://example.org
See [this][ref], ![a picture](x.png), <b>bold</b>, snake_case, 3 \\* 4 &amp;
[pause:1s]<|speaker:0|>.
***
"""


def test_markdown_is_read_as_one_reads_it_aloud() -> None:
    script = read(MARKDOWN, format="md")
    assert [(line.number, line.text, line.heading) for line in script.lines] == [
        (4, "The Lamp", "The Lamp"),
        (
            6,
            "It was a dark and stormy night, and rain fell on a*b.\n"
            "After a hard break. 2 * 3 * 4 stays.",
            "",
        ),
        (11, "one", ""),
        (12, "two, going on", ""),
        (14, "1. First", ""),
        (15, "2. Second", ""),
        (21, "The Second Chapter", "The Second Chapter"),
        (23, "A quotation goes on.", ""),
        (26, "name, age", ""),
        (28, "Mira, 9", ""),
        (30, "MIRA: Hello.\nTOM: Hi.", ""),
        (
            34,
            "See this, a picture, bold, snake_case, 3 * 4 & [pause:1s]<|speaker:0|>.",
            "",
        ),
        (36, "***", ""),
    ]
    assert script.notes == (
        "Left out the front matter (lines 1 to 3).",
        "Left out 1 block of code (line 17).",
    )


def test_markdown_can_be_split_into_sentences_and_lines() -> None:
    text = "# One\nShort text here.\nMore *of\nit*. And more.\n"
    assert texts(read(text, format="md", split="sentence")) == [
        "One",
        "Short text here.",
        "More of it.",
        "And more.",
    ]
    assert texts(read(text, format="md", split="line"))[1:] == [
        "Short text here.",
        "More of",
        "it. And more.",
    ]


def test_a_code_fence_that_is_never_closed_hides_no_text() -> None:
    assert texts(read("One.\n\n```\nTwo.\n\nThree.\n", format="md")) == ["One.", "Two.", "Three."]


def test_a_number_at_the_begin_of_a_wrapped_line_is_no_list() -> None:
    text = "It happened in the spring of\n1984. Nobody knew.\n"
    assert texts(read(text, format="md")) == ["It happened in the spring of 1984. Nobody knew."]


@settings(max_examples=80, deadline=None)
@given(st.text(st.sampled_from("ab12 *_`~#>-[]()!|<&;:.\\\n"), max_size=120))
def test_markdown_never_loses_a_word_outside_code_and_addresses(text: str) -> None:
    """Links, tags, code, comments and definitions apart, which the alphabet here cannot finish."""
    if any(sign in text for sign in ("```", "~~~", "](", "]:", "<", "&", "---")):
        return
    kept = "".join(filter(str.isalnum, text))
    if not text.strip():
        return
    try:
        script = read(text, format="md")
    except ScriptError:
        assert not kept
        return
    assert "".join(filter(str.isalnum, "".join(texts(script)))) == kept


CSV = (
    "id,text,voice,seed,speed,out,pause\n"
    'K1,"Hello, you.\nAll of you.",ada,7,1.25,en/hello.wav,0.5\n'
    "K2,Bye.,,,,,\n"
)


def test_a_table_says_all_that_a_line_can_have(tmp_path: Path) -> None:
    path = tmp_path / "lines.csv"
    path.write_text(CSV, "utf-8")
    first, second = read_script(path, suffix=".wav").lines
    assert first == ScriptLine(
        id="K1",
        number=2,
        text="Hello, you.\nAll of you.",
        has_own_id=True,
        voice="ada",
        seed=7,
        speed=1.25,
        pause_s=0.5,
        out="en/hello.wav",
    )
    assert second == ScriptLine("K2", 4, "Bye.", has_own_id=True)


def test_rows_without_an_id_are_named_after_their_line() -> None:
    assert ids(read("text\nOne.\n\nTwo.\n", format="csv")) == ["L0002", "L0004"]


def test_columns_can_be_named_and_the_others_are_then_left_out() -> None:
    text = "key;text_en;text_de\n1;Hello;Hallo\n"
    script = read(text, format="csv", columns={"id": "key", "text": "text_de"})
    assert (ids(script), texts(script)) == (["1"], ["Hallo"])
    assert script.notes == ("Columns not used: text_en.",)
    assert 'no column "text_fr"' in faults(text, format="csv", columns={"text": "text_fr"})
    with pytest.raises(UsageError, match='no column "words"'):
        read(text, format="csv", columns={"words": "text_en"})
    with pytest.raises(UsageError, match="this is txt"):
        read("x", columns={"text": "a"})


def test_quotes_in_a_tab_separated_table_are_text_unless_they_hold_the_cell() -> None:
    script = read('id\ttext\n1\t"Go!" she cried.\n2\t"He said ""no"", twice"\n', format="tsv")
    assert texts(script) == ['"Go!" she cried.', 'He said "no", twice']


def test_all_faults_of_a_table_are_told_at_once_with_their_lines() -> None:
    message = faults(
        "id,text,seed,speed,pause,out\n"
        "a,One.,x,1,0,\n"
        "b,,1,9,0,\n"
        "a,Three.,1,nan,-1,../up.wav\n"
        "d,Four.,99999999999999999999,1,0,C:\\x.wav\n"
        "e,Five.,1,1,0,/abs.wav\n"
        "f,Six.,1,1,0,con.wav\n"
        "g,Seven.,1,1,0,x.mp3\n"
        "h,Eight\n"
        "i,Nine.,,,,Same.wav\n"
        "j,Ten.,,,,same.wav\n"
        "k,Eleven.,,,,same.wav/x.wav\n",
        format="csv",
        suffix=".wav",
    )
    for expected in (
        'line 2: the seed "x"',
        "line 3: the text is empty",
        "line 3: the speed is 9; it must lie between 0.5 and 2",
        'line 4: the id "a" is that of line 2',
        'line 4: the speed "nan"',
        "line 4: the pause is -1",
        'line 4: the out "../up.wav" leaves the run\'s folder',
        "line 5: the seed 99999999999999999999 is too large",
        "line 5: the out",
        'line 6: the out "/abs.wav" must lie inside',
        'line 7: the out "con.wav" has the part "con.wav"',
        'line 8: the out "x.mp3" ends in .mp3, but this run writes .wav',
        "line 9: the row has 2 cells, and the header has 6",
        'line 11: the file "same.wav" is that of line 10',
        "line 12: ",
    ):
        assert expected in message
    assert message.index("line 2") < message.index("line 9") < message.index("line 12")


def test_no_more_than_twenty_faults_are_shown() -> None:
    message = faults("text,voice\n" + ",ada\n" * 30, format="csv")
    assert "30 problems" in message
    assert message.count("\n  line") == 20
    assert "and 10 more" in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("text,vioce\nx,y\n", 'the column "vioce" is unknown. Did you mean "voice"?'),
        ("words\nx\n", 'must name a column "text"'),
        ("text,text\nx,y\n", "more than once"),
        ('text\n"never closed\n', "line 2: the quotes of this row are not right"),
        ("", "nothing to say"),
        ("text\n", "nothing to say"),
        (f"id,text\n{'x' * 201},y\n", "201 characters"),
        ("id,text\na\x07b,y\n", "cannot be printed"),
        ("text\na\0b\n", "NUL character"),
    ],
)
def test_tables_that_are_refused(text: str, expected: str) -> None:
    assert expected in faults(text, format="csv")


def test_lines_of_json() -> None:
    script = read(
        '{"id": 7, "text": "One.", "seed": 3, "speed": 1.5, "pause": 0, "voice": null}\n'
        "\n"
        '{"text": "Two \\u2014 it is.", "error": "It stopped too early."}\n',
        format="jsonl",
    )
    assert script.lines == (
        ScriptLine("7", 1, "One.", has_own_id=True, seed=3, speed=1.5, pause_s=0.0),
        ScriptLine("L0003", 3, "Two \u2014 it is."),
    )


def test_all_faults_of_lines_of_json_are_told_at_once() -> None:
    message = faults(
        '{"text": "\\ud800"}\n{"text": 1}\n[]\n{"tekst": "a", "text": "b"}\nnope\n'
        '{"id": "x"}\n{"text": "a", "text": "b"}\n{"text": "a", "seed": true}\n'
        '{"text": "a", "speed": NaN}\n' + "[" * 100_000 + "\n",
        format="jsonl",
    )
    for expected in (
        "line 1: the text holds half of a surrogate pair",
        'line 2: the value of "text"',
        "line 3: this is no JSON object",
        'line 4: the key "tekst" is unknown. Did you mean "text"?',
        "line 5: this is not JSON",
        'line 6: the key "text" is missing',
        'line 7: the key "text" is there more than once',
        'line 8: the value of "seed"',
        'line 9: the speed "nan"',
        "line 10: this ",
    ):
        assert expected in message


@settings(max_examples=60, deadline=None)
@given(
    st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=30),
    st.text(st.sampled_from("abc \n\"',\\é他"), min_size=1).map(str.strip).filter(bool),
    st.none() | st.integers(0, 2**63 - 1),
    st.none() | st.floats(0.5, 2.0),
    st.none() | st.floats(0.0, 60.0),
)
def test_a_failed_line_can_be_fed_in_again(
    identity: str, text: str, seed: int | None, speed: float | None, pause_s: float | None
) -> None:
    line = ScriptLine(identity, 1, text, True, "ada", seed, speed, pause_s, "a/b.wav")
    record = {**record_of(line), "error": "It stopped too early."}
    assert read(json.dumps(record), format="jsonl").lines == (line,)


SRT = """\
1
00:00:01,000 --> 00:00:02,500
<i>Hello</i>
there.

2
00:00:03.5 --> 01:00:04,020 X1:40 X2:600
- Who is it?
- {\\an8}Me, <3 from <font color="red">Tom</font>.

3
00:00:05,000 --> 00:00:06,000
<i></i>

4
00:00:02,600 --> 00:00:02,900
Early.
"""


def test_subtitles_keep_the_times_of_their_cues() -> None:
    script = read(SRT, format="srt")
    assert [(line.number, line.start_s, line.end_s, line.text) for line in script.lines] == [
        (1, 1.0, 2.5, "Hello there."),
        (15, 2.6, 2.9, "Early."),
        (6, 3.5, 3604.02, "- Who is it?\n- Me, <3 from Tom."),
    ]
    assert script.notes == (
        "Left out 1 cue without text.",
        "The cues were not in order of time; they are now.",
    )


def test_subtitles_that_are_no_subtitles_are_refused_by_line() -> None:
    message = faults(
        "1\nHello.\n\n2\n00:00:02,000 --> 00:00:01,000\nBack.\n\n"
        "3\n00:99:00,000 --> 01:00:00,000\nLate.\n\nLost words.\n",
        format="srt",
    )
    for expected in (
        "line 2: a cue's times are missing",
        "line 5: the cue ends before it begins",
        "line 9: a time has more than 59",
        "line 12: a cue's times are missing",
    ):
        assert expected in message


def test_bytes_that_do_not_fit_are_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes(b"fine\r\nna\xefve\n")
    with pytest.raises(ScriptError, match=r"byte 8 \(0xef\), in line 2,"):
        read_script(path)
    assert texts(read_script(path, encoding="cp1252")) == ["fine", "naïve"]


def test_wide_encodings_are_believed() -> None:
    assert texts(read("Héllo\n".encode("utf-16"))) == ["Héllo"]


def test_what_cannot_be_read_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "book.epub").write_bytes(b"PK")
    with pytest.raises(ScriptError, match="tells no script format"):
        read_script(tmp_path / "book.epub")
    with pytest.raises(ScriptError, match="There is no file"):
        read_script(tmp_path / "none.txt")
    with pytest.raises(UsageError, match='no script format "xml"'):
        read("x", format="xml")
    with pytest.raises(UsageError, match='no split "word"'):
        read("x", split="word")
    with pytest.raises(UsageError, match="never split"):
        read("text\nx\n", format="csv", split="sentence")


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(FORMATS), st.binary(max_size=80) | st.text(max_size=80).map(str.encode))
def test_any_bytes_are_read_or_refused(kind: str, data: bytes) -> None:
    try:
        script = read(data, format=kind)
    except ScriptError:
        return
    assert script.lines
    assert len(set(ids(script))) == len(script.lines)
    assert all("\r" not in line.text and "\ufeff" not in line.text for line in script.lines)

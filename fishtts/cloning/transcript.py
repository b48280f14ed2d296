"""The words of a recording: where they are written, and whether they can be those of what was kept.

A model that is given other words than the clip says learns a wrong alphabet of the voice, so words
are never paired with a clip blindly. Knows no recogniser; one may be handed in.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import SequenceMatcher
from pathlib import Path

from fishtts.cloning.window import Window
from fishtts.errors import ScriptError, UsageError
from fishtts.text.duration import expected_seconds
from fishtts.text.read import read_file
from fishtts.types import Audio

Transcribe = Callable[[Audio], str]

ENDINGS = (".lab", ".txt")
MAX_CHARS = 5000

_FACTOR = 2.2
"""The estimate of a text's length is right within a factor of two."""

_ALIKE = 0.6
"""Share of the words that a recogniser must find in the transcript to place them."""

_SHORTER = (
    "Cut the recording to the part that you have the words of, or name the part and its own words:"
    " --from, --to and --text."
)


def words_beside(path: Path) -> str:
    """Read the words that lie beside a recording: ``mira.lab`` or ``mira.txt`` for ``mira.wav``."""
    for ending in ENDINGS:
        beside = path.with_suffix(ending)
        if beside != path and beside.is_file():
            return read_file(beside).strip()
    return ""


def check_words(text: str) -> str:
    """Bring a transcript into one line.

    Raises: ``ScriptError`` for one that is too long to be a clip's.
    """
    text = " ".join(text.split())
    if len(text) > MAX_CHARS:
        raise ScriptError(
            f"The transcript has {len(text):,} letters; a clip of 30 s has {MAX_CHARS:,} at the"
            " most."
        )
    return text


def pair(
    text: str,
    window: Window,
    clip: Audio,
    *,
    name: str,
    seconds: float,
    of_window: bool,
    transcribe: Transcribe | None = None,
) -> str:
    """Answer the words of a clip, out of a transcript.

    ``seconds`` is the length of the whole recording; ``of_window`` says that the transcript was
    given for the kept part, and not for all of it.
    Raises: ``UsageError`` naming both lengths where the two do not go together.
    """
    expected_s = expected_seconds(text)
    if of_window or window.is_whole:
        if window.speech_s / _FACTOR <= expected_s <= (window.kept.seconds + 1) * _FACTOR:
            return text
        raise UsageError(
            f"The transcript takes about {expected_s:.0f} s to say, and {window.speech_s:.1f} s of"
            f' speech were kept of "{name}": they do not belong together.',
            hint="Give the words that are said there, and no others.",
        )
    if transcribe is not None:
        placed = _place(text, transcribe(clip))
        if placed:
            return placed
    raise UsageError(
        f"The transcript (about {expected_s:.0f} s of speech) is that of all {seconds:.1f} s of"
        f' "{name}", and {window.kept.seconds:.1f} s were kept of it'
        f" ({window.kept.start_s:.1f} to {window.kept.end_s:.1f} s).",
        hint=_SHORTER if transcribe is None else f"Its words were not found in it. {_SHORTER}",
    )


def _place(text: str, heard: str) -> str:
    """Find what was heard in a longer transcript; answer the transcript's own words, or nothing."""
    words = list(re.finditer(r"\S+", text))
    ours = [_bare(word.group()) for word in words]
    theirs = [_bare(word) for word in heard.split()]
    if not theirs:
        return ""
    blocks = [
        block
        for block in SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks()
        if block.size
    ]
    if sum(block.size for block in blocks) < _ALIKE * len(theirs):
        return ""
    # What was misheard at either end belongs to it as well.
    first = max(0, blocks[0].a - blocks[0].b)
    last = min(len(ours), blocks[-1].a + len(theirs) - blocks[-1].b)
    if last - first > 1.5 * len(theirs) + 2:
        return ""
    return text[words[first].start() : words[last - 1].end()]


def _bare(word: str) -> str:
    return re.sub(r"[\W_]", "", word).casefold()

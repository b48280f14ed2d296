"""The files of a run to one file, in the order of the script, with pauses exact to the sample.

Owns where each line begins. Streams from file to file: memory does not grow with the book. Knows
nothing of how lines were made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fishtts.audio.join import pause_samples
from fishtts.audio.subtitles import Cue, write_subtitles
from fishtts.audio.write import choose_format, open_file
from fishtts.errors import OutputError
from fishtts.jobs.manifest import Record, write_whole
from fishtts.jobs.plan import Job, file_hash
from fishtts.jobs.stopping import Stopping
from fishtts.types import Samples

CHAPTER_PAUSE_S = 1.5
"""Least silence before a chapter."""

_NOTE = "joined.json"
_BLOCK_SAMPLES = 1 << 18
_MAX_WAV_BYTES = 0xFFFFFFFF
_WAV_HEADER_BYTES = 44
_FULL_SCALE = np.float32(32767.0)


@dataclass(frozen=True, slots=True)
class Placed:
    """A line in the joined file: ``start`` in samples, after ``gap`` samples of silence;
    ``late_s`` is how much after its cue it begins, ``text`` what is said in it."""

    record: Record
    text: str
    gap: int
    start: int
    late_s: float = 0.0

    @property
    def end(self) -> int:
        """The sample after its last."""
        return self.start + self.record.samples


def lay_out(made: Sequence[tuple[Job, Record]], pause_s: float) -> list[Placed]:
    """Place lines one after another: the pause after each is its own, or ``pause_s``.

    A cue never begins before its time, and right after the one before it where that was too long.
    """
    placed: list[Placed] = []
    end = 0
    gap_s = 0.0
    for job, record in made:
        rate = record.sample_rate
        line = job.line
        if line.start_s is not None:
            due = pause_samples(line.start_s, rate)
            start = max(end, due)
            late_s = (start - due) / rate
        else:
            if placed and line.heading:
                gap_s = max(gap_s, CHAPTER_PAUSE_S)
            start = end + (pause_samples(gap_s, rate) if placed else 0)
            late_s = 0.0
        placed.append(Placed(record, _said(job), start - end, start, late_s))
        end = start + record.samples
        gap_s = pause_s if line.pause_s is None else line.pause_s
    return placed


def join(
    folder: Path, placed: Sequence[Placed], target: Path, *, force: bool, stopping: Stopping
) -> None:
    """Write the joined file, unless it is there already as it would be.

    Raises: ``OutputError`` for a WAV file that would be too large, ``DeviceError`` on a full disk.
    """
    check_size(placed, target)
    identity = _identity(placed, target)
    is_mine = is_ours(folder, target)
    if is_mine and _notes(folder)[target.name].get("identity") == identity:
        return
    rate = placed[0].record.sample_rate
    with open_file(target, sample_rate=rate, force=force or is_mine) as writer:
        for part in placed:
            stopping.check()
            for length in _blocks(part.gap):
                writer.write(np.zeros(length, np.float32))
            for samples in _read(folder / part.record.file):
                writer.write(samples)
    _sign(folder, target, identity)


def write_cues(folder: Path, placed: Sequence[Placed], target: Path, *, force: bool) -> None:
    """Write subtitles of a joined file.

    Raises: ``OutputError`` where somebody else's file is in the way.
    """
    cues = [
        Cue(part.start / part.record.sample_rate, part.end / part.record.sample_rate, part.text)
        for part in placed
    ]
    write_subtitles(target, cues, force=force or is_ours(folder, target))
    _sign(folder, target, "")


def check_size(placed: Sequence[Placed], target: Path) -> None:
    """Refuse what a format cannot hold."""
    num_bytes = _WAV_HEADER_BYTES + 2 * (placed[-1].end if placed else 0)
    if choose_format(str(target)).name == "wav" and num_bytes > _MAX_WAV_BYTES:
        hours = placed[-1].end / placed[-1].record.sample_rate / 3600
        raise OutputError(
            f'"{target}" would hold {hours:.1f} hours of audio, and a WAV file ends at 4 GiB.',
            hint="The lines are kept; run the same command with -o and a name in .flac.",
        )


def is_ours(folder: Path, target: Path) -> bool:
    """Tell whether a file is as the last run left it, so that it may be replaced."""
    note = _notes(folder).get(target.name)
    return note is not None and target.is_file() and file_hash(target) == note.get("sha256")


def chapters(placed: Sequence[Placed]) -> list[dict[str, object]]:
    """List the chapters: each begins with a line that has a heading, and ends where the next one
    begins."""
    heads = [part for part in placed if part.record.heading]
    if not heads:
        return []
    rate = heads[0].record.sample_rate
    ends = [*(part.start for part in heads[1:]), placed[-1].end]
    return [
        {
            "title": part.record.heading,
            "id": part.record.id,
            "start_s": round(part.start / rate, 6),
            "end_s": round(end / rate, 6),
        }
        for part, end in zip(heads, ends, strict=True)
    ]


def timed(placed: Sequence[Placed]) -> dict[str, Record]:
    """Tell the records where they begin, by key."""
    return {
        part.record.key: replace(
            part.record, start_s=round(part.start / part.record.sample_rate, 6)
        )
        for part in placed
    }


def _identity(placed: Sequence[Placed], target: Path) -> str:
    parts = [[part.record.sha256, part.gap] for part in placed]
    text = json.dumps([choose_format(str(target)).name, parts])
    return hashlib.sha256(text.encode()).hexdigest()


def _sign(folder: Path, target: Path, identity: str) -> None:
    """Note that a file is ours as it is now, so that the next run may replace it."""
    notes = _notes(folder)
    notes[target.name] = {"identity": identity, "sha256": file_hash(target)}
    write_whole(folder / _NOTE, json.dumps(notes, indent=2) + "\n")


def _notes(folder: Path) -> dict[str, dict[str, str]]:
    """Read what was joined from this folder, by file name; nothing where it cannot be read."""
    try:
        notes = json.loads((folder / _NOTE).read_bytes())
    except (OSError, ValueError):
        return {}
    return notes if isinstance(notes, dict) else {}


def _read(path: Path) -> Iterator[Samples]:
    """Read a 16-bit file block by block, so that writing it again gives the same samples."""
    import soundfile

    with soundfile.SoundFile(path) as file:
        while len(block := file.read(_BLOCK_SAMPLES, dtype="int16")):
            yield block.astype(np.float32) / _FULL_SCALE


def _said(job: Job) -> str:
    """Answer the words of a line, without marks that say who speaks or where it pauses."""
    units = job.plan.units if job.plan else ()
    return " ".join(planned.unit.text for planned in units if not planned.is_silent)


def _blocks(num_samples: int) -> Iterator[int]:
    """Cut a long silence into pieces that need little memory."""
    while num_samples > 0:
        yield min(num_samples, _BLOCK_SAMPLES)
        num_samples -= _BLOCK_SAMPLES

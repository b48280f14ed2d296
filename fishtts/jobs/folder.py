"""The folder of a run: what of a script is finished in it, and how a finished file gets its name.

Owns the order of writing that makes a sudden end harmless: a file is whole on the disk, then its
record, then it gets its name. A record without its file counts as nothing. Knows nothing of how
audio is made.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fishtts.audio.write import open_file
from fishtts.errors import OutputError, UsageError
from fishtts.jobs import manifest
from fishtts.jobs.lock import locked
from fishtts.jobs.manifest import History, ManifestWriter, Record, disk_error
from fishtts.jobs.plan import Job, file_hash
from fishtts.types import Samples

_UNFINISHED = ".unfinished"
_MOVING = ".moving"
_MAX_NAMED = 5


class Ledger:
    """What a manifest tells, and whether the files bear it out."""

    def __init__(self, path: Path, history: History) -> None:
        self.path = path
        self.history = history
        self._records: list[Record] = []
        self._by_key: dict[str, list[Record]] = defaultdict(list)
        self._by_id: dict[str, list[Record]] = defaultdict(list)
        self._hashes: dict[str, str] = {}
        for record in history.records:
            self._remember(record)

    @classmethod
    def read(cls, path: Path) -> Ledger:
        """Read a folder that somebody else may work in."""
        return cls(path, manifest.read_manifest(path / manifest.NAME))

    def finished(self, job: Job) -> Record | None:
        """Find the latest record of a job whose file is there and whole."""
        for record in reversed(self._by_key.get(job.key, [])):
            if self.is_whole(record):
                return record
        return None

    def records_of(self, line_id: str) -> list[Record]:
        """List what is recorded of a line, oldest first."""
        return self._by_id.get(line_id, [])

    def is_whole(self, record: Record) -> bool:
        """Tell whether a record's file is there as it was made."""
        return bool(record.file) and self._hash(record.file) == record.sha256

    def _remember(self, record: Record) -> None:
        self._records.append(record)
        self._by_id[record.id].append(record)
        for key in (record.key, *record.also):
            if key:
                self._by_key[key].append(record)

    def _hash(self, file: str) -> str:
        """Hash a file once; "" where there is none."""
        if file not in self._hashes:
            path = self.path / file
            try:
                self._hashes[file] = file_hash(path) if path.is_file() else ""
            except OSError as error:
                raise OutputError(f'"{path}" cannot be read: {error.strerror}.') from None
        return self._hashes[file]


class RunFolder(Ledger):
    """A folder that one run works in; use it in a ``with`` block (``open_folder``)."""

    def __init__(self, path: Path, history: History, writer: ManifestWriter) -> None:
        super().__init__(path, history)
        self._writer = writer

    @property
    def manifest(self) -> Path:
        """Where the manifest is."""
        return self.path / manifest.NAME

    def save(self, record: Record, samples: Samples, format_name: str) -> Record:
        """Write a file, then its record, then give the file its name.

        Raises: ``DeviceError`` where the disk is full, ``OutputError`` where it cannot be written.
        """
        work = self.path / _UNFINISHED / f"{record.key}.{format_name}"
        _make(work.parent)
        with open_file(
            work, sample_rate=record.sample_rate, format_name=format_name, force=True
        ) as writer:
            writer.write(samples)
        record = replace(record, sha256=_sync(work))
        self.append(record)
        self._rename(work, record.file)
        return record

    def append(self, *records: Record) -> None:
        """Add records; they are on the disk when this returns."""
        self._writer.append(*records)
        for record in records:
            self._remember(record)

    def adopt(self, found: Sequence[tuple[Job, Record, Path]]) -> dict[str, Record]:
        """Bring finished files to the names that their jobs have now; answers the records by key.

        Each file lies in the folder that is named with it. All go through names of their own, as
        a line that moved up may hold the name of the next. Names are recorded before they are
        given, so that whatever a sudden end leaves behind is found again.
        """
        _make(self.path / _MOVING)
        passing = [f"{_MOVING}/{job.key}{Path(record.file).suffix}" for job, record, _ in found]
        moved = [described(replace(record, file=job.file), job) for job, record, _ in found]
        steps = list(zip(found, passing, moved, strict=True))
        self.append(*(replace(record, file=name) for (_, record, _), name, _ in steps))
        for (_, record, folder), name, _ in steps:
            self._rename(folder / record.file, name)
            self._hashes.pop(record.file, None)
        self.append(*moved)
        for _, name, record in steps:
            self._rename(self.path / name, record.file)
        return {record.key: record for record in moved}

    def put_in_order(self, records: Iterable[Record]) -> None:
        """Rewrite the manifest: these records in this order, and those of other lines.

        Where all of these were in it before, as with a part of a script, they keep their places.
        """
        ordered = {(record.id, record.take): record for record in records}
        keys = {key for record in ordered.values() for key in (record.key, *record.also)}
        before: dict[tuple[str, int], Record] = {}
        for record in self._records:
            place = (record.id, record.take)
            if place in ordered:
                before[place] = ordered[place]
            elif record.key not in keys and self._still_counts(record):
                before[place] = record
        is_part = ordered.keys() <= {(r.id, r.take) for r in self.history.records}
        merged = before | ordered if is_part else ordered | before
        manifest.rewrite_manifest(self.manifest, merged.values())

    def _still_counts(self, record: Record) -> bool:
        return not record.file or (self.path / record.file).exists()

    def clear_work(self) -> None:
        """Take away what was never finished."""
        shutil.rmtree(self.path / _UNFINISHED, ignore_errors=True)
        moving = self.path / _MOVING
        if moving.is_dir() and not any(moving.iterdir()):
            moving.rmdir()

    def _rename(self, source: Path, file: str) -> None:
        target = self.path / file
        try:
            _make(target.parent)
            os.replace(source, target)
        except OSError as error:
            raise disk_error(error, target) from None
        self._hashes.pop(file, None)


def described(record: Record, job: Job) -> Record:
    """Let a record speak of a job as the script has it now: place, id, name of the voice."""
    line = job.line
    also = {record.key, *record.also} - {job.key}
    return replace(
        record,
        id=line.id,
        line=line.number,
        text=line.text,
        voice=job.voice.name,
        heading=line.heading,
        take=job.take,
        key=job.key,
        also=tuple(sorted(also)),
        start_s=None,
    )


@contextmanager
def open_folder(path: Path) -> Iterator[RunFolder]:
    """Make the folder if need be, lock it, and read what it holds.

    Raises: ``OutputError`` where another run is in it or it cannot be written.
    """
    _make(path)
    with locked(path):
        shutil.rmtree(path / _UNFINISHED, ignore_errors=True)
        history = manifest.read_manifest(path / manifest.NAME)
        with ManifestWriter(path / manifest.NAME) as writer:
            folder = RunFolder(path, history, writer)
            try:
                yield folder
            finally:
                folder.clear_work()


@dataclass(frozen=True, slots=True)
class Permissions:
    """What may be replaced: finished lines that are other now, and files of nobody's."""

    changed: bool = False
    force: bool = False


def check_targets(
    folder: RunFolder, to_make: Sequence[Job], kept: Iterable[Record], allowed: Permissions
) -> None:
    """Refuse to replace finished audio or somebody's file without leave, before anything is made.

    Raises: ``UsageError``, ``OutputError`` saying which, and which option allows it.
    """
    kept_files = {record.file for record in kept}
    finished = {
        record.file: record
        for record in folder.history.records
        if record.status == "ok" and record.file not in kept_files and folder.is_whole(record)
    }
    ids = {(record.id, record.take) for record in finished.values()}
    known = {record.file for record in folder.history.records}
    is_torn = folder.history.num_torn > 0  # then a record may be lost, and its file is ours
    changed, foreign = [], []
    for job in to_make:
        if job.file in finished or (job.line.id, job.take) in ids:
            changed.append(job.name)
        elif job.file not in known and not is_torn and (folder.path / job.file).exists():
            foreign.append(job.file)
    if changed and not allowed.changed:
        raise UsageError(
            f'"{folder.path}" holds finished audio of {_count(changed, "line")} whose words, voice'
            f" or settings are other now: {_some(changed)}.",
            hint="Add --changed to make them anew, or choose another folder.",
        )
    if foreign and not allowed.force:
        raise OutputError(
            f'"{folder.path}" holds {_count(foreign, "file")} that this run did not make:'
            f" {_some(foreign)}.",
            hint="Add --force to replace them, or choose another folder.",
        )


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise OutputError(f'"{folder}" is a file, not a folder.') from None
    except OSError as error:
        raise disk_error(error, folder) from None


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"{', '.join(names[:_MAX_NAMED])}{more}"


def _count(names: Sequence[str], noun: str) -> str:
    return f"{len(names)} {noun}{'' if len(names) == 1 else 's'}"


def _sync(path: Path) -> str:
    """Bring a file's content to the disk; answers its hash."""
    try:
        with path.open("rb+") as file:
            os.fsync(file.fileno())
        return file_hash(path)
    except OSError as error:
        raise disk_error(error, path) from None

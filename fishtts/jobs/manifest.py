"""``manifest.jsonl``: one JSON object a line for each file made, and for each that could not be.

Owns the format, its version, and that no finished line is lost whatever happens to the process:
records are appended and synced one by one, and put in order at the end. Knows nothing of how lines
are made.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from fishtts.errors import DISK_ERRORS, DeviceError, ModelError, OutputError

VERSION = 1
NAME = "manifest.jsonl"

Status = Literal["ok", "skipped", "fell_short", "failed"]
EndReason = Literal["eos", "limit", "retry_exhausted", "aborted"]


@dataclass(frozen=True, slots=True)
class Record:
    """What became of one line.

    ``file`` is relative to the manifest. ``key`` is the identity of the work, ``also`` the keys of
    earlier work that this one stands in for. ``seconds`` are samples divided by ``sample_rate``;
    ``start_s`` is where the line begins in a joined file. ``retries`` are the further tries that
    the worst part of it had. ``again`` counts how often it was asked
    for anew, ``wer`` is the share of words that a recogniser heard wrongly, ``likeness`` how like
    its voice a line of 2 s or more is, from 0 to 1.
    """

    id: str
    line: int
    text: str
    status: Status
    model_text: str = ""
    voice: str = ""
    seed: int = 0
    model: str = ""
    frames: int = 0
    samples: int = 0
    sample_rate: int = 0
    seconds: float = 0.0
    stop_reason: EndReason | None = None
    retries: int = 0
    file: str = ""
    sha256: str = ""
    key: str = ""
    take: int = 1
    again: int = 0
    heading: str = ""
    start_s: float | None = None
    wer: float | None = None
    likeness: float | None = None
    missed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    error: str = ""
    also: tuple[str, ...] = ()
    version: int = VERSION

    def to_json(self) -> str:
        """Write it as one line; what need not be said is left out."""
        values = asdict(self)
        for name, empty in _LEFT_OUT_WHERE.items():
            if values[name] == empty:
                del values[name]
        return json.dumps(values, ensure_ascii=False)


_LEFT_OUT_WHERE: dict[str, Any] = {
    "again": 0,
    "heading": "",
    "start_s": None,
    "wer": None,
    "likeness": None,
    "missed": (),
    "error": "",
    "also": (),
}
_FIELDS = {field.name for field in fields(Record)}
_TUPLES = ("missed", "warnings", "also")


@dataclass(frozen=True, slots=True)
class History:
    """All records of a manifest in the order they were written; ``num_torn`` counts lines that a
    sudden end left unreadable."""

    records: tuple[Record, ...] = ()
    num_torn: int = 0


def read_manifest(path: Path) -> History:
    """Read what there is; a line that was cut off counts as never written.

    Raises: ``ModelError`` for one of a later version.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return History()
    except OSError as error:
        raise OutputError(f'The manifest "{path}" cannot be read: {error.strerror}.') from None
    records = []
    num_torn = 0
    for line in data.split(b"\n"):
        if not line.strip(b" \r\0"):
            continue
        record = _parse(line, path)
        if record is None:
            num_torn += 1
        else:
            records.append(record)
    return History(tuple(records), num_torn)


def _parse(line: bytes, path: Path) -> Record | None:
    try:
        values = json.loads(line)
        version = values["version"]
        if version == VERSION:
            values = {key: values[key] for key in values if key in _FIELDS}
            values |= {key: tuple(values[key]) for key in _TUPLES if key in values}
            record = Record(**values)
            return record if _lies_inside(record.file) else None
    except (ValueError, TypeError, KeyError):
        return None
    raise ModelError(
        f'The manifest "{path}" has version {version}; versions up to {VERSION} are understood.',
        hint="Bring fishtts up to date: pip install --upgrade fishtts",
    )


def _lies_inside(file: str) -> bool:
    """Tell a name inside the folder from one that leads out of it; no run writes such a name."""
    return ".." not in file.split("/") and not file.startswith("/") and not set(file) & set("\\:")


class ManifestWriter:
    """Appends records; each is on the disk when ``append`` returns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("ab+")
            if self._ends_torn():
                self._write(b"\n")
        except OSError as error:
            raise disk_error(error, path) from None

    def append(self, *records: Record) -> None:
        """Write records.

        Raises: ``DeviceError`` where the disk is full.
        """
        text = "".join(f"{record.to_json()}\n" for record in records)
        try:
            self._write(text.encode("utf-8", "replace"))
        except OSError as error:
            raise disk_error(error, self._path) from None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._file.flush()
        os.fsync(self._file.fileno())

    def _ends_torn(self) -> bool:
        """Tell whether the last line was cut off: what follows must not be glued to it."""
        if self._file.seek(0, os.SEEK_END) == 0:
            return False
        self._file.seek(-1, os.SEEK_END)
        return self._file.read(1) != b"\n"


def rewrite_manifest(path: Path, records: Iterable[Record]) -> None:
    """Put the manifest in order; it is replaced as a whole or not at all."""
    write_whole(path, "".join(f"{record.to_json()}\n" for record in records))


def write_whole(path: Path, text: str) -> None:
    """Write a small file beside its place and move it there."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            file.write(text.encode("utf-8", "replace"))
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise disk_error(error, path) from None


def disk_error(error: OSError, path: Path) -> DeviceError | OutputError:
    """Turn what the system says of a file into one sentence."""
    reason = error.strerror or str(error)
    if error.errno in DISK_ERRORS:
        return DeviceError(
            f'Writing to "{path}" failed: {reason}. What is finished is kept.',
            hint="Free some space and run the same command again.",
        )
    return OutputError(f'Writing to "{path}" failed: {reason}.')

"""Samples to files and pipes: one writer a format, all of them streaming.

Owns file formats, names of files, and what may go wrong with a disk or a pipe. A file appears
under its name only when it is whole. Knows nothing of text, codes or models.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Protocol, Self

import numpy as np

from fishtts.audio.encode import (
    Encoder,
    FlacEncoder,
    Mp3Encoder,
    RawEncoder,
    WavEncoder,
    with_libsndfile,
)
from fishtts.audio.sink import Sink
from fishtts.errors import DISK_ERRORS, DeviceError, OutputError, UsageError
from fishtts.types import Samples

_MP3_RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
_OPUS_RATES = (48000,)


@dataclass(frozen=True, slots=True)
class Format:
    """A way to write audio: its file name endings, and the rates it can hold (empty: any)."""

    name: str
    suffixes: tuple[str, ...]
    encoder: Callable[[Sink, int], Encoder]
    sample_rates: tuple[int, ...] = ()

    def sample_rate(self, sample_rate: int) -> int:
        """Choose the lowest rate it can hold that loses nothing."""
        if not self.sample_rates or sample_rate in self.sample_rates:
            return sample_rate
        return min((r for r in self.sample_rates if r > sample_rate), default=self.sample_rates[-1])


class Writer(Protocol):
    """Where audio goes: used in a ``with`` block, it is closed, or aborted after an error."""

    def write(self, samples: Samples) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def format_names() -> tuple[str, ...]:
    """Name all formats, for help texts."""
    return tuple(FORMATS)


def choose_format(target: str, name: str | None = None) -> Format:
    """Find the format that was asked for by name, or else by the ending of the file's name.

    Raises: ``OutputError`` for an unknown one, ``UsageError`` when name and ending contradict.
    """
    suffix = "" if target == "-" else Path(target).suffix.lower()
    by_suffix = next((f for f in FORMATS.values() if suffix in f.suffixes), None)
    known = f"It writes {', '.join(FORMATS)}."
    if name is not None:
        chosen = FORMATS.get(name.lower())
        if chosen is None:
            raise OutputError(f'The format "{name}" cannot be written.', hint=known)
        if by_suffix not in (None, chosen):
            raise UsageError(
                f'The name "{target}" ends in {suffix}, but the format asked for is {chosen.name}.'
            )
        return chosen
    if by_suffix is not None:
        return by_suffix
    if target == "-" or _is_special(Path(target)):
        return FORMATS["wav"]
    if not suffix:
        raise OutputError(
            f'The name "{target}" does not tell the format.',
            hint=f"End it in .wav, or add --format. {known}",
        )
    raise OutputError(f"Files that end in {suffix} cannot be written.", hint=known)


def open_file(
    path: Path, *, sample_rate: int, format_name: str | None = None, force: bool = False
) -> Writer:
    """Open a file to be written; it gets its name when it is closed.

    A device or a named pipe (``/dev/null``) is written to as it stands.
    Raises: ``OutputError`` where nothing can be written, or where a file is and ``force`` is not.
    """
    chosen = choose_format(str(path), format_name)
    if _is_special(path):
        with _as_output_error(path):
            device = io.FileIO(path, "wb")
        return _AudioWriter(Sink(device, seekable=False, owned=True), chosen, sample_rate)
    place = _Place(path, force)
    return _AudioWriter(Sink(place.stream, seekable=True, owned=True), chosen, sample_rate, place)


def open_stdout(
    stream: BinaryIO, *, sample_rate: int, format_name: str | None = None, is_terminal: bool = False
) -> Writer:
    """Open standard output for audio; sizes in headers are true where it is a file.

    The stream is flushed, and left open. A closed pipe reaches the caller as ``BrokenPipeError``.
    Raises: ``UsageError`` for a terminal.
    """
    if is_terminal:
        raise UsageError(
            "Audio is not written to a terminal.",
            hint="Name a file with -o speech.wav, or send it on: fishtts say ... -o - | player",
        )
    chosen = choose_format("-", format_name)
    return _AudioWriter(
        Sink(stream, seekable=_is_seekable(stream), owned=False), chosen, sample_rate
    )


def write_bytes(path: Path, data: bytes, *, force: bool = False) -> None:
    """Write a file that goes with audio (subtitles); it gets its name when it is whole.

    Raises: as ``open_file``, and ``DeviceError`` for a full disk.
    """
    place = _Place(path, force)
    sink = Sink(place.stream, seekable=True, owned=True)
    try:
        with _as_output_error(path):
            sink.write(data)
            sink.flush()
            sink.close()
    except BaseException:
        sink.close()
        place.discard()
        raise
    place.finish()


class _Place:
    """A file in the making: written beside its final name, moved there when whole."""

    def __init__(self, path: Path, force: bool) -> None:
        self._final = Path(os.path.realpath(path))
        self._shown = path
        self._force = force
        self._check()
        part = f".{self._final.name[:40]}.{os.getpid()}.part"
        self._part = self._final.with_name(part)
        with _as_output_error(path):
            self._part.unlink(missing_ok=True)
            self.stream = io.FileIO(self._part, "xb")

    def finish(self) -> None:
        try:
            self._check()
            with _as_output_error(self._shown):
                os.replace(self._part, self._final)
        except OutputError:
            self.discard()
            raise

    def discard(self) -> None:
        with suppress(OSError):
            self._part.unlink(missing_ok=True)

    def _check(self) -> None:
        """Refuse a place that is taken: at the start, to save the work, and again at the end."""
        with _as_output_error(self._shown):
            exists = self._final.exists()
        if self._final.is_dir():
            raise OutputError(f'"{self._shown}" is a folder, not a file.')
        if exists and not self._force:
            raise OutputError(
                f'The file "{self._shown}" exists already.', hint="Add --force to replace it."
            )


class _AudioWriter:
    """Resample where the format must, clip, encode, and turn system errors into ours."""

    def __init__(
        self, sink: Sink, chosen: Format, sample_rate: int, place: _Place | None = None
    ) -> None:
        self._sink = sink
        self._place = place
        self._open = True
        self._resampler: Any = None
        written_rate = chosen.sample_rate(sample_rate)
        if written_rate != sample_rate:
            import soxr

            self._resampler = soxr.ResampleStream(sample_rate, written_rate, 1, dtype="float32")
        self._encoder = chosen.encoder(sink, written_rate)

    def write(self, samples: Samples) -> None:
        """Write mono samples; what lies outside -1 to 1 is clipped.

        Raises: ``DeviceError`` when the disk is full, ``BrokenPipeError`` when nobody reads.
        """
        self._write(samples, last=False)
        self._flush()

    def close(self) -> None:
        """Finish the file and give it its name; more than one call does no harm."""
        if not self._open:
            return
        try:
            if self._resampler is not None:
                self._write(np.zeros(0, np.float32), last=True)
            self._encoder.close()
            self._flush()
        except BaseException:
            self.abort()
            raise
        self._open = False
        self._sink.close()
        if self._place is not None:
            self._place.finish()

    def abort(self) -> None:
        """Leave nothing under the final name."""
        if not self._open:
            return
        self._open = False
        with suppress(OSError):
            self._encoder.close()
        with suppress(OSError):
            self._sink.close()
        if self._place is not None:
            self._place.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def _write(self, samples: Samples, *, last: bool) -> None:
        samples = np.ascontiguousarray(samples, dtype=np.float32)
        if self._resampler is not None:
            samples = self._resampler.resample_chunk(samples, last=last)
        self._encoder.write(np.clip(np.nan_to_num(samples), -1.0, 1.0))

    def _flush(self) -> None:
        try:
            self._sink.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _as_ours(error, "the output") from None


def _is_special(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _is_seekable(stream: BinaryIO) -> bool:
    """Tell a file from a pipe; ``>>`` also counts as a pipe, as it only ever adds at the end."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):
        return stream.seekable()
    if not stat.S_ISREG(os.fstat(number).st_mode):
        return False
    try:
        import fcntl
    except ImportError:
        return stream.seekable()
    return not fcntl.fcntl(number, fcntl.F_GETFL) & os.O_APPEND


class _as_output_error:
    """Turn the system's errors about a path into ours."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, FileNotFoundError):
            raise OutputError(
                f'The folder "{self._path.parent}" does not exist.', hint="Make it first."
            ) from None
        if isinstance(error, OSError):
            raise _as_ours(error, f'"{self._path}"') from None


def _as_ours(error: OSError, place: str) -> DeviceError | OutputError:
    reason = error.strerror or str(error)
    if error.errno in DISK_ERRORS:
        return DeviceError(f"Writing to {place} failed: {reason}.", hint="Free some space.")
    return OutputError(f"Writing to {place} failed: {reason}.")


FORMATS = {
    chosen.name: chosen
    for chosen in (
        Format("wav", (".wav", ".wave"), WavEncoder),
        Format("flac", (".flac",), FlacEncoder),
        Format("mp3", (".mp3",), Mp3Encoder, _MP3_RATES),
        Format("ogg", (".ogg", ".oga"), with_libsndfile("OGG", "VORBIS")),
        Format("opus", (".opus",), with_libsndfile("OGG", "OPUS"), _OPUS_RATES),
        Format("raw", (".raw", ".pcm", ".s16le"), RawEncoder),
    )
}
"""All formats by name. A new one is a row here, and an encoder if libsndfile cannot write it."""

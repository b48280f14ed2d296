"""From bytes to clean text: encodings, byte order marks, line ends, characters that are none.

Owns what may go wrong before a word is looked at. Knows nothing of sentences, models or voices.
"""

from __future__ import annotations

import codecs
import re
from pathlib import Path
from typing import BinaryIO

from fishtts.errors import ScriptError, UsageError

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Longest first: the UTF-32 mark begins with the UTF-16 one."""

_LINE_ENDS = re.compile("\r\n|[\r\x0b\x85\u2028]")
_PARAGRAPH_ENDS = re.compile("\x0c|\u2029")
_NO_CHARACTER = re.compile("[\0\ud800-\udfff]")
_BYTE_ORDER_MARK = "\ufeff"


def read_file(path: Path, *, encoding: str = "utf-8") -> str:
    """Read a text file and clean it.

    Raises: ``ScriptError`` naming the file, and the byte where the encoding breaks.
    """
    return decode(read_bytes(path), encoding=encoding, source=f'the file "{path}"')


def read_bytes(path: Path) -> bytes:
    """Read a file whole.

    Raises: ``ScriptError`` naming the file and what is wrong with it.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ScriptError(f'There is no file "{path}".') from None
    except IsADirectoryError:
        raise ScriptError(f'"{path}" is a folder, not a text file.') from None
    except OSError as error:
        raise ScriptError(f'The file "{path}" cannot be read: {error.strerror}.') from None
    return data


def read_stream(stream: BinaryIO, *, encoding: str = "utf-8") -> str:
    """Read standard input (its bytes, so that the locale plays no part) and clean it."""
    return decode(stream.read(), encoding=encoding, source="standard input")


def decode(data: bytes, *, encoding: str = "utf-8", source: str = "the text") -> str:
    """Turn bytes into clean text.

    A UTF-16 or UTF-32 byte order mark is believed when the encoding asked for is UTF-8.
    Raises: ``UsageError`` for an unknown encoding, ``ScriptError`` for bytes that do not fit.
    """
    return clean(_decode(data, encoding, source), source=source)


def decode_lines(data: bytes, *, encoding: str = "utf-8", source: str = "the text") -> list[str]:
    """Turn bytes into lines, numbered as an editor numbers them: only CR, LF and CRLF end one.

    Other signs that end lines and paragraphs stand in them yet, for ``clean``.
    Raises: as ``decode``.
    """
    text = _decode(data, encoding, source).removeprefix(_BYTE_ORDER_MARK)
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _decode(data: bytes, encoding: str, source: str) -> str:
    try:
        name = codecs.lookup(encoding).name
    except (LookupError, ValueError):
        raise UsageError(
            f'The encoding "{encoding}" is unknown.', hint="Try utf-8, cp1252 or utf-16."
        ) from None
    if name == "utf-8":
        for mark, marked in _BYTE_ORDER_MARKS:
            if data.startswith(mark):
                name = marked
                break
    try:
        return data.decode(name)
    except UnicodeDecodeError as error:
        byte = f" (0x{data[error.start]:02x})" if error.start < len(data) else ""
        line = _line_number(data[: error.start].decode(name, "ignore"))
        raise ScriptError(
            f"{_capital(source)} is not valid {name}: byte {error.start}{byte}, in line {line},"
            " does not fit.",
            hint="Name the encoding it has, for example --encoding cp1252.",
        ) from None
    except (LookupError, AttributeError, TypeError):
        raise UsageError(
            f'"{encoding}" is not an encoding of text.', hint="Try utf-8, cp1252 or utf-16."
        ) from None


def clean(text: str, *, source: str = "the text") -> str:
    """Drop byte order marks, make every line end ``\\n``, refuse what is not a character.

    Raises: ``ScriptError`` for a NUL character or half of a surrogate pair, which is what a byte
    that fits no encoding becomes on the command line.
    """
    alien = _NO_CHARACTER.search(text)
    if alien and alien[0] == "\0":
        raise ScriptError(
            f"{_capital(source)} holds a NUL character (number {alien.start() + 1}) in"
            f" line {_line_number(text[: alien.start()])}.",
            hint="It looks like a binary file, or UTF-16: then add --encoding utf-16.",
        )
    if alien:
        raise ScriptError(
            f"{_capital(source)} holds half of a surrogate pair (character {alien.start() + 1},"
            f" U+{ord(alien[0]):04X}), which no encoding can write.",
            hint="Put the text into a file and read it with -f and --encoding.",
        )
    text = _PARAGRAPH_ENDS.sub("\n\n", _LINE_ENDS.sub("\n", text))
    return text.replace(_BYTE_ORDER_MARK, "")


def _line_number(before: str) -> int:
    """Tell in which line a text goes on, from what stands before."""
    return before.replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1


def _capital(source: str) -> str:
    return source[:1].upper() + source[1:]

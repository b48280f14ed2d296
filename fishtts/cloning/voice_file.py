"""One voice, one safetensors file: clips, codes, words, embedding, where they come from, consent.

Owns the format and its versions. Nothing in a voice file can run code, and no field of it is ever
a path. Everything is checked before it is believed: sizes, kinds, ranges, and a hash over the
whole. Knows no model and no codec.

Version 2: tensors ``codes.<codec>.<reference>`` (int16 [C, F]), ``clip.<reference>`` (FLAC, uint8),
``embedding`` (float32); metadata ``format``, ``version``, ``needs`` (the first version of fishtts
that reads it), ``voice`` (JSON, see ``_facts``) and ``digest`` (SHA-256 of all of these). Version 1
had one codec's codes and their words.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fishtts.cloning.clip import pack_clip, unpack_clip
from fishtts.cloning.voice_checks import MAX_CODECS, MAX_REFERENCES, all_encodings, check_voice
from fishtts.errors import DeviceError, ModelError, OutputError
from fishtts.types import Codes, Encoding, Reference, Source, Voice

FORMAT = "fishtts-voice"
VERSION = 2
SUFFIX = ".fishvoice"

NEEDS = "0.1.0"
"""The first version of fishtts that reads ``VERSION``."""

MAX_FILE_BYTES = 64_000_000
"""Far beyond any real voice: no file, whatever it claims, takes more than some memory."""

_MAX_HEADER_BYTES = 1_000_000

_INTEGERS = {"I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8", "U8": "u1", "U16": "<u2"}
_KINDS = {"F32": "<f4", **_INTEGERS}

Tensors = dict[str, npt.NDArray[Any]]


def write_voice(voice: Voice, path: Path) -> None:
    """Write a voice file; it appears under its name only when it is whole.

    Raises: ``ModelError`` for what is no voice, ``OutputError`` where no file can be.
    """
    data = pack_voice(voice)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        part.write_bytes(data)
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        kind = DeviceError if error.errno in (errno.ENOSPC, errno.EDQUOT) else OutputError
        raise kind(f'The voice file "{path}" cannot be written: {error.strerror}.') from None


def read_voice(path: Path) -> Voice:
    """Read a voice file, of this version or an older one.

    Raises: ``ModelError`` saying what is wrong with it, also for one of a later version.
    """
    try:
        if not path.is_file():
            raise ModelError(f'There is no voice file "{path}".')
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ModelError(f'The voice file "{path}" cannot be read: {error.strerror}.') from None
    voice = unpack_voice(data, str(path))
    return voice if voice.name else replace(voice, name=path.stem)


def pack_voice(voice: Voice) -> bytes:
    """Turn a voice into the bytes of a file. Clips are kept in 16 or 24 bits, without loss.

    Raises: ``ModelError`` for what is no voice.
    """
    from safetensors.numpy import save

    try:
        check_voice(voice)
        tensors = _tensors(voice)
    except ValueError as error:
        raise ModelError(f'The voice "{voice.name}" cannot be kept: {error}.') from None
    facts = json.dumps(_facts(voice), ensure_ascii=False, allow_nan=False)
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "needs": NEEDS,
        "voice": facts,
        "digest": _digest(facts, tensors),
    }
    return save(tensors, metadata=metadata)


def unpack_voice(data: bytes, where: str) -> Voice:
    """Turn the bytes of a file into a voice. ``where`` names it in messages.

    Raises: ``ModelError`` saying what is wrong with it.
    """
    try:
        metadata = _metadata(data)
        version = _version(metadata, where)  # first: all else may be different in a newer one
        tensors = _open(data)
        voice = _read_v1(metadata, tensors) if version == 1 else _read_v2(metadata, tensors)
        check_voice(voice)
    # JSON may be nested too deeply for Python, and shapes may have sides too long for numpy.
    except (ValueError, RecursionError, OverflowError) as error:
        raise ModelError(
            f'The voice file "{where}" is damaged, cut short or not a voice: {error}.',
            hint="Copy it again from where it came from.",
        ) from None
    return voice


def _metadata(data: bytes) -> dict[str, str]:
    """Read what a safetensors file says of itself; raise ``ValueError`` for what is none."""
    header_bytes = int.from_bytes(data[:8], "little")
    if not 2 <= header_bytes <= min(_MAX_HEADER_BYTES, len(data) - 8):
        raise ValueError("it does not begin as a safetensors file")
    header = _json(data[8 : 8 + header_bytes])
    metadata = header.get("__metadata__", {}) if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise ValueError("it does not begin as a safetensors file")
    return metadata


def _open(data: bytes) -> Tensors:
    from safetensors import SafetensorError, deserialize

    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"it is larger than any voice ({MAX_FILE_BYTES // 1_000_000} MB)")
    try:
        parts = deserialize(data)  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise ValueError(str(error).rstrip(".")) from None
    return {name: _array(name, part) for name, part in parts}


def _array(name: str, part: dict[str, Any]) -> npt.NDArray[Any]:
    if part["dtype"] not in _KINDS:
        raise ValueError(f'the part "{name[:40]}" is of a kind that no voice has')
    return np.frombuffer(part["data"], dtype=_KINDS[part["dtype"]]).reshape(part["shape"])


def _version(metadata: dict[str, str], where: str) -> int:
    if metadata.get("format") != FORMAT:
        raise ModelError(f'"{where}" is a safetensors file, but not a voice.')
    version = metadata.get("version", "")
    if re.fullmatch(r"[1-9][0-9]{0,5}", version) is None:
        raise ValueError("its version is not a number")
    if int(version) <= VERSION:
        return int(version)
    needs = metadata.get("needs", "")
    known = re.fullmatch(r"[0-9][0-9A-Za-z.+-]{0,30}", needs)
    raise ModelError(
        f'The voice file "{where}" has version {version}, and this fishtts reads versions up to'
        f" {VERSION}; it needs {'fishtts ' + needs if known else 'a newer fishtts'} or later.",
        hint="Bring fishtts up to date: pip install --upgrade fishtts",
    )


def _read_v1(metadata: dict[str, str], tensors: Tensors) -> Voice:
    texts = _json(metadata.get("texts", "[]"))
    if not isinstance(texts, list) or set(tensors) != {f"codes.{n}" for n in range(len(texts))}:
        raise ValueError("its codes and its words do not belong together")
    references = tuple(
        Reference(_codes(tensors[f"codes.{number}"]), text) for number, text in enumerate(texts)
    )
    return Voice(
        name=metadata.get("name", ""),
        references=references,
        codec=metadata.get("codec", ""),
        language=metadata.get("language", ""),
        description=metadata.get("description", ""),
    )


def _read_v2(metadata: dict[str, str], tensors: Tensors) -> Voice:
    if set(metadata) != {"format", "version", "needs", "voice", "digest"}:
        raise ValueError("it lacks a part, or has one too many")
    if metadata["digest"] != _digest(metadata["voice"], tensors):
        raise ValueError("its content is not what was written")
    facts = _Facts(_json(metadata["voice"]), "voice")
    texts = facts.texts("references")
    codecs = [_Facts(entry, "codec") for entry in facts.items("codecs", MAX_CODECS)]
    rest = dict(tensors)
    encodings = [
        Encoding(
            codec.text("identity"),
            tuple(_codes(_taken(rest, f"codes.{number}.{n}")) for n in range(len(texts))),
            codec.text("model"),
        )
        for number, codec in enumerate(codecs)
    ]
    embedding = rest.pop("embedding", None)
    has_clips = any(name.startswith("clip.") for name in rest)
    clips = [_taken(rest, f"clip.{n}") for n in range(len(texts))] if has_clips else []
    if rest or not encodings:
        raise ValueError("its parts are not those of a voice")
    first, *others = encodings
    voice = Voice(
        name=facts.text("name"),
        references=tuple(map(Reference, first.codes, texts)),
        codec=first.codec,
        model=first.model,
        encodings=tuple(others),
        language=facts.text("language"),
        description=facts.text("description"),
        consent=facts.text("consent"),
        clips=tuple(unpack_clip(clip.tobytes()) for clip in clips),
        embedding=embedding,
        encoder=facts.text("encoder"),
        sources=tuple(_source(entry) for entry in facts.items("sources", MAX_REFERENCES)),
    )
    for codec in codecs:
        codec.end()
    facts.end()
    return voice


def _facts(voice: Voice) -> dict[str, Any]:
    return {
        "name": voice.name,
        "language": voice.language,
        "description": voice.description,
        "consent": voice.consent,
        "references": [reference.text for reference in voice.references],
        "codecs": [
            {"identity": encoding.codec, "model": encoding.model}
            for encoding in all_encodings(voice)
        ],
        "encoder": voice.encoder,
        "sources": [
            {
                "sha256": source.sha256,
                "seconds": float(source.seconds),
                "kept_from": float(source.kept_from_s),
                "kept_to": float(source.kept_to_s),
                "date": source.date,
            }
            for source in voice.sources
        ],
    }


def _json(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise ValueError("its description is not JSON") from None


def _source(entry: Any) -> Source:
    facts = _Facts(entry, "source")
    source = Source(
        sha256=facts.text("sha256"),
        seconds=facts.number("seconds"),
        kept_from_s=facts.number("kept_from"),
        kept_to_s=facts.number("kept_to"),
        date=facts.text("date"),
    )
    facts.end()
    return source


def _tensors(voice: Voice) -> Tensors:
    tensors: Tensors = {}
    for number, encoding in enumerate(all_encodings(voice)):
        for n, codes in enumerate(encoding.codes):
            tensors[f"codes.{number}.{n}"] = codes.astype(np.int16)
    for n, clip in enumerate(voice.clips):
        tensors[f"clip.{n}"] = np.frombuffer(pack_clip(clip), dtype=np.uint8)
    if voice.embedding is not None:
        tensors["embedding"] = np.ascontiguousarray(voice.embedding, dtype=np.float32)
    return tensors


def _digest(facts: str, tensors: Tensors) -> str:
    """Hash all that a voice is made of: a flipped bit must not become another sound."""
    digest = hashlib.sha256(f"{VERSION}\0{facts}\0".encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _taken(tensors: Tensors, name: str) -> npt.NDArray[Any]:
    array = tensors.pop(name, None)
    if array is None:
        raise ValueError(f'the part "{name}" is missing')
    return array


def _codes(array: npt.NDArray[Any]) -> Codes:
    return array.astype(np.int64) if np.issubdtype(array.dtype, np.integer) else array


class _Facts:
    """A JSON object read strictly: each fact of the right kind, none missing, none left over."""

    def __init__(self, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise ValueError(f"the {where} is not described")
        self._values = dict(value)
        self._where = where

    def text(self, key: str) -> str:
        return str(self._take(key, str))

    def number(self, key: str) -> float:
        return float(self._take(key, float))

    def items(self, key: str, most: int) -> list[Any]:
        items: list[Any] = self._take(key, list)
        if len(items) > most:
            raise ValueError(f'it has more than {most} "{key}"')
        return items

    def texts(self, key: str) -> list[str]:
        texts = self.items(key, MAX_REFERENCES)
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(f'"{key}" are not texts')
        return texts

    def end(self) -> None:
        if self._values:
            raise ValueError(f'the {self._where} has an unknown "{next(iter(self._values))[:40]}"')

    def _take(self, key: str, kind: type) -> Any:
        value = self._values.pop(key, None)
        if not isinstance(value, kind):
            raise ValueError(f'the {self._where} lacks its "{key}"')
        return value


def is_voice_file(name: str) -> bool:
    """Tell a voice file by the ending of its name."""
    return name.lower().endswith((SUFFIX, ".safetensors"))

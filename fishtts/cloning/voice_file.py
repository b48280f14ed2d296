"""One voice, one safetensors file: codes, words, and which codec the codes belong to.

Owns the format and its version. Nothing in a voice file can run code. Knows no model.
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import numpy as np

from fishtts.errors import DeviceError, ModelError, OutputError
from fishtts.types import Reference, Voice

FORMAT = "fishtts-voice"
VERSION = 1

_MAX_CODE = 2**15 - 1
"""Codes are stored in 16 bits; no codec here has codebooks as large."""


def write_voice(voice: Voice, path: Path) -> None:
    """Write a voice file; it appears under its name only when it is whole.

    Raises: ``ModelError`` for a voice without codes or with codes that are none.
    """
    from safetensors.numpy import save

    if not voice.references:
        raise ModelError(f'The voice "{voice.name}" has no reference.')
    tensors = {}
    for number, reference in enumerate(voice.references):
        codes = _checked(reference.codes, f'of the voice "{voice.name}"')
        tensors[f"codes.{number}"] = codes.astype(np.int16)
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "name": voice.name,
        "texts": json.dumps([reference.text for reference in voice.references]),
        "codec": voice.codec,
        "language": voice.language,
        "description": voice.description,
    }
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(save(tensors, metadata=metadata))
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        kind = DeviceError if error.errno in (errno.ENOSPC, errno.EDQUOT) else OutputError
        raise kind(f'The voice file "{path}" cannot be written: {error.strerror}.') from None


def read_voice(path: Path) -> Voice:
    """Read a voice file.

    Raises: ``ModelError`` saying what is wrong with it, also for one of a later version.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise ModelError(f'There is no voice file "{path}".')
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            _check_version(metadata, path)
            texts = json.loads(metadata["texts"])
            codes = [file.get_tensor(f"codes.{number}") for number in range(len(texts))]
    except (SafetensorError, OSError) as error:
        raise ModelError(f'The voice file "{path}" is damaged or cut short: {error}.') from None
    except (KeyError, ValueError, TypeError) as error:
        raise ModelError(f'The voice file "{path}" lacks a part: {error}.') from None
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ModelError(f'The voice file "{path}" has no reference.')
    references = tuple(
        Reference(_checked(rows, f'in "{path}"'), text)
        for rows, text in zip(codes, texts, strict=True)
    )
    if len({reference.codes.shape[0] for reference in references}) != 1:
        raise ModelError(f'The codes in "{path}" do not belong to one codec.')
    return Voice(
        name=metadata.get("name") or path.stem,
        references=references,
        codec=metadata.get("codec", ""),
        language=metadata.get("language", ""),
        description=metadata.get("description", ""),
    )


def _check_version(metadata: dict[str, str], path: Path) -> None:
    if metadata.get("format") != FORMAT:
        raise ModelError(f'"{path}" is a safetensors file, but not a voice.')
    version = metadata.get("version", "")
    if not version.isdecimal() or not 1 <= int(version) <= VERSION:
        raise ModelError(
            f'The voice file "{path}" has version {version or "none"}; versions up to {VERSION} are'
            " understood.",
            hint="Bring fishtts up to date: pip install --upgrade fishtts",
        )


def _checked(codes: np.ndarray, where: str) -> np.ndarray:
    """Let only codes through: whole numbers in rows, not negative, at least one frame."""
    if (
        codes.ndim != 2
        or 0 in codes.shape
        or not np.issubdtype(codes.dtype, np.integer)
        or codes.min() < 0
        or codes.max() > _MAX_CODE
    ):
        raise ModelError(f"The codes {where} are not codes.")
    return codes.astype(np.int64)

"""The folder of a model: which files it must hold, whether they are whole, its card, its voices.

Knows no architecture (which tensors a file must hold is the family's business), and not where the
folder came from.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from fishtts.errors import ModelError, VoiceError
from fishtts.types import Card

_INDEX = "model.safetensors.index.json"
_MAX_HEADER_BYTES = 100_000_000
"""More than any safetensors header; larger numbers mean that it is none."""


def faults(folder: Path) -> Iterator[tuple[Path, str]]:
    """Go through the files that a model needs; name each that is missing or damaged, and why."""
    for needed in (
        ("config.json",),
        ("tokenizer.json",),
        (_INDEX, "model.safetensors", "model.pth"),
        ("codec.safetensors", "codec.pth"),
    ):
        found = [folder / name for name in needed if (folder / name).is_file()]
        if not found:
            yield folder / needed[0], f"the file {' or '.join(needed)} is missing in {folder}"
            continue
        fault = _damage(found[0])
        if fault:
            yield found[0], fault
        elif found[0].name == _INDEX:
            yield from _shard_faults(found[0])


def _shard_faults(index: Path) -> Iterator[tuple[Path, str]]:
    shards = json.loads(index.read_bytes()).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        yield index, f"the file {index.name} lists no weights"
        return
    for name in sorted(set(map(str, shards.values()))):
        shard = index.parent / name
        if Path(name).name != name:
            yield index, f'the file {index.name} names a file outside of the folder ("{name}")'
        elif not shard.is_file():
            yield shard, f"the file {name} is missing in {index.parent}"
        else:
            fault = _damage(shard)
            if fault:
                yield shard, fault


def _damage(path: Path) -> str:
    """Say what is wrong with a file as far as its size and its ends tell; "" for nothing."""
    try:
        if path.suffix == ".safetensors":
            return _safetensors_damage(path)
        if path.suffix == ".pth":
            return "" if zipfile.is_zipfile(path) else f"the file {path.name} is cut short"
        json.loads(path.read_bytes())
    except OSError as error:
        return f"the file {path.name} cannot be read ({error.strerror})"
    except ValueError:
        return f"the file {path.name} is cut short or damaged (not valid JSON)"
    return ""


def _safetensors_damage(path: Path) -> str:
    """Compare the size of a file with what its header promises."""
    size = path.stat().st_size
    with path.open("rb") as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        if size < 8 or not 2 <= header_bytes <= _MAX_HEADER_BYTES:
            return f"the file {path.name} is damaged (not a safetensors file)"
        if size < 8 + header_bytes:
            return f"the file {path.name} is cut short ({size:,} bytes)"
        header = json.loads(file.read(header_bytes))
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    promised = 8 + header_bytes + max(ends, default=0)
    if size != promised:
        return f"the file {path.name} is cut short: it holds {size:,} of {promised:,} bytes"
    return ""


def read_card(folder: Path, default: Card) -> Card:
    """Read ``fishtts.json``; what it does not say, and all where there is none, is ``default``.

    Raises: ``ModelError`` for a card that says what a card does not say.
    """
    path = folder / "fishtts.json"
    if not path.is_file():
        return default
    try:
        values = json.loads(path.read_bytes())
        sampling = values.pop("sampling", {})
        card = replace(
            default,
            **{key: _frozen(key, value) for key, value in values.items()},
            **{key: sampling[key] for key in ("temperature", "top_p", "top_k") if key in sampling},
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise ModelError(f"The card {path} cannot be used: {error}.") from None
    return card


def _frozen(key: str, value: Any) -> Any:
    """Check a value of a card against the type of its field."""
    kind = _CARD_TYPES.get(key)
    if kind is None:
        raise ValueError(f'the key "{key}" is unknown')
    if kind is tuple and isinstance(value, list):
        return tuple(map(str, value))
    if not isinstance(value, kind):
        raise ValueError(f'the value of "{key}" is not of the right kind')
    return value


_CARD_TYPES: dict[str, type] = {
    "name": str,
    "description": str,
    "licence": str,
    "languages": tuple,
    "scripts": tuple,
    "normalise": bool,
    "needs_transcript": bool,
    "default_voice": str,
    "unit_chars": int,
    "reference_s": float,
    "trained_on": str,
    "not_for": str,
}


def voice_names(folder: Path) -> list[str]:
    """List the voices that come with a model."""
    return sorted(path.stem for path in (folder / "voices").glob("*.safetensors"))


def find_voice(folder: Path, model: str, name: str, *, own: Sequence[str] = ()) -> Path:
    """Find the file of a model's voice by its name. ``own`` are the user's own, for the message.

    Raises: ``VoiceError`` that says which there are.
    """
    names = voice_names(folder)
    if name in names:
        return folder / "voices" / f"{name}.safetensors"
    if not names and not own:
        raise VoiceError(
            f'The model {model} comes without voices, so there is no "{name}".',
            hint="Give a recording to imitate: -v recording.wav --ref-text 'its words'",
        )
    known = [f"The model {model} has {', '.join(names)}."] if names else []
    known += [f"Your own are {', '.join(own)}."] if own else []
    raise VoiceError(
        f'There is no voice "{name}".', hint=f"{suggestion(name, [*own, *names])}{' '.join(known)}"
    )


def suggestion(name: str, names: Sequence[str]) -> str:
    """Ask whether another name was meant; "" where none is close."""
    close = get_close_matches(name, names, n=1)
    return f'Did you mean "{close[0]}"? ' if close else ""


def is_file_name(voice: str) -> bool:
    """Tell the name of a file from the name of a voice: it has an ending, or a folder."""
    return any(sign in voice for sign in "./\\~")

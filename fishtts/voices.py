"""What ``fishtts voices`` does: list, show, play, compare, rename, remove, export, import.

Owns what is said about voices, to people and to scripts. Knows nothing of how a voice is kept, and
loads torch only where something has to be heard or compared.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fishtts import hub, model_folder
from fishtts.audio.read import read_audio
from fishtts.cloning.store import Found, Store, find_voice
from fishtts.cloning.voice_checks import all_encodings
from fishtts.cloning.voice_file import SUFFIX, is_voice_file, read_voice, write_voice
from fishtts.errors import AudioError, ModelError, OutputError, UsageError
from fishtts.printing import print_json, print_line, print_table, readable_bytes
from fishtts.say import play_audio
from fishtts.types import Audio, Voice

_HARD_TO_TELL = 0.1
"""So near to the threshold, likeness says nothing: two of the built-in voices, of different people,
are alike by 0.84, with the threshold at 0.75."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The model whose voices stand beside one's own."""

    folder: Path
    name: str
    default_voice: str

    @classmethod
    def of(cls, model: str) -> _Place:
        source = hub.parse(model)
        folder = hub.locate(source, offline=True)
        card = hub.card(source, folder)
        return cls(folder, card.name, card.default_voice)


def list_voices(model: str, *, as_json: bool) -> None:
    """List the voices of a model and one's own; a damaged one is a row that says so."""
    place = _Place.of(model)
    rows = []
    for name in model_folder.voice_names(place.folder):
        path = model_folder.find_voice(place.folder, place.name, name)
        is_default = name == place.default_voice
        rows.append({**_row(name, "model", path), "is_default": is_default})
    store = Store()
    for name in store.names():
        rows.append({**_row(name, "own", store.path(name)), "is_default": False})
    if as_json:
        print_json(rows)
        return
    table = [["NAME", "WHOSE", "LANGUAGE", "SECONDS", "CONSENT", "DESCRIPTION"]]
    for row in rows:
        whose = "yours" if row["kind"] == "own" else place.name
        note = f"damaged: {row['fault']}" if row["fault"] else row["description"]
        default = " (default)" if row["is_default"] else ""
        cells = (row["name"], whose, row["language"], row["seconds"], row["consent"])
        table.append([*(str(cell or "") for cell in cells), f"{note}{default}"])
    print_table(table)


def _row(name: str, kind: str, path: Path) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "kind": kind}
    try:
        voice = read_voice(path)
    except ModelError as error:
        nothing = dict.fromkeys(("language", "description", "seconds", "consent"))
        return {**row, **nothing, "fault": error.message}
    return {
        **row,
        "language": voice.language,
        "description": voice.description,
        "seconds": _seconds(voice),
        "consent": voice.consent,
        "fault": "",
    }


def _seconds(voice: Voice) -> float | None:
    """Say how much speech a voice was made from, where that is known."""
    if voice.clips:
        return round(sum(clip.seconds for clip in voice.clips), 2)
    if voice.sources:
        return round(sum(s.kept_to_s - s.kept_from_s for s in voice.sources), 2)
    return None


def show(name: str, model: str, *, as_json: bool) -> None:
    """Say all that is known of a voice."""
    found = _find(name, _Place.of(model))
    kind = "file" if is_voice_file(name) else "own" if found.is_own else "model"
    facts = {"name": found.voice.name, "kind": kind, **_facts(found)}
    if as_json:
        print_json(facts)
        return
    rows = []
    for key, value in facts.items():
        for number, item in enumerate(value if isinstance(value, list) else [value]):
            shown = _shown(item) if isinstance(item, dict) else _plain(key, item)
            rows.append((key.replace("_", " ") if number == 0 else "", shown))
    print_table(rows)


def _facts(found: Found) -> dict[str, Any]:
    voice = found.voice
    references = [
        {
            "text": reference.text,
            "seconds": round(voice.clips[n].seconds, 2) if voice.clips else None,
            "sample_rate": voice.clips[n].sample_rate if voice.clips else None,
        }
        for n, reference in enumerate(voice.references)
    ]
    codecs = [
        {
            "identity": encoding.codec,
            "model": encoding.model,
            "frames": sum(codes.shape[1] for codes in encoding.codes),
        }
        for encoding in all_encodings(voice)
    ]
    return {
        "file": str(found.path),
        "bytes": found.path.stat().st_size if found.path.exists() else None,
        "language": voice.language,
        "description": voice.description,
        "consent": voice.consent,
        "seconds": _seconds(voice),
        "has_clip": bool(voice.clips),
        "references": references,
        "codecs": codecs,
        "speaker_encoder": voice.encoder if voice.embedding is not None else None,
        "sources": [asdict(source) for source in voice.sources],
    }


def _plain(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key == "bytes" and value is not None:
        return readable_bytes(value)
    return "-" if value in (None, "") else " ".join(str(value).split())


def _shown(item: dict[str, Any]) -> str:
    return ", ".join(
        f'"{_plain(key, value)}"'
        if key == "text"
        else f"{key.removesuffix('_s').replace('_', ' ')} {_plain(key, value)}"
        for key, value in item.items()
        if value not in (None, "")
    )


def play(name: str, model: str, *, output: str, force: bool, as_json: bool) -> None:
    """Let a voice be heard: its clips, or else its codes, decoded."""
    place = _Place.of(model)
    voice = _find(name, place).voice
    audio = play_audio(lambda: _heard(voice, place), output=output, force=force)
    if as_json:
        row = {"name": voice.name, "file": output or None, "seconds": round(audio.seconds, 3)}
        print_json({**row, "sample_rate": audio.sample_rate, "from_clip": bool(voice.clips)})


def _heard(voice: Voice, place: _Place) -> Audio:
    from fishtts.cloning.likeness import heard
    from fishtts.codec import load_codec

    return heard(voice, lambda: load_codec(place.folder))


def compare(names: Sequence[str], model: str, *, as_json: bool) -> None:
    """Say of each two voices how alike their speakers are.

    A name may also be that of a voice file or of a recording.
    """
    if len(names) < 2:
        raise UsageError("Two voices are needed to compare them.")
    from fishtts.cloning.speaker_encoder import SAME_SPEAKER

    place = _Place.of(model)
    embeddings = [(name, _embedding(name, place)) for name in names]
    rows = []
    for (one, a), (other, b) in combinations(embeddings, 2):
        likeness = float(np.clip(a @ b, -1.0, 1.0))
        is_same, verdict = _verdict(likeness, SAME_SPEAKER)
        row = {"a": one, "b": other, "similarity": round(likeness, 4)}
        rows.append({**row, "same_speaker": is_same, "verdict": verdict})
    if as_json:
        print_json({"threshold": SAME_SPEAKER, "pairs": rows})
        return
    for row in rows:
        print_line(f"{row['a']} and {row['b']}: {row['similarity']:.2f}, {row['verdict']}")


def _verdict(likeness: float, threshold: float) -> tuple[bool | None, str]:
    if abs(likeness - threshold) < _HARD_TO_TELL:
        return None, f"hard to tell (the threshold is {threshold:.2f})"
    if likeness > threshold:
        return True, "likely the same speaker"
    return False, "likely different speakers"


def _embedding(name: str, place: _Place) -> npt.NDArray[np.float32]:
    """Say who speaks in a voice, or in a recording."""
    from fishtts.cloning.likeness import describe
    from fishtts.codec import load_codec

    if model_folder.is_file_name(name) and not is_voice_file(name):
        voice = Voice(name, (), clips=(read_audio(Path(name).expanduser()),))
    else:
        voice = _find(name, place).voice
    found = describe(voice, lambda: load_codec(place.folder))
    if found is None:
        raise AudioError(f'In "{name}" there is no sound to know a speaker by.')
    return found


def rename(old: str, new: str, *, force: bool, as_json: bool) -> None:
    """Give one of one's own voices another name."""
    path = Store().rename(old, new, force=force)
    name = path.name.removesuffix(SUFFIX)
    if as_json:
        print_json({"old": old, "new": name, "file": str(path)})
    else:
        print_line(f"{old} is now {name}.")


def remove(names: Sequence[str], *, as_json: bool) -> None:
    """Delete voices of one's own: all of them, or none if one is unknown."""
    store = Store()
    paths = dict.fromkeys(store.path(name) for name in names)
    for path in paths:
        store.remove(path.name.removesuffix(SUFFIX))
    removed = [path.name.removesuffix(SUFFIX) for path in paths]
    if as_json:
        print_json({"removed": removed})
    else:
        for name in removed:
            print_line(f"Removed {name}.")


def export(
    name: str, model: str, *, output: str, with_clip: bool, force: bool, as_json: bool
) -> None:
    """Write a voice to a file that others can import."""
    voice = _find(name, _Place.of(model)).voice
    path = Path(output or f"{voice.name}{SUFFIX}").expanduser()
    if path.suffix.lower() != SUFFIX:
        raise UsageError(f'"{path}" does not end in {SUFFIX}, as voice files do.')
    if path.exists() and not force:
        raise OutputError(f'The file "{path}" exists already.', hint="Add --force to replace it.")
    write_voice(voice if with_clip else replace(voice, clips=()), path)
    if not with_clip or not voice.clips:
        _note("Without its clip, it speaks only through the models that it has codes for.")
    if as_json:
        row = {"name": voice.name, "file": str(path), "bytes": path.stat().st_size}
        print_json({**row, "has_clip": with_clip and bool(voice.clips)})
    else:
        print_line(str(path))


def import_files(files: Sequence[str], *, name: str, force: bool, as_json: bool) -> None:
    """Take voice files in among one's own. All are read before the first is kept."""
    if name and len(files) > 1:
        raise UsageError("One --name does not do for several files.")
    voices = [(file, _read_file(file)) for file in files]
    store = Store()
    rows = []
    for file, voice in voices:
        path = store.add(voice, name, force=force)
        kept = path.name.removesuffix(SUFFIX)
        rows.append({"name": kept, "from": file, "file": str(path)})
        if not as_json:
            print_line(f"Imported {kept}.")
    if as_json:
        print_json(rows)


def _read_file(file: str) -> Voice:
    if not is_voice_file(file):
        raise UsageError(
            f'"{file}" is not a voice file; those end in {SUFFIX}.',
            hint="From a recording, a voice is made with: fishtts clone recording.wav --name NAME",
        )
    return read_voice(Path(file).expanduser())


def _find(name: str, place: _Place) -> Found:
    """Find a voice by its name, or by that of its file."""
    if is_voice_file(name):
        path = Path(name).expanduser()
        return Found(read_voice(path), path, is_own=False)
    found = find_voice(name, place.folder, place.name)
    if found.note:
        _note(found.note)
    return found


def _note(text: str) -> None:
    print(f"fishtts: {text}", file=sys.stderr)

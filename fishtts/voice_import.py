"""What ``fishtts voices import --from-dir`` does: a folder of recordings to voices of one's own.

One recording that cannot be used does not stop the others. Knows nothing of what a recording must
be like.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fishtts import hub
from fishtts.cloning.recordings_folder import Recordings, find_recordings
from fishtts.cloning.store import Store
from fishtts.errors import DeviceError, FishTTSError, LimitError, UsageError
from fishtts.printing import print_json, print_line
from fishtts.types import Card, Voice

if TYPE_CHECKING:
    from fishtts.codec import Codec


def import_folder(folder: str, model: str, *, consent: str, force: bool, as_json: bool) -> None:
    """Make a voice of each recording, or folder of recordings, in a folder.

    Raises: ``LimitError`` in the end if some could not be used; they are named before.
    """
    source = hub.parse(model)
    place = hub.locate(source, offline=True)
    card = hub.card(source, place)
    found = find_recordings(Path(folder).expanduser())
    from fishtts.codec import load_codec

    codec = load_codec(place)
    store = Store()
    rows: list[dict[str, Any]] = []
    for recordings in _unlike(found):
        row = _import_one(recordings, store, codec, card, consent=consent, force=force)
        rows.append(row)
        if not as_json and not row["fault"]:
            print_line(f"Imported {row['name']}.")
    if as_json:
        print_json(rows)
    num_failed = sum(bool(row["fault"]) for row in rows)
    if num_failed:
        raise LimitError(f"{num_failed} of {len(rows)} voices were not imported.")


def _unlike(found: list[Recordings]) -> list[Recordings]:
    """Give names that meet a number, so that one of a folder's voices never replaces another."""
    taken: set[str] = set()
    unlike = []
    for recordings in found:
        names = (f"{recordings.name}-{n}" if n > 1 else recordings.name for n in count(1))
        name = next(name for name in names if name.casefold() not in taken)
        taken.add(name.casefold())
        unlike.append(replace(recordings, name=name))
    return unlike


def _import_one(
    recordings: Recordings, store: Store, codec: Codec, card: Card, *, consent: str, force: bool
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": recordings.name,
        "from": [str(path) for path in recordings.paths],
        "file": None,
        "warnings": [],
        "fault": "",
    }
    try:
        store.place_for(recordings.name, force=force)
        voice, row["warnings"] = _made(recordings, codec, card, consent)
        row["file"] = str(store.add(voice, force=force))
    except DeviceError:
        raise  # the next one would meet it too
    except FishTTSError as error:
        row["fault"] = str(error)
        print(f"fishtts: {recordings.paths[0]}: {error}", file=sys.stderr)
    for warning in row["warnings"]:
        print(f"fishtts: {warning}", file=sys.stderr)
    return row


def _made(
    recordings: Recordings, codec: Codec, card: Card, consent: str
) -> tuple[Voice, list[str]]:
    """Make one voice, with warnings about what is poor in its recordings."""
    from fishtts.cloning.assemble import assemble
    from fishtts.cloning.prepare import prepare

    prepared = prepare(recordings.paths, max_s=card.reference_s)
    for path, text in zip(recordings.paths, prepared.texts, strict=True):
        if card.needs_transcript and not text:
            raise UsageError(
                f'The model {card.name} needs to know what is said in "{path.name}".',
                hint=f"Write it into {path.with_suffix('.lab').name} beside it.",
            )
    voice = assemble(prepared, codec, name=recordings.name, model=card.name, consent=consent)
    return voice, list(prepared.warnings)

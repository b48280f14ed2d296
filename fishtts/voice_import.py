"""What ``fishtts voices import --from-dir`` does: a folder of recordings to voices of one's own.

One recording that cannot be used does not stop the others. Knows nothing of what a recording must
be like.
"""

from __future__ import annotations

import hashlib
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fishtts import hub
from fishtts.audio.read import read_audio
from fishtts.cloning.recordings_folder import Recordings, find_recordings
from fishtts.cloning.reference_audio import check_recording, encode_reference, resample
from fishtts.cloning.store import Store
from fishtts.errors import DeviceError, FishTTSError, LimitError, UsageError
from fishtts.printing import print_json, print_line
from fishtts.text.read import read_file
from fishtts.types import Audio, Card, Source, Voice

if TYPE_CHECKING:
    from fishtts.codec import Codec

_TRANSCRIPTS = (".lab", ".txt")


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
    for recordings in found:
        row = _import_one(recordings, store, codec, card, consent=consent, force=force)
        rows.append(row)
        if not as_json and not row["fault"]:
            print_line(f"Imported {row['name']}.")
    if as_json:
        print_json(rows)
    num_failed = sum(bool(row["fault"]) for row in rows)
    if num_failed:
        raise LimitError(f"{num_failed} of {len(rows)} voices were not imported.")


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
    for note in (*row["warnings"], *filter(None, [row["fault"]])):
        print(f"fishtts: {recordings.paths[0].name}: {note}", file=sys.stderr)
    return row


def _made(
    recordings: Recordings, codec: Codec, card: Card, consent: str
) -> tuple[Voice, list[str]]:
    """Make one voice, with warnings about what is poor in its recordings."""
    from fishtts.cloning import speaker_encoder

    clips, references, sources, warnings = [], [], [], []
    for path in recordings.paths:
        text = _words(path)
        if card.needs_transcript and not text:
            raise UsageError(
                f'The model {card.name} needs to know what is said in "{path.name}".',
                hint=f"Write it into {path.with_suffix('.lab').name} beside it.",
            )
        clip = read_audio(path)
        warnings += check_recording(clip, path.name)
        clips.append(clip)
        references.append(encode_reference(clip, codec, text=text))
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        today = datetime.now(UTC).date().isoformat()
        sources.append(Source(digest, clip.seconds, 0.0, clip.seconds, today))
    heard = _joined(clips)
    voice = Voice(
        recordings.name,
        tuple(references),
        codec=codec.identity,
        model=card.name,
        clips=tuple(clips),
        embedding=speaker_encoder.embed(heard.samples, heard.sample_rate),
        encoder=speaker_encoder.identity(),
        sources=tuple(sources),
        consent=consent,
    )
    return voice, warnings


def _joined(clips: list[Audio]) -> Audio:
    sample_rate = clips[0].sample_rate
    return Audio(np.concatenate([resample(clip, sample_rate) for clip in clips]), sample_rate)


def _words(recording: Path) -> str:
    """Read the words beside a recording; "" where there are none."""
    for ending in _TRANSCRIPTS:
        path = recording.with_suffix(ending)
        if path.is_file():
            return " ".join(read_file(path).split())
    return ""

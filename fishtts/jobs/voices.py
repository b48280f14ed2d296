"""The voices of a batch: each read once, before any work, and known by what it holds.

Owns the identity of a voice: a name or a path that changes does not change it. Knows no model
beyond the folder that its voices lie in.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fishtts import model_folder
from fishtts.audio.read import read_audio
from fishtts.cloning.reencode import voice_for
from fishtts.cloning.reference_audio import check_recording, encode_reference
from fishtts.cloning.store import find_voice
from fishtts.cloning.voice_file import is_voice_file, read_voice
from fishtts.errors import UsageError, VoiceError
from fishtts.model_folder import is_file_name
from fishtts.types import Audio, Card, Voice

if TYPE_CHECKING:
    from fishtts.codec import Codec


@dataclass(frozen=True, slots=True)
class LoadedVoice:
    """A voice in memory: nothing that happens to its file afterwards matters.

    ``name`` is what it was asked for by, ``ref_text`` what is said in it where it is a recording.
    Without a ``source`` the model speaks as it likes.
    """

    name: str
    identity: str
    source: Voice | Audio | None = None
    ref_text: str = ""
    notes: tuple[str, ...] = ()

    def encoded(self, codec: Codec) -> Voice | None:
        """Turn a recording, or a voice of another codec, into what a model imitates."""
        if self.source is None:
            return None
        if isinstance(self.source, Voice):
            return voice_for(self.source, codec)
        reference = encode_reference(self.source, codec, text=self.ref_text)
        return Voice(Path(self.name).stem, (reference,))


class VoiceLoader:
    """Reads each voice once: by name from a model's folder, or from a file."""

    def __init__(self, folder: Path, card: Card, *, ref_text: str = "") -> None:
        self._folder = folder
        self._card = card
        self._ref_text = ref_text
        self._loaded: dict[str, LoadedVoice] = {}

    def load(self, name: str) -> LoadedVoice:
        """Get a voice; the empty name is the model's default, whatever one's own are called.

        Raises: ``VoiceError`` for one that is not there, ``AudioError``, ``ModelError`` for a file
        that cannot be used.
        """
        if name not in self._loaded:
            self._loaded[name] = self._read(name) if name else self._default()
        return self._loaded[name]

    def all(self) -> list[LoadedVoice]:
        """List what was loaded."""
        return list(self._loaded.values())

    def _default(self) -> LoadedVoice:
        name = self._card.default_voice
        if not name:
            return LoadedVoice("", "none")
        voice = read_voice(model_folder.find_voice(self._folder, self._card.name, name))
        return LoadedVoice(name, voice_identity(voice), voice)

    def _read(self, name: str) -> LoadedVoice:
        if not is_file_name(name):
            found = find_voice(name, self._folder, self._card.name)
            notes = (found.note,) if found.note else ()
            return LoadedVoice(name, voice_identity(found.voice), found.voice, notes=notes)
        path = Path(name).expanduser()
        if not path.exists():
            raise VoiceError(f'There is no recording or voice file "{name}".')
        if is_voice_file(path.name):
            voice = read_voice(path)
            return LoadedVoice(name, voice_identity(voice), voice)
        return self._recording(name, path)

    def _recording(self, name: str, path: Path) -> LoadedVoice:
        if self._card.needs_transcript and not self._ref_text.strip():
            raise UsageError(
                f"The model {self._card.name} needs to know what is said in the recording"
                f' "{name}".',
                hint="Write it down: --ref-text 'the words'",
            )
        audio = read_audio(path)
        notes = tuple(check_recording(audio, name))
        return LoadedVoice(
            name, recording_identity(audio, self._ref_text), audio, self._ref_text, notes
        )


def voice_identity(voice: Voice) -> str:
    """Hash what a voice holds: codes and words, or its clips where it has no codes."""
    digest = hashlib.sha256(b"voice")
    for reference in voice.references:
        digest.update(repr(reference.codes.shape).encode())
        digest.update(reference.codes.astype("<i4").tobytes())
        digest.update(reference.text.encode("utf-8", "surrogatepass") + b"\0")
    for clip in () if voice.references else voice.clips:
        digest.update(recording_identity(clip, "").encode())
    return digest.hexdigest()[:32]


def recording_identity(audio: Audio, text: str) -> str:
    """Hash a recording and its words."""
    digest = hashlib.sha256(f"recording\0{audio.sample_rate}\0{text}\0".encode())
    digest.update(audio.samples.astype("<f4").tobytes())
    return digest.hexdigest()[:32]

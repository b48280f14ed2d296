"""Recordings to what a voice is made of: clean clips, their words, who speaks, their origin.

Owns what a recording must be like to be cloned from, and says with the measured value why one is
refused or poor. Knows no codec and no model: encoding the clips is a second step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soxr

from fishtts.audio.blocks import Recording, open_recording
from fishtts.cloning import measures
from fishtts.cloning.listening import Heard, listen
from fishtts.cloning.speaker_encoder import SAME_SPEAKER, Embedding, embed_parts, mean, speech_only
from fishtts.cloning.speaker_encoder import SAMPLE_RATE as ENCODER_RATE
from fishtts.cloning.speech_detector import Stretch
from fishtts.cloning.transcript import Transcribe, check_words, pair, words_beside
from fishtts.cloning.window import MAX_SECONDS, Window, best_windows, window_between
from fishtts.errors import AudioError, UsageError
from fishtts.types import Audio, Samples, Source

MIN_SPEECH_S = 2.0
"""Less speech than this is no voice: the encoder itself listens to 1.6 s at a time."""

GOOD_SPEECH_S = 6.0
MAX_FILES = 16
MAX_SAMPLE_RATE = 48000

_SILENT_PEAK = 0.001
_SPEECH_DB = (-32.0, -14.0)
_LEVEL_DB = -23.0
_MAX_PEAK = 0.9
_FADE_S = 0.02
_PAD_S = 0.15


@dataclass(frozen=True, slots=True)
class Facts:
    """What was measured of one recording and of the clip that was kept of it.

    ``reverb_s`` is 0 where it could not be told; ``likeness_within`` compares the clip's two most
    different halves.
    """

    file: str
    rate_in: int
    channels_in: int
    seconds_in: float
    speech_seconds: float
    kept_from: float
    kept_to: float
    kept_seconds: float
    snr_db: float
    bandwidth_hz: float
    clipped_share: float
    reverb_s: float
    likeness_within: float
    gain_db: float


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that a voice needs but its codes. One clip, source, text and record of facts for each
    recording; a text is empty where the words are unknown."""

    clips: tuple[Audio, ...]
    sources: tuple[Source, ...]
    texts: tuple[str, ...]
    embedding: Embedding
    facts: tuple[Facts, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Take:
    """One recording's share of a voice."""

    clip: Audio
    source: Source
    text: str
    parts: npt.NDArray[np.float32]
    facts: Facts
    warnings: tuple[str, ...]


def prepare(
    paths: Path | Sequence[Path],
    *,
    start_s: float | None = None,
    end_s: float | None = None,
    text: str = "",
    max_s: float = MAX_SECONDS,
    transcribe: Transcribe | None = None,
) -> Prepared:
    """Make clips of recordings of one speaker, together ``max_s`` long at the most.

    ``start_s`` and ``end_s`` name the part to keep of a single recording, ``text`` its words;
    otherwise those in a file beside each recording are taken. ``transcribe`` writes down the words
    where there are none, and finds the kept part in those of a whole recording.
    Raises: ``AudioError`` for a recording that cannot be used, ``UsageError`` for words that are
    not those of the clip.
    """
    paths = [paths] if isinstance(paths, Path) else list(paths)
    is_part = start_s is not None or end_s is not None
    if not 1 <= len(paths) <= MAX_FILES:
        raise UsageError(f"A voice is made of 1 to {MAX_FILES} recordings.")
    if len(paths) > 1 and (text or is_part):
        raise UsageError(
            "A transcript, --from and --to go with one recording.",
            hint="Put the words of each into a file beside it: mira.wav and mira.txt",
        )
    takes: list[_Take] = []
    left_s = max_s
    for number, path in enumerate(paths):
        share_s = left_s / (len(paths) - number)
        part = (start_s or 0.0, end_s) if is_part else None
        takes.append(_take(path, text, part, share_s, transcribe))
        left_s -= takes[-1].facts.kept_seconds
    doubts = _check_one_speaker(takes)
    return Prepared(
        clips=tuple(take.clip for take in takes),
        sources=tuple(take.source for take in takes),
        texts=tuple(take.text for take in takes),
        embedding=mean(np.concatenate([take.parts for take in takes])),
        facts=tuple(take.facts for take in takes),
        warnings=(*(warning for take in takes for warning in take.warnings), *doubts),
    )


def _take(
    path: Path,
    text: str,
    part: tuple[float, float | None] | None,
    max_s: float,
    transcribe: Transcribe | None,
) -> _Take:
    with open_recording(path) as recording:
        heard = listen(recording)
        _check_heard(heard, path)
        if part is None:
            window, samples, parts = _best(recording, heard, max_s)
        else:
            window = _chosen(heard, part, path, max_s)
            samples = recording.stretch(window.kept.start_s, window.kept.end_s)
            parts = _parts(samples, recording.sample_rate)
        _check_speech(window.speech_s, path)
        facts = _measure(recording, heard, window, samples, parts)
    clip, gain_db = _clean(samples, facts.rate_in, window)
    facts = replace(facts, gain_db=gain_db)
    beside = "" if text else words_beside(path)
    words = check_words(text or beside)
    if words:
        of_window = part is not None and not beside
        words = pair(
            words,
            window,
            clip,
            name=path.name,
            seconds=heard.seconds,
            of_window=of_window,
            transcribe=transcribe,
        )
    elif transcribe is not None:
        words = check_words(transcribe(clip))
    source = Source(
        sha256=_hash(path),
        seconds=round(heard.seconds, 3),
        kept_from_s=facts.kept_from,
        kept_to_s=facts.kept_to,
        date=datetime.now(UTC).date().isoformat(),
    )
    warnings = _warnings(facts, window.speech_s, path, was_chosen=part is not None)
    return _Take(clip, source, words, parts, facts, warnings)


def _check_heard(heard: Heard, path: Path) -> None:
    """Refuse a recording in which nobody speaks."""
    if heard.peak < _SILENT_PEAK:
        raise AudioError(f'"{path}" is silent: its peak is {_db(heard.peak):.0f} dB.')
    if not heard.speech:
        raise AudioError(
            f'No speech was found in "{path}" (0.0 of {heard.seconds:.1f} s): it may be music, a'
            " tone or noise."
        )
    _check_speech(heard.speech_s, path)


def _check_speech(speech_s: float, path: Path) -> None:
    if speech_s < MIN_SPEECH_S:
        raise AudioError(
            f'"{path}" holds {speech_s:.1f} s of speech; a voice needs {MIN_SPEECH_S:.0f} s at the'
            " very least, better 10 to 30 s."
        )


def _best(
    recording: Recording, heard: Heard, max_s: float
) -> tuple[Window, Samples, npt.NDArray[np.float32]]:
    """Take the best window in which one person speaks.

    Raises: ``AudioError`` where there is none.
    """
    fallback: tuple[float, Window, Samples, npt.NDArray[np.float32]] | None = None
    for window in best_windows(heard, max_s=max_s):
        samples = recording.stretch(window.kept.start_s, window.kept.end_s)
        parts = _parts(samples, recording.sample_rate)
        unity = measures.unity(parts)
        if unity >= measures.MAYBE_TWO_SPEAKERS:
            return window, samples, parts
        if fallback is None or unity > fallback[0]:
            fallback = (unity, window, samples, parts)
    assert fallback is not None, "there is speech"
    if fallback[0] < measures.TWO_SPEAKERS:
        raise AudioError(
            f'More than one person speaks in "{recording.path}": its voices are alike by'
            f" {fallback[0]:.2f}, and one person's by {measures.TWO_SPEAKERS:.2f} or more.",
            hint="Name a part with one speaker: --from 12.5 --to 34",
        )
    return fallback[1:]


def _chosen(heard: Heard, part: tuple[float, float | None], path: Path, max_s: float) -> Window:
    """Take the part that was asked for.

    Raises: ``UsageError`` for one that is not there, or longer than models can use.
    """
    start_s = part[0]
    end_s = heard.seconds if part[1] is None else part[1]
    if not 0 <= start_s < end_s or start_s >= heard.seconds:
        raise UsageError(
            f'There is no part from {start_s:g} to {end_s:g} s: "{path}" has {heard.seconds:.1f} s.'
        )
    end_s = min(end_s, heard.seconds)
    if end_s - start_s > max_s:
        raise UsageError(
            f"The part from {start_s:g} to {end_s:g} s is {end_s - start_s:.1f} s long; at most"
            f" {max_s:.0f} s are used."
        )
    return window_between(heard, start_s, end_s)


def _parts(samples: Samples, sample_rate: int) -> npt.NDArray[np.float32]:
    """Describe the speaker of every moment of a clip."""
    at_rate = np.asarray(soxr.resample(samples, sample_rate, ENCODER_RATE), np.float32)
    return embed_parts(speech_only(at_rate))


def _measure(
    recording: Recording,
    heard: Heard,
    window: Window,
    samples: Samples,
    parts: npt.NDArray[np.float32],
) -> Facts:
    rate = recording.sample_rate
    offset_s = window.kept.start_s
    inside = [Stretch(s.start_s - offset_s, s.end_s - offset_s) for s in window.speech]
    return Facts(
        file=str(recording.path),
        rate_in=rate,
        channels_in=recording.num_channels,
        seconds_in=round(heard.seconds, 3),
        speech_seconds=round(heard.speech_s, 2),
        kept_from=round(window.kept.start_s, 3),
        kept_to=round(window.kept.end_s, 3),
        kept_seconds=round(window.kept.seconds, 3),
        snr_db=round(window.snr_db, 1),
        bandwidth_hz=round(measures.bandwidth_hz(samples, rate)),
        clipped_share=round(measures.clipped_share(samples), 5),
        reverb_s=round(measures.decay_s(samples, rate, inside), 2),
        likeness_within=round(measures.unity(parts), 3),
        gain_db=0.0,
    )


def _clean(samples: Samples, sample_rate: int, window: Window) -> tuple[Audio, float]:
    """Bring a stretch to an ordinary loudness, fade its edges, put silence around it, and round it
    to 16 bits, in which it is kept. Answers the gain in dB as well."""
    if sample_rate > MAX_SAMPLE_RATE:
        samples = np.asarray(soxr.resample(samples, sample_rate, MAX_SAMPLE_RATE), np.float32)
        sample_rate = MAX_SAMPLE_RATE
    gain = _gain(samples, window)
    samples = samples * np.float32(gain)
    fade = min(round(_FADE_S * sample_rate), len(samples) // 2)
    ramp = np.linspace(0.0, 1.0, fade, dtype=np.float32)
    samples[:fade] *= ramp
    samples[len(samples) - fade :] *= ramp[::-1]
    padded = np.pad(samples, round(_PAD_S * sample_rate))
    rounded = np.clip(np.rint(padded * 2**15), -(2**15), 2**15 - 1) / 2**15
    return Audio(rounded.astype(np.float32), sample_rate), round(_db(gain), 1)


def _gain(samples: Samples, window: Window) -> float:
    """Choose a gain: none for speech of an ordinary loudness that is not cut off."""
    energy = float(np.sum(np.square(samples, dtype=np.float64)))
    share = max(window.speech_s / window.kept.seconds, 0.05)
    level_db = _db(np.sqrt(energy / (len(samples) * share)))
    peak = float(np.abs(samples).max())
    low_db, high_db = _SPEECH_DB
    if low_db <= level_db <= high_db and peak <= 1.0:
        return 1.0
    return float(min(10 ** ((_LEVEL_DB - level_db) / 20), _MAX_PEAK / peak))


def _warnings(facts: Facts, speech_s: float, path: Path, *, was_chosen: bool) -> tuple[str, ...]:
    """Say what is poor about a clip, each with its measured value."""
    found = []
    if speech_s < GOOD_SPEECH_S:
        found.append(f"holds only {speech_s:.1f} s of speech; 10 to 30 s are better")
    if facts.bandwidth_hz < measures.GOOD_BANDWIDTH_HZ:
        found.append(
            f"ends at {facts.bandwidth_hz / 1000:.1f} kHz (a good recording goes beyond"
            f" {measures.GOOD_BANDWIDTH_HZ / 1000:.0f}); the voice will sound as dull"
        )
    if facts.snr_db < measures.POOR_SNR_DB:
        found.append(
            f"is noisy: the speech is {facts.snr_db:.0f} dB above the noise (20 or more are good);"
            " the noise will be imitated too"
        )
    if facts.clipped_share > measures.CLIPPED_SHARE:
        found.append(
            f"is clipped: {facts.clipped_share:.1%} of its samples are cut off at the peak"
        )
    if facts.reverb_s > measures.ECHO_S:
        found.append(
            f"seems to be from a room with an echo: a sound takes about {facts.reverb_s:.1f} s to"
            " fade"
        )
    if facts.likeness_within < measures.MAYBE_TWO_SPEAKERS:
        found.append(
            f"may hold more than one speaker: its halves are alike by {facts.likeness_within:.2f}"
        )
    if was_chosen and facts.kept_seconds < GOOD_SPEECH_S <= facts.speech_seconds:
        found.append(f"has more speech to offer: {facts.speech_seconds:.1f} s")
    return tuple(f'"{path}" {warning}.' for warning in found)


def _check_one_speaker(takes: Sequence[_Take]) -> tuple[str, ...]:
    """Refuse recordings of different people; answer a warning where they may be.

    Raises: ``AudioError`` naming the two that differ most.
    """
    means = [mean(take.parts) for take in takes]
    pairs = [
        (float(means[a] @ means[b]), takes[a].facts.file, takes[b].facts.file)
        for a in range(len(takes))
        for b in range(a + 1, len(takes))
    ]
    likeness, one, other = min(pairs, default=(1.0, "", ""))
    told = (
        f"they are alike by {likeness:.2f}, and one person's recordings by {SAME_SPEAKER:.2f} or"
        " more."
    )
    if likeness < SAME_SPEAKER - measures.DOUBT:
        raise AudioError(
            f'"{one}" and "{other}" seem to be of two people: {told}', hint="Make a voice of each."
        )
    if likeness < SAME_SPEAKER:
        return (f'"{one}" and "{other}" may be of two people: {told}',)
    return ()


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _db(value: float) -> float:
    return float(20 * np.log10(max(value, 1e-9)))

"""How often the speaker encoder is wrong, and where the line between one speaker and two lies.

    python -m recipes.speaker.measure --recordings DIR [--json]

``DIR`` holds recordings of known speakers: the files of a sub-folder are one speaker's, a file
beside the sub-folders is a speaker of its own and is cut in half. Every pair of recordings is
compared; the equal error rate is where as many pairs of one speaker fall below the line as pairs of
two speakers come above it. The recordings are read here and copied nowhere.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path

import numpy as np

from fishtts.audio.read import read_audio
from fishtts.cloning.speaker_encoder import Embedding, embed
from fishtts.types import Audio

MIN_SECONDS = 1.5
MAX_FILES = 12
"""Recordings taken of one speaker: more would let that speaker decide the figure."""

ENDINGS = (".wav", ".flac", ".ogg", ".mp3")


def recordings(folder: Path) -> dict[str, list[Audio]]:
    """Read the recordings of each speaker."""
    speakers: dict[str, list[Audio]] = {}
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            files = [x for x in sorted(path.iterdir()) if x.suffix.lower() in ENDINGS]
            audios = (read_audio(x) for x in files)
            long = (audio for audio in audios if audio.seconds >= MIN_SECONDS)
            speakers[path.name] = list(itertools.islice(long, MAX_FILES))
        elif path.suffix.lower() in ENDINGS:
            audio = read_audio(path)
            middle = len(audio.samples) // 2
            halves = (audio.samples[:middle], audio.samples[middle:])
            speakers[path.stem] = [Audio(half, audio.sample_rate) for half in halves]
    return {name: audios for name, audios in speakers.items() if audios}


def likenesses(speakers: dict[str, list[Embedding]]) -> tuple[np.ndarray, np.ndarray]:
    """Compare every two recordings; answers those of one speaker and those of two."""
    labels = [name for name, found in speakers.items() for _ in found]
    vectors = np.stack([vector for found in speakers.values() for vector in found])
    scores = vectors @ vectors.T
    first, second = np.triu_indices(len(labels), 1)
    names = np.array(labels)
    is_same = names[first] == names[second]
    pairs = scores[first, second]
    return pairs[is_same], pairs[~is_same]


def equal_error(same: np.ndarray, different: np.ndarray) -> tuple[float, float]:
    """Answer the equal error rate and the likeness at which it is reached."""
    lines = np.unique(np.concatenate([same, different]))
    missed = np.searchsorted(np.sort(same), lines) / len(same)
    accepted = 1 - np.searchsorted(np.sort(different), lines) / len(different)
    best = int(np.argmin(np.abs(missed - accepted)))
    return float((missed[best] + accepted[best]) / 2), float(lines[best])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--recordings", type=Path, required=True)
    parser.add_argument("--json", action="store_true", help="print the last line only")
    args = parser.parse_args()
    speakers = {
        name: [embed(audio.samples, audio.sample_rate) for audio in audios]
        for name, audios in recordings(args.recordings).items()
    }
    same, different = likenesses(speakers)
    rate, line = equal_error(same, different)
    figures = {
        "speakers": len(speakers),
        "recordings": sum(map(len, speakers.values())),
        "pairs_same": len(same),
        "pairs_different": len(different),
        "same_mean": round(float(same.mean()), 3),
        "different_mean": round(float(different.mean()), 3),
        "different_99": round(float(np.quantile(different, 0.99)), 3),
        "same_1": round(float(np.quantile(same, 0.01)), 3),
        "equal_error_rate": round(rate, 4),
        "line": round(line, 3),
    }
    if not args.json:
        for name, value in figures.items():
            print(f"{name:18} {value}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

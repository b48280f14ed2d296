"""Does a long reading keep its voice? Likeness to the reference, minute by minute.

    fishtts clone reader.wav -o reader.fishvoice
    fishtts batch book.txt -v reader.fishvoice -o book.flac
    python -m recipes.cloning.drift --work DIR --reading book.flac --reference reader.wav

Prints the mean, the slope a minute, and the worst minute, by the independent judge (``judge.py``);
the last line is JSON. The slope's uncertainty is its standard error.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import soundfile

from recipes.cloning.judge import Judge


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True, help="where the judge is kept")
    parser.add_argument("--reading", type=Path, required=True)
    parser.add_argument("--reference", type=Path, nargs="+", required=True)
    args = parser.parse_args()
    judge = Judge(args.work)
    parts = [soundfile.read(path, dtype="float32", always_2d=True) for path in args.reference]
    reference = np.sum([judge.embed(samples.mean(axis=1), rate) for samples, rate in parts], axis=0)
    reference /= np.linalg.norm(reference)
    likeness = []
    with soundfile.SoundFile(args.reading) as file:
        minute = 60 * file.samplerate
        for block in file.blocks(minute, dtype="float32", always_2d=True):
            if len(block) > minute / 2:
                likeness.append(float(judge.embed(block.mean(axis=1), file.samplerate) @ reference))
    minutes = np.arange(len(likeness))
    (slope, _), covariance = np.polyfit(minutes, likeness, 1, cov=True)
    worst = int(np.argmin(likeness))
    found = {
        "minutes": len(likeness),
        "mean": round(float(np.mean(likeness)), 3),
        "slope_a_minute": round(float(slope), 6),
        "standard_error": round(float(np.sqrt(covariance[0, 0])), 6),
        "worst": round(likeness[worst], 3),
        "worst_minute": worst,
    }
    for name, value in found.items():
        print(f"{name:15} {value}")
    print(json.dumps(found))


if __name__ == "__main__":
    main()

"""How long it takes to read a script and to write its subtitles, also where they are odd.

    python bench/scripts.py [--runs 3]

Best of several runs in one process, on one core. The last line is JSON.
"""

from __future__ import annotations

import argparse
import io
import json
import platform
import time
from collections.abc import Callable
from functools import partial

from fishtts.audio.subtitles import Cue, as_srt
from fishtts.text.dialogue import find_speakers, segments
from fishtts.text.script import read_script

PARAGRAPH = (
    "The ferry left the harbour before the fog had lifted. Nobody on deck could\n"
    "see the shore, and the captain sounded the horn every two minutes. A boy\n"
    "asked his mother if they were lost. She laughed, and said that the ship\n"
    "knew the way by heart.\n\n"
)
BOOK = PARAGRAPH * 5500
"""1.3 million characters: some 24 hours at 15 a second."""

DIALOGUE = "".join(f"ADA: This is line {number}.\n" for number in range(20_000))
ROWS = "id,text\n" + "".join(f"{number},This is line {number}.\n" for number in range(20_000))


def read(text: str, **options: str) -> None:
    read_script(io.BytesIO(text.encode()), **options)  # type: ignore[arg-type]


def cast(text: str) -> None:
    segments(text, find_speakers(text.split("\n"), ["ada"]))


CASES: dict[str, Callable[[], object]] = {
    "book, paragraphs": partial(read, BOOK),
    "book, sentences": partial(read, BOOK, split="sentence"),
    "book, Markdown": partial(read, BOOK, format="md"),
    "20,000 rows of csv": partial(read, ROWS, format="csv"),
    "20,000 turns": partial(cast, DIALOGUE),
    "one paragraph of 20,000 lines": partial(read, "[a][b _a\n" * 20_000, format="md"),
    "one cue of 20,000 words": partial(as_srt, [Cue(0.0, 3000.0, "word and, " * 10_000)]),
}


def best_of(case: Callable[[], object], runs: int) -> float:
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        case()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    results = {name: round(best_of(case, runs), 3) for name, case in CASES.items()}
    about = {
        "machine": platform.processor() or platform.machine(),
        "python": platform.python_version(),
    }
    for name, seconds in results.items():
        print(f"{name:32} {seconds:.3f} s")
    print(json.dumps({"machine": about, "runs": runs, "results": results}))


if __name__ == "__main__":
    main()

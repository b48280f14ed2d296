"""A pack for a run that trains the decoder alone: fewer lines, and nothing of them but the tokens.

    python -m recipes.minnow.lighten --pack PACK --out LIGHT

The decoder learns from the sound of the lines. Their characters, the alignment and the languages
other than English are for the language model, and are left out. Teacher and voices stay whole.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import numpy as np

from recipes.minnow.languages import CODES
from recipes.minnow.texts import FILE, Texts


def lighten(texts: Texts, num_lines: int, out: Path) -> int:
    """Write up to ``num_lines`` English lines to train on, and all held-out ones; their number."""
    english = texts.language == CODES.index("en")
    # The lines of a pack are in random order.
    training = np.flatnonzero(english & texts.is_training)[:num_lines]
    ids = np.sort(np.concatenate((training, np.flatnonzero(english & ~texts.is_training))))
    tokens = [texts.tokens(int(i)) for i in ids]
    unknown = np.full(sum(map(len, tokens)), -1, np.int16)
    Texts.write(
        out,
        characters=np.zeros(0, np.uint8),
        num_characters=np.zeros(len(ids), np.uint16),
        language=texts.language[ids],
        token_ids=np.concatenate(tokens),
        first=unknown,
        last=unknown,
        num_tokens=np.array([len(t) for t in tokens], np.uint16),
        is_training=texts.is_training[ids],
    )
    return len(ids)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("--pack", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--lines", type=int, default=40000)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for path in args.pack.iterdir():
        if path.name != FILE:
            shutil.copy(path, args.out)
    print(f"{lighten(Texts.load(args.pack), args.lines, args.out)} lines")


if __name__ == "__main__":
    main()

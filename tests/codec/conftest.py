"""The tiny codec with random weights, and what the reference implementation made with it."""

from __future__ import annotations

import pytest
from safetensors.torch import load_file
from torch import Tensor

from fishtts.codec import load_codec
from fishtts.codec.dac import DacCodec
from tests.fakes import GOLDEN


@pytest.fixture(scope="package")
def codec() -> DacCodec:
    loaded = load_codec(GOLDEN)
    assert isinstance(loaded, DacCodec)
    return loaded


@pytest.fixture(scope="package")
def goldens() -> dict[str, Tensor]:
    return load_file(GOLDEN / "codec_goldens.safetensors")

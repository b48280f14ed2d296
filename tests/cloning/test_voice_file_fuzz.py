"""Thousands of damaged and hostile voice files: a clear refusal or the right voice, and no harm."""

from __future__ import annotations

import io
import json
import random
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import soundfile
from safetensors.numpy import load, save

from fishtts.cloning import voice_file
from fishtts.cloning.voice_checks import check_voice
from fishtts.cloning.voice_file import pack_voice, unpack_voice
from fishtts.errors import ModelError
from fishtts.types import Voice
from tests.cloning.voices import full_voice, same

VOICE = full_voice()
DATA = pack_voice(VOICE)
HEADER_END = 8 + int.from_bytes(DATA[:8], "little")
HUGE = (0, 1, 255, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**64 - 1, 2**64, 10**30)

Mutation = Callable[[random.Random, bytearray], bytes]


def flipped(rng: random.Random, data: bytearray) -> bytes:
    for _ in range(rng.choice((1, 1, 1, 2, 8, 64))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def flipped_in_the_header(rng: random.Random, data: bytearray) -> bytes:
    data[rng.randrange(HEADER_END)] = rng.randrange(256)
    return bytes(data)


def cut_short(rng: random.Random, data: bytearray) -> bytes:
    return bytes(data[: rng.randrange(len(data))])


def longer(rng: random.Random, data: bytearray) -> bytes:
    place = rng.choice((8, HEADER_END, len(data), rng.randrange(len(data))))
    return bytes(data[:place]) + rng.randbytes(rng.choice((1, 8, 5000))) + bytes(data[place:])


def another_header_length(rng: random.Random, data: bytearray) -> bytes:
    length = rng.choice((*HUGE[:-2], HEADER_END - 7, HEADER_END, len(data)))
    return length.to_bytes(8, "little") + bytes(data[8:])


def another_number(rng: random.Random, data: bytearray) -> bytes:
    """Let a shape, an offset or any other number of the header be another, and mend its length."""
    header = data[8:HEADER_END].decode()
    digits = [n for n, sign in enumerate(header) if sign.isdigit()]
    place = rng.choice(digits)
    header = f"{header[:place]}{rng.choice(HUGE)}{header[place + 1 :]}"
    encoded = header.encode()
    return len(encoded).to_bytes(8, "little") + encoded + bytes(data[HEADER_END:])


def nested(rng: random.Random, data: bytearray) -> bytes:
    header = rng.choice((b"[", b'{"a":', b'{"__metadata__":')) * rng.choice((10, 1000, 100_000))
    return len(header).to_bytes(8, "little") + header + bytes(data[HEADER_END:])


DAMAGE: tuple[Mutation, ...] = (
    flipped,
    flipped_in_the_header,
    cut_short,
    longer,
    another_header_length,
    another_number,
    nested,
)


def opened(data: bytes) -> Voice | None:
    """Open what may be a voice; a refusal must be one line, and name the file."""
    try:
        voice = unpack_voice(data, "v.fishvoice")
    except ModelError as error:
        refusal = error
    else:
        check_voice(voice)
        return voice
    assert "v.fishvoice" in refusal.message
    assert "\n" not in str(refusal)
    assert len(str(refusal)) < 500, str(refusal)
    return None


@pytest.fixture
def memory_bound() -> Iterator[None]:
    """See to it that no file took much more memory than it is large."""
    tracemalloc.start()
    yield
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 20_000_000


@pytest.mark.usefixtures("memory_bound")
def test_damage_is_refused_or_does_no_harm() -> None:
    rng = random.Random(20261201)
    refused = 0
    for _ in range(2000):
        mutation = rng.choice(DAMAGE)
        voice = opened(mutation(rng, bytearray(DATA)))
        refused += voice is None
        assert voice is None or same(voice, VOICE), mutation.__name__
    assert refused > 1900


def forged(facts: Any, tensors: dict[str, np.ndarray]) -> bytes:
    """Make a file whose hash is right, as somebody would who means harm."""
    text = facts if isinstance(facts, str) else json.dumps(facts)
    metadata = {
        "format": voice_file.FORMAT,
        "version": "2",
        "needs": "0.1.0",
        "voice": text,
        "digest": voice_file._digest(text, tensors),
    }
    return save(tensors, metadata=metadata)


def original() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    header = json.loads(DATA[8:HEADER_END])
    return json.loads(header["__metadata__"]["voice"]), load(DATA)


def test_the_forger_knows_the_format() -> None:
    voice = opened(forged(*original()))
    assert voice is not None
    assert same(voice, VOICE)


STRANGE: tuple[Any, ...] = (
    *(None, True, -1, 1e308, float("nan"), float("inf"), 10**40, "", "a\x00b", "../../x", "\ud800"),
    *("x" * 6000, [], {}, [[]], [None] * 40, {"a": 1}, [{"identity": "c", "model": "m"}] * 20),
)


def another_fact(rng: random.Random, facts: Any) -> Any:
    """Put something strange in the place of some value, however deep."""
    if isinstance(facts, dict | list) and facts and rng.random() < 0.8:
        key = rng.choice(list(facts) if isinstance(facts, dict) else range(len(facts)))
        if rng.random() < 0.15:
            facts.pop(key)
        else:
            facts[key] = another_fact(rng, facts[key])
        return facts
    return rng.choice(STRANGE)


def another_tensor(rng: random.Random, tensors: dict[str, np.ndarray]) -> None:
    name = rng.choice(sorted(tensors))
    array = tensors[name]
    change = rng.randrange(6)
    if change == 0:
        del tensors[name]
    elif change == 1:
        tensors[rng.choice(("clip.2", "codes.9.0", "../x", "embedding"))] = array
    elif change == 2:
        tensors[name] = array.astype(rng.choice((np.float32, np.int64, np.uint8, np.complex64)))
    elif change == 3:
        tensors[name] = np.zeros(
            rng.choice(((0,), (0, 2**40), (1,) * 40, (70, 1), (4, 20001))), "i2"
        )
    else:
        raw = bytearray(array.tobytes())
        for _ in range(rng.choice((1, 4, 40))):
            raw[rng.randrange(min(len(raw), rng.choice((50, 10**9))))] = rng.randrange(256)
        tensors[name] = np.frombuffer(bytes(raw), array.dtype).reshape(array.shape)


@pytest.mark.usefixtures("memory_bound")
def test_what_a_forger_signs_is_a_voice_or_refused() -> None:
    """Behind the hash, too, nothing is believed: facts of other kinds, tensors of other shapes,
    clips of other bytes."""
    rng = random.Random(7)
    taken = 0
    for _ in range(800):
        facts, tensors = original()
        if rng.random() < 0.5:
            facts = another_fact(rng, facts)
        else:
            another_tensor(rng, tensors)
        try:
            data = forged(facts, tensors)
        except UnicodeEncodeError:
            continue  # halves of surrogate pairs cannot even be signed
        taken += opened(data) is not None
    assert 0 < taken < 400


@pytest.mark.usefixtures("memory_bound")
@pytest.mark.parametrize("num_samples", [0, 2_880_001, 2**32, 2**36 - 1])
def test_a_clip_that_claims_to_be_long_is_not_decoded(num_samples: int) -> None:
    facts, tensors = original()
    head = bytearray(tensors["clip.0"].tobytes())
    # STREAMINFO: the number of samples is in the lower 36 bits of bytes 18 to 25.
    word = int.from_bytes(head[18:26], "big") >> 36 << 36 | num_samples
    head[18:26] = word.to_bytes(8, "big")
    tensors["clip.0"] = np.frombuffer(bytes(head), np.uint8)
    assert opened(forged(facts, tensors)) is None


@pytest.mark.parametrize("kind", ["wav", "ogg", "mp3"])
def test_a_clip_in_another_format_is_refused(kind: str) -> None:
    facts, tensors = original()
    other = io.BytesIO()
    soundfile.write(other, VOICE.clips[0].samples, 16000, format=kind)
    tensors["clip.0"] = np.frombuffer(other.getvalue(), np.uint8)
    assert opened(forged(facts, tensors)) is None


def test_a_file_larger_than_any_voice_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voice_file, "MAX_FILE_BYTES", len(DATA) - 1)
    assert opened(DATA) is None

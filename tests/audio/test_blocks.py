"""A recording of any length and format, read in pieces, is what reading all of it at once gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from fishtts.audio.blocks import open_recording
from fishtts.audio.read import read_audio
from fishtts.errors import AudioError

RATE = 16000


def melody(seconds: float) -> np.ndarray:
    """Make a sound in which every moment differs."""
    times = np.arange(round(seconds * RATE)) / RATE
    return 0.3 * np.sin(2 * np.pi * (200 + 20 * times) * times)


@pytest.mark.parametrize("kind", ["wav", "flac", "mp3", "ogg"])
def test_blocks_and_stretches_are_parts_of_the_whole(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"r.{kind}"
    soundfile.write(path, np.stack([melody(25), -0.5 * melody(25)], axis=1), RATE)
    whole = read_audio(path).samples
    with open_recording(path) as recording:
        assert (recording.sample_rate, recording.num_channels) == (RATE, 2)
        blocks = list(recording.blocks())
        assert [len(block) for block in blocks[:2]] == [10 * RATE, 10 * RATE]
        assert np.abs(np.concatenate(blocks) - whole).max() < 1e-3
        for start_s, end_s in ((3.25, 4.5), (0.0, 1.0), (21.0, 99.0)):
            stretch = recording.stretch(start_s, end_s)
            expected = whole[round(start_s * RATE) : round(end_s * RATE)]
            assert len(stretch) == len(expected)
            assert np.abs(stretch - expected).max() < 1e-3
        assert np.abs(np.concatenate(list(recording.blocks())) - whole).max() < 1e-3


def test_m4a_is_read_where_the_optional_part_is(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    path = tmp_path / "r.m4a"
    with av.open(str(path), "w", format="ipod") as container:
        stream = container.add_stream("aac", rate=RATE, layout="mono")
        samples = (melody(12) * 2**15).astype(np.int16)[None]
        frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
        frame.sample_rate = RATE
        resampler = av.AudioResampler(format="fltp", layout="mono", rate=RATE, frame_size=1024)
        for piece in [*resampler.resample(frame), *resampler.resample(None)]:
            container.mux(stream.encode(piece))
        container.mux(stream.encode(None))
    with open_recording(path) as recording:
        assert recording.sample_rate == RATE
        assert sum(map(len, recording.blocks())) == pytest.approx(12 * RATE, abs=0.2 * RATE)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(AudioError, match="damaged or cut short"), open_recording(path):
        pass


def test_sounds_that_are_none_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.wav"
    for bad in (np.nan, np.inf, 1e30):
        samples = melody(1).astype(np.float32)
        samples[500] = bad
        soundfile.write(path, samples, RATE, subtype="FLOAT")
        with pytest.raises(AudioError, match="no sound"), open_recording(path) as recording:
            list(recording.blocks())
    soundfile.write(path, melody(1), 1000)
    with pytest.raises(AudioError, match="1000 Hz"), open_recording(path):
        pass

"""A toy run through the stages that train: nothing silly fails on the day, and a run goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file

from fishtts.codec.spectral import SpectralCodec, SpectralConfig
from fishtts.models.dual_ar.config import DualARConfig
from fishtts.models.dual_ar.net import DualAR
from recipes.minnow.layout import model_config
from recipes.minnow.lighten import lighten
from recipes.minnow.losses import Jury
from recipes.minnow.perturb import perturb, recordings
from recipes.minnow.pool import AudioPool
from recipes.minnow.texts import Texts
from recipes.minnow.train_ar import initialise
from recipes.minnow.train_codec import Average, Clock, gather, save, seconds_spent

LINES = ("It rained.", "Who is there?", "¿Qué hora es?", "Come in and sit down.")


def write_pack(pack: Path) -> None:
    """Texts of a few lines, a token a letter, the last line held out."""
    pack.mkdir()
    sizes = [len(line.encode()) for line in LINES]
    places = [np.arange(n) for n in sizes]
    Texts.write(
        pack,
        characters=np.frombuffer("".join(LINES).encode(), np.uint8),
        num_characters=np.array(sizes, np.int32),
        language=np.array([0, 0, 1, 0], np.uint8),
        token_ids=np.concatenate([np.full(n, 50, np.uint8) for n in sizes]),
        first=np.concatenate(places).astype(np.int16),
        last=np.concatenate(places).astype(np.int16),
        num_tokens=np.array(sizes, np.int32),
        is_training=np.array([True, True, True, False]),
    )


def write_speech(shards: Path) -> None:
    """A shard of hums, each line by two speakers."""
    shards.mkdir(parents=True)
    rng = np.random.default_rng(0)
    text_ids = [0, 1, 2, 3, 0, 1, 2, 3]
    counts = [len(LINES[i].encode()) * 2 * 600 for i in text_ids]
    audio = [np.sin(np.arange(n) * rng.uniform(0.02, 0.05)) * 9000 for n in counts]
    save_arrays(
        {
            "audio": np.concatenate(audio).astype(np.int16),
            "num_samples": np.array(counts, np.int32),
            "text_id": np.array(text_ids, np.int32),
            "speaker_id": np.array([0, 0, 0, 0, 1, 1, 1, 1], np.int32),
            "durations": np.full(sum(counts) // 1200, 2, np.uint8),
            "num_tokens": np.array([n // 1200 for n in counts], np.int32),
            "time_scale": np.ones(8, np.float32),
        },
        shards / "s0_000.safetensors",
    )


def write_start(start: Path) -> None:
    """A model that has learnt nothing yet."""
    start.mkdir()
    torch.manual_seed(0)
    net = DualAR(DualARConfig.from_dict(model_config()))
    initialise(net)
    save_file(
        {k: v.bfloat16().contiguous() for k, v in net.state_dict().items()},
        start / "model.safetensors",
    )
    codec = SpectralCodec(SpectralConfig()).state_dict()
    save_file({k: v.half().contiguous() for k, v in codec.items()}, start / "codec.safetensors")


@pytest.mark.timeout(600)
def test_a_toy_run_trains_decoder_and_language_model_and_can_be_resumed(tmp_path: Path) -> None:
    pack, work, start = (tmp_path / name for name in ("pack", "work", "start"))
    write_pack(pack)
    write_speech(work / "shards")
    write_start(start)
    (work / "speech.done").touch()
    command = [sys.executable, "-m", "recipes.minnow.drive", "--toy", "--seconds", "300"]
    command += ["--gpus", "1", "--pack", str(pack), "--work", str(work), "--start", str(start)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    logs = "".join(path.read_text() for path in sorted((work / "log").glob("*.log")))
    assert done.returncode == 0, done.stdout + done.stderr + logs
    assert (work / "done").exists()
    assert not (work / "failed").exists()
    before = load_file(start / "codec.safetensors")
    after = load_file(work / "decoder" / "codec.safetensors")
    changed = {k.split(".")[0] for k, v in after.items() if not torch.equal(v, before[k].float())}
    assert changed == {"decoder"}
    model = load_file(work / "ar" / "model.safetensors")
    assert all(torch.isfinite(v.float()).all() for v in model.values())
    assert seconds_spent(work / "ar" / "model.safetensors") > 0
    # The codes hold poor recordings too, and those of the held-out line are never trained on.
    codes = load_file(next((work / "codes").glob("*.safetensors")))
    assert codes["num_frames"].shape[0] > 8 - 1
    assert codes["is_poor"].dtype == torch.bool


@pytest.mark.timeout(600)
def test_the_decoder_alone_is_trained_from_a_codec_that_comes_late(tmp_path: Path) -> None:
    pack, work, start = (tmp_path / name for name in ("pack", "work", "start"))
    write_pack(pack)
    write_speech(work / "shards")
    (work / "speech.done").touch()
    command = [sys.executable, "-m", "recipes.minnow.drive", "--toy", "--seconds", "300"]
    command += ["--gpus", "1", "--pack", str(pack), "--work", str(work), "--start", str(start)]
    with subprocess.Popen([*command, "--only", "decoder"]) as driver:
        write_start(tmp_path / "made")
        (tmp_path / "made" / "model.safetensors").unlink()
        (tmp_path / "made").rename(start)
        assert driver.wait() == 0
    assert (work / "done").exists()
    assert not (work / "ar").exists()
    assert not (work / "codes").exists()
    before = load_file(start / "codec.safetensors")
    after = load_file(work / "decoder" / "codec.safetensors")
    changed = {k.split(".")[0] for k, v in after.items() if not torch.equal(v, before[k].float())}
    assert changed == {"decoder"}


def test_the_decoder_alone_needs_a_codec_to_go_on_from(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "recipes.minnow.drive", "--only", "decoder", "--seconds", "1"]
    command += ["--pack", str(tmp_path), "--work", str(tmp_path / "work")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--only decoder needs --start" in done.stderr


def test_a_start_that_never_comes_ends_with_its_name(tmp_path: Path) -> None:
    write_pack(tmp_path / "pack")
    write_speech(tmp_path / "shards")
    pool = AudioPool(Texts.load(tmp_path / "pack"), 0.05, torch.device("cpu"))
    with pytest.raises(SystemExit, match=r"the time is up, without .*codec"):
        gather(pool, tmp_path / "shards", [tmp_path / "codec.safetensors"], 0.0)
    assert pool.used
    gather(pool, tmp_path / "shards", [], 0.0)


def test_the_average_follows_closely_at_first_and_slowly_later() -> None:
    layer = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(layer.weight)
    average = Average(layer)
    torch.nn.init.ones_(layer.weight)
    average.update()
    assert average.kept["weight"].item() == pytest.approx(0.9)
    average.updates, before = 50_000, average.kept["weight"].item()
    average.update()
    assert average.kept["weight"].item() - before == pytest.approx(0.1e-3, rel=0.01)


def test_weights_that_are_not_finite_do_not_replace_good_ones(tmp_path: Path) -> None:
    codec = SpectralCodec(SpectralConfig())
    clock = Clock(1.0, "decoder", 1)
    instead = {"decoder.norm.bias": torch.full((512,), 3.0)}
    save(codec, tmp_path, clock, instead)
    kept = load_file(tmp_path / "codec.safetensors")
    assert torch.equal(kept["decoder.norm.bias"], instead["decoder.norm.bias"])
    instead["decoder.norm.bias"][5] = torch.nan
    with pytest.raises(SystemExit, match="is not finite any more"):
        save(codec, tmp_path, clock, instead)
    again = load_file(tmp_path / "codec.safetensors")
    assert torch.equal(again["decoder.norm.bias"], kept["decoder.norm.bias"])


def test_judges_hear_each_line_by_itself() -> None:
    torch.manual_seed(0)
    jury = Jury()
    wave = torch.randn(3, 18000) * 0.1
    together = jury(wave)
    alone = jury(wave[1:2])
    for ours, theirs in zip(together, alone, strict=True):
        torch.testing.assert_close(ours[-1][1:2], theirs[-1], rtol=1e-4, atol=1e-5)


def test_a_light_pack_keeps_the_tokens_and_who_is_held_out(tmp_path: Path) -> None:
    write_pack(tmp_path / "pack")
    texts = Texts.load(tmp_path / "pack")
    (tmp_path / "light").mkdir()
    assert lighten(texts, 1, tmp_path / "light") == 2
    light = Texts.load(tmp_path / "light")
    assert light.is_training.tolist() == [True, False]
    assert light.tokens(0).tolist() == texts.tokens(0).tolist()
    assert light.tokens(1).tolist() == texts.tokens(3).tolist()
    assert light.spans(1)[0].tolist() == [-1] * len(LINES[3])


def test_texts_come_back_as_they_were_written(tmp_path: Path) -> None:
    write_pack(tmp_path / "pack")
    texts = Texts.load(tmp_path / "pack")
    assert [texts.text(i).decode() for i in range(len(texts))] == list(LINES)
    first, last = texts.spans(2)
    assert first.tolist() == last.tolist() == list(range(len(LINES[2].encode())))


def test_a_stage_that_goes_on_has_come_as_far_as_its_seconds_say(tmp_path: Path) -> None:
    clock = Clock(900.0, "ar", 1, spent=300.0)
    assert clock.progress == pytest.approx(0.25, abs=0.01)
    save_file({"a": torch.zeros(1)}, tmp_path / "a.safetensors", metadata=clock.metadata)
    assert seconds_spent(tmp_path / "a.safetensors") == pytest.approx(300.0, abs=2.0)
    assert seconds_spent(tmp_path / "none.safetensors") == 0.0


def test_a_poor_recording_keeps_its_length_and_its_loudness_and_no_two_are_alike() -> None:
    torch.manual_seed(0)
    wave = torch.sin(torch.arange(24000) * 0.05).expand(16, -1) * 0.3
    poor = perturb(wave, 24000)
    assert poor.shape == wave.shape
    assert torch.isfinite(poor).all()
    levels = poor.square().mean(1).sqrt() / wave.square().mean(1).sqrt()
    assert 0.8 < levels.min() < levels.max() < 1.2
    assert torch.unique(poor, dim=0).shape[0] == 16
    assert torch.isfinite(perturb(torch.zeros(2, 4800), 24000)).all()


def test_the_good_recording_of_a_poor_one_has_its_tone_and_loudness_but_not_its_noise() -> None:
    torch.manual_seed(0)
    # A tone in the middle of every band, then silence: what is heard there is room and noise.
    wave = torch.sin(torch.arange(48000) * 0.26) * 0.3
    wave[24000:] = 0
    poor, good = recordings(wave.expand(32, -1), 24000)
    assert good.shape == poor.shape
    levels = good.square().mean(1).sqrt() / wave.square().mean().sqrt()
    assert 0.9 < levels.min() < levels.max() < 1.1
    # No delay: at once as loud as later.
    assert (good[:, 100:1000].abs().amax(1) > 0.25).all()
    rests = [side[:, 30000:].square().mean(1).sqrt() for side in (poor, good)]
    assert rests[1].max() < 1e-3
    assert (rests[0] > 1e-3).float().mean() > 0.4

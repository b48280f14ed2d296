"""The measurement of streams: all of them speak in all that is timed, and nothing ends them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fishtts.config import EngineConfig
from fishtts.engine.streams import FRAMES_PER_AUDIO_S, engine_for, measure_streams, speaking
from fishtts.models import LoadedModel
from fishtts.models.random_model import random_model
from tests.models.test_quantized import fitting_values


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return random_model(fitting_values(), device="cpu", dtype=torch.bfloat16)


def test_a_row_is_of_steps_in_which_all_streams_speak(model: LoadedModel) -> None:
    engine = engine_for(model, EngineConfig("cpu", "bfloat16", max_batch=3))
    for count in (1, 3):
        row = measure_streams(engine, model, count, steps=6, context=20)
        assert (row.streams, row.context, row.kv) == (count, 20, "bfloat16")
        assert row.occupancy == 1
        assert row.frames_per_s == pytest.approx(1000 * count / row.step_ms)
        assert row.audio_s_per_s == pytest.approx(row.frames_per_s / FRAMES_PER_AUDIO_S)
        assert row.ttfb_ms > 0
        assert not engine.has_work


def test_a_model_that_wants_to_end_goes_on_all_the_same(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = model.net.slow_logits

    def only_the_end(hidden: Tensor) -> Tensor:
        logits = heard(hidden)
        logits[:, -1] += 100
        return logits

    monkeypatch.setattr(model.net, "slow_logits", only_the_end)
    engine = engine_for(model, EngineConfig("cpu", "bfloat16", max_batch=2))
    with speaking(engine, model, 2, context=20):
        for _ in range(10):
            engine.step()
        assert engine.num_requests == 2
    assert engine.num_requests == 0


@pytest.mark.gpu
def test_a_row_comes_out_of_captured_steps_too() -> None:
    model = random_model(fitting_values(), device="cuda", dtype=torch.bfloat16)
    engine = engine_for(model, EngineConfig("cuda", "bfloat16", max_batch=4))
    row = measure_streams(engine, model, 4, steps=20, context=40)
    assert row.occupancy == 1
    assert row.frames_per_s > 0

"""One request: prefill, then frame after frame until the end token or a limit.

Owns the order of draws, the repetition window and when to stop. Knows no text, no audio, and
nothing inside the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fishtts.engine.noise import uniforms
from fishtts.engine.sampler import (
    RAS_TEMPERATURE,
    RAS_TOP_P,
    RAS_WINDOW,
    filtered,
    race,
    replace_repeats,
)
from fishtts.errors import UsageError
from fishtts.models import Cache, Config, LoadedModel
from fishtts.types import Prompt, SamplingParams, StopReason

Frame = npt.NDArray[np.int64]
"""All codes of one instant, ``[C]``."""

_FIRST_FRAMES = 256
"""Frames that the cache has room for at first, where the limit is higher."""

_NOISE_FRAMES = 16
"""Frames whose noise is made at once: its cost is in the number of calls."""


class Noise(Protocol):
    """Uniform numbers for one request."""

    def slow(self, frame: int) -> Tensor:
        """For the normal and the high draw [1, 2, V + 1]: semantic codes, then the end."""
        ...

    def fast(self, frame: int, codebook: int) -> Tensor:
        """For a code of codebook 1 or later [1, V]."""
        ...


class CountedNoise:
    """Noise by seed, frame, draw and token id: whatever else runs, a request meets the same."""

    def __init__(self, seed: int, config: Config, device: torch.device) -> None:
        self._seed = seed
        self._device = device
        self._codes = torch.arange(config.codebook_size, device=device)
        end = torch.tensor([config.end_id], device=device)
        # By token id and not by place, so that it is one noise for this head and for a whole one.
        self._slow_ids = torch.cat((self._codes + config.semantic_begin, end))
        self._slow_draws = torch.arange(2, device=device)
        self._fast_draws = torch.arange(2, 1 + config.num_codebooks, device=device)
        self._block = -1

    def slow(self, frame: int) -> Tensor:
        self._make(frame // _NOISE_FRAMES)
        return self._slow[frame % _NOISE_FRAMES]

    def fast(self, frame: int, codebook: int) -> Tensor:
        self._make(frame // _NOISE_FRAMES)
        return self._fast[frame % _NOISE_FRAMES][codebook - 1]

    def _make(self, block: int) -> None:
        if block == self._block:
            return
        self._block = block
        first = block * _NOISE_FRAMES
        frames = torch.arange(first, first + _NOISE_FRAMES, device=self._device)
        slow = uniforms(self._seed, frames, self._slow_draws, self._slow_ids)
        fast = uniforms(self._seed, frames, self._fast_draws, self._codes)
        self._slow = list(slow[:, None].unbind())
        self._fast = [list(each.unbind()) for each in fast[:, :, None].unbind()]


@dataclass(frozen=True, slots=True)
class PrefilledPrefix:
    """The beginning of a prompt, worked out: a voice's references need it once for many texts."""

    matrix: npt.NDArray[np.int64]
    cache: Cache

    def fits(self, prompt: Prompt) -> bool:
        """Tell whether it is this prompt's shared part, codes of all codebooks included."""
        return np.array_equal(self.matrix, prompt.matrix[:, : prompt.num_shared])


class Generation:
    """The frames of one request, made as they are asked for.

    ``prefix`` is, after the first frame, what the next request with the same references may reuse.
    Whether it is reused changes time alone: the two parts are worked out apart in any case.
    """

    def __init__(
        self,
        model: LoadedModel,
        prompt: Prompt,
        params: SamplingParams,
        *,
        prefix: PrefilledPrefix | None = None,
        noise: Noise | None = None,
    ) -> None:
        self._model = model
        self._prompt = prompt
        self._max_frames = _max_frames(prompt, params, model.config)
        noise = noise or CountedNoise(params.seed, model.config, model.device)
        self._draw = _Draw(params, noise, model.device)
        # What a row of codes lacks to be a row of tokens: the first one is a token's place.
        begin = [model.config.semantic_begin] + [0] * model.config.num_codebooks
        self._begin = torch.tensor(begin, device=model.device)
        self._rows = torch.empty(0)
        self._cache: Cache | None = None
        self.prefix = prefix
        self.num_frames = 0
        self.stop_reason: StopReason | None = None

    def __iter__(self) -> Iterator[Frame]:
        return self

    def __next__(self) -> Frame:
        """Make one frame of int64 codes [C]."""
        if self.stop_reason is None and self.num_frames == self._max_frames:
            self.stop_reason = "limit"
        if self.stop_reason is not None:
            raise StopIteration
        with torch.inference_mode():
            frame = self._step()
        if frame is None:
            self.stop_reason = "eos"
            raise StopIteration
        self.num_frames += 1
        return frame

    def abort(self) -> None:
        """End the request; nothing more comes out."""
        if self.stop_reason is None:
            self.stop_reason = "aborted"

    def _step(self) -> Frame | None:
        """Make the next frame, or nothing if the model has come to its end."""
        model, config = self._model.net, self._model.config
        if self._cache is None:
            self._cache, hidden = self._prefill()
        else:
            hidden = model.backbone(self._rows, self._cache)
        chosen = self._draw.semantic(model.slow_logits(hidden))
        # The end has no code. Its frame is made all the same: looking first would make a GPU wait.
        codes = model.frame(hidden, chosen.clamp(max=config.codebook_size - 1), self._draw.code)
        self._draw.frame += 1
        row = torch.cat((chosen[:, None], codes), dim=1)
        made: Frame = row[0].cpu().numpy()
        if made[0] == config.codebook_size:
            return None
        self._rows = (row + self._begin)[:, :, None]
        return made[1:]

    def _prefill(self) -> tuple[Cache, Tensor]:
        """Work out the prompt: the references' part, unless that is known, then the rest."""
        model, matrix = self._model, self._prompt.matrix
        shared = self._prompt.num_shared
        capacity = matrix.shape[1] + min(self._max_frames, _FIRST_FRAMES)
        if shared and (self.prefix is None or not self.prefix.fits(self._prompt)):
            own = model.net.new_cache(1, shared)
            model.net.backbone(_to_rows(matrix[:, :shared], model.device), own)
            self.prefix = PrefilledPrefix(matrix[:, :shared].copy(), own)
        if shared and self.prefix is not None:
            cache = self.prefix.cache.copy(capacity)
        else:
            cache = model.net.new_cache(1, capacity)
        return cache, model.net.backbone(_to_rows(matrix[:, shared:], model.device), cache)


class _Draw:
    """Draws the codes of one request, frame after frame."""

    def __init__(self, params: SamplingParams, noise: Noise, device: torch.device) -> None:
        self._noise = noise
        self._top_k = params.top_k
        # Of the normal and the high draw; the codes after the first are drawn like the normal one.
        self._temperature = torch.tensor([[params.temperature], [RAS_TEMPERATURE]], device=device)
        self._top_p = torch.tensor([[params.top_p], [RAS_TOP_P]], device=device)
        self._window = torch.full((1, RAS_WINDOW), -1, device=device)
        self.frame = 0

    def semantic(self, logits: Tensor) -> Tensor:
        """Draw a semantic code, or the end. logits [1, V + 1] -> int64 [1]."""
        probabilities, ids = filtered(logits[:, None], self._temperature, self._top_p, self._top_k)
        drawn = race(probabilities, ids.expand_as(probabilities), self._noise.slow(self.frame))
        normal, high = drawn.unbind(dim=1)
        if self.frame == 0:
            # The rule begins after the prefill, whose own token stays out of the window.
            return normal
        chosen = replace_repeats(normal, high, self._window)
        self._window = torch.cat((self._window[:, 1:], chosen[:, None]), dim=1)
        return chosen

    def code(self, codebook: int, logits: Tensor) -> Tensor:
        """Draw a code of codebook 1 or later. logits [1, V] -> int64 [1]."""
        probabilities, ids = filtered(logits, self._temperature[0], self._top_p[0], self._top_k)
        return race(probabilities, ids, self._noise.fast(self.frame, codebook))


def generate(
    model: LoadedModel,
    prompt: Prompt,
    params: SamplingParams,
    *,
    prefix: PrefilledPrefix | None = None,
) -> Generation:
    """Speak a prompt, frame by frame.

    Raises: ``UsageError`` for a prompt that leaves no room for speech.
    """
    return Generation(model, prompt, params, prefix=prefix)


def _max_frames(prompt: Prompt, params: SamplingParams, config: Config) -> int:
    length = prompt.matrix.shape[1]
    room: int = config.max_positions - length
    if room < 1:
        raise UsageError(
            f"The text and the voice take {length:,} positions, and the model has"
            f" {config.max_positions:,}, of which the speech needs some too.",
            hint="Speak a shorter text at a time, or give a shorter recording.",
        )
    return min(params.max_frames or room, room)


def _to_rows(matrix: npt.NDArray[np.int64], device: torch.device) -> Tensor:
    return torch.from_numpy(matrix).to(device)[None]

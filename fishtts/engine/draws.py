"""The draws of many requests at once: their parameters, their noise, their repetition windows.

Owns the order of draws within a frame and what each request has drawn lately. Knows no text, no
audio, and nothing inside the model.

Shapes: S slots (the last one is nobody's), B requests of a step, C codebooks, V codes of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from fishtts.engine.noise import draw_keys, seed_key
from fishtts.engine.request import Request
from fishtts.engine.sampler import (
    RAS_TEMPERATURE,
    RAS_TOP_P,
    RAS_WINDOW,
    filtered,
    race,
    replace_repeats,
)
from fishtts.kernels.prev_tokens import prev_tokens_shift_
from fishtts.kernels.sampling_reference import uniforms
from fishtts.models import Config


class Noise(Protocol):
    """Uniform numbers in (0, 1) by key and token id."""

    def slow(self, keys: Tensor, ids: Tensor) -> Tensor:
        """For the normal and the high draw: keys [B, 2], token ids [B, 2, K] -> [B, 2, K]."""
        ...

    def fast(self, keys: Tensor, codes: Tensor, codebook: int) -> Tensor:
        """For a code of codebook 1 or later: keys [B], codes [B, K] -> [B, K]."""
        ...


class CountedNoise:
    """Noise by seed, frame, draw and id: whatever else runs, a request meets the same."""

    def slow(self, keys: Tensor, ids: Tensor) -> Tensor:
        return uniforms(keys, ids)

    def fast(self, keys: Tensor, codes: Tensor, codebook: int) -> Tensor:
        return uniforms(keys, codes)


class Draws:
    """What each slot draws with.

    ``windows`` is int32 [S, W, 1 + C]: the rows that a slot drew last, the newest at the end, zeros
    where there is none yet. The row drawn at the end of the prefill stays out.
    """

    def __init__(self, num_slots: int, config: Config, device: torch.device, noise: Noise) -> None:
        self._noise = noise
        self._config = config
        self._seeds = torch.zeros(num_slots, dtype=torch.int64, device=device)
        self._temperature = torch.ones(num_slots, 1, device=device)
        self._top_p = torch.ones(num_slots, 1, device=device)
        self._top_k = torch.ones(num_slots, 1, dtype=torch.int64, device=device)
        size = (num_slots, RAS_WINDOW, 1 + config.num_codebooks)
        self.windows = torch.zeros(size, dtype=torch.int32, device=device)
        self._widths = [1] * num_slots
        self._draws = torch.arange(1 + config.num_codebooks, device=device)

    def join(self, slot: int, request: Request) -> None:
        """Let a request have a slot, from its beginning."""
        params = request.params
        self._seeds[slot] = seed_key(params.seed)
        self._temperature[slot] = params.temperature
        self._top_p[slot] = params.top_p
        self._top_k[slot] = params.top_k
        self._widths[slot] = params.top_k
        self.windows[slot] = 0

    def restore(self, slot: int, frames: Tensor) -> None:
        """Set a slot's window to what was drawn before: frames int [F, 1 + C] from the first."""
        self.windows[slot] = 0
        late = frames[1:][-RAS_WINDOW:].to(torch.int32)
        if len(late):
            self.windows[slot, -len(late) :] = late.to(self.windows.device)

    def width(self, slots: Sequence[int]) -> int:
        """The largest top-k of some slots."""
        return max(self._widths[slot] for slot in slots)

    def frame(self, slots: Tensor, numbers: Tensor, width: int) -> FrameDraw:
        """Begin the frames ``numbers`` [B] of the slots [B], whose top-k are at most ``width``."""
        keys = draw_keys(self._seeds[slots], numbers, self._draws)
        return FrameDraw(
            noise=self._noise,
            config=self._config,
            keys=keys,
            temperature=self._temperature[slots],
            top_p=self._top_p[slots],
            top_k=self._top_k[slots],
            width=width,
            window=self.windows[slots],
        )

    def keep(self, slots: Tensor, numbers: Tensor, rows: Tensor) -> None:
        """Take what was drawn into the windows. rows int64 [B, 1 + C]."""
        windows = self.windows[slots]
        # Shifting zeros into a window of zeros keeps the first row out of it.
        prev_tokens_shift_(windows, (rows * (numbers > 0)[:, None]).to(torch.int32))
        self.windows[slots] = windows


class FrameDraw:
    """The draws of one frame of each request: first the semantic code, then the others in order."""

    def __init__(
        self,
        *,
        noise: Noise,
        config: Config,
        keys: Tensor,
        temperature: Tensor,
        top_p: Tensor,
        top_k: Tensor,
        width: int,
        window: Tensor,
    ) -> None:
        self._noise, self._config, self._keys = noise, config, keys
        self._temperature, self._top_p, self._top_k = temperature, top_p, top_k
        self._width, self._window = width, window

    def semantic(self, logits: Tensor) -> Tensor:
        """Draw semantic codes, or the end (V). logits [B, V + 1] -> int64 [B]."""
        config = self._config
        high_temperature = torch.full_like(self._temperature, RAS_TEMPERATURE)
        high_top_p = torch.full_like(self._top_p, RAS_TOP_P)
        weights, codes = filtered(
            logits[:, None],
            torch.stack((self._temperature, high_temperature), dim=1),
            torch.stack((self._top_p, high_top_p), dim=1),
            self._top_k[:, None],
            self._width,
        )
        codes = codes.expand_as(weights)
        # By token id and not by place, so that it is one noise for this head and for a whole one.
        end = codes == config.codebook_size
        ids = torch.where(end, config.end_id, codes + config.semantic_begin)
        drawn = race(weights, codes, self._noise.slow(self._keys[:, :2], ids))
        normal, high = drawn.unbind(dim=1)
        return replace_repeats(normal, high, self._window[:, :, 0] - config.semantic_begin)

    def code(self, codebook: int, logits: Tensor) -> Tensor:
        """Draw codes of codebook 1 or later. logits [B, V] -> int64 [B]."""
        weights, codes = filtered(logits, self._temperature, self._top_p, self._top_k, self._width)
        keys = self._keys[:, 1 + codebook]
        return race(weights, codes, self._noise.fast(keys, codes, codebook))

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

from fishtts import kernels
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
from fishtts.kernels.sampling_reference import DrawRules, Semantic, uniforms
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

    def __init__(
        self, num_slots: int, config: Config, device: torch.device, noise: Noise | None = None
    ) -> None:
        """``noise`` is counted unless it is given; the op ``draw_codes`` has no other."""
        self._noise = noise
        self._config = config
        self._seeds = torch.zeros(num_slots, dtype=torch.int64, device=device)
        # For the normal draw, and for the one that replaces repeats.
        self._temperature = torch.full((num_slots, 2), RAS_TEMPERATURE, device=device)
        self._top_p = torch.full((num_slots, 2), RAS_TOP_P, device=device)
        self._top_k = torch.ones(num_slots, dtype=torch.int32, device=device)
        size = (num_slots, RAS_WINDOW, 1 + config.num_codebooks)
        self.windows = torch.zeros(size, dtype=torch.int32, device=device)
        self._widths = [1] * num_slots
        self._draws = torch.arange(1 + config.num_codebooks, device=device)

    def join(self, slot: int, request: Request) -> None:
        """Let a request have a slot, from its beginning."""
        params = request.params
        # Filled, and not assigned: a number that is assigned to one element of a GPU's tensor is
        # copied there from the host, which waits for it.
        self._seeds[slot].fill_(seed_key(params.seed))
        self._temperature[slot, 0].fill_(params.temperature)
        self._top_p[slot, 0].fill_(params.top_p)
        self._top_k[slot].fill_(params.top_k)
        self._widths[slot] = params.top_k
        self.windows[slot].zero_()

    def restore(self, slot: int, frames: Tensor) -> None:
        """Set a slot's window to what was drawn before: frames int [F, 1 + C] from the first, on
        the device."""
        self.windows[slot].zero_()
        late = frames[1:][-RAS_WINDOW:].to(torch.int32)
        if len(late):
            self.windows[slot, -len(late) :] = late

    def width(self, slots: Sequence[int]) -> int:
        """The largest top-k of some slots."""
        return max(self._widths[slot] for slot in slots)

    def frame(
        self, slots: Tensor, numbers: Tensor, width: int, *, by_op: bool = False
    ) -> FrameDraw:
        """Begin the frames ``numbers`` [B] of the slots [B], whose top-k are at most ``width``.

        ``by_op`` draws by the op ``draw_codes``, if the noise is counted.
        """
        keys = draw_keys(self._seeds[slots], numbers, self._draws)
        rules = DrawRules(self._temperature[slots], self._top_p[slots], self._top_k[slots])
        given = (self._config, keys, rules, width, self.windows[slots])
        if by_op and self._noise is None:
            return DrawByOp(*given)
        return DrawByTorch(*given, self._noise or CountedNoise())

    def keep(self, slots: Tensor, numbers: Tensor, rows: Tensor) -> None:
        """Take what was drawn into the windows. rows int64 [B, 1 + C]."""
        windows = self.windows[slots]
        # Shifting zeros into a window of zeros keeps the first row out of it.
        prev_tokens_shift_(windows, (rows * (numbers > 0)[:, None]).to(torch.int32))
        self.windows[slots] = windows


class FrameDraw(Protocol):
    """The draws of one frame of each request: first the semantic code, then the others in order."""

    def semantic(self, logits: Tensor) -> Tensor:
        """Draw semantic codes, or the end (V). logits [B, V + 1] -> int64 [B]."""
        ...

    def code(self, codebook: int, logits: Tensor) -> Tensor:
        """Draw codes of codebook 1 or later. logits [B, V] -> int64 [B]."""
        ...


class DrawByTorch:
    """In plain torch, with any noise; see ``FrameDraw``."""

    def __init__(
        self,
        config: Config,
        keys: Tensor,
        rules: DrawRules,
        width: int,
        window: Tensor,
        noise: Noise,
    ) -> None:
        self._config, self._keys, self._noise = config, keys, noise
        self._temperature, self._top_p = rules.temperature[..., None], rules.top_p[..., None]
        self._top_k = rules.top_k[:, None]
        self._width, self._window = width, window

    def semantic(self, logits: Tensor) -> Tensor:
        config = self._config
        weights, codes = filtered(
            logits[:, None], self._temperature, self._top_p, self._top_k[:, None], self._width
        )
        codes = codes.expand_as(weights)
        # By token id and not by place, so that it is one noise for this head and for a whole one.
        end = codes == config.codebook_size
        ids = torch.where(end, config.end_id, codes + config.semantic_begin)
        drawn = race(weights, codes, self._noise.slow(self._keys[:, :2], ids))
        normal, high = drawn.unbind(dim=1)
        return replace_repeats(normal, high, self._window[:, :, 0] - config.semantic_begin)

    def code(self, codebook: int, logits: Tensor) -> Tensor:
        temperature, top_p = self._temperature[:, 0], self._top_p[:, 0]
        weights, codes = filtered(logits, temperature, top_p, self._top_k, self._width)
        keys = self._keys[:, 1 + codebook]
        return race(weights, codes, self._noise.fast(keys, codes, codebook))


class DrawByOp:
    """By the op ``draw_codes``, with counted noise; see ``FrameDraw``."""

    def __init__(
        self, config: Config, keys: Tensor, rules: DrawRules, width: int, window: Tensor
    ) -> None:
        self._keys, self._rules, self._width = keys, rules, width
        self._semantic = Semantic(window[:, :, 0], config.semantic_begin, config.end_id)
        normal = (rules.temperature[:, :1].contiguous(), rules.top_p[:, :1].contiguous())
        self._normal = DrawRules(*normal, rules.top_k)

    def semantic(self, logits: Tensor) -> Tensor:
        keys = self._keys[:, :2]
        options = {"semantic": self._semantic, "max_top_k": self._width}
        codes: Tensor = kernels.draw_codes(logits, keys, self._rules, **options)[0]
        return codes

    def code(self, codebook: int, logits: Tensor) -> Tensor:
        keys = self._keys[:, 1 + codebook, None]
        codes: Tensor = kernels.draw_codes(logits, keys, self._normal, max_top_k=self._width)[0]
        return codes

"""What launching a kernel needs beside its tensors: device facts, counters, launch options.

Owns the counters of the split products, the one thing that outlives a call: they are zero between
calls, since whoever arrives last resets them, and so a captured graph can be replayed. Knows no
arithmetic.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from fishtts.kernels.plans import Gpu

MAX_TILES = 1024
"""Tiles of a split product that are in the making at a time: with 64x64 sums, 16 MB a split."""
_MAX_STREAMS = 256

_counters: dict[torch.device, Tensor] = {}
_lanes: dict[tuple[torch.device, int], int] = {}


@cache
def num_processors(device: torch.device) -> int:
    """Multiprocessors of a device; for a CPU, whose interpreter has none, a few."""
    if device.type != "cuda":
        return 4
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@cache
def shared_limit(device: torch.device) -> int:
    """Bytes of shared memory that one program may have."""
    if device.type != "cuda":
        return 99 * 1024
    return int(torch.cuda.get_device_properties(device).shared_memory_per_block_optin)


@cache
def capability(device: torch.device) -> tuple[int, int]:
    """Compute capability of a device, (0, 0) for a CPU."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else (0, 0)


def counters(device: torch.device) -> Tensor:
    """``MAX_TILES`` int32 zeros, the same ones for every call on the current stream.

    Calls on one stream never overlap, so they share; each stream has its own. A graph uses those of
    the stream that it was captured on: graphs that are replayed at the same time must be captured
    on different streams.

    Raises: ``RuntimeError`` when the first call of all on a device happens during a capture.
    """
    zeros = _counters.get(device)
    if zeros is None:
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                "The first product on a device cannot be captured: run it once before the graph."
            )
        zeros = torch.zeros((_MAX_STREAMS, MAX_TILES), dtype=torch.int32, device=device)
        _counters[device] = zeros
    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    lane = _lanes.setdefault((device, stream), len(_lanes))
    if lane >= _MAX_STREAMS:
        raise RuntimeError(f"Products run on more than {_MAX_STREAMS} streams.")
    return zeros[lane]


def starts_early(device: torch.device, use_pdl: bool | None) -> bool:
    """Whether a kernel starts before the one before it has ended: as asked, else where it can."""
    return capability(device) >= (9, 0) if use_pdl is None else use_pdl


def launch_options(use_pdl: bool) -> dict[str, Any]:
    """Options of a launch. With ``use_pdl`` (programmatic dependent launch) a kernel may start
    before the one before it has ended; it waits itself before it reads.

    A product and a sum may become one instruction: Triton's default, which it announced to change.
    """
    return {"enable_fp_fusion": True, **({"launch_pdl": True} if use_pdl else {})}


def gpu_facts(device: torch.device) -> Gpu:
    """What a plan needs to know of a device; the interpreter counts as one with TMA."""
    is_hopper = capability(device) >= (9, 0)
    has_tma = device.type != "cuda" or is_hopper
    return Gpu(num_processors(device), shared_limit(device), has_tma, is_hopper)

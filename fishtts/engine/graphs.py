"""Programs over tensors of fixed shapes, captured once as CUDA graphs and replayed.

Owns the graphs and their inputs' memory. Knows nothing of what a program does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

import torch
from torch import Tensor

Inputs = tuple[Tensor, ...]
Program = Callable[..., Tensor]

_WARM_UPS = 2
"""Runs before a capture: libraries allocate and choose their ways in the first ones."""


class Steps(Protocol):
    """Runs programs. ``key`` names a program; shapes of the inputs tell its sizes apart.

    Inputs may lie on the host; a program gets them on the device. ``idle`` are inputs of the same
    shapes with which a run changes nothing that anybody needs.
    """

    def run(self, key: Hashable, program: Program, inputs: Inputs, idle: Inputs) -> Tensor: ...


class EagerSteps:
    """Runs them as they stand: for devices without graphs, and to compare with."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def run(self, key: Hashable, program: Program, inputs: Inputs, idle: Inputs) -> Tensor:
        return program(*(each.to(self._device) for each in inputs))


class CapturedSteps:
    """Captures a program at its first run with inputs of new shapes, and replays it after that.

    What a program changes besides its answer must lie where it lay at the capture.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._captured: dict[Hashable, tuple[torch.cuda.CUDAGraph, Inputs, Tensor]] = {}
        self._memory = None
        self._side: torch.cuda.Stream | None = None

    @property
    def num_graphs(self) -> int:
        """Graphs that are kept."""
        return len(self._captured)

    def run(self, key: Hashable, program: Program, inputs: Inputs, idle: Inputs) -> Tensor:
        """Run a program; see ``Steps``."""
        whole = (key, *((tuple(each.shape), each.dtype) for each in inputs))
        if whole not in self._captured:
            self._captured[whole] = self._capture(program, idle)
        graph, own, answer = self._captured[whole]
        for mine, given in zip(own, inputs, strict=True):
            # From pinned memory a copy does not make the host wait.
            given = given.pin_memory() if given.device.type == "cpu" else given
            mine.copy_(given, non_blocking=True)
        graph.replay()
        # A copy: graphs share their memory, so the next one may write where this answer lies.
        return answer.clone()

    def _capture(
        self, program: Program, idle: Inputs
    ) -> tuple[torch.cuda.CUDAGraph, Inputs, Tensor]:
        own = tuple(each.to(self._device, copy=True) for each in idle)
        current = torch.cuda.current_stream(self._device)
        if self._side is None:
            # Nobody else captures on it: graphs replayed beside these share no counters with them.
            # A graph keeps the priority that it was captured with.
            self._side = torch.cuda.Stream(self._device, priority=current.priority)
        self._side.wait_stream(current)
        with torch.cuda.stream(self._side):
            for _ in range(_WARM_UPS):
                program(*own)
        current.wait_stream(self._side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory, stream=self._side):
            answer = program(*own)
        self._memory = graph.pool()
        return graph, own, answer


def captured_steps(device: torch.device) -> Steps:
    """The best way that a device has."""
    return CapturedSteps(device) if device.type == "cuda" else EagerSteps(device)

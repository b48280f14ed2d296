"""Optimisers and the captured training step. Knows no model and no data.

Everything here is free of host synchronisation, so that a whole step (batch, forward, backward,
update) can be captured once as a CUDA graph and replayed: at these sizes an eager step is mostly
launch overhead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn


def orthogonalise(gradients: Tensor) -> Tensor:
    """Newton-Schulz iteration towards the nearest orthogonal matrix. [n, rows, cols].

    Source: Muon (Jordan et al., 2024), quintic coefficients.
    """
    x = gradients.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.mT if tall else x


class Muon:
    """Momentum, orthogonalised, for matrices. ``lr`` is a tensor, so that a graph can follow it."""

    def __init__(
        self, params: Iterable[nn.Parameter], momentum: float, weight_decay: float
    ) -> None:
        groups: dict[torch.Size, list[nn.Parameter]] = {}
        for p in params:
            groups.setdefault(p.shape, []).append(p)
        self.groups = list(groups.values())
        first = self.groups[0][0]
        self.lr = torch.zeros((), device=first.device)
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.buffers = [
            torch.zeros(len(g), g[0].shape[0], g[0][0].numel(), device=first.device)
            for g in self.groups
        ]

    @torch.no_grad()
    def step(self) -> None:
        for group, buffer in zip(self.groups, self.buffers, strict=True):
            gradient = torch.stack([p.grad.flatten(1) for p in group if p.grad is not None])
            buffer.mul_(self.momentum).add_(gradient)
            update = orthogonalise(gradient.add(buffer, alpha=self.momentum)).float()
            rows, cols = update.shape[1:]
            update.mul_(-self.lr * max(1.0, rows / cols) ** 0.5)
            torch._foreach_mul_(group, 1 - self.lr * self.weight_decay)
            torch._foreach_add_(
                group, [u.view_as(p) for u, p in zip(update.unbind(0), group, strict=True)]
            )


class Optimiser:
    """Muon for hidden matrices and AdamW for the rest, driven by one relative learning rate."""

    def __init__(
        self,
        named: Iterable[tuple[str, nn.Parameter]],
        is_hidden_matrix: Callable[[str, nn.Parameter], bool],
        *,
        muon_lr: float,
        adam_lr: float,
        betas: tuple[float, float] = (0.9, 0.95),
        weight_decay: float = 0.01,
    ) -> None:
        matrices, others = [], []
        for name, p in named:
            (matrices if is_hidden_matrix(name, p) else others).append(p)
        device = others[0].device
        self.params = matrices + others
        self.rates = (muon_lr, adam_lr)
        self.muon = Muon(matrices, 0.95, weight_decay) if matrices else None
        self.adam_rate = torch.zeros((), device=device)
        self.adam = torch.optim.AdamW(
            others,
            lr=self.adam_rate,
            betas=betas,
            weight_decay=weight_decay,
            capturable=device.type == "cuda",
            fused=True,
        )

    def set_rate(self, relative: float) -> None:
        """Scale both learning rates; between replays."""
        if self.muon is not None:
            self.muon.lr.fill_(self.rates[0] * relative)
        self.adam_rate.fill_(self.rates[1] * relative)

    def zero_grad(self) -> None:
        grads = [p.grad for p in self.params if p.grad is not None]
        if grads:
            torch._foreach_zero_(grads)

    def step(self, max_norm: float = 1.0) -> None:
        torch.nn.utils.clip_grad_norm_(self.params, max_norm, foreach=True)
        self.adam.step()
        if self.muon is not None:
            self.muon.step()


class CapturedStep:
    """Run ``step`` eagerly a few times, then as one CUDA graph. On the CPU always eagerly."""

    def __init__(
        self, step: Callable[[], None], warm_up: int = 4, pool: tuple[int, int] | None = None
    ) -> None:
        self.step = step
        # Steps that never run at the same time may share one memory pool.
        self.pool = pool
        self.remaining = warm_up
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        if self.graph is not None:
            self.graph.replay()
            return
        if not torch.cuda.is_available():
            self.step()
            return
        if self.remaining > 0:
            self.remaining -= 1
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self.step()
            torch.cuda.current_stream().wait_stream(stream)
            return
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=self.pool, capture_error_mode="thread_local"):
            self.step()
        self.graph.replay()

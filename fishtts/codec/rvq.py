"""Split residual vector quantisation: one semantic codebook, then residual ones.

Owns latent frames <-> codes, with factorised look-ups (project down, find, project up). Does not
know samples or sample rates. Shapes: z [B, D, T] float, codes int64 [B, C, T], row 0 semantic.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class VectorQuantizer(nn.Module):
    """One codebook: the nearest row by direction, in a space of a few dimensions."""

    def __init__(self, dim: int, codebook_dim: int, size: int) -> None:
        super().__init__()
        self.in_proj = nn.Conv1d(dim, codebook_dim, 1)
        self.out_proj = nn.Conv1d(codebook_dim, dim, 1)
        self.codebook = nn.Embedding(size, codebook_dim)

    def encode(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """(codes [B, T], what they stand for [B, D, T]).

        Directions are compared, the un-normalised row is used. The straight-through form
        e + (row - e) keeps its one rounding, since later codebooks see it.
        """
        e = self.in_proj(z)
        table = self.codebook.weight
        direction, rows = F.normalize(e, dim=1).transpose(1, 2), F.normalize(table)
        distance = (
            direction.square().sum(2, keepdim=True)
            - 2 * direction @ rows.t()
            + rows.square().sum(1)
        )
        codes = (-distance).argmax(2)
        row = self.codebook(codes).transpose(1, 2)
        return codes, self.out_proj(e + (row - e))

    def decode(self, codes: Tensor) -> Tensor:
        """[B, T] -> [B, D, T]. A code beyond the codebook is taken as its last row."""
        rows = self.codebook(codes.clamp(max=self.codebook.num_embeddings - 1))
        result: Tensor = self.out_proj(rows.transpose(1, 2))
        return result


class Stack(nn.Module):
    """Quantisers under the name that checkpoints give them."""

    def __init__(self, quantizers: list[VectorQuantizer]) -> None:
        super().__init__()
        self.quantizers = nn.ModuleList(quantizers)


class SplitQuantizer(nn.Module):
    """The semantic quantiser, then ``num_residual`` more, each on what the ones before left."""

    def __init__(
        self, dim: int, codebook_dim: int, semantic_size: int, residual_size: int, num_residual: int
    ) -> None:
        super().__init__()
        self.semantic_quantizer = Stack([VectorQuantizer(dim, codebook_dim, semantic_size)])
        self.quantizer = Stack(
            [VectorQuantizer(dim, codebook_dim, residual_size) for _ in range(num_residual)]
        )

    @property
    def stages(self) -> list[VectorQuantizer]:
        """All quantisers in order."""
        return [*self.semantic_quantizer.quantizers, *self.quantizer.quantizers]

    def encode(self, z: Tensor) -> Tensor:
        """[B, D, T] -> int64 [B, C, T]."""
        codes = []
        for stage in self.stages:
            found, part = stage.encode(z)
            z = z - part
            codes.append(found)
        return torch.stack(codes, dim=1)

    def decode(self, codes: Tensor) -> Tensor:
        """int64 [B, C, T] -> [B, D, T]; the caller's codes stay as they are."""
        parts = [stage.decode(codes[:, index]) for index, stage in enumerate(self.stages)]
        return torch.stack(parts).sum(0)

    def forward(self, z: Tensor) -> Tensor:
        """What is left of z after quantisation."""
        return self.decode(self.encode(z))

"""Families of models: what the engine needs of one, and how one is loaded.

Owns the table of families, which are imported when they are asked for. Knows no architecture.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fishtts.errors import ModelError
from fishtts.types import Prompt, Reference

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fishtts.kernels.small_reference import Places
    from fishtts.models.paged import PagedKV

_FAMILIES = {"fish_qwen3_omni": "fishtts.models.dual_ar"}
"""``model_type`` of ``config.json`` to the package with its ``load``."""


class Config(Protocol):
    """What the engine asks of a model's sizes."""

    @property
    def num_codebooks(self) -> int: ...
    @property
    def codebook_size(self) -> int: ...
    @property
    def max_positions(self) -> int: ...
    @property
    def semantic_begin(self) -> int: ...
    @property
    def semantic_end(self) -> int: ...
    @property
    def end_id(self) -> int: ...


class FrameNet(Protocol):
    """Hidden states to logits and codes; ``fishtts.models.dual_ar.net`` has the shapes."""

    def slow_logits(self, hidden: Tensor) -> Tensor: ...
    def frame(
        self, hidden: Tensor, semantic: Tensor, draw: Callable[[int, Tensor], Tensor]
    ) -> Tensor: ...


class FusedNet(FrameNet, Protocol):
    """Steps of fixed shapes; ``fishtts.models.dual_ar.fused`` has them."""

    def backbone(self, rows: Tensor, tables: Tensor, positions: Tensor) -> Tensor: ...
    def prefill(
        self, rows: Tensor, places: Places, lengths: Tensor, starts: Tensor, wanted: Tensor
    ) -> Tensor: ...


class Model(FrameNet, Protocol):
    """Rows to hidden states, logits and codes; ``fishtts.models.dual_ar.net`` has the shapes."""

    def parameters(self) -> Iterator[Tensor]: ...
    def new_pages(self, num_pages: int, page_size: int) -> PagedKV: ...
    def backbone(self, rows: Tensor, cache: Any) -> Tensor: ...
    def fused(self, pool: PagedKV, max_rows: int, *, deterministic: bool) -> FusedNet | None: ...


class Prompts(Protocol):
    """Words and references to prompts."""

    def build(self, text: str, references: Sequence[Reference] = ()) -> Prompt: ...


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to run: its net, its prompts, its sizes, and where it came from."""

    net: Model
    prompts: Prompts
    config: Config
    folder: Path
    device: torch.device
    dtype: torch.dtype

    @cached_property
    def identity(self) -> str:
        """Name the content of the weights. Reads all of them when first asked."""
        from fishtts.weights import identity, model_files

        return identity(model_files(self.folder))


def load_model(folder: Path, *, device: torch.device | str, dtype: torch.dtype) -> LoadedModel:
    """Load the language model in a folder, whatever its family.

    Raises: ``ModelError`` for files that are missing, damaged, or of an unknown family.
    """
    values = read_config(folder)
    family = import_module(_FAMILIES[values["model_type"]])
    loaded: LoadedModel = family.load(folder, values, device=device, dtype=dtype)
    return loaded


def read_config(folder: Path) -> dict[str, Any]:
    """Read the ``config.json`` of a model of a family that is known.

    Raises: ``ModelError`` for a file that is missing, damaged, or of an unknown family.
    """
    path = folder / "config.json"
    try:
        values = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise ModelError(f"{path} is damaged: it is not JSON.") from None
    kind = values.get("model_type") if isinstance(values, dict) else None
    if not isinstance(kind, str) or kind not in _FAMILIES:
        raise ModelError(
            f'{path} describes a model of the type "{kind}".',
            hint=f"Supported: {', '.join(_FAMILIES)}.",
        )
    return dict(values)

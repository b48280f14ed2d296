"""Options that several commands share, and what a shell completes them with.

Imports nothing slow before a shell asks. Knows nothing of what commands do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from fishtts.config import DEFAULT_MODEL


def model_names(incomplete: str) -> list[str]:
    """Complete the name of a model."""
    from fishtts.hub import list_models

    return [info.name for info in list_models() if info.name.startswith(incomplete)]


def own_voice_names(incomplete: str) -> list[str]:
    """Complete the name of one of the user's own voices."""
    from fishtts.cloning.store import Store

    return [name for name in Store().names() if name.startswith(incomplete)]


def voice_names(incomplete: str) -> list[str]:
    """Complete the name of a voice, own or of the default model."""
    from fishtts import hub, model_folder

    names = model_folder.voice_names(hub.parse(DEFAULT_MODEL).folder)
    return [*own_voice_names(incomplete), *(n for n in names if n.startswith(incomplete))]


def choices(names: tuple[str, ...]) -> Callable[[str], list[str]]:
    """Complete one of a few names."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


Model = Annotated[
    str,
    typer.Option(
        "-m",
        "--model",
        help="A name, an id on the Hugging Face hub, or a folder.",
        autocompletion=model_names,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
Offline = Annotated[bool, typer.Option("--offline", help="Never use the network.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print errors only.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that exists.")]

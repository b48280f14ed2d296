"""Options that several commands share, and what a shell completes them with.

Imports nothing slow before a shell asks. Knows nothing of what commands do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from fishtts.config import DEFAULT_MODEL, DTYPES


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
RefText = Annotated[str, typer.Option(help="What is said in the recording.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="Refuse a text that the model cannot say in full.")
]
Speed = Annotated[float, typer.Option(help="Tempo, at the same pitch (0.5 to 2).")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same audio.")]
Temperature = Annotated[
    float | None, typer.Option(help="How freely it speaks; from the model if not given.")
]
TopP = Annotated[float | None, typer.Option(help="Draw from this share of the likeliest sounds.")]
TopK = Annotated[int | None, typer.Option(help="Draw from this many of the likeliest sounds.")]
MaxFrames = Annotated[
    int, typer.Option(help="Cap the length of a sentence, in the model's frames (0: none).")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")]
Dtype = Annotated[
    str,
    typer.Option(
        help=f"{', '.join(DTYPES)}. The last three quantise the weights as they are loaded. auto is"
        " float32 on a CPU; on a GPU bfloat16, or the format that 'fishtts verify --accept' was"
        " content with there.",
        autocompletion=choices(DTYPES),
    ),
]
Deterministic = Annotated[
    bool,
    typer.Option(
        "--deterministic",
        help="The same bits whatever is spoken beside a line. Without it, the last bits of the"
        " arithmetic follow the size of the batch, and now and then that changes a sound.",
    ),
]

"""The commands ``fishtts voices ...`` and their options.

Imports nothing slow before a command needs it. Knows nothing of what they do.
"""

from __future__ import annotations

from typing import Annotated

import typer

from fishtts.config import DEFAULT_MODEL
from fishtts.errors import UsageError
from fishtts.options import Force, Json, Model, own_voice_names, voice_names

voices_app = typer.Typer(
    help="The voices: a model's and your own. List, show, play, compare, share.",
    no_args_is_help=True,
)

Name = Annotated[
    str, typer.Argument(help="A voice by its name or its file.", autocompletion=voice_names)
]
OwnName = Annotated[
    str, typer.Argument(help="One of your own voices.", autocompletion=own_voice_names)
]


@voices_app.command("list")
def voices_list(model: Model = DEFAULT_MODEL, as_json: Json = False) -> None:
    """List the voices: a model's and your own."""
    from fishtts.voices import list_voices

    list_voices(model, as_json=as_json)


@voices_app.command("show")
def voices_show(name: Name, model: Model = DEFAULT_MODEL, as_json: Json = False) -> None:
    """Say all that is known of a voice: words, codecs, where it comes from, consent."""
    from fishtts.voices import show

    show(name, model, as_json=as_json)


@voices_app.command("play")
def voices_play(
    name: Name,
    model: Model = DEFAULT_MODEL,
    output: Annotated[
        str, typer.Option("-o", "--output", help="Write a sound file instead of playing.")
    ] = "",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Play the recording that a voice was made from."""
    from fishtts.voices import play

    play(name, model, output=output, force=force, as_json=as_json)


@voices_app.command("compare")
def voices_compare(
    names: Annotated[
        list[str],
        typer.Argument(help="Voices, voice files or recordings.", autocompletion=voice_names),
    ],
    model: Model = DEFAULT_MODEL,
    as_json: Json = False,
) -> None:
    """Say how alike the speakers of voices are."""
    from fishtts.voices import compare

    compare(names, model, as_json=as_json)


@voices_app.command("rename")
def voices_rename(
    old: OwnName,
    new: Annotated[str, typer.Argument(help="Letters, digits, - and _.")],
    force: Annotated[
        bool, typer.Option("--force", help="Replace the voice that has the name.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Give one of your own voices another name."""
    from fishtts.voices import rename

    rename(old, new, force=force, as_json=as_json)


@voices_app.command("rm")
def voices_rm(
    names: Annotated[
        list[str], typer.Argument(help="Your own voices.", autocompletion=own_voice_names)
    ],
    as_json: Json = False,
) -> None:
    """Delete voices of your own. Nothing is asked."""
    from fishtts.voices import remove

    remove(names, as_json=as_json)


@voices_app.command("export")
def voices_export(
    name: Name,
    model: Model = DEFAULT_MODEL,
    output: Annotated[
        str, typer.Option("-o", "--output", help="The voice file; NAME.fishvoice if not given.")
    ] = "",
    no_clip: Annotated[
        bool, typer.Option("--no-clip", help="Leave the recording out of the file.")
    ] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a voice to one file that others can import."""
    from fishtts.voices import export

    export(name, model, output=output, with_clip=not no_clip, force=force, as_json=as_json)


@voices_app.command("import")
def voices_import(
    files: Annotated[list[str] | None, typer.Argument(help="Voice files (.fishvoice).")] = None,
    from_dir: Annotated[
        str,
        typer.Option(
            "--from-dir",
            help="Make voices from the recordings in a folder, with their words in .lab or .txt.",
        ),
    ] = "",
    name: Annotated[str, typer.Option(help="Keep the voice under this name.")] = "",
    consent: Annotated[
        str, typer.Option(help="With --from-dir: self, licensed, or a note in your words.")
    ] = "",
    model: Model = DEFAULT_MODEL,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a voice that has the name.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Take voice files, or a folder of recordings, in among your own voices."""
    if bool(files) == bool(from_dir) or (from_dir and name) or (consent and not from_dir):
        raise UsageError(
            "Give voice files, with a --name if you like, or --from-dir with a --consent."
        )
    if from_dir:
        from fishtts.voice_import import import_folder

        import_folder(from_dir, model, consent=consent, force=force, as_json=as_json)
        return
    from fishtts.voices import import_files

    import_files(files or (), name=name, force=force, as_json=as_json)

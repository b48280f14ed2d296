"""Write ``docs/cli.md`` from the commands themselves: python docs/make_cli.py

Made from what the commands know of their options, not from the help text, whose layout changes with
the version of Typer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from fishtts.cli import app
from fishtts.errors import ExitCode

TARGET = Path(__file__).with_name("cli.md")

_HEAD = """# Commands

Made by `python docs/make_cli.py`; do not edit. Text that is not a command is spoken:
`fishtts "Good morning."` is `fishtts say "Good morning."`.

What a script reads is on standard output (audio, `--json`, tables), in UTF-8; messages are on
standard error. Progress bars are shown on a terminal only.
"""

_EXIT_CODES = {
    ExitCode.OK: "done",
    ExitCode.BUG: "a bug in fishtts",
    ExitCode.USAGE: "wrong use or bad input: an unknown voice, nothing to say, an output that"
    " cannot be written",
    ExitCode.FELL_SHORT: "finished, but words may be missing or lines failed; they are named",
    ExitCode.MODEL: "a model or voice file is missing, damaged or of an unknown kind",
    ExitCode.DEVICE: "a device is absent, or memory or disk ran out",
    ExitCode.TRY_AGAIN: "a batch that was told to stop (SIGTERM): run it again, it goes on",
    ExitCode.INTERRUPTED: "interrupted by Ctrl-C; a batch has saved what is finished",
}


def document() -> str:
    """Make the whole page."""
    parts = [_HEAD, *_command("fishtts", typer.main.get_command(app))]
    rows = [f"| {int(code)} | {meaning} |" for code, meaning in _EXIT_CODES.items()]
    parts.append("## Exit codes\n\n| code | meaning |\n| --- | --- |\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _command(path: str, command: Any) -> Iterator[str]:
    commands = getattr(command, "commands", {})
    if not commands:
        yield f"## {path}\n\n{_sentence(command.help)}\n"
        rows = [_row(param) for param in command.params if param.name != "help"]
        if rows:
            yield "| option | meaning | default |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n"
    for name, inner in commands.items():
        yield from _command(f"{path} {name}", inner)


def _row(param: Any) -> str:
    is_argument = param.param_type_name == "argument"
    names = f"`{param.name.upper()}`" if is_argument else ", ".join(f"`{o}`" for o in param.opts)
    has_default = param.default not in (None, "", ()) and param.default is not False
    shown = f"`{param.default}`" if has_default else ""
    return f"| {names} | {_sentence(getattr(param, 'help', None))} | {shown} |"


def _sentence(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    TARGET.write_text(document(), "utf-8")

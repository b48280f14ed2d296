"""The command line: commands, options, what goes wrong in words, exit codes.

Imports no torch, and nothing slow before a command needs it. Knows nothing of how speech is made.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import fishtts
from fishtts.config import (
    DEFAULT_ASR_MODEL,
    DEFAULT_ENGINE,
    DEFAULT_MAX_WER,
    DEFAULT_MODEL,
    DEFAULT_SPEECH,
    WEIGHT_FORMATS,
    EngineConfig,
    SpeechConfig,
)
from fishtts.errors import DeviceError, ExitCode, FishTTSError, UsageError
from fishtts.options import (
    Deterministic,
    Device,
    Dtype,
    Force,
    Json,
    MaxFrames,
    Model,
    Offline,
    Quiet,
    RefText,
    Seed,
    Speed,
    Strict,
    Temperature,
    TopK,
    TopP,
    choices,
    model_names,
    voice_names,
)
from fishtts.voice_commands import voices_app

_STARTED = time.perf_counter()
_CLOSED_PIPE = 141
"""What a shell reports for a program that SIGPIPE ended."""

_GROUP_OPTIONS = ("--help", "--version", "--install-completion", "--show-completion")
_LIKE_A_COMMAND = 0.7
"""How alike a word and a command must be: "hello" and "help" are not, "model" and "models" are."""


class _Commands(TyperGroup):
    """The commands; what is none of them is text to say."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and not args[0].startswith(_GROUP_OPTIONS) and args[0] not in self.commands:
            self._refuse_typing_mistake(args)
            args = ["say", *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Keep Ctrl-C and closed pipes from Typer, whose exit codes for them vary by version."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(int(ExitCode.INTERRUPTED)) from None
        except BrokenPipeError:
            _silence_stdout()
            raise typer.Exit(_CLOSED_PIPE) from None

    def _refuse_typing_mistake(self, args: list[str]) -> None:
        """Refuse a single word that is nearly a command: nobody wants to hear "modles"."""
        word = args[0]
        names = [*self.commands, "help", "version"]
        near = get_close_matches(word.lower(), names, n=1, cutoff=_LIKE_A_COMMAND)
        near = near or [name for name in names if sorted(name) == sorted(word.lower())]
        if not near or len(word.split()) != 1:
            return
        meant = f"--{near[0]}" if near[0] in ("help", "version") else near[0]
        raise UsageError(
            f'There is no command "{word}".',
            hint=f"Did you mean: fishtts {meant}? To hear the word: fishtts say {word}",
        )


app = typer.Typer(
    cls=_Commands,
    help="Text to speech. Text that is not a command is spoken: fishtts 'Good morning.'",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
models_app = typer.Typer(help="The models: list, show, pull, path, rm.", no_args_is_help=True)
app.add_typer(models_app, name="models")
app.add_typer(voices_app, name="voices")


def main() -> None:
    """Run the command line; the one place where errors become words and exit codes."""
    try:
        with _interruptible():
            app(prog_name="fishtts")
    except FishTTSError as error:
        print(f"fishtts: {error}", file=sys.stderr)
        sys.exit(int(error.exit_code))


@contextmanager
def _interruptible() -> Iterator[None]:
    """End in the ways of the shell on Ctrl-C, on a closed pipe and on a full standard output."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        _leave(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        _leave(_CLOSED_PIPE)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _silence_stdout()
        raise DeviceError("Standard output is full.", hint="Free some space.") from None


def _leave(code: int) -> None:
    _silence_stdout()
    sys.exit(int(code))


def _silence_stdout() -> None:
    """Keep the interpreter from flushing once more, in vain, when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"fishtts {fishtts.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Hold the options that stand before a command."""


FormatName = Annotated[
    str,
    typer.Option("--format", help="bsfp8, mxfp8 or w8a16.", autocompletion=choices(WEIGHT_FORMATS)),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN=FORMAT",
        help="Another format, or bf16, for layers by name: '*.0.attention.*=w8a16'.",
    ),
]


def _kept(options: list[str] | None) -> dict[str, str]:
    """Read patterns of layers and their formats."""
    pairs = [option.rpartition("=") for option in options or []]
    for pattern, _, form in pairs:
        if not pattern or form not in (*WEIGHT_FORMATS, "bf16"):
            raise UsageError(
                "--keep takes a pattern of layers and a format.",
                hint="For example: --keep '*.0.attention.*=w8a16'",
            )
    return {pattern: form for pattern, _, form in pairs}


@app.command()
def say(
    text: Annotated[
        list[str] | None, typer.Argument(help="The text; without it, standard input is read.")
    ] = None,
    file: Annotated[str, typer.Option("-f", "--file", help="Read the text from a file.")] = "",
    encoding: Annotated[str, typer.Option(help="How a file or a pipe is encoded.")] = "utf-8",
    model: Model = DEFAULT_MODEL,
    voice: Annotated[
        str,
        typer.Option(
            "-v",
            "--voice",
            help="A voice: its name, its file, or a recording to imitate.",
            autocompletion=voice_names,
        ),
    ] = "",
    ref_text: RefText = "",
    cast: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=VOICE: who speaks the lines of a dialogue that begin with the name"
            " (may be given more than once)."
        ),
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            "-o", "--output", help="A sound file (wav, flac, mp3, ogg, opus), or - for a pipe."
        ),
    ] = "",
    format_name: Annotated[
        str,
        typer.Option(
            "--format",
            help="The format, where the name does not tell it.",
            autocompletion=choices(("wav", "flac", "mp3", "ogg", "opus", "raw")),
        ),
    ] = "",
    raw: Annotated[bool, typer.Option("--raw", help="Bare 16-bit samples.")] = False,
    play: Annotated[bool, typer.Option("--play", help="Play it as it is made.")] = False,
    force: Force = False,
    speed: Speed = DEFAULT_SPEECH.speed,
    pause: Annotated[
        float | None,
        typer.Option(help="Seconds of silence after a sentence; twice that after a paragraph."),
    ] = DEFAULT_SPEECH.pause_s,
    seed: Seed = DEFAULT_SPEECH.seed,
    temperature: Temperature = DEFAULT_SPEECH.temperature,
    top_p: TopP = DEFAULT_SPEECH.top_p,
    top_k: TopK = DEFAULT_SPEECH.top_k,
    retries: Annotated[
        int, typer.Option(help="Further tries for a sentence that went wrong.")
    ] = DEFAULT_SPEECH.retries,
    max_frames: MaxFrames = DEFAULT_SPEECH.max_frames,
    device: Device = DEFAULT_ENGINE.device,
    dtype: Dtype = DEFAULT_ENGINE.dtype,
    deterministic: Deterministic = DEFAULT_ENGINE.deterministic,
    strict: Strict = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be said, and say nothing.")
    ] = False,
    as_json: Json = False,
    timings: Annotated[
        bool, typer.Option("--timings", help="Print how long it took, on standard error.")
    ] = False,
    quiet: Quiet = False,
    offline: Offline = False,
) -> None:
    """Speak a text: fishtts say "Good morning." -o morning.wav"""
    from fishtts.say import Request
    from fishtts.say import say as speak

    request = Request(
        words=tuple(text or ()),
        file=file,
        encoding=encoding,
        model=model,
        voice=voice,
        ref_text=ref_text,
        cast=tuple(cast or ()),
        output=output,
        format=format_name,
        raw=raw,
        play=play,
        force=force,
        strict=strict,
        dry_run=dry_run,
        as_json=as_json,
        quiet=quiet,
        timings=timings,
        offline=offline,
        engine=EngineConfig(device, dtype, deterministic=deterministic),
        speech=SpeechConfig(seed, temperature, top_p, top_k, speed, pause, retries, max_frames),
    )
    speak(request, started=_STARTED)


@app.command()
def batch(
    script: Annotated[
        str,
        typer.Argument(help="A script: txt, md, csv, tsv, jsonl or srt, or - for standard input."),
    ],
    output: Annotated[
        str,
        typer.Option(
            "-o", "--output", help="A folder for one file a line, or one sound file for all."
        ),
    ] = "",
    format_name: Annotated[
        str,
        typer.Option(
            "--format",
            help="The format of the files of a folder.",
            autocompletion=choices(("wav", "flac", "mp3", "ogg", "opus")),
        ),
    ] = "",
    input_format: Annotated[
        str,
        typer.Option(
            help="How the script is read, where its name does not tell it.",
            autocompletion=choices(("txt", "md", "csv", "tsv", "jsonl", "srt")),
        ),
    ] = "",
    split: Annotated[
        str,
        typer.Option(
            help="What a line of txt and md is: auto, line, paragraph or sentence.",
            autocompletion=choices(("auto", "line", "paragraph", "sentence")),
        ),
    ] = "auto",
    column: Annotated[
        list[str] | None,
        typer.Option(help="A column of csv and jsonl that is called otherwise: text=text_de."),
    ] = None,
    encoding: Annotated[str, typer.Option(help="How the script is encoded.")] = "utf-8",
    model: Model = DEFAULT_MODEL,
    voice: Annotated[
        str,
        typer.Option(
            "-v",
            "--voice",
            help="Who speaks lines that do not say so: a voice, or a recording to imitate.",
            autocompletion=voice_names,
        ),
    ] = "",
    ref_text: RefText = "",
    cast: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=VOICE: who speaks the lines of a dialogue that begin with the name"
            " (may be given more than once)."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be made, and make nothing.")
    ] = False,
    changed: Annotated[
        bool,
        typer.Option(
            "--changed", help="Make finished lines anew whose words, voice or settings changed."
        ),
    ] = False,
    only: Annotated[str, typer.Option(help="Make only these lines: L0010-L0020,L0033.")] = "",
    redo: Annotated[str, typer.Option(help="Make these lines again, with another seed.")] = "",
    takes: Annotated[int, typer.Option(help="Versions of each line, kept side by side.")] = 1,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with what is there; it always does.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace files that fishtts did not make.")
    ] = False,
    strict: Strict = False,
    srt: Annotated[str, typer.Option(help="Write subtitles (SRT) to this file.")] = "",
    vtt: Annotated[str, typer.Option(help="Write subtitles (WebVTT) to this file.")] = "",
    shard: Annotated[
        str, typer.Option(help="Make one share of the lines: 0/4 to 3/4 for four runs.")
    ] = "",
    merge: Annotated[
        bool, typer.Option("--merge", help="Gather the shares of all runs, and make nothing.")
    ] = False,
    incomplete: Annotated[
        bool, typer.Option("--incomplete", help="Merge also where lines are missing.")
    ] = False,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Listen to each line with a recogniser: fishtts[asr]."),
    ] = False,
    max_wer: Annotated[
        float, typer.Option(help="The share of words that may be heard wrongly.")
    ] = DEFAULT_MAX_WER,
    asr_model: Annotated[
        str, typer.Option(help="The recogniser: a faster-whisper model, or its folder.")
    ] = DEFAULT_ASR_MODEL,
    speed: Speed = DEFAULT_SPEECH.speed,
    pause: Annotated[
        float | None,
        typer.Option(help="Seconds of silence after a sentence, and between joined lines."),
    ] = DEFAULT_SPEECH.pause_s,
    seed: Seed = DEFAULT_SPEECH.seed,
    temperature: Temperature = DEFAULT_SPEECH.temperature,
    top_p: TopP = DEFAULT_SPEECH.top_p,
    top_k: TopK = DEFAULT_SPEECH.top_k,
    retries: Annotated[
        int, typer.Option(help="Further tries for a sentence or a line that went wrong.")
    ] = DEFAULT_SPEECH.retries,
    max_frames: MaxFrames = DEFAULT_SPEECH.max_frames,
    device: Device = DEFAULT_ENGINE.device,
    dtype: Dtype = DEFAULT_ENGINE.dtype,
    max_batch: Annotated[
        int, typer.Option(help="Sentences that are spoken together at most (0: as suits).")
    ] = DEFAULT_ENGINE.max_batch,
    deterministic: Deterministic = DEFAULT_ENGINE.deterministic,
    yield_to_others: Annotated[
        bool,
        typer.Option("--yield-to-others", help="Step back while other programs want the machine."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print events (or the plan) as JSON for scripts.")
    ] = False,
    quiet: Quiet = False,
    progress: Annotated[
        bool, typer.Option("--progress/--no-progress", help="Show how far it is.")
    ] = True,
    offline: Offline = False,
) -> None:
    """Speak a whole script, and go on where it stopped: fishtts batch book.txt -o out/"""
    from fishtts.batch import Request
    from fishtts.batch import batch as speak_all

    speak_all(
        Request(
            script=script,
            output=output,
            format=format_name,
            input_format=input_format,
            split=split,
            encoding=encoding,
            columns=tuple(column or ()),
            model=model,
            voice=voice,
            ref_text=ref_text,
            cast=tuple(cast or ()),
            only=only,
            redo=redo,
            takes=takes,
            changed=changed,
            force=force,
            strict=strict,
            shard=shard,
            merge=merge,
            incomplete=incomplete,
            srt=srt,
            vtt=vtt,
            verify=verify,
            max_wer=max_wer,
            asr_model=asr_model,
            yield_to_others=yield_to_others,
            dry_run=dry_run,
            as_json=as_json,
            quiet=quiet,
            progress=progress,
            offline=offline,
            engine=EngineConfig(device, dtype, max_batch, deterministic),
            speech=SpeechConfig(seed, temperature, top_p, top_k, speed, pause, retries, max_frames),
        )
    )


@app.command()
def clone(
    recordings: Annotated[
        list[str], typer.Argument(help="Recordings of one speaker: wav, flac, mp3, ogg, opus, m4a.")
    ],
    name: Annotated[str, typer.Option(help="Keep the voice under this name.")] = "",
    text: Annotated[str, typer.Option(help="What is said in the recording.")] = "",
    text_file: Annotated[
        str,
        typer.Option(help="A file with the words; NAME.lab or NAME.txt beside NAME.wav is found."),
    ] = "",
    transcribe: Annotated[
        bool,
        typer.Option("--transcribe", help="Write the words down by ear (needs fishtts[asr])."),
    ] = False,
    asr_model: Annotated[
        str, typer.Option(help="The faster-whisper model that listens, or its folder.")
    ] = DEFAULT_ASR_MODEL,
    start_s: Annotated[
        float | None, typer.Option("--from", help="Keep the part from this second on.")
    ] = None,
    end_s: Annotated[float | None, typer.Option("--to", help="Keep it up to this second.")] = None,
    consent: Annotated[
        str,
        typer.Option(
            help="Whose voice it is: self, licensed, or a note. It is kept in the voice.",
            autocompletion=choices(("self", "licensed")),
        ),
    ] = "",
    no_clip: Annotated[
        bool,
        typer.Option("--no-clip", help="Leave the recording itself out of the voice."),
    ] = False,
    language: Annotated[str, typer.Option(help="The language spoken: en, de.")] = "",
    description: Annotated[str, typer.Option(help="A line about the voice.")] = "",
    model: Model = DEFAULT_MODEL,
    output: Annotated[
        str, typer.Option("-o", "--output", help="Write a voice file (.fishvoice) instead.")
    ] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Replace a voice or a file that exists.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    offline: Offline = False,
) -> None:
    """Make a voice from recordings: fishtts clone mira.mp3 --name mira"""
    from fishtts.clone import Request
    from fishtts.clone import clone as make_voice

    request = Request(
        recordings=tuple(recordings),
        name=name,
        text=text,
        text_file=text_file,
        transcribe=transcribe,
        asr_model=asr_model,
        start_s=start_s,
        end_s=end_s,
        consent=consent,
        with_clip=not no_clip,
        language=language,
        description=description,
        model=model,
        output=output,
        force=force,
        as_json=as_json,
        quiet=quiet,
        offline=offline,
    )
    make_voice(request, started=_STARTED)


@models_app.command("list")
def models_list(as_json: Json = False) -> None:
    """List the models: built in, on this machine, to be had."""
    from fishtts.hub import list_models
    from fishtts.printing import print_json, print_table, readable_bytes

    found = list_models()
    if as_json:
        rows = [
            {
                "name": info.name,
                "kind": info.kind,
                "folder": str(info.folder) if info.folder else None,
                "bytes": info.size_bytes,
                "whole": info.whole,
            }
            for info in found
        ]
        print_json(rows)
        return
    table = [("NAME", "WHERE", "SIZE", "STATE")]
    for info in found:
        state = "ready" if info.whole else "not whole" if info.folder else "not on this machine"
        size = readable_bytes(info.size_bytes) if info.folder else ""
        table.append((info.name, info.kind, size, state))
    print_table(table)


@models_app.command("show")
def models_show(
    name: Annotated[str, typer.Argument(autocompletion=model_names)], as_json: Json = False
) -> None:
    """Say what a model is: languages, licence, voices, where it is."""
    from dataclasses import asdict

    from fishtts import hub
    from fishtts.model_folder import voice_names
    from fishtts.printing import print_json, print_table

    source = hub.parse(name)
    folder = hub.cached(source)
    facts = asdict(hub.card(source, folder))
    facts["hub_id"] = source.repo_id
    facts["folder"] = str(folder) if folder else ""
    facts["voices"] = voice_names(folder) if folder else []
    if as_json:
        print_json(facts)
        return
    rows = []
    for key, value in facts.items():
        shown = ", ".join(value) if isinstance(value, list | tuple) else str(value)
        rows.append((key.replace("_", " "), shown or "-"))
    print_table(rows)


@models_app.command("pull")
def models_pull(
    names: Annotated[list[str], typer.Argument(autocompletion=model_names)],
    quiet: Quiet = False,
) -> None:
    """Fetch models from the hub, or what is missing or damaged of them."""
    from fishtts import hub
    from fishtts.printing import print_line

    for name in names:
        source = hub.parse(name)
        licence = hub.card(source).licence
        if licence and not quiet:
            print(f"fishtts: licence of {name}: {licence}", file=sys.stderr)
        print_line(str(hub.pull(source, quiet=quiet or not sys.stderr.isatty())))


@models_app.command("quantize")
def models_quantize(
    name: Annotated[str, typer.Argument(autocompletion=model_names)],
    output: Annotated[str, typer.Option("-o", "--output", help="The folder to write.")],
    format_name: FormatName,
    keep: Keep = None,
    force: Force = False,
    quiet: Quiet = False,
    offline: Offline = False,
) -> None:
    """Write a copy of a model whose layers are FP8; half the size, for GPUs that multiply it.

    Interrupted, it goes on where it was when it is run again.
    """
    from pathlib import Path

    from tqdm import tqdm

    from fishtts import hub
    from fishtts.models.quantize_folder import quantize_folder
    from fishtts.printing import print_line, readable_bytes

    folder = hub.locate(hub.parse(name), offline=offline, quiet=quiet)
    hide = quiet or not sys.stderr.isatty()
    with tqdm(disable=hide, unit="B", unit_scale=True, leave=False) as bar:

        def show(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        made = quantize_folder(
            folder,
            Path(output),
            format_name,
            keep=_kept(keep),
            is_forced=force,
            progress=show,
        )
    before, after = readable_bytes(made.bytes_before), readable_bytes(made.bytes_after)
    layers = ", ".join(f"{count} layers {form}" for form, count in made.layers.items())
    print_line(f"{made.folder}: {layers}; {after} of weights, before {before}")


@models_app.command("path")
def models_path(name: Annotated[str, typer.Argument(autocompletion=model_names)]) -> None:
    """Print the folder of a model that is on this machine."""
    from fishtts import hub
    from fishtts.printing import print_line

    print_line(str(hub.locate(hub.parse(name), offline=True)))


@models_app.command("rm")
def models_rm(
    names: Annotated[list[str], typer.Argument(autocompletion=model_names)],
) -> None:
    """Take models off the disk."""
    from fishtts import hub
    from fishtts.printing import print_line, readable_bytes

    for name in names:
        freed = hub.remove(hub.parse(name))
        print_line(f"Removed {name}: {readable_bytes(freed)} are free again.")


@app.command()
def doctor(as_json: Json = False) -> None:
    """Look over this machine: what works, what does not, and why."""
    from fishtts.doctor import examine, print_findings

    print_findings(examine(), as_json=as_json)


@app.command()
def verify(
    model: Model = DEFAULT_MODEL,
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            help="bsfp8, mxfp8 or w8a16; all if not given.",
            autocompletion=choices(WEIGHT_FORMATS),
        ),
    ] = None,
    quantized: Annotated[
        str, typer.Option(help="The folder of a quantised copy, to compare that instead.")
    ] = "",
    keep: Keep = None,
    voice: Annotated[
        str,
        typer.Option(
            "-v",
            "--voice",
            help="Who speaks half of the prompts; the model's default voice if not given.",
            autocompletion=voice_names,
        ),
    ] = "",
    random: Annotated[
        bool,
        typer.Option(
            "--random",
            help="Take random weights of the model's size: s2-pro without having it. They leave"
            " tokens no margins, so that layers, hidden states and logits decide.",
        ),
    ] = False,
    speed: Annotated[
        bool,
        typer.Option(
            "--speed/--no-speed", help="Compare the speed with what was frozen for this GPU."
        ),
    ] = True,
    accept: Annotated[
        bool,
        typer.Option(
            "--accept",
            help="If the one --format passes, let --dtype auto take it for this model on this GPU"
            " from now on; if it fails, no more.",
        ),
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = DEFAULT_ENGINE.device,
    as_json: Json = False,
    offline: Offline = False,
) -> None:
    """Compare a model in FP8 with itself in bf16 (tokens, logits, layers), and its speed with the
    frozen one of this GPU."""
    from fishtts.verify.command import Request
    from fishtts.verify.command import verify as compare

    compare(
        Request(
            model=model,
            formats=tuple(formats or ()),
            keep=_kept(keep),
            quantized=quantized,
            voice=voice,
            random=random,
            speed=speed,
            accept=accept,
            device=device,
            offline=offline,
            as_json=as_json,
        )
    )

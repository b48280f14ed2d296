"""``fishtts doctor``: what this machine has, what works, and why what does not work does not.

Only looks; changes nothing and fetches nothing. Knows nothing of how any of it is used.
"""

from __future__ import annotations

import importlib
import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

import fishtts
from fishtts import hub
from fishtts.audio.play import find_player
from fishtts.audio.write import format_names
from fishtts.config import DEFAULT_MODEL
from fishtts.errors import DeviceError, ModelError, VoiceError
from fishtts.printing import print_json, print_line, readable_bytes

State = Literal["ok", "note", "broken"]

_MARKS: dict[State, str] = {"ok": "ok", "note": "--", "broken": "!!"}
_LOW_DISK_BYTES = 15e9
"""What the largest model named here needs, with room to spare."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. ``note`` is for what only some people need."""

    topic: str
    state: State
    text: str


def examine() -> list[Finding]:
    """Look at everything; nothing that fails keeps the rest from being looked at."""
    looks: list[Callable[[], list[Finding]]] = [
        _program,
        _torch,
        _triton,
        _kernels,
        _codecs,
        _sound,
        _models,
        _voices,
        _disk,
    ]
    return [finding for look in looks for finding in look()]


def print_findings(findings: list[Finding], *, as_json: bool) -> None:
    """Print the findings.

    Raises: ``DeviceError`` or ``ModelError`` where something is broken that speech needs.
    """
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        width = max(len(finding.topic) for finding in findings)
        for finding in findings:
            print_line(f"{_MARKS[finding.state]}  {finding.topic:{width}}  {finding.text}")
    broken = [finding for finding in findings if finding.state == "broken"]
    if broken:
        kind = ModelError if all(finding.topic == "models" for finding in broken) else DeviceError
        raise kind(f"Speech will not work here: {broken[0].text}")


def _program() -> list[Finding]:
    text = f"{fishtts.__version__}, Python {platform.python_version()}, {platform.platform()}"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return [Finding("fishtts", "ok", text), Finding("cpu", "ok", f"{cores} cores")]


def _torch() -> list[Finding]:
    try:
        torch = importlib.import_module("torch")
    except (ImportError, OSError) as error:
        return [Finding("torch", "broken", f"torch cannot be loaded: {error}")]
    built_for = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    findings = [Finding("torch", "ok", f"{torch.__version__} ({built_for})")]
    if torch.cuda.is_available():
        findings += [_gpu(torch, number) for number in range(torch.cuda.device_count())]
    elif torch.version.cuda:
        findings.append(
            Finding("cuda", "note", "no CUDA device or driver found; speech runs on the CPU")
        )
    else:
        findings.append(
            Finding("cuda", "note", "not in this build of torch; speech runs on the CPU")
        )
    return findings


def _gpu(torch: Any, number: int) -> Finding:
    facts = torch.cuda.get_device_properties(number)
    memory = readable_bytes(facts.total_memory)
    text = f"cuda:{number} {facts.name}, capability {facts.major}.{facts.minor}, {memory}"
    return Finding("cuda", "ok", text)


def _triton() -> list[Finding]:
    try:
        return [Finding("triton", "ok", version("triton"))]
    except PackageNotFoundError:
        return [Finding("triton", "note", "not installed; needed for fast kernels on a GPU only")]


def _kernels() -> list[Finding]:
    """Say which implementation of our own operations this machine gets."""
    import torch

    from fishtts import kernels

    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = kernels.backend(device).__name__.rpartition(".")[2]
    except ImportError as error:
        return [Finding("kernels", "note", f"not usable here: {error}")]
    how = "in plain PyTorch" if chosen == "reference" else "in Triton"
    return [Finding("kernels", "ok", f"{len(kernels.OPS)} operations, {how} on {device}")]


def _codecs() -> list[Finding]:
    from fishtts import codec

    return [Finding("codecs", "ok", ", ".join(codec.codec_names()))]


def _sound() -> list[Finding]:
    try:
        import soundfile

        library = f"{soundfile.__libsndfile_version__}"
        formats = Finding("formats", "ok", f"{', '.join(format_names())} (libsndfile {library})")
    except (ImportError, OSError) as error:
        formats = Finding("formats", "broken", f"libsndfile cannot be loaded: {error}")
    player = find_player()
    if player:
        return [formats, Finding("player", "ok", player)]
    return [formats, Finding("player", "note", "none found: --play will not work, -o FILE does")]


def _models() -> list[Finding]:
    findings = []
    for info in hub.list_models():
        if info.whole and info.folder:
            text = f"{info.name}: {readable_bytes(info.size_bytes)} in {info.folder}"
            findings.append(Finding("models", "ok", text))
        elif info.name == DEFAULT_MODEL:
            text = f"{info.name} is missing in this build; name another one with --model"
            findings.append(Finding("models", "broken", text))
        elif info.folder:
            text = f"{info.name} is not whole; mend it with: fishtts models pull {info.name}"
            findings.append(Finding("models", "note", text))
        else:
            text = (
                f"{info.name} is not on this machine; get it with: fishtts models pull {info.name}"
            )
            findings.append(Finding("models", "note", text))
    network = "off (HF_HUB_OFFLINE)" if hub.is_offline() else "on"
    findings.append(
        Finding("network", "ok", f"{network}, used by `models pull` and new models only")
    )
    return findings


def _voices() -> list[Finding]:
    """Try to read each of the user's own voices."""
    from fishtts.cloning.store import Store

    store = Store()
    damaged = []
    for name in store.names():
        try:
            store.get(name)
        except (ModelError, VoiceError) as error:
            damaged.append(Finding("voices", "note", error.message))
    num_whole = len(store.names()) - len(damaged)
    return [Finding("voices", "ok", f"{num_whole} of your own in {store.folder}"), *damaged]


def _disk() -> list[Finding]:
    cache = hub.cache_folder()
    place = next(path for path in [cache, *cache.parents] if path.exists())
    free = shutil.disk_usage(place).free
    text = f"{readable_bytes(free)} free for models in {cache}"
    if not os.access(place, os.W_OK):
        return [Finding("disk", "note", f"{cache} cannot be written to; set HF_HOME")]
    return [Finding("disk", "ok" if free > _LOW_DISK_BYTES else "note", text)]

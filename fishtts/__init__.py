"""fishtts: text to speech and voice cloning.

The public names, loaded when they are first used: importing the package costs no torch.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Threads that wait for each other by spinning lose ten times the speed as soon as anything else
# wants a core. The thread library reads this once, when torch is imported: hence here.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

if TYPE_CHECKING:
    from fishtts import errors
    from fishtts.tts import TTS, Speech
    from fishtts.types import Audio, Voice

    __version__: str

__all__ = ["TTS", "Audio", "Speech", "Voice", "__version__", "errors"]

_HOMES = {
    "TTS": "fishtts.tts",
    "Speech": "fishtts.tts",
    "Audio": "fishtts.types",
    "Voice": "fishtts.types",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "errors":
        return import_module("fishtts.errors")
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("fishtts")
        except PackageNotFoundError:  # run from a checkout that was never installed
            return "0+checkout"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Model names to folders: built in, on the Hugging Face hub, or on disk.

Owns names, downloads and the cache. Knows nothing of what is in the files.
"""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from fishtts.errors import DeviceError, FishTTSError, ModelError, UsageError
from fishtts.model_folder import faults, read_card
from fishtts.types import Card

Kind = Literal["builtin", "hub", "folder"]

BUILTIN = Path(__file__).parent / "builtin"
_BUILTIN_NAMES = ("minnow",)
_HUB_NAMES = {"s2-pro": "fishaudio/s2-pro"}
"""Short names of models on the hub."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)

_FILES = [
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
    "model.pth",
    "codec.safetensors",
    "codec.pth",
    "codec_config.json",
    "fishtts.json",
    "voices/*.safetensors",
    "LICENSE*",
]
"""What is fetched from a repository; anything else in it is of no use here."""

_KNOWN_CARDS = {
    "fishaudio/s2-pro": Card(
        name="s2-pro",
        description="Fish Audio's S2 Pro: 4.6 billion parameters, some 80 languages, voices cloned"
        " from a recording. Wants a GPU with 24 GB.",
        licence="Fish Audio Research License: research and other non-commercial use only; anything"
        " commercial needs a licence from Fish Audio. The weights are theirs, and not part of"
        " fishtts.",
    )
}


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model comes from. ``repo_id`` is set for the hub, ``folder`` for anything else."""

    name: str
    kind: Kind
    repo_id: str = ""
    folder: Path = Path()

    @property
    def remedy(self) -> str:
        """Say how to mend a missing or damaged file of it."""
        if self.kind == "hub":
            return f"Mend it with: fishtts models pull {self.name}"
        if self.kind == "builtin":
            return "Mend it with: pip install --force-reinstall --no-deps fishtts"
        return "Copy the folder again from where it came from."


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One row of ``models list``. ``folder`` is ``None`` where the model is not on disk."""

    name: str
    kind: Kind
    folder: Path | None
    size_bytes: int
    whole: bool


def parse(name: str) -> Source:
    """Say what a name stands for: a built-in model, one on the hub, or a folder.

    The built-in names come first, then folders that exist, then hub ids ("owner/name").
    Raises: ``ModelError`` for a name that is none of these.
    """
    if name in _BUILTIN_NAMES:
        return Source(name, "builtin", folder=BUILTIN / name)
    if name in _HUB_NAMES:
        return Source(name, "hub", repo_id=_HUB_NAMES[name])
    if not name or "\0" in name:
        raise ModelError("The name of the model is empty.", hint=_known_names())
    path = Path(name).expanduser()
    if path.is_dir():
        return Source(name, "folder", folder=path)
    if path.exists():
        raise ModelError(f'"{name}" is a file; a model is a folder.')
    if name.startswith((".", "/", "~", "\\")) or name.endswith(("/", "\\")) or path.is_absolute():
        raise ModelError(f'There is no folder "{name}".', hint=_known_names())
    if _HUB_ID.fullmatch(name) and not re.search(r"\.\.|--|[.-](?:/|$)|\.git$", name):
        return Source(name, "hub", repo_id=name)
    close = get_close_matches(name, [*_BUILTIN_NAMES, *_HUB_NAMES], n=1)
    hint = f'Did you mean "{close[0]}"? {_known_names()}' if close else _known_names()
    raise ModelError(f'There is no model "{name}".', hint=hint)


def _known_names() -> str:
    names = ", ".join([*_BUILTIN_NAMES, *_HUB_NAMES])
    return f"Known are {names}, any owner/name on the hub, and folders."


def locate(source: Source, *, offline: bool = False, quiet: bool = False) -> Path:
    """Find the folder of a model, whole; fetch what is on the hub and not yet on disk.

    What is on disk is used as it is, without a look at the network.
    Raises: ``ModelError`` naming what is missing or damaged, and the command that mends it.
    """
    if source.kind == "hub":
        folder = cached(source)
        if folder is not None and next(faults(folder), None) is None:
            return folder
        if folder is None and is_offline(offline):
            raise ModelError(
                f"The model {source.name} is not on this machine, and the network is off.",
                hint=f"Fetch it once: fishtts models pull {source.name}",
            )
        if not is_offline(offline):
            return pull(source, quiet=quiet)
        assert folder is not None, "the case without a folder has returned"
    else:
        folder = source.folder
        if source.kind == "builtin" and not (folder / "config.json").is_file():
            raise ModelError(
                f"This build of fishtts comes without its voice model {source.name}.",
                hint="Name another one: --model s2-pro, or --model FOLDER.",
            )
    check(folder, source)
    return folder


def cached(source: Source) -> Path | None:
    """Find what the hub's cache holds of a model, whole or not, without the network."""
    if source.kind != "hub":
        return source.folder if source.folder.is_dir() else None
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(source.repo_id, local_files_only=True, allow_patterns=_FILES))
    except LocalEntryNotFoundError as error:
        # Newer versions refuse a snapshot that lacks files, and say where it is.
        partial = getattr(error, "snapshot_path", None)
        return Path(partial) if partial else None


def pull(source: Source, *, quiet: bool = False) -> Path:
    """Fetch a model from the hub, or what is missing or damaged of it.

    A connection that breaks is taken up where it broke; whole files are never fetched twice.
    Raises: ``ModelError`` where the hub refuses, ``DeviceError`` where the disk is full.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils.tqdm import disable_progress_bars, enable_progress_bars

    if source.kind != "hub":
        raise UsageError(f"The model {source.name} is on this machine already.")
    if is_offline():
        raise ModelError(
            f"The model {source.name} cannot be fetched: HF_HUB_OFFLINE is set.",
            hint="Unset it and try again.",
        )
    before = cached(source)
    if before is not None:
        _discard_damaged(before)
    (disable_progress_bars if quiet else enable_progress_bars)()
    with _hub_errors(source):
        folder = Path(snapshot_download(source.repo_id, allow_patterns=_FILES))
    check(folder, source)
    return folder


def is_offline(offline: bool = False) -> bool:
    """Tell whether the network is off, by the argument or by ``HF_HUB_OFFLINE``."""
    from huggingface_hub import constants

    return offline or bool(constants.HF_HUB_OFFLINE)


def cache_folder() -> Path:
    """Say where the hub's cache is (``HF_HOME`` moves it)."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


@contextmanager
def _hub_errors(source: Source) -> Iterator[None]:
    """Turn what the hub library raises into one sentence and a next step."""
    from huggingface_hub import errors

    page = f"{_endpoint()}/{source.repo_id}"
    # The library's errors derive from its HTTP client's, whichever it uses in this version.
    client_errors = [c for c in errors.HfHubHTTPError.__mro__ if c.__name__ == "HTTPError"]
    failures: tuple[type[Exception], ...] = (
        errors.LocalEntryNotFoundError,
        OSError,
        *client_errors,
    )
    try:
        yield
    except FishTTSError:
        raise
    except errors.GatedRepoError as error:
        raise _gated(source, page, error) from None
    except errors.RepositoryNotFoundError:
        raise ModelError(
            f'There is no model "{source.repo_id}" on the hub, or it is private.',
            hint="Look for a typing mistake; for a private one, log in with: hf auth login",
        ) from None
    except failures as error:
        raise _not_fetched(source, error) from None


def _endpoint() -> str:
    from huggingface_hub import constants

    return str(constants.ENDPOINT).rstrip("/")


def _gated(source: Source, page: str, error: Any) -> ModelError:
    if error.response.status_code == 403:
        return ModelError(
            f"Your account has no access to {source.repo_id} yet.",
            hint=f"Accept its licence at {page} and try again.",
        )
    return ModelError(
        f"The model {source.repo_id} is only for people who accepted its licence.",
        hint=f"Accept it at {page}, then log in with: hf auth login",
    )


def _not_fetched(source: Source, error: Exception) -> FishTTSError:
    status = getattr(getattr(error, "response", None), "status_code", None)
    again = f"Run it again, it goes on where it stopped: fishtts models pull {source.name}"
    if status == 401:
        return ModelError(
            "The hub does not know the access token on this machine.",
            hint="Log in again with: hf auth login",
        )
    if status is not None:
        return ModelError(
            f"The hub answered with an error ({status}) when asked for {source.repo_id}.",
            hint=again,
        )
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DeviceError(
            f"The disk is full: {source.repo_id} does not fit into {cache_folder()}.",
            hint="Free some space, or set HF_HOME to a folder on another disk.",
        )
    if isinstance(error, PermissionError):
        return ModelError(
            f"The cache {cache_folder()} cannot be written to.",
            hint="Set HF_HOME to a folder that can.",
        )
    reason = str(error.__cause__ or error).strip().split("\n")[0].rstrip(".")
    return ModelError(f"{source.repo_id} could not be fetched: {reason}.", hint=again)


def check(folder: Path, source: Source) -> None:
    """Raise ``ModelError`` for the first file of a model that is missing or cut short."""
    fault = next(faults(folder), None)
    if fault is not None:
        raise ModelError(f"The model {source.name} is not whole: {fault[1]}.", hint=source.remedy)


def _discard_damaged(folder: Path) -> None:
    """Take damaged files out of the cache, blob and link, so that they are fetched anew."""
    for path, _ in list(faults(folder)):
        if path.exists() or path.is_symlink():
            path.resolve().unlink(missing_ok=True)
            path.unlink(missing_ok=True)


def remove(source: Source) -> int:
    """Take a model off the disk; answer the bytes that this freed.

    Raises: ``UsageError`` for what did not come from the hub, ``ModelError`` for what is not there.
    """
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    if source.kind == "builtin":
        raise UsageError(f"The model {source.name} is part of the package and stays with it.")
    if source.kind == "folder":
        raise UsageError(f'"{source.name}" is a folder of yours; fishtts does not delete it.')
    try:
        cache = scan_cache_dir()
    except CacheNotFound:
        cache = None
    for repo in cache.repos if cache else ():
        if repo.repo_id == source.repo_id and repo.repo_type == "model":
            size = repo.size_on_disk
            shutil.rmtree(repo.repo_path)
            return int(size)
    raise ModelError(f"The model {source.name} is not on this machine.")


def list_models() -> list[ModelInfo]:
    """List what is built in, what has a short name, and what else of ours the cache holds."""
    sources = [parse(name) for name in (*_BUILTIN_NAMES, *_HUB_NAMES)]
    named = {source.repo_id for source in sources}
    sources += [
        Source(repo_id, "hub", repo_id=repo_id)
        for repo_id, folder in sorted(_cached_repos())
        if repo_id not in named and _is_ours(folder)
    ]
    return [_info(source) for source in sources]


def _cached_repos() -> Iterator[tuple[str, Path]]:
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        cache = scan_cache_dir()
    except CacheNotFound:
        return
    for repo in cache.repos:
        revision = max(repo.revisions, key=lambda r: r.last_modified, default=None)
        if repo.repo_type == "model" and revision is not None:
            yield str(repo.repo_id), Path(revision.snapshot_path)


def _is_ours(folder: Path) -> bool:
    """Tell a model of this kind from all else that shares the cache: it has a codec."""
    return any((folder / name).exists() for name in ("codec.safetensors", "codec.pth"))


def _info(source: Source) -> ModelInfo:
    folder = cached(source)
    if folder is None:
        return ModelInfo(source.name, source.kind, None, 0, whole=False)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    whole = next(faults(folder), None) is None
    return ModelInfo(source.name, source.kind, folder, size, whole)


def card(source: Source, folder: Path | None = None) -> Card:
    """Say what is known of a model: by its folder, and before it is on disk.

    Raises: ``ModelError`` for a card that cannot be used.
    """
    name = source.folder.resolve().name if source.kind == "folder" else source.name
    known = _KNOWN_CARDS.get(source.repo_id, Card(name=name))
    return known if folder is None else read_card(folder, known)

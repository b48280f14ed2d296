"""Stand-ins that tests share: a hub on loopback, and model folders made on the spot."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import torch
from safetensors.numpy import save

from fishtts.cloning.voice_file import write_voice
from fishtts.types import Reference, Voice

GOLDEN = Path(__file__).parent / "golden"
TINY_MODEL = GOLDEN
"""A whole model with random weights: what it says is noise, but it says it in the real format."""


def hollow_model() -> dict[str, bytes]:
    """Make the files of a model that looks whole and has next to nothing in it."""
    weights = {name: np.arange(2000, dtype=np.float32) for name in "ab"}
    shards = [save({name: weights[name]}) for name in "ab"]
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": SHARD}}
    return {
        "config.json": b'{"model_type": "fish_qwen3_omni"}',
        "tokenizer.json": b"{}",
        "model.safetensors.index.json": json.dumps(index).encode(),
        "model-00001-of-00002.safetensors": shards[0],
        SHARD: shards[1],
        "codec.safetensors": save({"c": np.zeros(10, np.float32)}),
        "fishtts.json": b'{"name": "hollow", "licence": "CC0", "languages": ["en"]}',
        "LICENSE.md": b"do as you like\n",
        "overview.png": b"not fetched",
    }


SHARD = "model-00002-of-00002.safetensors"


def tiny_voice(name: str) -> Voice:
    """Make a voice of the tiny model: random codes, different for each name."""
    seed = int.from_bytes(name.encode(), "big")
    codes = np.random.default_rng(seed).integers(0, 16, (10, 7))
    return Voice(name, (Reference(codes, f"I am {name}."),), description=f"The voice {name}.")


def tiny_model(folder: Path, card: dict[str, Any], voices: Sequence[str] = ()) -> Path:
    """Make a folder of the tiny model, with a card and voices of its own."""
    for path in TINY_MODEL.iterdir():
        if "golden" not in path.name and path.suffix != ".md":
            (folder / path.name).symlink_to(path)
    (folder / "fishtts.json").write_text(json.dumps(card))
    (folder / "voices").mkdir()
    for name in voices:
        write_voice(tiny_voice(name), folder / "voices" / f"{name}.safetensors")
    return folder


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    """Write files into a folder."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


class CountingCodec:
    """A codec whose code is the number of the frame: for what is done around a codec."""

    sample_rate = 8000
    samples_per_frame = 400
    num_codebooks = 2
    codebook_sizes = (1000, 1000)
    identity = "counting"

    def encode(self, samples: torch.Tensor) -> torch.Tensor:
        assert samples.dtype == torch.float32
        return torch.arange(-(-len(samples) // self.samples_per_frame)).repeat(
            self.num_codebooks, 1
        )


@dataclass
class FakeHub:
    """The few answers of a hub that downloads need. ``gate`` is the status that files of a gated
    repository are refused with; ``breaks`` counts the bytes after which a file's connection is cut,
    once."""

    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    gate: int = 0
    breaks: dict[str, int] = field(default_factory=dict)
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    url: str = ""

    def fetched(self) -> list[str]:
        """List the files whose content was asked for."""
        return [
            path.rsplit("/", 1)[-1] for method, path, _ in self.requests if _is_file(method, path)
        ]

    @contextmanager
    def serve(self) -> Iterator[FakeHub]:
        """Answer on a free port of this machine."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def _is_file(method: str, path: str) -> bool:
    return method == "GET" and "/resolve/" in path


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            """Keep quiet."""

        def do_HEAD(self) -> None:
            self._answer("HEAD")

        def do_GET(self) -> None:
            self._answer("GET")

        def _answer(self, method: str) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.requests.append((method, path, self.headers.get("Range", "")))
            parts = path.strip("/").split("/")
            if parts[:2] == ["api", "models"]:
                self._answer_api("/".join(parts[2:4]), parts[4:])
            else:
                self._answer_file(method, "/".join(parts[:2]), "/".join(parts[4:]))

        def _answer_api(self, repo: str, rest: list[str]) -> None:
            files = hub.repos.get(repo)
            if files is None:
                self._refuse(401, "RepoNotFound", "Invalid username or password.")
            elif rest[:1] == ["tree"]:
                tree = [
                    {"type": "file", "path": name, "size": len(data), "oid": _sha(data)[:40]}
                    for name, data in files.items()
                ]
                self._send(json.dumps(tree).encode())
            else:
                siblings = [{"rfilename": name} for name in files]
                info = {"id": repo, "sha": COMMIT, "siblings": siblings, "tags": []}
                self._send(json.dumps(info).encode())

        def _answer_file(self, method: str, repo: str, name: str) -> None:
            if hub.gate:
                self._refuse(hub.gate, "GatedRepo", "Access to this model is restricted.")
                return
            data = hub.repos.get(repo, {}).get(name)
            if data is None:
                self._refuse(404, "EntryNotFound", "Entry not found")
                return
            start = 0
            if self.headers.get("Range"):
                start = int(self.headers["Range"].removeprefix("bytes=").split("-")[0])
            size = len(data)
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(size - start))
            self.send_header("ETag", f'"{_sha(data)}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Accept-Ranges", "bytes")
            if start:
                self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
            self.end_headers()
            if method == "HEAD":
                return
            cut = hub.breaks.pop(name, None)
            self.wfile.write(data[start : size if cut is None else cut])
            if cut is not None:
                self.wfile.flush()
                self.close_connection = True

        def _refuse(self, status: int, code: str, message: str) -> None:
            self._send(b"{}", status, {"X-Error-Code": code, "X-Error-Message": message})

        def _send(
            self, body: bytes, status: int = 200, headers: dict[str, str] | None = None
        ) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            for key, value in (headers or {}).items():
                self.send_header(key, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    return Handler


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def run_fishtts(
    *arguments: str | Path, stdin: bytes = b"", cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run the command line in this process: the same code, without the start of an interpreter."""
    from fishtts import cli

    streams = [io.TextIOWrapper(io.BytesIO(data), "utf-8") for data in (stdin, b"", b"")]
    before = (sys.stdin, sys.stdout, sys.stderr, sys.argv)
    code: Any = 0
    try:
        sys.stdin, sys.stdout, sys.stderr = streams
        sys.argv = ["fishtts", *map(str, arguments)]
        with chdir(cwd or Path.cwd()):
            cli.main()
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.stdin, sys.stdout, sys.stderr, sys.argv = before
    written = []
    for stream in streams[1:]:
        stream.flush()
        written.append(stream.detach().getvalue())
    return subprocess.CompletedProcess([*map(str, arguments)], code, *written)


def run_process(
    *arguments: str | Path, stdin: bytes = b"", env: dict[str, str] | None = None, **more: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run the command line in a process of its own, with as little of this one's surroundings as
    can be."""
    if "stdout" not in more:
        more["stdout"] = subprocess.PIPE
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "fishtts", *map(str, arguments)],
        input=stdin,
        stderr=subprocess.PIPE,
        env=clean_env(env),
        timeout=120,
        check=False,
        **more,
    )


def clean_env(more: dict[str, str] | None = None) -> dict[str, str]:
    """Make an environment in which no network and no cache of this machine is met by accident."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING", "FISHTTS_"))}
    return {
        **kept,
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
        "NO_PROXY": "127.0.0.1",
        "FISHTTS_VOICES": os.environ["FISHTTS_VOICES"],
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).parent.parent),
        **(more or {}),
    }

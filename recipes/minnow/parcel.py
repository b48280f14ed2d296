"""Weights on their way between machines: packed without loss, split into files of limited size.

    python -m recipes.minnow.parcel pack --root DIR --out PARTS [--wait 540 --until done,failed] \\
        ar/model.safetensors decoder/codec.safetensors 'log/*.log'
    python -m recipes.minnow.parcel unpack --parts PARTS --root DIR

``pack`` waits at most ``--wait`` seconds for one of the files ``--until``: so a call of limited
length ends with the newest weights on their way home. Tensors travel in 16 bits (float32, and
int8 by rows, become float16), high and low bytes apart: two thirds of the size for bfloat16. What
is not there yet is left out. Owns the format of the parts, and knows nothing of what is in them.
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
import time
import zlib
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from fishtts.weights import read_tensors

PART = "part_{:03d}.bin"
_TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def squeeze(path: Path) -> bytes:
    """A safetensors file of float tensors in fewer bytes."""
    header, low, high = [], bytearray(), bytearray()
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
    for name, tensor in read_tensors(path).items():
        half = tensor.half() if tensor.dtype == torch.float32 else tensor
        kind = str(half.dtype).removeprefix("torch.")
        if kind not in _TYPES:
            raise SystemExit(f'"{name}" in "{path}" is {kind}; only floats travel.')
        header.append((name, list(half.shape), kind))
        planes = half.contiguous().view(-1).view(torch.uint8).view(-1, 2)
        low += planes[:, 0].contiguous().numpy().tobytes()
        high += planes[:, 1].contiguous().numpy().tobytes()
    head = json.dumps({"metadata": metadata, "tensors": header}).encode()
    bodies = [head, *(zlib.compress(bytes(plane), 6) for plane in (low, high))]
    return b"".join(len(body).to_bytes(8, "little") + body for body in bodies)


def unsqueeze(data: bytes, path: Path) -> None:
    """Write the safetensors file that ``squeeze`` read."""
    bodies, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        bodies.append(data[at + 8 : at + 8 + size])
        at += 8 + size
    head = json.loads(bodies[0])
    low, high = (torch.frombuffer(bytearray(zlib.decompress(b)), dtype=torch.uint8)
                 for b in bodies[1:])  # fmt: skip
    values = torch.stack((low, high), 1).view(-1)
    tensors, at = {}, 0
    for name, shape, kind in head["tensors"]:
        size = 2 * int(torch.Size(shape).numel())
        tensors[name] = values[at : at + size].clone().view(_TYPES[kind]).reshape(shape)
        at += size
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path.with_suffix(".tmp"), metadata=head["metadata"] or None)
    path.with_suffix(".tmp").rename(path)


def pack(root: Path, patterns: Iterable[str], out: Path, max_bytes: int) -> int:
    """Write the parts of all files that match; the number of parts."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for path in sorted({p for pattern in patterns for p in root.glob(pattern)}):
            is_weights = path.suffix == ".safetensors"
            data = squeeze(path) if is_weights else zlib.compress(path.read_bytes())
            member = tarfile.TarInfo(str(path.relative_to(root)))
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
            print(f"{member.name}: {len(data) / 2**20:.1f} MiB", flush=True)
    data = stream.getvalue()
    out.mkdir(parents=True, exist_ok=True)
    starts = range(0, len(data), max_bytes)
    for number, start in enumerate(starts):
        (out / PART.format(number)).write_bytes(data[start : start + max_bytes])
    return len(starts)


def unpack(parts: Path, root: Path) -> None:
    """Put the files of a parcel back in their places."""
    data = b"".join(path.read_bytes() for path in sorted(parts.glob("part_*.bin")))
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member)
            target = (root / member.name).resolve()
            if file is None or not target.is_relative_to(root.resolve()):
                raise SystemExit(f'The parcel holds "{member.name}", which is no file of ours.')
            body = file.read()
            if target.suffix == ".safetensors":
                unsqueeze(body, target)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(zlib.decompress(body))
            print(target, flush=True)


def wait(root: Path, names: Iterable[str], seconds: float) -> None:
    """Wait until one of the files exists, at most so long."""
    end = time.monotonic() + seconds
    paths = [root / name for name in names]
    while time.monotonic() < end and not any(path.exists() for path in paths):
        time.sleep(min(1.0, max(0.0, end - time.monotonic())))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("pack", "unpack"))
    parser.add_argument("files", nargs="*", help="patterns below ROOT")
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--parts", type=Path)
    parser.add_argument("--wait", type=float, default=0.0)
    parser.add_argument("--until", default="", help="files below ROOT, with commas between")
    parser.add_argument("--max-file-mb", type=float, default=15.5, help="in MiB")
    # The files may stand after the options: plain parsing would take them for none.
    args = parser.parse_intermixed_args()
    if args.command == "unpack":
        unpack(args.parts, args.root)
        return
    wait(args.root, [name for name in args.until.split(",") if name], args.wait)
    count = pack(args.root, args.files, args.out, int(args.max_file_mb * 2**20))
    print(f"{count} parts", flush=True)


if __name__ == "__main__":
    main()

"""Compile kernels for GPUs that are not there, and say what came out.

Run as a program (``python -m tests.kernels.compiling``) it compiles every variant and prints a JSON
object of reports by name. A process of its own, since the tests beside it interpret the kernels.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Variant:
    """One kernel with its types and constants, for one GPU.

    ``types`` are Triton's names of the types of the run-time arguments, in order; pointers and
    integers count as multiples of 16, except those named in ``odd``.
    """

    name: str
    kernel: Any
    types: Mapping[str, str]
    constants: Mapping[str, Any]
    capability: int
    num_warps: int = 4
    num_stages: int = 3
    use_pdl: bool = False
    odd: tuple[str, ...] = field(default=("first_token", "num_tokens", "num_rows"))


@dataclass(frozen=True)
class Report:
    """What the compiler made: instructions of interest, registers, bytes of memory."""

    registers: int
    local_bytes: int
    shared_bytes: int
    instructions: Mapping[str, int]
    reads_before_wait: int


_PATTERNS = {
    "wgmma_e4m3": r"wgmma\.mma_async\.sync\.aligned\.\w+\.f32\.e4m3\.e4m3",
    "wgmma_f16": r"wgmma\.mma_async\.sync\.aligned\.\w+\.f32\.f16\.f16",
    "wgmma_bf16": r"wgmma\.mma_async\.sync\.aligned\.\w+\.f32\.bf16\.bf16",
    "mma_e4m3": r"mma\.sync\.aligned[\w.]*\.e4m3\.e4m3",
    "mma_bf16": r"mma\.sync\.aligned[\w.]*\.bf16\.bf16",
    "mma_block_scale": r"kind::mxf8f6f4\.block_scale",
    "mma_f16": r"mma\.sync\.aligned[\w.]*\.f32\.f16\.f16",
    "tcgen05_mma": r"tcgen05\.mma",
    "tma_load": r"cp\.async\.bulk\.tensor",
    "cp_async": r"cp\.async\.cg",
    "pdl_wait": r"griddepcontrol\.wait",
    "pdl_launch": r"griddepcontrol\.launch_dependents",
    "prefetch": r"cp\.async\.bulk\.prefetch\.L2",
}


def compile_variant(variant: Variant) -> Report:
    """Compile to machine code and read the compiler's own account of it."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = variant.kernel.arg_names
    signature = {name: variant.types.get(name, "constexpr") for name in names}
    constants = {(names.index(name),): value for name, value in variant.constants.items()}
    divisible = {
        (at,): [["tt.divisibility", 16]]
        for at, name in enumerate(names)
        if signature[name][0] in "*i" and name not in variant.odd
    }
    source = ASTSource(variant.kernel, signature, constexprs=constants, attrs=divisible)
    compiled = triton.compile(
        source,
        target=GPUTarget("cuda", variant.capability, 32),
        options={
            "num_warps": variant.num_warps,
            "num_stages": variant.num_stages,
            "enable_fp_fusion": True,
            **({"launch_pdl": True} if variant.use_pdl else {}),
        },
    )
    ptx = compiled.asm["ptx"]
    registers, local_bytes = _resources(compiled.asm["cubin"])
    counts = {name: len(re.findall(pattern, ptx)) for name, pattern in _PATTERNS.items()}
    before_wait = ptx.split("griddepcontrol.wait")[0] if counts["pdl_wait"] else ""
    reads = len(re.findall(r"ld\.global|cp\.async\.(?!bulk\.prefetch)", before_wait))
    return Report(registers, local_bytes, int(compiled.metadata.shared), counts, reads)


def _resources(cubin: bytes) -> tuple[int, int]:
    """Registers, and bytes of local memory and stack: what is spilled lies there."""
    import triton

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        tool = triton.knobs.nvidia.cuobjdump.path
        text = subprocess.run(
            [tool, "--dump-resource-usage", str(path)], check=True, capture_output=True, text=True
        ).stdout
    usage = dict(re.findall(r"\b(REG|STACK|LOCAL):(\d+)", text))
    return int(usage["REG"]), int(usage["STACK"]) + int(usage["LOCAL"])


def reports_of(module: str) -> dict[str, dict[str, Any]]:
    """Run a module that prints its variants' reports, without the interpreter of the tests."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", module]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


def main() -> None:
    from tests.kernels.variants import variants

    reports = {variant.name: asdict(compile_variant(variant)) for variant in variants()}
    json.dump(reports, sys.stdout)


if __name__ == "__main__":
    main()

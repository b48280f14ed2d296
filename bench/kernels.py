"""How fast the FP8 kernels are at S2 Pro's sizes, cold, against the memory's floor and torch.

    python bench/kernels.py [--output FILE] [--sweep] [--only TEXT] [--budget SECONDS] [--dry-run]

Cold: every call of a measured graph reads its own copy of the weights, and the copies together are
more than twice the L2 cache; activations stay warm, as in a model. A figure is the median of graph
replays over the calls in a graph. A row is computed correctly before it is timed, or it has no
time. Prints a table, then the machine; the last line is JSON. ``--sweep`` times every tile, split
and depth of the four products instead, within a layer. ``--dry-run`` runs the reference at tiny
sizes on the CPU: it shows that the script works, and no speed.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fishtts import kernels
from fishtts.kernels import reference
from fishtts.kernels.plans import Plan, plan_product, stages_that_fit

TOKENS = (1, 16, 64, 128)
FLOOR_BYTES_PER_S = 4.3e12
"""What an H200 moves; the measured ceiling of the machine is a row of its own."""
GEMM_LOSS, BLOCK_LOSS = 1e-3, 3e-3
"""One minus the normalised dot product with bf16: of one product, and of an MLP block. Independent
random values lose 0.7e-3 in a product of two FP8 operands and 2.0e-3 in a block, which rounds to
FP8 at two places, one after the other; what a kernel adds must be visible next to that."""
SAME_LOSS, SAME_BLOCK_LOSS = 1e-5, 1e-4
"""The same against the reference on the same inputs: bf16 rounding of one product gives 1e-6; in a
block it moves some FP8 codes by one."""
MIN_CALLS = 32

Call = Callable[[], Tensor]


@dataclass(frozen=True, slots=True)
class Sizes:
    """The products of one layer, as (rows, columns), and the passes of a measurement."""

    wqkv: tuple[int, int] = (6144, 2560)
    wo: tuple[int, int] = (2560, 4096)
    gate_up: tuple[int, int] = (19456, 2560)
    down: tuple[int, int] = (2560, 9728)
    num_replays: int = 50
    num_rounds: int = 3

    def products(self) -> dict[str, tuple[int, int]]:
        """The four products by name."""
        return {name: getattr(self, name) for name in ("wqkv", "wo", "gate_up", "down")}


TINY = Sizes((256, 128), (128, 256), (512, 128), (128, 256), num_replays=2, num_rounds=1)


@dataclass(slots=True)
class Row:
    """One measured figure. ``loss`` is that of the check before it; a fault has no time."""

    name: str
    form: str
    num_tokens: int
    us: float | None = None
    floor_us: float | None = None
    loss: float | None = None
    fault: str = ""

    @property
    def share(self) -> float | None:
        """How much of the floor's speed was reached."""
        return self.floor_us / self.us if self.us and self.floor_us else None


class Bench:
    """A device, its sizes, and how a list of calls is timed on it."""

    def __init__(self, device: str, sizes: Sizes, budget_s: float) -> None:
        self.device, self.sizes = torch.device(device), sizes
        self.is_cuda = self.device.type == "cuda"
        self._end = time.monotonic() + budget_s
        self.rows: list[Row] = []
        properties = torch.cuda.get_device_properties(self.device) if self.is_cuda else None
        self.min_calls = MIN_CALLS
        self.cold_bytes = 2 * properties.L2_cache_size if properties else 0

    @property
    def has_time(self) -> bool:
        """Whether the budget is not used up."""
        return time.monotonic() < self._end

    def num_copies(self, num_bytes: int) -> int:
        """Copies of a working set that together are cold, and at least two."""
        return max(2, -(-self.cold_bytes // num_bytes))

    def microseconds(self, calls: Sequence[Call]) -> float:
        """Median time of one call, in a graph of all of them, repeated to ``MIN_CALLS``."""
        calls = list(calls) * -(-self.min_calls // len(calls)) if self.is_cuda else list(calls)
        eager = calls[0]().clone()
        for call in calls[1:]:
            call()
        if not self.is_cuda:
            return self._median(lambda: [call() for call in calls]) / len(calls)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = [call() for call in calls]
        graph.replay()
        torch.cuda.synchronize()
        if not torch.equal(outputs[0], eager):
            raise ValueError("a replayed graph gives another result than the eager call")
        return self._median(graph.replay) / len(calls)

    def _median(self, run: Callable[[], Any]) -> float:
        """Median microseconds of one run."""
        taken = []
        for _ in range(self.sizes.num_rounds * self.sizes.num_replays):
            if self.is_cuda:
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                run()
                end.record()
                end.synchronize()
                taken.append(start.elapsed_time(end) * 1e3)
            else:
                begin = time.perf_counter()
                run()
                taken.append((time.perf_counter() - begin) * 1e6)
        return statistics.median(taken)

    def measure(
        self,
        row: Row,
        calls: Sequence[Call],
        checks: Sequence[tuple[Tensor, float]],
        checked: Call | None = None,
    ) -> None:
        """Check the first call, or another that stands for it, then time all; what goes wrong is
        written into the row."""
        self.rows.append(row)
        try:
            out = (checked or calls[0])()
            for wanted, limit in checks:
                row.loss = cosine_loss(out[: len(wanted)], wanted)
                if not row.loss < limit:
                    raise ValueError(f"the loss is {row.loss:.2e}, the limit {limit:.0e}")
            row.us = self.microseconds(calls)
        except (RuntimeError, ValueError, NotImplementedError, AttributeError) as error:
            row.fault = str(error).split("\n")[0][:200] or type(error).__name__
        print(describe(row), file=sys.stderr)


def cosine_loss(ours: Tensor, theirs: Tensor) -> float:
    """One minus 2 a.b / (a.a + b.b); NaN where either holds one."""
    a, b = ours.double().flatten(), theirs.double().flatten()
    return float(1 - 2 * (a @ b) / (a @ a + b @ b))


@dataclass(frozen=True, slots=True)
class Form:
    """One number format on one schedule: how weights and activations become operands."""

    name: str
    weight_form: str
    use_pdl: bool = False
    is_fused: bool = True
    is_deterministic: bool = False

    def prepare(self, weight: Tensor) -> tuple[Tensor, ...]:
        """Quantise a weight."""
        backend = kernels.backend(weight.device)
        if self.weight_form == "mxfp8":
            return tuple(backend.quantize_1x32(weight))
        return tuple(backend.quantize_128x128(weight))

    def activate(self, x: Tensor) -> tuple[Tensor, ...]:
        """Quantise activations, unless they stay 16-bit."""
        if self.weight_form == "w8a16":
            return (x,)
        return self._quantize(x, swiglu=False)

    def swiglu(self, gate_up: Tensor) -> tuple[Tensor, ...]:
        """SwiGLU, then ``activate``, in one."""
        if self.weight_form == "w8a16":
            if gate_up.is_cuda:
                from fishtts.kernels.quantize import run_silu_mul

                return (run_silu_mul(gate_up, use_pdl=self.use_pdl),)
            return (reference.silu_mul(gate_up),)
        return self._quantize(gate_up, swiglu=True)

    def _quantize(self, x: Tensor, *, swiglu: bool) -> tuple[Tensor, ...]:
        group = 32 if self.weight_form == "mxfp8" else 128
        if x.is_cuda:
            from fishtts.kernels.quantize import run_quantize

            return run_quantize(x, group, swiglu=swiglu, use_pdl=self.use_pdl)
        if swiglu:
            return reference.silu_mul_quantize(x, group=group)
        return reference.quantize_1x32(x) if group == 32 else reference.quantize_1x128(x)

    def product(
        self,
        x: Sequence[Tensor],
        weight: Sequence[Tensor],
        plan: Plan | None = None,
        *,
        with_swiglu: bool = False,
    ) -> Tensor:
        """Multiply, by the plan of the table or by another."""
        if not x[0].is_cuda:
            return self.specified(x, weight)
        from fishtts.kernels.block_scaled import run_block_scaled
        from fishtts.kernels.launch import gpu_facts
        from fishtts.kernels.mxfp8 import has_native_product, run_mxfp8

        if plan is None:
            sizes = (x[0].shape[0], weight[0].shape[0], x[0].shape[1])
            facts = gpu_facts(x[0].device)
            plan = plan_product(
                *sizes,
                facts,
                token_bytes=x[0].element_size(),
                deterministic=self.is_deterministic,
            )
            plan = replace(plan, use_pdl=self.use_pdl)
        if self.weight_form == "mxfp8":
            native = has_native_product(x[0].device)
            return run_mxfp8(plan, *x, *weight, torch.bfloat16, native=native)
        scale = x[1] if len(x) > 1 else None
        return run_block_scaled(plan, x[0], scale, *weight, torch.bfloat16, with_swiglu=with_swiglu)

    def specified(self, x: Sequence[Tensor], weight: Sequence[Tensor]) -> Tensor:
        """What the reference makes of the same operands."""
        name = {"bsfp8": "bsgemm", "w8a16": "w8a16_linear", "mxfp8": "mxfp8_linear"}
        op = getattr(reference, name[self.weight_form])
        result: Tensor = op(*x, *weight)
        return result

    def mlp(self, x: Tensor, gate_up: Sequence[Tensor], down: Sequence[Tensor]) -> Tensor:
        """Quantise, gate and up, SwiGLU, down."""
        operands = self.activate(x)
        if self.weight_form == "w8a16" and self.is_fused and x.is_cuda:
            return self.product((self.product(operands, gate_up, with_swiglu=True),), down)
        return self.product(self.swiglu(self.product(operands, gate_up)), down)

    def specified_mlp(self, x: Tensor, gate_up: Sequence[Tensor], down: Sequence[Tensor]) -> Tensor:
        """The same by the reference."""
        group = 32 if self.weight_form == "mxfp8" else 128
        if self.weight_form == "w8a16":
            hidden = reference.w8a16_swiglu(x, *gate_up)
            return self.specified((hidden,), down)
        quantize = reference.quantize_1x32 if group == 32 else reference.quantize_1x128
        up = self.specified(quantize(x), gate_up)
        return self.specified(reference.silu_mul_quantize(up, group=group), down)


FORMS = [
    Form(f"{form}{' pdl' if use_pdl else ''}", form, use_pdl)
    for form in ("bsfp8", "w8a16", "mxfp8")
    for use_pdl in (False, True)
]
BLOCK_FORMS = [
    Form("w8a16, SwiGLU apart", "w8a16", is_fused=False),
    Form("bsfp8, deterministic", "bsfp8", is_deterministic=True),
    Form("w8a16, deterministic", "w8a16", is_deterministic=True),
]
"""Further forms of the MLP block: what fusing saves, and what determinism costs."""


def random(bench: Bench, *shape: int, scale: float = 1.0) -> Tensor:
    """Random bf16 values: zeros would be faster than real data."""
    return (torch.randn(*shape, device=bench.device) * scale).bfloat16()


def measure_copy(bench: Bench) -> None:
    """The ceiling: bytes read and written by a large copy on the device."""
    num_bytes = (2 << 30) if bench.is_cuda else (1 << 20)
    source = torch.randn(num_bytes // 4, device=bench.device)
    target = torch.empty_like(source)
    row = Row("copy", "torch", 0, floor_us=2 * num_bytes / FLOOR_BYTES_PER_S * 1e6)
    # By a kernel: in a graph a plain copy is the copy engine's, which is slower.
    bench.measure(row, [lambda: torch.neg(source, out=target)], [])
    if row.us:
        print(f"copy: {2 * num_bytes / row.us / 1e6:.2f} TB/s", file=sys.stderr)


def floor_us(*weights: Tensor) -> float:
    """Microseconds to read tensors once."""
    return sum(w.numel() * w.element_size() for w in weights) / FLOOR_BYTES_PER_S * 1e6


def copies(bench: Bench, tensors: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
    """The same operands in so many places that none stays in the cache."""
    num_bytes = sum(t.numel() * t.element_size() for t in tensors)
    return [tuple(t.clone() for t in tensors) for _ in range(bench.num_copies(num_bytes))]


def measure_products(bench: Bench, forms: Sequence[Form]) -> None:
    """Each product of a layer alone, on activations that are quantised already."""
    for (name, (num_rows, num_columns)), num_tokens in itertools.product(
        bench.sizes.products().items(), TOKENS
    ):
        x = random(bench, num_tokens, num_columns)
        weight = random(bench, num_rows, num_columns, scale=num_columns**-0.5)
        exact = x.float() @ weight.float().t()
        for form in forms:
            if not bench.has_time:
                return
            operands = form.activate(x)
            places = copies(bench, form.prepare(weight))
            calls = [lambda w=w, f=form, o=operands: f.product(o, w) for w in places]
            checks = [(form.specified(operands, places[0]), SAME_LOSS), (exact, GEMM_LOSS)]
            row = Row(name, form.name, num_tokens, floor_us=floor_us(*places[0]))
            bench.measure(row, calls, checks)


def add_sums(bench: Bench, forms: Sequence[Form]) -> None:
    """The four products of a layer together."""
    names = bench.sizes.products()
    for form, num_tokens in itertools.product(forms, TOKENS):
        rows = [
            r
            for r in bench.rows
            if (r.form, r.num_tokens) == (form.name, num_tokens) and r.name in names
        ]
        if len(rows) == len(names) and all(row.us for row in rows):
            total = sum(row.us or 0.0 for row in rows)
            floor = sum(row.floor_us or 0.0 for row in rows)
            bench.rows.append(Row("four products", form.name, num_tokens, total, floor))


def measure_quantisers(bench: Bench) -> None:
    """The quantisers alone: what they add to a product."""
    num_rows, num_columns = bench.sizes.gate_up
    for num_tokens, form in itertools.product(TOKENS, FORMS):
        if form.weight_form == "w8a16" or form.use_pdl or not bench.has_time:
            continue
        x, gate_up = random(bench, num_tokens, num_columns), random(bench, num_tokens, num_rows)
        for name, call in (
            ("quantise", lambda f=form, x=x: f.activate(x)[0].view(torch.uint8)),
            ("swiglu + quantise", lambda f=form, x=gate_up: f.swiglu(x)[0].view(torch.uint8)),
        ):
            bench.measure(Row(name, form.name, num_tokens), [call], [])


def measure_mlp(bench: Bench, forms: Sequence[Form]) -> None:
    """The block that a layer spends its time in, in every form, and in torch's own."""
    (inner, width), (_, hidden) = bench.sizes.gate_up, bench.sizes.down
    up = random(bench, inner, width, scale=width**-0.5)
    down = random(bench, width, hidden, scale=hidden**-0.5)
    for num_tokens in TOKENS:
        x = random(bench, num_tokens, width)
        gate, rest = (x.float() @ up.float().t()).unflatten(1, (-1, 2)).unbind(2)
        exact = (F.silu(gate) * rest) @ down.float().t()
        for form in (*forms, *BLOCK_FORMS):
            if not bench.has_time:
                return
            operands = (*form.prepare(up), *form.prepare(down))
            calls = [
                lambda w=w, f=form, x=x: f.mlp(x, w[:2], w[2:]) for w in copies(bench, operands)
            ]
            row = Row("mlp", form.name, num_tokens, floor_us=floor_us(*operands))
            wanted = form.specified_mlp(x, operands[:2], operands[2:])
            bench.measure(row, calls, [(wanted, SAME_BLOCK_LOSS), (exact, BLOCK_LOSS)])
        halves = torch.cat((up[0::2], up[1::2]))
        for name, calls, weights in torch_blocks(bench, x, halves, down):
            if bench.has_time:
                row = Row("mlp", name, num_tokens, floor_us=floor_us(*weights))
                bench.measure(row, calls, [(exact, BLOCK_LOSS)])


def torch_blocks(
    bench: Bench, x: Tensor, up: Tensor, down: Tensor
) -> Iterator[tuple[str, list[Call], tuple[Tensor, ...]]]:
    """The same block by torch: in bf16, and with block-scaled FP8 products of cuBLAS."""

    def plain(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
        gate, rest = F.linear(x, up).chunk(2, dim=1)
        return F.linear(F.silu(gate) * rest, down)

    places = copies(bench, (up, down))
    yield "torch bf16", [lambda w=w: plain(x, *w) for w in places], (up, down)
    if not bench.is_cuda:
        return
    # cuBLAS takes rows in fours.
    padded = F.pad(x, (0, 0, 0, -len(x) % 4))
    operands = (*cublas_weight(up), *cublas_weight(down))
    block = torch.compile(cublas_block, dynamic=False)
    calls = [lambda w=w: block(padded, *w) for w in copies(bench, operands)]
    yield "torch scaled_mm, compiled", calls, operands


def cublas_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Codes, and scales with their columns padded to fours, as cuBLAS wants them."""
    codes, scale = kernels.quantize_128x128(weight)
    return codes, F.pad(scale, (0, -scale.shape[1] % 4))


def cublas_product(x: Tensor, codes: Tensor, scale: Tensor) -> Tensor:
    """Quantise by plain torch, which the compiler fuses, and multiply by cuBLAS."""
    groups = x.float().unflatten(1, (-1, 128))
    x_scale = groups.abs().amax(2).clamp(min=1e-10) / 448.0
    x_codes = (groups / x_scale[..., None]).to(torch.float8_e4m3fn).flatten(1)
    return F.scaled_mm(
        x_codes,
        codes.t(),
        x_scale.t().contiguous().t(),
        F.ScalingType.BlockWise1x128,
        scale.t(),
        F.ScalingType.BlockWise128x128,
        output_dtype=torch.bfloat16,
    )


def cublas_block(
    x: Tensor, up: Tensor, up_scale: Tensor, down: Tensor, down_scale: Tensor
) -> Tensor:
    """The MLP block by cuBLAS."""
    gate, rest = cublas_product(x, up, up_scale).chunk(2, dim=1)
    return cublas_product(F.silu(gate) * rest, down, down_scale)


class Layer:
    """The products of a layer with all that lies between them but attention, as a model runs them.

    A plan is timed within it: what is fastest alone need not be so between neighbours, that begin
    before it has ended and leave it less room.
    """

    def __init__(self, bench: Bench, form: Form, num_tokens: int) -> None:
        self.bench, self.form = bench, form
        sizes = bench.sizes.products()
        weights = {
            name: form.prepare(random(bench, rows, columns, scale=columns**-0.5))
            for name, (rows, columns) in sizes.items()
        }
        self.inputs = {
            name: form.activate(random(bench, num_tokens, columns))
            for name, (_, columns) in sizes.items()
        }
        self.wanted = {n: form.specified(self.inputs[n], weights[n]) for n in sizes}
        flat = copies(bench, [t for name in sizes for t in weights[name]])
        parts = [len(weights[name]) for name in sizes]
        starts = list(itertools.accumulate(parts, initial=0))
        self.places = [
            {n: p[at : at + k] for n, at, k in zip(sizes, starts, parts, strict=False)}
            for p in flat
        ]
        self.x = random(bench, num_tokens, sizes["wqkv"][1])
        self.attended = random(bench, num_tokens, sizes["wo"][1])
        self.norm = random(bench, sizes["wqkv"][1])

    def normed(self, x: Tensor) -> tuple[Tensor, ...]:
        """The norm before a product, in its form."""
        if not self.bench.is_cuda or self.form.weight_form == "w8a16":
            ops = kernels.backend(self.bench.device)
            return self.form.activate(ops.residual_rms_norm(x, self.norm, 1e-6, self.x)[0])
        from fishtts.kernels.rms_norm import run_rms_norm

        group = 32 if self.form.weight_form == "mxfp8" else 128
        return run_rms_norm(x, self.norm, 1e-6, self.x, group=group, use_pdl=True)[:2]

    def run(self, weights: dict[str, tuple[Tensor, ...]], plans: dict[str, Plan]) -> Tensor:
        """One layer."""
        form = self.form
        product = lambda n, x: form.product(x, weights[n], plans[n])  # noqa: E731
        product("wqkv", self.normed(self.x))
        x = product("wo", form.activate(self.attended))
        return product("down", form.swiglu(product("gate_up", self.normed(x))))

    def time(self, plans: dict[str, Plan], name: str) -> Row:
        """Microseconds of a layer, if the plan of one product computes what it should."""
        floor = sum(floor_us(*w) for w in self.places[0].values())
        row = Row(name, self.form.name, len(self.x), floor_us=floor)
        operands = (self.inputs[name], self.places[0][name], plans[name])
        calls = [lambda w=w: self.run(w, plans) for w in self.places]
        checks = [(self.wanted[name], SAME_LOSS)]
        self.bench.measure(row, calls, checks, lambda: self.form.product(*operands))
        return row


def sweep(bench: Bench, forms: Sequence[Form]) -> list[dict[str, Any]]:
    """Time every plan of every product within a layer, one product after the other and twice over;
    the table of plans is made from the best."""
    found: list[dict[str, Any]] = []
    bench.min_calls = 8
    bench.sizes = replace(bench.sizes, num_replays=min(10, bench.sizes.num_replays), num_rounds=1)
    # A plan for one token is one for sixteen: a tile has as many.
    for num_tokens, form in itertools.product(TOKENS[1:], forms):
        if not form.use_pdl or not bench.has_time:
            continue
        layer = Layer(bench, form, num_tokens)
        products = bench.sizes.products()
        chosen = {n: next(plans(bench, num_tokens, *products[n], form)) for n in products}
        for _round, name in itertools.product(range(2), products):
            made = []
            for plan in plans(bench, num_tokens, *products[name], form):
                if not bench.has_time:
                    break
                row = layer.time({**chosen, name: plan}, name)
                made.append((row.us or float("inf"), plan))
                found.append({"plan": asdict(plan), **asdict(row)})
            if made:
                chosen[name] = min(made, key=lambda pair: pair[0])[1]
    return found


def plans(
    bench: Bench, num_tokens: int, num_rows: int, num_columns: int, form: Form
) -> Iterator[Plan]:
    """Plans worth timing, the table's own first; on the CPU a few, to run the script."""
    token_bytes = 2 if form.weight_form == "w8a16" else 1
    if not bench.is_cuda:
        yield Plan(64, 16, 1, 2)
        yield Plan(64, 16, 2, 2)
        return
    from fishtts.kernels.launch import gpu_facts

    gpu = gpu_facts(bench.device)
    start = plan_product(num_tokens, num_rows, num_columns, gpu, token_bytes=token_bytes)
    start = replace(start, use_pdl=True)
    yield start
    tiles = itertools.product((64, 128), (16, 32, 64, 128), (4, 8), (3, 4, 6))
    for block_n, block_m, num_warps, num_stages in tiles:
        is_sensible = (
            min(num_tokens, 64) <= block_m < 2 * max(num_tokens, 16)
            # Sums of a thread, and rows of a warpgroup: 64 at a time.
            and 8 <= block_n * block_m // (32 * num_warps) <= 128
            and block_n >= 16 * num_warps
            and num_stages <= stages_that_fit(block_n, block_m, token_bytes, gpu.shared_bytes)
        )
        num_tiles = -(-num_rows // block_n) * -(-num_tokens // block_m)
        for splits in (1, 2, 3, 4, 5, 6, 8, 10, 12, 16) if is_sensible else ():
            # Fewer programs than multiprocessors, or many times as many, are never the best.
            if 0.6 <= num_tiles * splits / gpu.num_processors <= 5 and splits <= num_columns // 128:
                tile = replace(start, block_n=block_n, block_m=block_m, splits=splits)
                yield replace(tile, num_warps=num_warps, num_stages=num_stages)
    for prefetch_blocks in (0, 1, 2, 8):
        yield replace(start, prefetch_blocks=prefetch_blocks)


def best(swept: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The fastest plan of each product, form and number of tokens."""
    fastest: dict[tuple[str, str, int], dict[str, Any]] = {}
    for entry in swept:
        key = (entry["name"], entry["form"], entry["num_tokens"])
        if entry["us"] and (key not in fastest or entry["us"] < fastest[key]["us"]):
            fastest[key] = entry
    return list(fastest.values())


def describe(row: Row) -> str:
    """One line of the table."""
    figures = f"{row.us:9.2f}" if row.us else f"{'-':>9}"
    figures += f"{row.floor_us:9.2f}" if row.floor_us else f"{'':>9}"
    figures += f"{row.share:7.0%}" if row.share else f"{'':>7}"
    figures += f"  loss {row.loss:.1e}" if row.loss is not None else ""
    return f"{row.name:18}{row.form:27}{row.num_tokens:5}{figures}  {row.fault}".rstrip()


def machine(bench: Bench) -> dict[str, Any]:
    """Name the device, its clocks, and the versions."""
    about: dict[str, Any] = {"date": datetime.datetime.now(datetime.UTC).date().isoformat()}
    for package in ("fishtts", "torch", "triton"):
        try:
            about[package] = version(package)
        except PackageNotFoundError:
            about[package] = ""
    about["device"] = "cpu"
    if bench.is_cuda:
        properties = torch.cuda.get_device_properties(bench.device)
        about["device"] = properties.name
        about["processors"] = properties.multi_processor_count
        about["l2_bytes"] = properties.L2_cache_size
        about["cuda"] = torch.version.cuda
        query = "driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.draw,temperature.gpu"
        command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            values = done.stdout.splitlines()[0].split(", ")
            about |= dict(zip(query.split(","), values, strict=True))
        except (OSError, subprocess.CalledProcessError, IndexError, ValueError):
            about["driver_version"] = "unknown"
    return about


def begin(doc: str | None, what_is_swept: str, budget_s: float) -> tuple[argparse.Namespace, Bench]:
    """Read the options that benches of kernels share, and get the machine ready."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0] if doc else None)
    parser.add_argument("--output", type=Path, help="also write the JSON to a file")
    parser.add_argument("--sweep", action="store_true", help=f"time every plan of {what_is_swept}")
    parser.add_argument("--only", default="", help="only forms whose name holds this")
    parser.add_argument("--budget", type=float, default=budget_s, help="seconds until rows are cut")
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes on the CPU")
    args = parser.parse_args()

    torch.manual_seed(0)
    if args.dry_run:
        torch.set_num_threads(1)
    if not args.dry_run and not torch.cuda.is_available():
        parser.error("there is no CUDA device; --dry-run runs the script without one")
    bench = Bench("cpu", TINY, args.budget) if args.dry_run else Bench("cuda", Sizes(), args.budget)
    return args, bench


def main() -> int:
    args, bench = begin(__doc__, "the products", 540.0)
    forms = [form for form in FORMS if args.only in form.name]
    with torch.inference_mode():
        swept = sweep(bench, forms) if args.sweep else []
        if not args.sweep:
            measure_copy(bench)
            measure_mlp(bench, forms)
            measure_products(bench, forms)
            measure_quantisers(bench)
            add_sums(bench, forms)
    about = machine(bench)
    if not args.sweep:
        heading = f"{'':18}{'form':27}{'M':>5}{'us':>9}{'floor':>9}{'share':>7}"
        print("\n".join((heading, *map(describe, bench.rows))))
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    result: dict[str, Any] = {"machine": about, "is_complete": bench.has_time}
    if args.sweep:
        # All that was timed goes into the file; what a reader of the last line wants is the best.
        everything, result["best"] = {**result, "sweep": swept}, best(swept)
    else:
        result["rows"] = [asdict(row) for row in bench.rows]
        everything = result
    if args.output:
        args.output.write_text(json.dumps(everything) + "\n")
    print(json.dumps(result))
    return 1 if any(row.fault for row in bench.rows) else 0


if __name__ == "__main__":
    sys.exit(main())

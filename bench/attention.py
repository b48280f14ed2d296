"""How fast attention and the small ops are at S2 Pro's sizes, cold, against the memory's floor.

    python bench/attention.py [--output FILE] [--sweep] [--only TEXT] [--budget SECONDS] [--dry-run]

The method is that of ``kernels.py``: every call of a measured graph reads its own copy of the keys
and values, together more than twice the L2 cache. A row is computed correctly before it is timed,
or it has no time. The share is of the floor (4.3 TB/s); ``copy_share`` in the JSON is of what a
large copy reached in the same run. ``--sweep`` times every chunk and depth of the decode step
instead. ``--dry-run`` runs the reference at tiny sizes on the CPU.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from kernels import (
    FLOOR_BYTES_PER_S,
    Bench,
    Call,
    Row,
    begin,
    describe,
    machine,
    measure_copy,
    random,
)
from torch import Tensor

from fishtts import kernels
from fishtts.kernels import attention_reference
from fishtts.kernels.attention_plans import DecodePlan, plan_decode
from fishtts.kernels.attention_reference import KVPages
from fishtts.kernels.sampling_reference import DrawRules, Semantic
from fishtts.kernels.small_reference import HeadNorms, Places, Rotations

ATTENTION_LOSS, FP8_ATTENTION_LOSS = 1e-4, 4e-3
"""One minus the normalised dot product with the reference on the same keys and values: bf16
rounding gives 1e-5, queries and weights in FP8 1.3e-3."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Heads of a layer, and what is measured on them."""

    num_heads: int = 32
    num_groups: int = 8
    head_dim: int = 128
    width: int = 2560
    num_ids: int = 4097
    batches: tuple[int, ...] = (1, 16, 64)
    contexts: tuple[int, ...] = (512, 1024, 2048)
    prefills: tuple[tuple[int, int], ...] = ((600, 0), (40, 600), (1500, 0))


SMALL = Shape(4, 2, 16, 128, 65, (1, 2), (20, 40), ((20, 0), (3, 10)))


@dataclass(frozen=True, slots=True)
class Form:
    """How keys and values lie, and in what they are multiplied."""

    name: str
    page_size: int
    is_fp8: bool = False
    fp8_products: bool = False

    @property
    def limit(self) -> float:
        """The loss that is allowed."""
        return FP8_ATTENTION_LOSS if self.fp8_products else ATTENTION_LOSS


FORMS = [
    Form("bf16 page 16", 16),
    Form("bf16 page 64", 64),
    Form("fp8 page 16", 16, is_fp8=True),
    Form("fp8 page 64", 64, is_fp8=True),
    Form("fp8 products page 16", 16, is_fp8=True, fp8_products=True),
    Form("fp8 products page 64", 64, is_fp8=True, fp8_products=True),
]


def make_pages(bench: Bench, shape: Shape, form: Form, batch: int, context: int):
    """Pages of random keys and values in random order, written by the op that writes them."""
    per_row = -(-context // form.page_size)
    order = torch.randperm(batch * per_row, device=bench.device).to(torch.int32)
    tables = order.view(batch, per_row)
    like = random(bench, 1)
    size = (batch * per_row, form.page_size, shape.num_groups, shape.head_dim)
    pages = KVPages.empty(size, like, fp8=form.is_fp8)
    if not form.is_fp8:
        return replace(pages, keys=random(bench, *size), values=random(bench, *size)), tables
    for name in ("key", "value"):
        dim = -1 if name == "key" else -2
        codes = getattr(pages, f"{name}s")
        values = random(bench, *codes.shape).float()
        scale = values.abs().amax(dim, keepdim=True) / 448.0
        codes.copy_((values / scale).to(codes.dtype))
        getattr(pages, f"{name}_scale").copy_(scale.squeeze(dim))
    return pages, tables


def tensors_of(pages: KVPages) -> list[Tensor]:
    """What a decode step reads."""
    found = (pages.keys, pages.values, pages.key_scale, pages.value_scale)
    return [tensor for tensor in found if tensor is not None]


def page_copies(bench: Bench, pages: KVPages) -> list[KVPages]:
    """The same pages in so many places that none stays in the cache."""
    num_bytes = sum(tensor.nbytes for tensor in tensors_of(pages))
    count = bench.num_copies(num_bytes)
    return [KVPages(*(t.clone() for t in tensors_of(pages))) for _ in range(count)]


def decode(bench: Bench, plan: DecodePlan | None, *operands: Any, **options: Any) -> Tensor:
    """A decode step by the plan of the table or by another."""
    if plan is None or not bench.is_cuda:
        result: Tensor = kernels.backend(bench.device).paged_decode(*operands, **options)
        return result
    from fishtts.kernels.flash_decode import run_decode

    return run_decode(plan, *operands, fp8_products=options["fp8_products"])


def measure_decode(bench: Bench, shape: Shape, forms: Sequence[Form]) -> None:
    """One position a request to its context, by each form, and by torch on plain tensors."""
    for batch, context in itertools.product(shape.batches, shape.contexts):
        q = random(bench, batch, shape.num_heads, shape.head_dim)
        lengths = torch.full((batch,), context, dtype=torch.int32, device=bench.device)
        for form, is_fixed in itertools.product(forms, (False, True)):
            if not bench.has_time:
                return
            pages, tables = make_pages(bench, shape, form, batch, context)
            wanted = attention_reference.paged_decode(q, pages, tables, lengths)
            options = {"fp8_products": form.fp8_products, "deterministic": is_fixed}
            calls = [
                lambda p=p, q=q, t=tables, n=lengths, o=options: decode(
                    bench, None, q, p, t, n, **o
                )
                for p in page_copies(bench, pages)
            ]
            name = f"{form.name}{', deterministic' if is_fixed else ''}"
            floor = sum(t.nbytes for t in tensors_of(pages)) / FLOOR_BYTES_PER_S * 1e6
            row = Row(f"decode {context}", name, batch, floor_us=floor)
            bench.measure(row, calls, [(wanted, form.limit)])
        measure_torch_decode(bench, shape, q, context)


def measure_torch_decode(bench: Bench, shape: Shape, q: Tensor, context: int) -> None:
    """The same by torch, which is given keys and values in one piece."""
    size = (q.shape[0], shape.num_groups, context, shape.head_dim)
    k, v = random(bench, *size), random(bench, *size)
    places = [(k.clone(), v.clone()) for _ in range(bench.num_copies(2 * k.nbytes))]
    calls = [
        lambda kv=kv: F.scaled_dot_product_attention(q[:, :, None], *kv, enable_gqa=True)
        for kv in places
    ]
    floor = 2 * k.nbytes / FLOOR_BYTES_PER_S * 1e6
    bench.measure(Row(f"decode {context}", "torch bf16", q.shape[0], floor_us=floor), calls, [])


def measure_prefill(bench: Bench, shape: Shape, forms: Sequence[Form]) -> None:
    """New positions of one request behind a prefix in pages, and of plain tensors by torch."""
    backend = kernels.backend(bench.device)
    for new, prefix in shape.prefills:
        q = random(bench, new, shape.num_heads, shape.head_dim)
        length = torch.tensor([new + prefix], dtype=torch.int32, device=bench.device)
        starts = torch.tensor([0, new], dtype=torch.int32, device=bench.device)
        for form in forms:
            if not bench.has_time:
                return
            pages, tables = make_pages(bench, shape, form, 1, new + prefix)
            operands = (q, pages, tables, length, starts)
            wanted = attention_reference.paged_prefill(*operands, max_queries=new)
            options = {"max_queries": new, "fp8_products": form.fp8_products}
            call = lambda o=operands, k=options: backend.paged_prefill(*o, **k)  # noqa: E731
            row = Row(f"prefill {new} + {prefix}", form.name, 1)
            bench.measure(row, [call], [(wanted, form.limit)])
        if not prefix:
            k, v = (random(bench, 1, shape.num_groups, new, shape.head_dim) for _ in range(2))
            given = (q.transpose(0, 1)[None], k, v)
            call = lambda o=given: F.scaled_dot_product_attention(  # noqa: E731
                *o, is_causal=True, enable_gqa=True
            )
            bench.measure(Row(f"prefill {new} + 0", "torch bf16", 1), [call], [])


def small_ops(bench: Bench, shape: Shape, batch: int) -> Iterator[tuple[str, str, Call]]:
    """The ops between the products of a step: name, form, call."""
    ops = kernels.backend(bench.device)
    heads = shape.num_heads + 2 * shape.num_groups
    qkv = random(bench, batch, heads * shape.head_dim)
    turns = torch.rand(64, shape.head_dim // 2, device=bench.device)
    rotations = Rotations(turns.cos(), turns.sin())
    norms = HeadNorms(random(bench, shape.head_dim), random(bench, shape.head_dim), 1e-6)
    positions = torch.randint(0, 64, (batch,), dtype=torch.int32, device=bench.device)
    for is_fp8 in (False, True):
        form = Form("", 16, is_fp8)
        pages, tables = make_pages(bench, shape, form, batch, 64)
        given = (qkv, Places(positions, tables), rotations, norms, pages)
        yield (
            "norm, rope, store",
            "fp8" if is_fp8 else "bf16",
            lambda o=given: ops.norm_rope_store(*o),
        )
    x, residual = random(bench, batch, shape.width), random(bench, batch, shape.width)
    weight = random(bench, shape.width)
    norm = (x, weight, 1e-6, residual)
    yield "residual norm", "bf16", lambda: ops.residual_rms_norm(*norm)[0]
    for group in (128, 32):
        yield (
            "residual norm",
            f"quantised 1x{group}",
            lambda g=group: ops.residual_rms_norm_quantize(*norm, group=g)[0].view(torch.uint8),
        )
    yield from draws(bench, shape, batch)
    window = torch.zeros(batch, 10, 11, dtype=torch.int32, device=bench.device)
    new = torch.ones(batch, 11, dtype=torch.int32, device=bench.device)
    yield "shift window", "int32", lambda: (ops.prev_tokens_shift_(window, new), new)[1]


def draws(bench: Bench, shape: Shape, batch: int) -> Iterator[tuple[str, str, Call]]:
    """The semantic draw and that of another codebook, from flat and from steep logits."""
    ops, device = kernels.backend(bench.device), bench.device
    window = torch.zeros(batch, 10, dtype=torch.int32, device=device)
    embeddings = random(bench, shape.num_ids - 1, shape.width)
    for steepness, scale in (("flat", 0.1), ("steep", 4.0)):
        for num_draws in (1, 2):
            logits = random(bench, batch, shape.num_ids - (2 - num_draws), scale=scale)
            rules = DrawRules(
                torch.full((batch, num_draws), 0.8, device=device),
                torch.full((batch, num_draws), 0.8, device=device),
                torch.full((batch,), 30, dtype=torch.int32, device=device),
            )
            keys = torch.randint(0, 2**32, (batch, num_draws), device=device)
            options = {
                "semantic": Semantic(window, 300, 7) if num_draws == 2 else None,
                "embeddings": embeddings,
                "max_top_k": 30,
            }
            name = "semantic draw" if num_draws == 2 else "draw"
            given = (logits, keys, rules)
            yield name, steepness, lambda o=given, k=options: ops.draw_codes(*o, **k)[0]


def measure_small(bench: Bench, shape: Shape) -> None:
    """The small ops: warm, as what they read has just been written."""
    for batch in shape.batches:
        for name, form, call in small_ops(bench, shape, batch):
            if not bench.has_time:
                return
            bench.measure(Row(name, form, batch), [call], [])


def sweep(bench: Bench, shape: Shape, forms: Sequence[Form]) -> list[dict[str, Any]]:
    """Time chunks, depths and warps of the decode step; the plans' numbers are made from these."""
    found = []
    for batch, context, form in itertools.product(shape.batches, shape.contexts, forms):
        q = random(bench, batch, shape.num_heads, shape.head_dim)
        lengths = torch.full((batch,), context, dtype=torch.int32, device=bench.device)
        pages, tables = make_pages(bench, shape, form, batch, context)
        wanted = attention_reference.paged_decode(q, pages, tables, lengths)
        places = page_copies(bench, pages)
        floor = sum(t.nbytes for t in tensors_of(pages)) / FLOOR_BYTES_PER_S * 1e6
        for plan in plans(bench, shape, form, batch, context):
            if not bench.has_time:
                return found
            options = {"fp8_products": form.fp8_products}
            calls = [
                lambda p=p, n=plan, o=(tables, lengths), q=q, k=options: decode(
                    bench, n, q, p, *o, **k
                )
                for p in places
            ]
            row = Row(f"decode {context}", form.name, batch, floor_us=floor)
            bench.measure(row, calls, [(wanted, form.limit)])
            found.append({"plan": asdict(plan), **asdict(row)})
    return found


def plans(bench: Bench, shape: Shape, form: Form, batch: int, context: int) -> Iterator[DecodePlan]:
    """Plans worth timing, the table's own first."""
    if not bench.is_cuda:
        yield DecodePlan(64, -(-context // 64), 3)
        return
    from fishtts.kernels.launch import gpu_facts

    row_bytes = shape.head_dim * (1 if form.is_fp8 else 2)
    start = plan_decode(batch * shape.num_groups, context, row_bytes, gpu_facts(bench.device))
    yield start
    for chunk in (64, 128, 192, 256, 384, 512, 768, 1024, 2048):
        if chunk <= context:
            for num_stages, num_warps in ((3, 4), (5, 4), (7, 4), (5, 8)):
                yield DecodePlan(chunk, -(-context // chunk), num_stages, num_warps)


def with_copy_share(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows as JSON, with their share of the bandwidth that the copy reached."""
    copied = next((row for row in rows if row.name == "copy"), None)
    factor = copied.us / copied.floor_us if copied and copied.us and copied.floor_us else None
    return [
        {**asdict(row), "copy_share": row.share * factor if factor and row.share else None}
        for row in rows
    ]


def main() -> int:
    args, bench = begin(__doc__, "the decode step", 300.0)
    shape = SMALL if args.dry_run else Shape()
    forms = [form for form in FORMS if args.only in form.name]
    result: dict[str, Any] = {"machine": machine(bench)}
    with torch.inference_mode():
        measure_copy(bench)
        if args.sweep:
            result["sweep"] = sweep(bench, shape, forms)
        else:
            measure_decode(bench, shape, forms)
            measure_small(bench, shape)
            measure_prefill(bench, shape, forms)
            result["rows"] = with_copy_share(bench.rows)
    result["is_complete"] = bench.has_time
    heading = f"{'':18}{'form':27}{'B':>5}{'us':>9}{'floor':>9}{'share':>7}"
    print("\n".join((heading, *map(describe, bench.rows))))
    print(", ".join(f"{key} {value}" for key, value in result["machine"].items()))
    if args.output:
        args.output.write_text(json.dumps(result) + "\n")
    print(json.dumps(result))
    return 1 if any(row.fault for row in bench.rows) else 0


if __name__ == "__main__":
    sys.exit(main())

"""On a GPU: captured kernels compute what eager ones do, also after their inputs have changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from fishtts.kernels import reference
from fishtts.kernels.block_scaled import run_block_scaled
from fishtts.kernels.launch import counters, gpu_facts
from fishtts.kernels.mxfp8 import has_native_product, run_mxfp8
from fishtts.kernels.plans import plan_product
from fishtts.kernels.quantize import run_quantize, run_silu_mul

pytestmark = pytest.mark.gpu

CUDA = torch.device("cuda")
WIDTH, INNER = 512, 1536


def block(form: str, x: Tensor, weights: tuple[Tensor, ...], *, use_pdl: bool) -> Tensor:
    """Quantise, gate and up, SwiGLU, down: kernels that depend on each other."""

    def product(
        operands: tuple[Tensor, ...], weight: tuple[Tensor, ...], with_swiglu: bool = False
    ) -> Tensor:
        sizes = (operands[0].shape[0], weight[0].shape[0], operands[0].shape[1])
        plan = plan_product(*sizes, gpu_facts(x.device), token_bytes=operands[0].element_size())
        # Split in any case: the counters are what a replay could leave behind.
        plan = replace(plan, splits=3, use_pdl=use_pdl)
        if form == "mxfp8":
            native = has_native_product(x.device)
            return run_mxfp8(plan, *operands, *weight, torch.bfloat16, native=native)
        scale = operands[1] if len(operands) > 1 else None
        return run_block_scaled(
            plan, operands[0], scale, *weight, torch.bfloat16, with_swiglu=with_swiglu
        )

    if form == "w8a16, fused":
        return product((product((x,), weights[:2], with_swiglu=True),), weights[2:])
    if form == "w8a16":
        hidden = run_silu_mul(product((x,), weights[:2]), use_pdl=use_pdl)
        return product((hidden,), weights[2:])
    group = 32 if form == "mxfp8" else 128
    up = product(run_quantize(x, group, use_pdl=use_pdl), weights[:2])
    return product(run_quantize(up, group, swiglu=True, use_pdl=use_pdl), weights[2:])


def weights_of(form: str) -> tuple[Tensor, ...]:
    draw = torch.Generator().manual_seed(1)
    up = torch.randn(2 * INNER, WIDTH, generator=draw) * WIDTH**-0.5
    down = torch.randn(WIDTH, INNER, generator=draw) * INNER**-0.5
    quantize = reference.quantize_1x32 if form == "mxfp8" else reference.quantize_128x128
    return tuple(t.to(CUDA) for w in (up, down) for t in quantize(w.bfloat16()))


def captured(run: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run()
    return graph, out


@pytest.mark.parametrize("use_pdl", [False, True])
@pytest.mark.parametrize("form", ["bsfp8", "w8a16", "w8a16, fused", "mxfp8"])
@pytest.mark.parametrize("num_tokens", [1, 16, 64])
def test_replay_equals_eager_after_the_inputs_change(
    num_tokens: int, form: str, use_pdl: bool
) -> None:
    weights = weights_of(form)
    x = torch.randn(num_tokens, WIDTH, device=CUDA).bfloat16()
    graph, out = captured(lambda: block(form, x, weights, use_pdl=use_pdl))
    for _ in range(20):
        x.copy_(torch.randn(num_tokens, WIDTH, device=CUDA))
        wanted = block(form, x, weights, use_pdl=False)
        torch.cuda.synchronize()
        out.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, wanted)
    assert not counters(CUDA).any()


def test_graphs_that_are_replayed_at_once_do_not_share_counters() -> None:
    weights = weights_of("bsfp8")
    streams = [torch.cuda.Stream() for _ in range(2)]
    inputs = [torch.randn(16, WIDTH, device=CUDA).bfloat16() for _ in streams]
    wanted = [block("bsfp8", x, weights, use_pdl=False) for x in inputs]
    torch.cuda.synchronize()
    graphs = []
    for stream, x in zip(streams, inputs, strict=True):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            out = block("bsfp8", x, weights, use_pdl=False)
        graphs.append((graph, out))
    for _ in range(50):
        for stream, (graph, _) in zip(streams, graphs, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
    torch.cuda.synchronize()
    for (_, out), right in zip(graphs, wanted, strict=True):
        assert torch.equal(out, right)

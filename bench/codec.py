"""How fast S2's codec decodes on a GPU: audio seconds a second, at its full size, random weights.

    python bench/codec.py --gpu [--streams 1 16 64] [--chunk 8] [--layout units fused channels time]
                          [--dtype float16] [--serve] [--profile] [--tune [2.unit ...]]
                          [--budget 80]
    python bench/codec.py                           the same at a tiny size on the CPU: no speed

A row is one way to convolve (our kernels with whole residual units in one, our kernels, torch's
library with channels or positions as neighbours in memory), one type, so many streams, and steps of
``--chunk`` frames, replayed as one CUDA graph. ``snr_db`` is the signal against its difference from
float32, over the first frames of one stream; ``same_alone`` says that a stream has the same bits
alone as beside others.
``--serve`` sends signals through ``BatchDecoder`` as ``speaking.py`` does, frame by frame.
``--profile`` adds where the time of a step goes, by kernel; ``--tune`` times every convolution of
the decoder (or those that are named) in every tile, and in torch's library. A row that fails says
why and the others go on.
Prints a table, then the machine; the last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fishtts.codec.batched import BatchDecoder, step_sizes
from fishtts.codec.dac import DacCodec, DacConfig, QuantizerConfig
from fishtts.codec.dac_batch import (
    Conv,
    Convolve,
    DacBatch,
    FusedConvolve,
    LibraryConvolve,
    Linear,
    Unit,
)
from fishtts.codec.transformer import TransformerConfig
from fishtts.engine.graphs import captured_steps
from fishtts.kernels.convolution_plans import ConvPlan, plan_conv, plan_unit

MATRIX_FLOPS_PER_S, MEMORY_BYTES_PER_S = 790e12, 4.3e12
"""What an H200 does at most, by NVIDIA's and our own measurement."""
TILES = (
    ConvPlan(128, 128, 64, 4, 3),
    ConvPlan(128, 128, 64, 4, 4),
    ConvPlan(128, 128, 64, 8, 3),
    ConvPlan(128, 128, 64, 8, 4),
    ConvPlan(128, 256, 64, 8, 3),
    ConvPlan(256, 128, 64, 8, 3),
    ConvPlan(128, 64, 64, 4, 4),
    ConvPlan(256, 64, 64, 8, 3),
    ConvPlan(256, 128, 64, 8, 3, extra_n=64),
)
TILES_OF_192 = (
    ConvPlan(128, 64, 64, 4, 3),
    ConvPlan(128, 128, 64, 8, 3, extra_n=64),
    ConvPlan(128, 128, 64, 8, 4, extra_n=64),
    ConvPlan(256, 128, 64, 8, 3, extra_n=64),
    ConvPlan(128, 64, 64, 4, 4),
    ConvPlan(256, 64, 64, 8, 3),
    ConvPlan(128, 256, 64, 8, 3),
)
TILES_OF_96 = (
    ConvPlan(128, 64, 32, 4, 4, extra_n=32),
    ConvPlan(128, 64, 32, 4, 6, extra_n=32),
    ConvPlan(256, 64, 32, 8, 4, extra_n=32),
    ConvPlan(256, 64, 64, 8, 3, extra_n=32),
    ConvPlan(128, 128, 32, 4, 4),
    ConvPlan(128, 128, 64, 4, 3),
    ConvPlan(256, 128, 32, 8, 4),
)
TILES_OF_ONE = (
    ConvPlan(128, 16, 32, 4, 4),
    ConvPlan(256, 16, 32, 8, 4),
    ConvPlan(64, 16, 32, 4, 4),
)
"""What is tried for so many channels out."""
PRODUCT_TILES = (
    ConvPlan(64, 64, 64, 4, 4),
    ConvPlan(64, 64, 64, 4, 6),
    ConvPlan(64, 128, 64, 4, 4),
    ConvPlan(128, 64, 64, 4, 4),
    ConvPlan(128, 128, 64, 4, 3),
    ConvPlan(128, 256, 64, 8, 3),
)
UNIT_TILES = {
    192: (
        ConvPlan(128, 128, 64, 8, 2, extra_n=64),
        ConvPlan(128, 128, 64, 8, 3, extra_n=64),
        ConvPlan(64, 128, 64, 4, 3, extra_n=64),
        ConvPlan(64, 128, 64, 4, 2, extra_n=64),
        ConvPlan(64, 128, 64, 4, 4, extra_n=64),
        ConvPlan(64, 128, 32, 4, 4, extra_n=64),
        ConvPlan(128, 128, 32, 8, 4, extra_n=64),
    ),
    96: (
        ConvPlan(128, 64, 32, 8, 4, extra_n=32),
        ConvPlan(128, 64, 32, 4, 4, extra_n=32),
        ConvPlan(128, 64, 32, 4, 6, extra_n=32),
        ConvPlan(128, 64, 32, 4, 3, extra_n=32),
        ConvPlan(64, 64, 32, 4, 4, extra_n=32),
        ConvPlan(64, 64, 32, 4, 6, extra_n=32),
        ConvPlan(64, 64, 64, 4, 3, extra_n=32),
        ConvPlan(128, 128, 32, 4, 4),
        ConvPlan(64, 128, 32, 4, 4),
    ),
}
"""The same for whole residual units."""

_small = TransformerConfig(
    n_layer=2, n_head=2, dim=128, head_dim=64, intermediate_size=192, window_size=6
)
TINY = DacConfig(
    encoder_dim=8,
    encoder_transformer_layers=(0, 0, 0, 1),
    encoder_transformer=replace(_small, n_layer=1, window_size=512),
    decoder_dim=64,
    latent_dim=128,
    quantizer=QuantizerConfig(
        input_dim=128,
        semantic_codebook_size=32,
        codebook_size=16,
        pre_module=_small,
        post_module=_small,
    ),
)


@dataclass(slots=True)
class Row:
    """One way to decode, measured; a fault has no time."""

    layout: str
    dtype: str
    streams: int
    chunk: int
    ms: float | None = None
    audio_s_per_s: float | None = None
    snr_db: float | None = None
    same_alone: bool | None = None
    state_mb: float | None = None
    fault: str = ""


class Bench:
    """The codec with random weights, and how a step of it is timed."""

    def __init__(self, device: str, config: DacConfig, budget_s: float) -> None:
        self.device, self.config = torch.device(device), config
        self.is_cuda = self.device.type == "cuda"
        # For the library's ways only; they are chosen before a graph is captured.
        torch.backends.cudnn.benchmark = True
        self._end = time.monotonic() + budget_s
        self.codec = random_codec(config, self.device)
        self.rate = config.sample_rate / config.samples_per_frame

    @property
    def has_time(self) -> bool:
        """Whether the budget is not used up."""
        return time.monotonic() < self._end

    def codes(self, streams: int, frames: int) -> Tensor:
        """Random codes int64 [B, C, F]; the first streams are the same for every number of them."""
        generator = torch.Generator().manual_seed(3)
        sizes = torch.tensor(self.codec.codebook_sizes)[:, None]
        shape = (streams, len(sizes), frames)
        return (torch.rand(shape, generator=generator) * sizes).long().to(self.device)

    def batch(self, layout: str, dtype: str, streams: int, chunk: int) -> DacBatch:
        """A decoder of so many streams."""
        time_last = layout == "time"
        convolve: Convolve = LibraryConvolve(time_last=time_last)
        if layout in ("units", "fused"):
            convolve = FusedConvolve(by_units=layout == "units")
        return DacBatch(
            self.codec,
            num_slots=streams,
            chunk_frames=chunk,
            dtype=getattr(torch, dtype),
            convolve=convolve,
            time_last=time_last,
        )

    def measure(self, row: Row) -> None:
        """Compare with float32, then time."""
        batch = self.batch(row.layout, row.dtype, row.streams, row.chunk)
        row.state_mb = batch.num_bytes / 1e6
        num_steps = 3
        codes = self.codes(row.streams, num_steps * row.chunk)
        slots = torch.arange(row.streams, device=self.device)
        made = decoded(batch, codes, slots)
        wanted = self.codec.decode(codes[0].cpu())
        error = (made[0].cpu() - wanted).square().mean()
        row.snr_db = float(10 * torch.log10(wanted.square().mean() / error))
        row.same_alone = torch.equal(decoded(batch, codes[:1], slots[:1])[0], made[0])
        inputs = (codes[..., : row.chunk].contiguous(), slots, torch.full_like(slots, 1000))
        row.ms = self.milliseconds(lambda: batch.decode(*inputs))
        row.audio_s_per_s = row.streams * row.chunk / self.rate / row.ms * 1000

    def milliseconds(self, step: Callable[[], Any], *, calls: int = 1, count: int = 20) -> float:
        """Median time of a step, replayed as a graph of some where there is a GPU."""
        step()
        run: Callable[[], Any] = step
        if self.is_cuda:
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(calls):
                    step()
            run = graph.replay
            run()
            return self.median(run, count) / calls
        return self.median(run, 2)

    def median(self, run: Callable[[], Any], count: int) -> float:
        """Median milliseconds of one run."""
        taken = []
        for _ in range(count):
            if self.is_cuda:
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                run()
                end.record()
                end.synchronize()
                taken.append(start.elapsed_time(end))
            else:
                begin = time.perf_counter()
                run()
                taken.append((time.perf_counter() - begin) * 1e3)
        return statistics.median(taken)

    def measure_stream(self) -> Row:
        """The decoder as it is without batches: float32, one stream, step by step."""
        row = Row("one stream", "float32", 1, 4)
        stream = self.codec.stream()
        frames = 32 if self.is_cuda else 8
        codes = self.codes(1, frames)[0].cpu()
        stream.push(codes)
        began = time.perf_counter()
        stream.push(codes)
        took = time.perf_counter() - began
        row.ms = took * 1000 / (frames / 4)
        row.audio_s_per_s = frames / self.rate / took
        return row


@dataclass(frozen=True, slots=True)
class Served:
    """Signals through ``BatchDecoder``, a frame of each at a time, as fast as they are taken.

    ``host_ms`` is what a call of ``advance`` took from whoever makes the frames, on average and at
    most.
    """

    streams: int
    rows_a_step: float
    audio_s_per_s: float
    host_ms: float
    most_host_ms: float


class Counted:
    """Programs that count the rows of their steps."""

    def __init__(self, device: torch.device, nobody: int) -> None:
        self._steps, self._nobody = captured_steps(device), nobody
        self.num_steps = self.num_rows = 0

    def run(self, key: Any, program: Any, inputs: Any, idle: Any) -> Tensor:
        """Count, then run."""
        self.num_steps += 1
        self.num_rows += int((inputs[1].cpu() != self._nobody).sum())
        return self._steps.run(key, program, inputs, idle)


def serve(bench: Bench, layout: str, dtype: str, streams: int, chunk: int) -> Served:
    """Let so many signals begin one after another, and go on for four seconds of audio or so."""
    batch = bench.batch(layout, dtype, streams, chunk)
    programs = Counted(bench.device, batch.num_slots)
    decoder = BatchDecoder(batch, programs, step_sizes(streams))
    codes = bench.codes(1, 88 if bench.is_cuda else 16)[0].cpu().numpy()
    num_frames = codes.shape[1]
    # Graphs are captured the first time.
    for _ in range(2):
        programs.num_steps = programs.num_rows = 0
        taken = []
        began = time.perf_counter()
        signals = [decoder.begin(is_urgent=False) for _ in range(streams)]
        for at in range(num_frames + chunk):
            for number, signal in enumerate(signals):
                # They are spread over a chunk, as those that begin at any time are.
                frame = at - number % chunk
                if 0 <= frame < num_frames:
                    signal.push(codes[:, frame])
                    if frame + 1 == num_frames:
                        decoder.end(signal)
            start = time.perf_counter()
            decoder.advance()
            taken.append(1000 * (time.perf_counter() - start))
        for signal in signals:
            assert decoder.complete(signal)
            samples = sum(map(len, signal.take()))
            assert samples == num_frames * batch.samples_per_frame
        took = time.perf_counter() - began
    return Served(
        streams,
        programs.num_rows / programs.num_steps,
        streams * num_frames / bench.rate / took,
        statistics.mean(taken),
        max(taken),
    )


def decoded(batch: DacBatch, codes: Tensor, slots: Tensor) -> Tensor:
    """Decode from the beginning, step by step."""
    chunk = batch.chunk_frames
    return torch.cat(
        [
            batch.decode(
                codes[..., at : at + chunk].contiguous(), slots, torch.full_like(slots, at)
            )
            for at in range(0, codes.shape[2], chunk)
        ],
        dim=1,
    )


def random_codec(config: DacConfig, device: torch.device) -> DacCodec:
    """The codec with random weights that keep signals at about the same size."""
    codec = DacCodec(config).to_empty(device=device).eval().requires_grad_(False)
    generator = torch.Generator(device).manual_seed(11)
    for name, weight in codec.named_parameters():
        if name.endswith("alpha"):
            weight.uniform_(0.3, 2.0, generator=generator)
        elif name.endswith("gamma"):
            weight.fill_(0.1)
        elif "norm" in name and name.endswith("weight"):
            weight.fill_(1.0)
        elif weight.ndim == 1:
            weight.normal_(std=0.02, generator=generator)
        elif "codebook" in name:
            weight.normal_(std=0.3, generator=generator)
        else:
            fan_in = weight[0].numel()
            is_second = ".block.3.conv" in name and weight.shape[-1] == 1
            weight.normal_(std=(0.3 if is_second else 0.8) * fan_in**-0.5, generator=generator)
    codec.decoder.model[-1].conv.weight.mul_(0.2)
    return codec


@dataclass(frozen=True, slots=True)
class Trial:
    """One way to do one layer: its operations a call, and whether it is ours to compile."""

    layer: str
    way: str
    run: Callable[[], Any]
    flops: float
    is_ours: bool = True


def trials(batch: DacBatch, streams: int) -> Iterator[Trial]:
    """Every kind of convolution that a step makes, in every tile and by the library."""
    length = batch.chunk_frames * 4
    yield from conv_trials(batch, "first", batch._first, streams, length)
    for index, block in enumerate(batch._blocks):
        yield from conv_trials(batch, f"{index}.up", block.up, streams, length, keep=True)
        length *= block.up.stride
        unit = block.units[1]
        yield from conv_trials(batch, f"{index}.wide", unit.wide, streams, length)
        yield from conv_trials(
            batch, f"{index}.pointwise", unit.pointwise, streams, length, residual=True, keep=True
        )
        yield from unit_trials(batch, f"{index}.unit", unit, streams, length)
    yield from conv_trials(batch, "last", batch._last, streams, length, is_last=True)
    layer = batch._transformer._layers[0]
    for name in ("wqkv", "wo", "w13", "w2"):
        yield from product_trials(batch, name, getattr(layer, name), streams * batch.chunk_frames)
    block = batch._upsample[-1][1]
    for name, linear in (("expand", block._up), ("project", block._down)):
        yield from product_trials(batch, name, linear, streams * batch.chunk_frames * 4)


def random(batch: DacBatch, *shape: int) -> Tensor:
    """Random values in the decoder's type."""
    return torch.randn(shape, device=batch.device).to(batch.dtype)


def conv_trials(
    batch: DacBatch,
    layer: str,
    conv: Conv,
    streams: int,
    length: int,
    *,
    residual: bool = False,
    keep: bool = False,
    is_last: bool = False,
) -> Iterator[Trial]:
    """One convolution with what follows it."""
    from fishtts.kernels.convolution import run_causal_conv

    num_out, taps, num_in = conv.weight.shape
    channels = num_out // conv.stride
    signal = random(batch, streams, conv.context + length, num_in)
    some = random(batch, streams, length * conv.stride, channels) if residual else None
    alpha = torch.full((channels,), 1.5, device=batch.device)
    ends: dict[str, Any] = {"residual": some, "alpha": alpha, "context": 6, "keep": keep}
    if is_last:
        ends = {"out_dtype": torch.float32}
    flops = 2 * streams * length * num_out * taps * num_in
    planned = plan_conv(num_out, num_in, taps)
    tiles = {192: TILES_OF_192, 96: TILES_OF_96, 1: TILES_OF_ONE}.get(num_out, TILES)
    operands = (signal, conv.weight, conv.bias)
    steps = {"dilation": conv.dilation, "stride": conv.stride}
    for plan in dict.fromkeys([planned, *tiles]):
        run = partial(run_causal_conv, plan, *operands, **steps, **ends)
        yield Trial(layer, named(plan, planned), run, flops)
    library = LibraryConvolve(time_last=False)
    yield Trial(layer, "library", partial(library.conv, signal, conv, **ends), flops, False)
    alone = partial(
        F.conv2d,
        signal.transpose(1, 2)[:, :, None],
        library.weight(conv),
        conv.bias.to(batch.dtype),
        dilation=(1, conv.dilation),
    )
    yield Trial(layer, "library, convolution alone", alone, flops, False)


def product_trials(batch: DacBatch, layer: str, linear: Linear, rows: int) -> Iterator[Trial]:
    """One product at the rate of frames, without a residual."""
    from fishtts.kernels.convolution import run_causal_conv

    conv = linear.conv
    num_out, taps, num_in = conv.weight.shape
    x = random(batch, 1, rows, num_in)
    flops = 2 * rows * num_out * num_in
    planned = plan_conv(num_out, num_in, taps)
    for plan in dict.fromkeys([planned, *PRODUCT_TILES]):
        run = partial(run_causal_conv, plan, x, conv.weight, conv.bias)
        yield Trial(layer, named(plan, planned), run, flops)
    bias = conv.bias.to(batch.dtype)
    library = partial(F.linear, x, conv.weight[:, 0], bias)
    yield Trial(layer, "library", library, flops, False)


def unit_trials(
    batch: DacBatch, layer: str, unit: Unit, streams: int, length: int
) -> Iterator[Trial]:
    """A whole residual unit."""
    from fishtts.kernels.convolution import run_residual_unit

    channels, taps, _ = unit.wide.weight.shape
    signal = random(batch, streams, unit.wide.context + length, channels)
    residual = random(batch, streams, length, channels)
    flops = 2 * streams * length * channels * channels * (taps + 1)
    ends: dict[str, Any] = {"residual": residual, "alpha": unit.alpha, "context": 6, "keep": True}
    apart = FusedConvolve(by_units=False)
    yield Trial(layer, "two launches", partial(apart.unit, signal, unit, **ends), flops)
    planned = plan_unit(channels)
    operands = (signal, unit.wide.weight, unit.wide.bias, unit.inner_alpha)
    operands += (unit.pointwise.weight[:, 0], unit.pointwise.bias, residual, unit.alpha)
    for plan in UNIT_TILES.get(channels, ()):
        run = partial(
            run_residual_unit, plan, *operands, dilation=unit.wide.dilation, context=6, keep=True
        )
        yield Trial(layer, named(plan, planned), run, flops)


def named(plan: ConvPlan, planned: ConvPlan | None) -> str:
    """A tile in words."""
    extra = f"+{plan.extra_n}" if plan.extra_n else ""
    name = f"{plan.block_m}x{plan.block_n}{extra}x{plan.block_k} w{plan.num_warps}"
    return f"{name} s{plan.num_stages}{' (planned)' if plan == planned else ''}"


def tune(
    bench: Bench, streams: int, chunk: int, dtype: str, layers: list[str], part: str
) -> list[dict[str, Any]]:
    """Time layers in every way. With a ``part`` (i/n) compile that share, no more."""
    batch = bench.batch("fused", dtype, 1, chunk)
    mine, parts = map(int, part.split("/")) if part else (0, 1)
    found = []
    for number, trial in enumerate(trials(batch, 2 if part else streams)):
        if layers and trial.layer not in layers:
            continue
        if part and (number % parts != mine or not trial.is_ours):
            continue
        if not bench.has_time:
            break
        entry: dict[str, Any] = {"layer": trial.layer, "way": trial.way}
        try:
            if part:
                trial.run()
            else:
                entry["us"] = 1000 * bench.milliseconds(trial.run, calls=3, count=7)
                entry["tflops"] = trial.flops / entry["us"] / 1e6
        except Exception as error:  # whatever it is, the others are still worth their time
            entry["fault"] = str(error).split("\n")[0][:150] or type(error).__name__
        found.append(entry)
    return found


def compile_in_parts(options: argparse.Namespace) -> None:
    """Fill the compiler's cache by many processes at once, so that tuning itself is short."""
    count = max(1, min(12, len(os.sched_getaffinity(0)) - 1))
    command = [sys.executable, __file__, *sys.argv[1:]]
    workers = [
        subprocess.Popen(
            [*command, "--tune-part", f"{index}/{count}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for index in range(count)
    ]
    for worker in workers:
        try:
            worker.wait(timeout=options.budget / 2)
        except subprocess.TimeoutExpired:
            worker.kill()


def profile(bench: Bench, streams: int, chunk: int, layout: str, dtype: str) -> list[Any]:
    """Where the time of a step goes: (kernel, calls, microseconds), the longest first."""
    batch = bench.batch(layout, dtype, streams, chunk)
    codes, slots = bench.codes(streams, chunk), torch.arange(streams, device=bench.device)
    inputs = (codes, slots, torch.full_like(slots, 1000))
    batch.decode(*inputs)
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if bench.is_cuda:
        kinds = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as found:
        batch.decode(*inputs)
        if bench.is_cuda:
            torch.cuda.synchronize()
    rows = []
    for event in found.key_averages():
        us = event.self_device_time_total if bench.is_cuda else event.self_cpu_time_total
        rows.append([event.key[:90], event.count, round(us, 1)])
    return sorted(rows, key=lambda row: -row[2])[:30]


def machine() -> dict[str, str]:
    """Where this ran."""
    facts = {
        "cpu": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    for name in ("triton", "fishtts"):
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            facts[name] = "not installed"
    if torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name()
        facts["cudnn"] = str(torch.backends.cudnn.version())
    return facts


def wanted_rows(options: argparse.Namespace) -> list[Row]:
    """The rows in the order of their worth: if time runs out, the last ones are missing."""
    most = max(options.streams)
    main = options.layout[0]
    rows = [Row(main, options.dtype[0], n, options.chunk) for n in sorted(options.streams)[::-1]]
    others = [Row(way, options.dtype[0], most, options.chunk) for way in options.layout[1:]]
    rows += others
    rows += [Row(main, options.dtype[0], most, chunk) for chunk in options.chunks]
    rows += [
        Row(way, kind, most, options.chunk) for kind in options.dtype[1:] for way in options.layout
    ]
    return rows


def describe(row: Row) -> str:
    """A line of the table."""
    head = f"{row.layout:10} {row.dtype:9} {row.streams:7} {row.chunk:6}"
    if row.fault:
        return f"{head}  {row.fault}"
    snr = "" if row.snr_db is None else f"{row.snr_db:6.1f} dB"
    same = (
        "" if row.same_alone is None else ("  same alone" if row.same_alone else "  differs alone")
    )
    return f"{head} {row.ms:9.3f} {row.audio_s_per_s:12.1f}  {snr:10}{same}"


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--chunk", type=int, default=8, help="frames of a step")
    parser.add_argument("--chunks", type=int, nargs="*", default=[4, 16, 32], help="others")
    parser.add_argument("--layout", nargs="+", default=["units", "fused", "channels", "time"])
    parser.add_argument("--dtype", nargs="+", default=["float16", "bfloat16"])
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--tune", nargs="*", help="layers, such as 2.unit; without any, all")
    parser.add_argument("--tune-part", default="", help=argparse.SUPPRESS)
    parser.add_argument("--budget", type=float, default=80.0, help="seconds after which to end")
    options = parser.parse_args()
    began = time.monotonic()
    if not options.gpu:
        options.streams, options.chunks = [min(n, 3) for n in options.streams[:2]], [4]
    if options.tune is not None and options.gpu and not options.tune_part:
        compile_in_parts(options)
    left = options.budget - (time.monotonic() - began)
    bench = Bench("cuda", DacConfig(), left) if options.gpu else Bench("cpu", TINY, left)
    if options.tune_part:
        tune(bench, 2, options.chunk, options.dtype[0], options.tune, options.tune_part)
        return
    facts = machine()
    print(", ".join(f"{key} {value}" for key, value in facts.items()))
    print("layout     dtype     streams frames    ms/step  audio s/s")
    rows = []
    for row in wanted_rows(options):
        if not bench.has_time:
            row.fault = "no time was left"
        else:
            attempt(row, lambda row=row: bench.measure(row))
        rows.append(row)
        print(describe(row), flush=True)
    alone = Row("one stream", "float32", 1, 4)
    attempt(alone, lambda: vars_from(alone, bench.measure_stream()))
    print(describe(alone), flush=True)
    answer: dict[str, Any] = {"machine": facts, "rows": [asdict(row) for row in [*rows, alone]]}
    most = max(options.streams)
    if options.serve:
        answer["served"] = []
        for count in sorted({most, *options.streams}):
            served = serve(bench, options.layout[0], options.dtype[0], count, options.chunk)
            answer["served"].append(asdict(served))
            print(
                f"served {served.streams:3} streams: {served.audio_s_per_s:8.1f} audio s/s,"
                f" {served.rows_a_step:.1f} rows a step, the host busy for {served.host_ms:.2f} ms"
                f" a call, {served.most_host_ms:.2f} at most",
                flush=True,
            )
    if options.profile:
        answer["profile"] = []
        for way in options.layout[:2]:
            try:
                found = profile(bench, most, options.chunk, way, options.dtype[0])
            except Exception as error:
                found = [[str(error)[:200], 0, 0.0]]
            print(f"\n{way}: calls, us")
            for name, count, us in found:
                print(f"{us:10.1f} {count:5}  {name}")
            answer["profile"].append({"layout": way, "kernels": found})
    if options.tune is not None and options.gpu:
        answer["tune"] = tune(bench, most, options.chunk, options.dtype[0], options.tune, "")
        for entry in answer["tune"]:
            figures = (
                f"{entry['us']:9.1f} us {entry['tflops']:7.1f} TFLOP/s" if "us" in entry else ""
            )
            print(f"{entry['layer']:12} {entry['way']:28} {figures} {entry.get('fault', '')}")
    answer["seconds"] = round(time.monotonic() - began, 1)
    print(json.dumps(answer))


def attempt(row: Row, run: Callable[[], Any]) -> None:
    """Run, and write what goes wrong into the row."""
    try:
        run()
    except Exception as error:  # whatever it is, the other rows are still worth their time
        row.fault = str(error).split("\n")[0][:200] or type(error).__name__
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def vars_from(row: Row, other: Row) -> None:
    """Take over another row's figures."""
    row.ms, row.audio_s_per_s = other.ms, other.audio_s_per_s


if __name__ == "__main__":
    main()

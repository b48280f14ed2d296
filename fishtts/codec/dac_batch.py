"""Decoding many signals of S2's codec at once: steps of one shape, as programs for a GPU.

Owns the decoder's weights in half precision and in the order in memory that its convolutions want,
and what each signal has left behind, in slots. A row of a step is the next frames of the signal in
a slot, whatever its position; no row's samples depend on its neighbours. Does not know which signal
comes when, nor streams and graphs of a GPU.

Channels are neighbours in memory: a transposed convolution with a kernel of twice its stride is
then one with two taps, and what it gives is already in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fishtts import kernels
from fishtts.codec.dac import ConvNeXt, DacCodec, DecoderBlock, ResidualUnit, Snake
from fishtts.codec.streaming import CausalConv1d, CausalConvTranspose1d
from fishtts.codec.transformer import Transformer, TransformerLayer, rotation_table

MAX_FRAMES = 32768
"""Frames of one signal: 25 minutes."""


@dataclass(frozen=True, slots=True)
class Conv:
    """Weights [N, taps, C] and float32 biases [N]; ``stride`` outputs a position."""

    weight: Tensor
    bias: Tensor
    dilation: int = 1
    stride: int = 1

    @property
    def context(self) -> int:
        """Positions that it looks back to."""
        return (self.weight.shape[1] - 1) * self.dilation


@dataclass(frozen=True, slots=True)
class Unit:
    """A residual unit: an activation (made by whoever comes before), a wide convolution, another
    activation and a pointwise convolution."""

    alpha: Tensor
    wide: Conv
    inner_alpha: Tensor
    pointwise: Conv


class Convolve(Protocol):
    """How convolutions are done, with what lies between two of them; see ``kernels``."""

    def conv(
        self,
        signal: Tensor,
        conv: Conv,
        *,
        residual: Tensor | None = None,
        alpha: Tensor | None = None,
        context: int = 0,
        keep: bool = True,
        out_dtype: torch.dtype | None = None,
    ) -> tuple[Any, Any]: ...

    def unit(
        self,
        signal: Tensor,
        unit: Unit,
        *,
        residual: Tensor,
        alpha: Tensor,
        context: int,
        keep: bool,
    ) -> tuple[Any, Any]: ...


class FusedConvolve:
    """Convolve by our own kernels. ``by_units`` does narrow residual units in one launch."""

    def __init__(self, *, by_units: bool = True) -> None:
        self._by_units = by_units

    def conv(
        self,
        signal: Tensor,
        conv: Conv,
        *,
        residual: Tensor | None = None,
        alpha: Tensor | None = None,
        context: int = 0,
        keep: bool = True,
        out_dtype: torch.dtype | None = None,
    ) -> tuple[Any, Any]:
        """A convolution; see ``kernels.causal_conv``."""
        made: tuple[Any, Any] = kernels.causal_conv(
            signal,
            conv.weight,
            conv.bias,
            dilation=conv.dilation,
            stride=conv.stride,
            residual=residual,
            alpha=alpha,
            context=context,
            keep=keep,
            out_dtype=out_dtype,
        )
        return made

    def unit(
        self,
        signal: Tensor,
        unit: Unit,
        *,
        residual: Tensor,
        alpha: Tensor,
        context: int,
        keep: bool,
    ) -> tuple[Any, Any]:
        """A residual unit; see ``kernels.residual_unit``."""
        if not self._by_units:
            return in_two(self, signal, unit, residual, alpha, context, keep)
        made: tuple[Any, Any] = kernels.residual_unit(
            signal,
            unit.wide.weight,
            unit.wide.bias,
            unit.inner_alpha,
            unit.pointwise.weight[:, 0],
            unit.pointwise.bias,
            residual,
            alpha,
            dilation=unit.wide.dilation,
            context=context,
            keep=keep,
        )
        return made


def in_two(
    convolve: Convolve,
    signal: Tensor,
    unit: Unit,
    residual: Tensor,
    alpha: Tensor,
    context: int,
    keep: bool,
) -> tuple[Any, Any]:
    """A residual unit as two convolutions."""
    _, hidden = convolve.conv(signal, unit.wide, alpha=unit.inner_alpha, keep=False)
    return convolve.conv(
        hidden, unit.pointwise, residual=residual, alpha=alpha, context=context, keep=keep
    )


class LibraryConvolve:
    """Convolve by torch's library, then activate in a launch of its own.

    ``time_last`` lays positions beside each other in memory instead of channels.
    """

    def __init__(self, *, time_last: bool) -> None:
        self._time_last = time_last
        self._weights: dict[int, tuple[Tensor, Tensor]] = {}

    def weight(self, conv: Conv) -> Tensor:
        """The library's form of a weight: [N, C, 1, taps], neighbours as in the signal."""
        made = self._weights.get(id(conv.weight))
        if made is None:
            weight = conv.weight.transpose(1, 2)[:, :, None]
            order = torch.contiguous_format if self._time_last else torch.channels_last
            # The original is kept too: another tensor could get its id.
            made = conv.weight, weight.contiguous(memory_format=order)
            self._weights[id(conv.weight)] = made
        return made[1]

    def conv(
        self,
        signal: Tensor,
        conv: Conv,
        *,
        residual: Tensor | None = None,
        alpha: Tensor | None = None,
        context: int = 0,
        keep: bool = True,
        out_dtype: torch.dtype | None = None,
    ) -> tuple[Any, Any]:
        """A convolution; see ``kernels.causal_conv``."""
        x = signal.transpose(1, 2)[:, :, None]
        bias = conv.bias.to(signal.dtype)
        y = F.conv2d(x, self.weight(conv), bias, dilation=(1, conv.dilation))[:, :, 0]
        if conv.stride > 1 and self._time_last:
            y = y.unflatten(1, (conv.stride, -1)).permute(0, 2, 3, 1).flatten(2)
            y = y.contiguous().transpose(1, 2)
        else:
            y = y.transpose(1, 2)
            y = y.reshape(y.shape[0], -1, y.shape[2] // conv.stride)
        if alpha is None:
            return y if out_dtype is None else y.to(out_dtype), None
        total, wave = kernels.snake(y, alpha, residual=residual, context=context)
        return total if keep else None, wave

    def unit(
        self,
        signal: Tensor,
        unit: Unit,
        *,
        residual: Tensor,
        alpha: Tensor,
        context: int,
        keep: bool,
    ) -> tuple[Any, Any]:
        """A residual unit."""
        return in_two(self, signal, unit, residual, alpha, context, keep)


@dataclass(frozen=True, slots=True)
class _Block:
    """A block of the decoder."""

    alpha: Tensor
    up: Conv
    units: tuple[Unit, ...]


def conv_of(layer: nn.Module, dtype: torch.dtype) -> Conv:
    """Bring a layer's weights into the order of ``Conv``."""
    assert isinstance(layer, CausalConv1d | CausalConvTranspose1d)
    weight, bias = layer.conv.weight.float(), layer.conv.bias
    assert bias is not None
    if isinstance(layer, CausalConv1d):
        assert layer.stride == 1
        ordered = weight.permute(0, 2, 1).to(dtype).contiguous()
        return Conv(ordered, bias.float(), dilation=layer.conv.dilation[0])
    # Output t stride + r takes input t with tap r, and the one before with tap stride + r.
    stride, (width, out, kernel) = layer.stride, weight.shape
    assert kernel % stride == 0
    ordered = weight.view(width, out, kernel // stride, stride).flip(2).permute(3, 1, 2, 0)
    ordered = ordered.reshape(stride * out, kernel // stride, width).to(dtype).contiguous()
    return Conv(ordered, bias.float().repeat(stride), stride=stride)


def alpha_of(snake: nn.Module) -> Tensor:
    """The factors of an activation, float32 [C]."""
    assert isinstance(snake, Snake)
    return snake.alpha.detach().float().flatten().contiguous()


def _block(block: nn.Module, dtype: torch.dtype) -> _Block:
    assert isinstance(block, DecoderBlock)
    snake, up, *units = block.block
    return _Block(alpha_of(snake), conv_of(up, dtype), tuple(_unit(unit, dtype) for unit in units))


def _unit(unit: nn.Module, dtype: torch.dtype) -> Unit:
    assert isinstance(unit, ResidualUnit)
    outer, wide, inner, pointwise = unit.block
    return Unit(alpha_of(outer), conv_of(wide, dtype), alpha_of(inner), conv_of(pointwise, dtype))


class _Codebooks:
    """All codebooks as one table of what their codes stand for, projected already."""

    def __init__(self, codec: DacCodec) -> None:
        stages = codec.quantizer.stages
        tables = [
            stage.out_proj(stage.codebook.weight.t()[None])[0].t().float() for stage in stages
        ]
        self._table = torch.cat(tables)
        sizes = torch.tensor([len(table) for table in tables], device=self._table.device)
        self._first = (sizes.cumsum(0) - sizes)[:, None]
        self._last = sizes[:, None] - 1

    def __call__(self, codes: Tensor) -> Tensor:
        """int64 [B, C, T] -> float32 [B, T, E]; a code beyond its codebook is its last row."""
        places = (codes.minimum(self._last) + self._first).transpose(1, 2)
        # Code by code, as no reduction over an axis of any size promises.
        rows = F.embedding_bag(places.flatten(0, 1), self._table, mode="sum")
        return rows.unflatten(0, (places.shape[0], places.shape[1]))


@dataclass(frozen=True, slots=True)
class Linear:
    """A product, by the kernel of the convolutions: a row's sums do not depend on how many there
    are beside it, as they do in a library that chooses its ways by size."""

    conv: Conv

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Linear:
        """Take over weights [N, K] and biases [N]."""
        bias = weight.new_zeros(len(weight)) if bias is None else bias
        return cls(Conv(weight.to(dtype)[:, None].contiguous(), bias.float()))

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """[B, T, K] -> [B, T, N], ``residual`` added before the one rounding."""
        made: Tensor = kernels.causal_conv(x, self.conv.weight, self.conv.bias, residual=residual)[
            0
        ]
        return made


class _ConvNeXt:
    """``ConvNeXt`` on rows of positions [B, T, E]."""

    def __init__(self, layer: nn.Module, dtype: torch.dtype) -> None:
        assert isinstance(layer, ConvNeXt)
        depthwise, norm = layer.dwconv.conv, layer.norm
        assert depthwise.bias is not None
        self._depthwise = depthwise.weight[:, 0].t().float().contiguous()
        self._ends = depthwise.bias.float(), norm.weight.float(), norm.bias.float()
        self._eps = norm.eps
        gamma = layer.gamma.float()
        self._up = Linear.of(layer.pwconv1.weight, layer.pwconv1.bias, dtype)
        self._down = Linear.of(
            layer.pwconv2.weight.float() * gamma[:, None],
            layer.pwconv2.bias.float() * gamma,
            dtype,
        )

    @property
    def context(self) -> int:
        """Positions that it looks back to."""
        return len(self._depthwise) - 1

    def __call__(self, x: Tensor, signal: Tensor) -> Tensor:
        """x [B, T, E] and the same with its context in front."""
        y = kernels.depthwise_norm(signal, self._depthwise, *self._ends, self._eps)
        return self._down(F.gelu(self._up(y)), residual=x)


class _Layer:
    """The weights of one layer; both branches' scales are in their last product."""

    def __init__(self, layer: nn.Module, dtype: torch.dtype) -> None:
        assert isinstance(layer, TransformerLayer)
        attention, feed_forward = layer.attention, layer.feed_forward
        self.norms = layer.attention_norm.weight.to(dtype), layer.ffn_norm.weight.to(dtype)
        self.wqkv = Linear.of(attention.wqkv.weight, None, dtype)
        scale = layer.attention_layer_scale.gamma.float()[:, None]
        self.wo = Linear.of(attention.wo.weight.float() * scale, None, dtype)
        # Their rows in turn, in whole groups, as ``silu_mul`` takes them.
        padding = -len(feed_forward.w1.weight) % 128
        gate_up = torch.stack((feed_forward.w1.weight, feed_forward.w3.weight), dim=1)
        self.w13 = Linear.of(F.pad(gate_up.flatten(0, 1), (0, 0, 0, 2 * padding)), None, dtype)
        scale = layer.ffn_layer_scale.gamma.float()[:, None]
        self.w2 = Linear.of(
            F.pad(feed_forward.w2.weight.float() * scale, (0, padding)), None, dtype
        )


class _Transformer:
    """``Transformer`` on rows [B, T, E]; each slot's keys and values lie in a ring."""

    def __init__(
        self, transformer: Transformer, dtype: torch.dtype, num_slots: int, chunk: int
    ) -> None:
        config = self._config = transformer.config
        self._layers = [_Layer(layer, dtype) for layer in transformer.layers]
        self._norm = transformer.norm.weight.to(dtype)
        device = self._norm.device
        # All that a step's first query sees, and the step itself.
        ring = -(-(config.window_size - 1 + chunk) // 8) * 8
        shape = (len(self._layers), 2, num_slots, config.n_head, ring, config.head_dim)
        self._kept = torch.zeros(shape, dtype=dtype, device=device)
        table = rotation_table(config.head_dim, config.rope_base, 0, MAX_FRAMES)
        self._turns = torch.stack((table.real, table.imag)).to(device)

    @property
    def num_bytes(self) -> int:
        """Memory of all slots."""
        return self._kept.numel() * self._kept.element_size()

    def __call__(self, x: Tensor, slots: Tensor, positions: Tensor) -> Tensor:
        config, (batch, length, _) = self._config, x.shape
        heads_shape = (batch, length, 3, config.n_head, config.head_dim)
        for layer, rings in zip(self._layers, self._kept, strict=True):
            qkv = layer.wqkv(self._normed(x, layer.norms[0])).view(heads_shape)
            heads = kernels.window_attention_(
                qkv, rings, slots, positions, self._turns, config.window_size
            )
            x = layer.wo(heads.flatten(2), residual=x)
            gate_up = layer.w13(self._normed(x, layer.norms[1]))
            hidden = kernels.silu_mul(gate_up.flatten(0, 1)).unflatten(0, (batch, length))
            x = layer.w2(hidden, residual=x)
        return self._normed(x, self._norm)

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        normed, _ = kernels.residual_rms_norm(x.flatten(0, 1), weight, self._config.norm_eps)
        made: Tensor = normed.view(x.shape)
        return made


class DacBatch:
    """Decodes steps of ``chunk_frames`` frames of up to ``num_slots`` signals.

    One slot more than that, the last, is for rows that are nobody's. ``time_last`` is for a
    ``convolve`` that wants positions beside each other in memory instead of channels.
    """

    def __init__(
        self,
        codec: DacCodec,
        *,
        num_slots: int,
        chunk_frames: int,
        dtype: torch.dtype,
        convolve: Convolve | None = None,
        time_last: bool = False,
    ) -> None:
        assert chunk_frames >= 3, "a step is at least as long as each convolution looks back"
        self.chunk_frames, self.num_slots, self.dtype = chunk_frames, num_slots, dtype
        self.samples_per_frame, self.num_codebooks = codec.samples_per_frame, codec.num_codebooks
        self.device = next(codec.parameters()).device
        self._convolve, self._time_last = convolve or FusedConvolve(), time_last
        quantizer = codec.quantizer
        with torch.inference_mode():
            self._codebooks = _Codebooks(codec)
            self._transformer = _Transformer(
                quantizer.post_module, dtype, num_slots + 1, chunk_frames
            )
            self._upsample = [
                (conv_of(up, dtype), _ConvNeXt(block, dtype)) for up, block in quantizer.upsample
            ]
            first, *blocks, snake, last = codec.decoder.model
            self._first, self._last = conv_of(first, dtype), conv_of(last, dtype)
            self._blocks = [_block(block, dtype) for block in blocks]
            self._last_alpha = alpha_of(snake)
            self._pasts = {
                name: torch.zeros((num_slots + 1, length, width), dtype=dtype, device=self.device)
                for name, length, width in self._contexts()
                if length
            }

    def _contexts(self) -> Iterator[tuple[str, int, int]]:
        """Name the places where something of a signal is kept: how many positions, how wide."""
        for number, (conv, block) in enumerate(self._upsample):
            assert conv.context == 0
            yield f"upsample.{number}", block.context, conv.weight.shape[2]
        yield "first", self._first.context, self._first.weight.shape[2]
        for index, block in enumerate(self._blocks):
            yield f"{index}.up", block.up.context, block.up.weight.shape[2]
            for number, unit in enumerate(block.units):
                yield f"{index}.{number}", unit.wide.context, unit.wide.weight.shape[2]
        yield "last", self._last.context, self._last.weight.shape[2]

    @property
    def num_bytes(self) -> int:
        """Memory of all slots."""
        held = sum(past.numel() * past.element_size() for past in self._pasts.values())
        return held + self._transformer.num_bytes

    def idle(self, num_rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs of a step of rows that are nobody's."""
        shape = (num_rows, self.num_codebooks, self.chunk_frames)
        codes = torch.zeros(shape, dtype=torch.int64, device=self.device)
        slots = torch.full((num_rows,), self.num_slots, device=self.device)
        return codes, slots, torch.zeros_like(slots)

    @torch.inference_mode()
    def decode(self, codes: Tensor, slots: Tensor, positions: Tensor) -> Tensor:
        """Go on with the signals in ``slots`` [B], which had ``positions`` [B] frames so far.

        A signal at position 0 begins, whatever its slot held.

        Shapes: codes int64 [B, C, chunk_frames] -> float32 [B, chunk_frames * samples_per_frame].
        """
        is_new = positions == 0
        z = self._transformer(self._codebooks(codes).to(self.dtype), slots, positions)
        for number, (conv, block) in enumerate(self._upsample):
            z, _ = kernels.causal_conv(z, conv.weight, conv.bias, stride=conv.stride)
            signal = F.pad(z, (0, 0, block.context, 0))
            self._carry(signal, f"upsample.{number}", slots, is_new)
            z = block(z, signal)
        signal = self._signal(z, self._first.context)
        return self._wave(signal, slots, is_new)

    def _signal(self, x: Tensor, context: int) -> Tensor:
        """Put room for a context in front of x [B, T, C], in the order of the convolutions."""
        if not self._time_last:
            return F.pad(x, (0, 0, context, 0))
        return F.pad(x.transpose(1, 2), (context, 0)).transpose(1, 2)

    def _wave(self, signal: Tensor, slots: Tensor, is_new: Tensor) -> Tensor:
        """The convolutional decoder. [B, context + T, E] -> float32 [B, N]."""
        convolve, blocks = self._convolve, self._blocks
        self._carry(signal, "first", slots, is_new)
        # What follows each block: the activation, and how far the next convolution looks back.
        ends = [(block.alpha, block.up.context) for block in blocks]
        ends.append((self._last_alpha, self._last.context))
        alpha, context = ends[0]
        _, wave = convolve.conv(signal, self._first, alpha=alpha, context=context, keep=False)
        for index, (block, end) in enumerate(zip(blocks, ends[1:], strict=True)):
            self._carry(wave, f"{index}.up", slots, is_new)
            starts = [(unit.alpha, unit.wide.context) for unit in block.units]
            alpha, context = starts[0]
            x, wave = convolve.conv(wave, block.up, alpha=alpha, context=context)
            for number, (unit, following) in enumerate(
                zip(block.units, [*starts[1:], end], strict=True)
            ):
                self._carry(wave, f"{index}.{number}", slots, is_new)
                alpha, context = following
                x, wave = convolve.unit(
                    wave,
                    unit,
                    residual=x,
                    alpha=alpha,
                    context=context,
                    keep=number + 1 < len(block.units),
                )
        self._carry(wave, "last", slots, is_new)
        samples, _ = convolve.conv(wave, self._last, out_dtype=torch.float32)
        return samples[..., 0].tanh()

    def _carry(self, signal: Tensor, name: str, slots: Tensor, is_new: Tensor) -> None:
        """Put the past of each row in front of it, and keep its end."""
        kernels.carry_context_(signal, self._pasts[name], slots, is_new)

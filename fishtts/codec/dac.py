"""The codec of S2 Pro: a causal convolutional encoder and decoder around a split quantiser.

Owns codes <-> samples for that architecture, whole or as a stream; its state dict has the names of
the checkpoint, weight norm folded. Does not know files, text, voices or the engine. The activation
and the residual units are those of the Descript audio codec (MIT).

Everything is causal, and every decode is a stream that goes on in steps of one fixed size. All
steps have the same shapes and run the same kernels, so samples do not depend on how codes arrive,
nor on what follows them.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fishtts import kernels
from fishtts.codec.batched import StepDecoder
from fishtts.codec.rvq import SplitQuantizer
from fishtts.codec.streaming import CausalConv1d, CausalConvTranspose1d, StreamState
from fishtts.codec.transformer import Transformer, TransformerConfig
from fishtts.errors import ModelError
from fishtts.kernels.launch import gpu_facts

_DECODE_STEP_FRAMES = 4
"""Short enough to listen to while it is made, long enough that calls do not cost more than sums."""

_BATCH_STEP_FRAMES = 8
"""The same beside others: 0.37 s. Steps of twice as many gave 4 % more audio a second."""

_ENCODE_STEP_FRAMES = 32
"""Bounds the memory that a long recording needs."""


@dataclass(frozen=True, slots=True)
class QuantizerConfig:
    """Sizes between encoder and decoder. ``n_codebooks`` counts the residual ones."""

    input_dim: int = 1024
    downsample_factor: tuple[int, ...] = (2, 2)
    codebook_dim: int = 8
    semantic_codebook_size: int = 4096
    n_codebooks: int = 9
    codebook_size: int = 1024
    pre_module: TransformerConfig = field(default_factory=TransformerConfig)
    post_module: TransformerConfig = field(default_factory=TransformerConfig)


@dataclass(frozen=True, slots=True)
class DacConfig:
    """Sizes of the codec; the defaults are S2 Pro's, whose checkpoint holds no description.

    ``encoder_transformer_layers`` says how many layers follow each encoder block; it stands above
    ``encoder_transformer.n_layer``.
    """

    sample_rate: int = 44100
    encoder_dim: int = 64
    encoder_rates: tuple[int, ...] = (2, 4, 8, 8)
    encoder_transformer_layers: tuple[int, ...] = (0, 0, 0, 4)
    encoder_transformer: TransformerConfig = field(
        default_factory=lambda: TransformerConfig(n_layer=4, window_size=512)
    )
    decoder_dim: int = 1536
    decoder_rates: tuple[int, ...] = (8, 8, 4, 2)
    latent_dim: int = 1024
    quantizer: QuantizerConfig = field(default_factory=QuantizerConfig)

    def __post_init__(self) -> None:
        quantizer = self.quantizer
        if math.prod(self.encoder_rates) != math.prod(self.decoder_rates):
            raise ValueError("encoder_rates and decoder_rates do not give the same frame")
        if len(self.encoder_transformer_layers) != len(self.encoder_rates):
            raise ValueError("encoder_transformer_layers and encoder_rates differ in length")
        dims = {quantizer.input_dim, quantizer.pre_module.dim, quantizer.post_module.dim}
        if dims != {self.latent_dim}:
            raise ValueError("latent_dim is not the dim of the quantizer and its transformers")
        for index, num_layers in enumerate(self.encoder_transformer_layers):
            if num_layers and self.encoder_transformer.dim != self.encoder_dim << index + 1:
                raise ValueError("encoder_transformer.dim is not the dim of its encoder block")

    @property
    def samples_per_frame(self) -> int:
        """Samples that one frame of codes stands for."""
        return math.prod(self.encoder_rates) * math.prod(self.quantizer.downsample_factor)


class Snake(nn.Module):
    """x + sin(alpha x)^2 / alpha, one alpha a channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        wave = (x * self.alpha).sin_()
        return torch.addcmul(x, wave.mul_(wave), (self.alpha + 1e-9).reciprocal())


class Chain(nn.ModuleList):
    """Layers one after another; those that remember get the signal's state."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__(layers)

    def forward(self, x: Tensor, state: StreamState) -> Tensor:
        for layer in self:
            x = layer(x) if isinstance(layer, Snake) else layer(x, state)
        return x


class ResidualUnit(nn.Module):
    """A wide dilated convolution and a pointwise one, added to their input."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.block = Chain(
            Snake(channels),
            CausalConv1d(channels, channels, 7, dilation=dilation),
            Snake(channels),
            CausalConv1d(channels, channels, 1),
        )

    def forward(self, x: Tensor, state: StreamState) -> Tensor:
        result: Tensor = self.block(x, state)
        return result.add_(x)


def _residual_units(channels: int) -> list[nn.Module]:
    return [ResidualUnit(channels, dilation) for dilation in (1, 3, 9)]


class EncoderBlock(nn.Module):
    """Residual units, then ``stride`` fold fewer positions with twice the channels."""

    def __init__(self, channels: int, stride: int, transformer: Transformer | None) -> None:
        super().__init__()
        self.block = Chain(
            *_residual_units(channels),
            Snake(channels),
            CausalConv1d(channels, 2 * channels, 2 * stride, stride=stride),
            *([transformer] if transformer else []),
        )

    def forward(self, x: Tensor, state: StreamState) -> Tensor:
        result: Tensor = self.block(x, state)
        return result


class DecoderBlock(nn.Module):
    """``stride`` fold more positions with half the channels, then residual units."""

    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.block = Chain(
            Snake(channels),
            CausalConvTranspose1d(channels, channels // 2, 2 * stride, stride=stride),
            *_residual_units(channels // 2),
        )

    def forward(self, x: Tensor, state: StreamState) -> Tensor:
        result: Tensor = self.block(x, state)
        return result


class Encoder(nn.Module):
    """Samples to latent positions. [B, 1, N] -> [B, latent_dim, N / hop]."""

    def __init__(self, config: DacConfig) -> None:
        super().__init__()
        channels = config.encoder_dim
        layers: list[nn.Module] = [CausalConv1d(1, channels, 7)]
        for stride, num_layers in zip(
            config.encoder_rates, config.encoder_transformer_layers, strict=True
        ):
            transformer = None
            if num_layers:
                transformer = Transformer(config.encoder_transformer, num_layers)
            layers.append(EncoderBlock(channels, stride, transformer))
            channels *= 2
        layers += [Snake(channels), CausalConv1d(channels, config.latent_dim, 3)]
        self.block = Chain(*layers)

    def forward(self, x: Tensor, state: StreamState) -> Tensor:
        result: Tensor = self.block(x, state)
        return result


class Decoder(nn.Module):
    """Latent positions to samples. [B, latent_dim, T] -> [B, 1, T * hop] in (-1, 1)."""

    def __init__(self, config: DacConfig) -> None:
        super().__init__()
        channels = config.decoder_dim
        layers: list[nn.Module] = [CausalConv1d(config.latent_dim, channels, 7)]
        for stride in config.decoder_rates:
            layers.append(DecoderBlock(channels, stride))
            channels //= 2
        layers += [Snake(channels), CausalConv1d(channels, 1, 7)]
        self.model = Chain(*layers)

    def forward(self, x: Tensor, state: StreamState) -> Tensor:
        samples: Tensor = self.model(x, state)
        return samples.tanh()


class ConvNeXt(nn.Module):
    """Depthwise convolution, norm and two pointwise layers, scaled and added to their input."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dwconv = CausalConv1d(dim, dim, 7, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1 = nn.Linear(dim, 4 * dim)
        self.pwconv2 = nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor, state: StreamState) -> Tensor:
        normed = self.norm(self.dwconv(x, state).transpose(1, 2))
        y: Tensor = self.gamma * self.pwconv2(F.gelu(self.pwconv1(normed)))
        return x + y.transpose(1, 2)


class DacQuantizer(SplitQuantizer):
    """The quantiser, with what changes the rate and looks further back on either side of it."""

    def __init__(self, config: QuantizerConfig) -> None:
        dim = config.input_dim
        super().__init__(
            dim,
            config.codebook_dim,
            config.semantic_codebook_size,
            config.codebook_size,
            config.n_codebooks,
        )
        self.downsample = Chain(
            *(
                Chain(CausalConv1d(dim, dim, factor, stride=factor), ConvNeXt(dim))
                for factor in config.downsample_factor
            )
        )
        self.upsample = Chain(
            *(
                Chain(CausalConvTranspose1d(dim, dim, factor, stride=factor), ConvNeXt(dim))
                for factor in reversed(config.downsample_factor)
            )
        )
        self.pre_module = Transformer(config.pre_module, config.pre_module.n_layer)
        self.post_module = Transformer(config.post_module, config.post_module.n_layer)


class DacCodec(nn.Module):
    """The whole codec. One instance serves any number of streams.

    It is made without storage (on the meta device): its weights can only come from a checkpoint.
    The encoder and the codebooks stay in float32, since rounding changes codes; ``post_module``,
    ``upsample`` and ``decoder`` may be cast.
    """

    def __init__(self, config: DacConfig) -> None:
        super().__init__()
        quantizer = config.quantizer
        self.sample_rate = config.sample_rate
        self.samples_per_frame = config.samples_per_frame
        self.codebook_sizes = (
            quantizer.semantic_codebook_size,
            *[quantizer.codebook_size] * quantizer.n_codebooks,
        )
        self.num_codebooks = len(self.codebook_sizes)
        self.identity = ""
        with torch.device("meta"):
            self.encoder = Encoder(config)
            self.quantizer = DacQuantizer(quantizer)
            self.decoder = Decoder(config)

    @torch.inference_mode()
    def encode(self, samples: Tensor) -> Tensor:
        """Codes of a recording. float32 [N] at ``sample_rate`` -> int64 [C, ceil(N / frame)]."""
        assert samples.ndim == 1, "a recording is mono"
        parameter = next(self.encoder.parameters())
        wave = samples.to(parameter.device, torch.float32)[None, None]
        wave = F.pad(wave, (0, -wave.shape[-1] % self.samples_per_frame))
        state = StreamState()
        codes = [samples.new_zeros((self.num_codebooks, 0), dtype=torch.int64, device="cpu")]
        with _exact_convolutions():
            for step in torch.split(wave, _ENCODE_STEP_FRAMES * self.samples_per_frame, dim=-1):
                if step.shape[-1]:
                    z = self.quantizer.downsample(self.encoder(step, state), state)
                    z = self.quantizer.pre_module(z, state)
                    codes.append(self.quantizer.encode(z)[0].cpu())
        return torch.cat(codes, dim=1)

    def decode(self, codes: Tensor) -> Tensor:
        """Samples of whole codes: one stream. int64 [C, F] -> float32 [F * samples_per_frame]."""
        stream = self.stream()
        return torch.cat((stream.push(codes), stream.finish()))

    def stream(self) -> DacStream:
        """Begin a signal."""
        return DacStream(self)

    def steps(self, num_slots: int) -> StepDecoder | None:
        """A decoder in half precision where its kernels run; see ``dac_batch``."""
        device = next(self.parameters()).device
        # Ada has the other kernels, but these were compiled for GPUs with TMA only.
        if not (kernels.has_triton(device) and gpu_facts(device).has_tma):
            return None
        # It reads these classes, and its kernels are not for a CPU.
        from fishtts.codec.dac_batch import DacBatch

        return DacBatch(
            self, num_slots=num_slots, chunk_frames=_BATCH_STEP_FRAMES, dtype=torch.float16
        )

    def synthesise(self, codes: Tensor, state: StreamState) -> Tensor:
        """Go on with a signal. int64 [B, C, f] -> float32 [B, f * samples_per_frame]."""
        z = self.quantizer.decode(codes)
        z = z.to(next(self.decoder.parameters()).dtype)
        z = self.quantizer.upsample(self.quantizer.post_module(z, state), state)
        samples: Tensor = self.decoder(z, state)
        return samples[:, 0].float()


class DacStream:
    """One signal being decoded, in steps of four frames: up to three wait for those that follow."""

    def __init__(self, codec: DacCodec) -> None:
        self._codec = codec
        self._state = StreamState()
        self._waiting = torch.zeros((codec.num_codebooks, 0), dtype=torch.int64)
        self._is_finished = False

    @property
    def num_bytes(self) -> int:
        """Memory that the stream holds between calls."""
        return self._state.num_bytes

    @torch.inference_mode()
    def push(self, codes: Tensor) -> Tensor:
        """Decode further frames. int64 [C, f] -> float32 [n]; the caller's codes stay as they are.

        Raises: ``ModelError`` for codes of another codec.
        """
        assert not self._is_finished, "a finished stream takes no more frames"
        if (
            codes.ndim != 2
            or codes.shape[0] != self._codec.num_codebooks
            or bool((codes < 0).any())
        ):
            raise ModelError(
                f"Codes of shape {list(codes.shape)} do not fit the codec, which has "
                f"{self._codec.num_codebooks} codebooks."
            )
        waiting = torch.cat((self._waiting, codes.to("cpu", torch.int64)), dim=1)
        num_ready = waiting.shape[1] - waiting.shape[1] % _DECODE_STEP_FRAMES
        self._waiting = waiting[:, num_ready:].clone()
        steps = torch.split(waiting[:, :num_ready], _DECODE_STEP_FRAMES, dim=1)
        return torch.cat([torch.zeros(0), *(self._step(step) for step in steps if step.numel())])

    @torch.inference_mode()
    def finish(self) -> Tensor:
        """Decode what waits. The step is filled up, so that its shapes are those of the others."""
        self._is_finished = True
        num_frames = self._waiting.shape[1]
        if num_frames == 0:
            return torch.zeros(0)
        step = F.pad(self._waiting, (0, _DECODE_STEP_FRAMES - num_frames))
        self._waiting = self._waiting[:, :0]
        return self._step(step)[: num_frames * self._codec.samples_per_frame]

    def _step(self, codes: Tensor) -> Tensor:
        device = next(self._codec.parameters()).device
        with _exact_convolutions():
            return self._codec.synthesise(codes[None].to(device), self._state)[0].cpu()


def _exact_convolutions() -> AbstractContextManager[None]:
    """Let float32 mean float32 on a GPU, where convolutions round to ten bits otherwise, and let
    equal steps give equal samples."""
    cudnn = torch.backends.cudnn
    flags: AbstractContextManager[None] = cudnn.flags(
        enabled=cudnn.enabled, deterministic=True, allow_tf32=False
    )
    return flags

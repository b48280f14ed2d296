"""The codec of `minnow`: a causal encoder on log-mel frames, a quantiser, an inverse-STFT decoder.

Owns codes <-> samples for that architecture; knows nothing of text, voices or the engine.

Everything runs on a grid of short frames (``hop`` samples); ``stride`` of them make one code frame.
Short frame k sees the samples up to its own end, so the encoder is causal. The decoder's windows
lie on the same grid: the samples of a window are final once the later windows that overlap it are
known, which makes the decoder's latency ``window - hop`` samples (30 ms here) and lets a stream be
exact: convolution left contexts plus the unfinished overlap are its whole state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fishtts.codec.batched import StepDecoder
from fishtts.codec.rvq import SplitQuantizer


@dataclass(frozen=True, slots=True)
class SpectralConfig:
    """Sizes of the codec. All counts; ``hop`` and ``window`` in samples, ``sample_rate`` in Hz."""

    sample_rate: int = 24000
    hop: int = 300
    window: int = 1024
    stride: int = 4
    num_mels: int = 100
    encoder_dim: int = 256
    encoder_layers: int = 4
    encoder_frame_layers: int = 3
    latent_dim: int = 256
    decoder_dim: int = 512
    decoder_frame_layers: int = 1
    decoder_layers: int = 6
    kernel: int = 7
    expansion: int = 3
    codebook_dim: int = 8
    semantic_codebook_size: int = 1024
    num_residual_codebooks: int = 7
    residual_codebook_size: int = 1024

    @property
    def samples_per_frame(self) -> int:
        """Samples that one code frame stands for."""
        return self.hop * self.stride


def mel_filters(config: SpectralConfig) -> Tensor:
    """Triangular mel filters (HTK scale) over the bins of the window. Shape [num_mels, bins]."""
    bins = config.window // 2 + 1
    frequencies = torch.linspace(0, config.sample_rate / 2, bins, dtype=torch.float64)
    top = 2595 * math.log10(1 + config.sample_rate / 2 / 700)
    points = 700 * (
        10 ** (torch.linspace(0, top, config.num_mels + 2, dtype=torch.float64) / 2595) - 1
    )
    width = torch.clamp(points[1:] - points[:-1], min=config.sample_rate / config.window)
    rising = (frequencies[None] - points[1:-1, None]) / width[:-1, None] + 1
    falling = (points[1:-1, None] - frequencies[None]) / width[1:, None] + 1
    return torch.clamp(torch.minimum(rising, falling), min=0).float()


class CausalConv(nn.Conv1d):
    """Convolution over time that sees only the past. x [B, T, C_in] -> [B, T, C_out].

    ``past`` is the left context [B, kernel - 1, C_in] (zeros at the start of a signal).
    """

    def __init__(self, channels_in: int, channels_out: int, kernel: int, groups: int = 1) -> None:
        super().__init__(channels_in, channels_out, kernel, groups=groups)

    def forward(self, x: Tensor, past: Tensor | None = None) -> Tensor:
        context = self.kernel_size[0] - 1
        x = F.pad(x, (0, 0, context, 0)) if past is None else torch.cat((past, x), dim=1)
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


class ConvNeXt(nn.Module):
    """Depthwise causal convolution, norm, two pointwise layers, scaled residual. [B, T, C]."""

    def __init__(self, dim: int, kernel: int, expansion: int, scale: float) -> None:
        super().__init__()
        self.depthwise = CausalConv(dim, dim, kernel, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.expand = nn.Linear(dim, expansion * dim)
        self.project = nn.Linear(expansion * dim, dim)
        self.gamma = nn.Parameter(torch.full((dim,), scale))

    def forward(self, x: Tensor, past: Tensor | None = None) -> Tensor:
        y = self.norm(self.depthwise(x, past))
        return x + self.gamma * self.project(F.gelu(self.expand(y)))


class Encoder(nn.Module):
    """Samples -> latent frames. [B, N] -> [B, F, latent_dim], N a multiple of samples_per_frame."""

    mel: Tensor
    taper: Tensor

    def __init__(self, config: SpectralConfig) -> None:
        super().__init__()
        self.config = config
        dim = config.encoder_dim

        def block(width: int) -> ConvNeXt:
            return ConvNeXt(width, config.kernel, config.expansion, scale=0.2)

        self.register_buffer("mel", mel_filters(config), persistent=False)
        self.register_buffer("taper", torch.hann_window(config.window), persistent=False)
        self.stem = CausalConv(config.num_mels, dim, config.kernel)
        self.blocks = nn.ModuleList(block(dim) for _ in range(config.encoder_layers))
        self.gather = nn.Linear(config.stride * dim, dim)
        self.frame_blocks = nn.ModuleList(block(dim) for _ in range(config.encoder_frame_layers))
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.output = nn.Linear(dim, config.latent_dim)

    def features(self, samples: Tensor) -> Tensor:
        """Log-mel of every short frame, in float32. [B, N] -> [B, T, num_mels]."""
        config = self.config
        padded = F.pad(samples.float(), (config.window - config.hop, 0))
        frames = padded.unfold(1, config.window, config.hop) * self.taper
        spectrum = torch.fft.rfft(frames)
        power = spectrum.real.square() + spectrum.imag.square()
        mel = torch.sqrt(power + 1e-9) @ self.mel.t()
        return torch.log(mel.clamp(min=1e-2)) * 0.5 + 0.5

    def forward(self, samples: Tensor) -> Tensor:
        x = self.stem(self.features(samples).to(self.stem.weight.dtype))
        for block in self.blocks:
            x = block(x)
        x = self.gather(x.reshape(x.shape[0], -1, self.config.stride * x.shape[2]))
        for block in self.frame_blocks:
            x = block(x)
        return self.output(self.norm(x))


class Decoder(nn.Module):
    """Latent frames -> windows of samples. [B, F, latent_dim] -> [B, F * stride, 4 * hop].

    Windows are tapered and zero-padded at their front to a whole number of hops, ready to overlap.
    """

    taper: Tensor
    envelope: Tensor

    def __init__(self, config: SpectralConfig) -> None:
        super().__init__()
        self.config = config
        dim = config.decoder_dim

        def block() -> ConvNeXt:
            return ConvNeXt(dim, config.kernel, config.expansion, scale=0.2)

        self.register_buffer("taper", torch.hann_window(config.window), persistent=False)
        self.register_buffer("envelope", overlap_envelope(config), persistent=False)
        self.stem = CausalConv(config.latent_dim, dim, 3)
        self.frame_blocks = nn.ModuleList(block() for _ in range(config.decoder_frame_layers))
        self.spread = nn.Linear(dim, config.stride * dim)
        self.blocks = nn.ModuleList(block() for _ in range(config.decoder_layers))
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        # Without the Nyquist bin the head is a multiple of 128 wide, and 12 kHz holds no speech.
        self.magnitude = nn.Linear(dim, config.window // 2)
        self.phase = nn.Linear(dim, config.window // 2)

    @property
    def contexts(self) -> tuple[tuple[int, int], ...]:
        """(length, channels) of each convolution's left context, in the order of ``forward``."""
        dim, past = self.config.decoder_dim, self.config.kernel - 1
        frames = [(self.stem.kernel_size[0] - 1, self.config.latent_dim)]
        return tuple(frames + [(past, dim)] * (len(self.frame_blocks) + len(self.blocks)))

    def forward(self, z: Tensor, state: list[Tensor] | None = None) -> Tensor:
        """With ``state`` (one tensor a convolution) continue a stream; it is updated in place."""
        layers = [self.stem, *self.frame_blocks, *self.blocks]
        spread_at = len(self.frame_blocks)
        x = z
        for index, layer in enumerate(layers):
            past = None if state is None else state[index]
            if past is not None:
                assert state is not None
                state[index] = torch.cat((past, x), dim=1)[:, -past.shape[1] :]
            x = layer(x, past)
            if index == spread_at:
                x = self.spread(x).reshape(x.shape[0], -1, self.config.decoder_dim)
        return self.windows(self.norm(x))

    def windows(self, x: Tensor) -> Tensor:
        """Magnitude and phase heads, inverse transform, taper; the transform in float32."""
        config = self.config
        magnitude = torch.exp(self.magnitude(x).float().clamp(max=6.0))
        phase = self.phase(x).float()
        spectrum = torch.complex(magnitude * torch.cos(phase), magnitude * torch.sin(phase))
        frames = torch.fft.irfft(F.pad(spectrum, (0, 1)), n=config.window) * self.taper
        return F.pad(frames, (-config.window % config.hop, 0))

    def overlap(self, windows: Tensor) -> Tensor:
        """Add overlapping windows. [B, T, W] -> [B, (T + W / hop - 1) * hop], not yet scaled."""
        hop = self.config.hop
        parts = windows.reshape(*windows.shape[:2], -1, hop)
        spans = parts.shape[2]
        total = sum(F.pad(parts[:, :, i], (0, 0, i, spans - 1 - i)) for i in range(spans))
        assert isinstance(total, Tensor)
        return total.flatten(1)


def overlap_envelope(config: SpectralConfig) -> Tensor:
    """Sum of the overlapping squared tapers at each sample of a hop, steady state. Shape [hop].

    Squared, because the heads predict the spectrum of a tapered frame and taper it once more.
    """
    spans = -(-config.window // config.hop)
    taper = F.pad(torch.hann_window(config.window), (spans * config.hop - config.window, 0))
    return taper.square().reshape(spans, config.hop).sum(0)


class SpectralCodec(nn.Module):
    """The whole codec; see the module's docstring. One instance serves any number of streams."""

    def __init__(self, config: SpectralConfig) -> None:
        super().__init__()
        self.config = config
        self.sample_rate = config.sample_rate
        self.samples_per_frame = config.samples_per_frame
        self.num_codebooks = 1 + config.num_residual_codebooks
        self.codebook_sizes = (
            config.semantic_codebook_size,
            *[config.residual_codebook_size] * config.num_residual_codebooks,
        )
        self.identity = ""
        self.encoder = Encoder(config)
        self.quantizer = SplitQuantizer(
            config.latent_dim,
            config.codebook_dim,
            config.semantic_codebook_size,
            config.residual_codebook_size,
            config.num_residual_codebooks,
        )
        self.decoder = Decoder(config)

    def synthesise(self, z: Tensor) -> Tensor:
        """Decode latent frames whole, for training. [B, F, latent_dim] -> [B, F * frame]."""
        spans = -(-self.config.window // self.config.hop)
        return self._scale(
            self.decoder.overlap(self.decoder(z))[:, (spans - 1) * self.config.hop :]
        )

    def _scale(self, samples: Tensor) -> Tensor:
        hop = self.config.hop
        return (samples.reshape(samples.shape[0], -1, hop) / self.decoder.envelope).flatten(1)

    @torch.inference_mode()
    def encode(self, samples: Tensor) -> Tensor:
        """Codes of a recording. samples [N] float32 at ``sample_rate`` -> int64 [C, F]."""
        size = self.samples_per_frame
        padded = F.pad(samples[None], (0, -samples.shape[0] % size))
        z = self.encoder(padded.to(next(self.parameters()).device))
        return self.quantizer.encode(z.transpose(1, 2).float())[0]

    def stream(self) -> SpectralStream:
        """A new stream at the start of a signal."""
        return SpectralStream(self)

    def steps(self, num_slots: int) -> StepDecoder | None:
        """None: it is small, and what one signal holds back at its end fits no step."""
        return None

    def decode(self, codes: Tensor) -> Tensor:
        """Samples of whole codes: one stream. int64 [C, F] -> float32 [F * samples_per_frame]."""
        stream = self.stream()
        return torch.cat((stream.push(codes), stream.finish()))


@dataclass(slots=True)
class SpectralStream:
    """One signal being decoded. Holds left contexts and the unfinished overlap, nothing else."""

    codec: SpectralCodec
    state: list[Tensor] = field(default_factory=list)
    overlap: Tensor | None = None
    to_skip: int = 0
    num_frames: int = 0
    num_samples: int = 0

    def __post_init__(self) -> None:
        parameter = next(self.codec.decoder.parameters())
        config = self.codec.config
        spans = -(-config.window // config.hop)
        self.state = [
            parameter.new_zeros(1, length, channels)
            for length, channels in self.codec.decoder.contexts
        ]
        self.overlap = parameter.new_zeros(1, (spans - 1) * config.hop, dtype=torch.float32)
        # The first windows begin before the signal does.
        self.to_skip = (spans - 1) * config.hop

    @torch.inference_mode()
    def push(self, codes: Tensor) -> Tensor:
        """Decode further frames; what is final comes back. int64 [C, f] -> float32 [n]."""
        if codes.shape[1] == 0:
            return torch.zeros(0)
        codec = self.codec
        parameter = next(codec.decoder.parameters())
        z = codec.quantizer.decode(codes[None].to(parameter.device)).transpose(1, 2)
        total = codec.decoder.overlap(codec.decoder(z.to(parameter.dtype), self.state))
        assert self.overlap is not None
        length = self.overlap.shape[1]
        total[:, :length] += self.overlap
        ready, self.overlap = total[:, :-length], total[:, -length:].clone()
        self.num_frames += codes.shape[1]
        return self._emit(ready)

    @torch.inference_mode()
    def finish(self) -> Tensor:
        """The last samples, whose windows have no followers."""
        if self.num_frames == 0:
            return torch.zeros(0)
        assert self.overlap is not None
        return self._emit(self.overlap)

    def _emit(self, ready: Tensor) -> Tensor:
        out = self.codec._scale(ready)[0]
        skip = min(self.to_skip, out.shape[0])
        self.to_skip -= skip
        out = out[skip:].clamp(-1.0, 1.0).float().cpu()
        self.num_samples += out.shape[0]
        return out

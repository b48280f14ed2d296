"""What the codec is trained against: spectral distances and the adversary. Waves are [B, N]."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from fishtts.codec.spectral import SpectralConfig, mel_filters

# (window, mel bands): short windows judge the timing, long ones the pitch.
RESOLUTIONS = ((128, 10), (256, 20), (512, 40), (1024, 80), (2048, 128))
# Below this a magnitude is silence: a lower floor lets digital zero rule the loss.
FLOOR = 1e-2


class SpectralDistance(nn.Module):
    """Mean absolute difference of log-mel and log-magnitude over several windows."""

    def __init__(self, sample_rate: int) -> None:
        super().__init__()
        for window, bands in RESOLUTIONS:
            config = SpectralConfig(sample_rate=sample_rate, window=window, num_mels=bands)
            self.register_buffer(f"mel_{window}", mel_filters(config))
            self.register_buffer(f"taper_{window}", torch.hann_window(window))

    def _magnitude(self, wave: Tensor, window: int) -> Tensor:
        taper = self.get_buffer(f"taper_{window}")
        frames = wave.unfold(1, window, window // 4) * taper
        spectrum = torch.fft.rfft(frames)
        return torch.sqrt(spectrum.real.square() + spectrum.imag.square() + 1e-7)

    def forward(self, wave: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """(mel distance, magnitude distance), each a mean over the resolutions."""
        mel_total = wave.new_zeros(())
        linear_total = wave.new_zeros(())
        for window, _ in RESOLUTIONS:
            mel = self.get_buffer(f"mel_{window}")
            ours, theirs = self._magnitude(wave, window), self._magnitude(target, window)
            ours_mel, theirs_mel = ours @ mel.t(), theirs @ mel.t()
            mel_total = (
                mel_total
                + (torch.log(ours_mel.clamp(min=FLOOR)) - torch.log(theirs_mel.clamp(min=FLOOR)))
                .abs()
                .mean()
            )
            logs = torch.log(ours.clamp(min=FLOOR)) - torch.log(theirs.clamp(min=FLOOR))
            linear_total = linear_total + logs.abs().mean()
        return mel_total / len(RESOLUTIONS), linear_total / len(RESOLUTIONS)


class PeriodJudge(nn.Module):
    """Looks at every p-th sample (HiFi-GAN's period discriminator, narrowed)."""

    def __init__(self, period: int) -> None:
        super().__init__()
        self.period = period
        widths = (1, 32, 64, 128, 256)
        self.layers = nn.ModuleList(
            weight_norm(nn.Conv2d(a, b, (5, 1), (3, 1), (2, 0))) for a, b in pairwise(widths)
        )
        self.layers.append(weight_norm(nn.Conv2d(256, 256, (5, 1), 1, (2, 0))))
        self.output = weight_norm(nn.Conv2d(256, 1, (3, 1), 1, (1, 0)))

    def forward(self, wave: Tensor) -> list[Tensor]:
        x = F.pad(wave, (0, -wave.shape[1] % self.period))
        return run_judge(self, x.view(x.shape[0], 1, -1, self.period))


class SpectrumJudge(nn.Module):
    """Looks at the complex spectrum of one window length."""

    def __init__(self, window: int, width: int = 32) -> None:
        super().__init__()
        self.window = window
        self.register_buffer("taper", torch.hann_window(window))
        self.layers = nn.ModuleList([weight_norm(nn.Conv2d(2, width, (3, 9), 1, (1, 4)))])
        for _ in range(3):
            self.layers.append(weight_norm(nn.Conv2d(width, width, (3, 9), (1, 2), (1, 4))))
        self.layers.append(weight_norm(nn.Conv2d(width, width, 3, 1, 1)))
        self.output = weight_norm(nn.Conv2d(width, 1, 3, 1, 1))

    def forward(self, wave: Tensor) -> list[Tensor]:
        frames = wave.float().unfold(1, self.window, self.window // 4)
        spectrum = torch.fft.rfft(frames * self.get_buffer("taper"), norm="ortho")
        return run_judge(self, torch.stack((spectrum.real, spectrum.imag), 1))


def run_judge(judge: PeriodJudge | SpectrumJudge, x: Tensor) -> list[Tensor]:
    """Every layer's activations, the verdict last."""
    features = []
    for layer in judge.layers:
        # The layout that 16-bit convolutions compute in: any other is turned into it, time and
        # again. What has one channel has no layout of its own, so it is asked for at every layer.
        x = F.leaky_relu(layer(x.contiguous(memory_format=torch.channels_last)), 0.1)
        features.append(x)
    return [*features, judge.output(x)]


class Jury(nn.Module):
    """All judges. Returns, per judge, its activations and verdict."""

    def __init__(self) -> None:
        super().__init__()
        periods = [PeriodJudge(p) for p in (2, 3, 5, 7, 11)]
        spectra = [SpectrumJudge(w) for w in (2048, 1024, 512)]
        self.judges = nn.ModuleList([*periods, *spectra])

    def forward(self, wave: Tensor) -> list[list[Tensor]]:
        return [judge(wave) for judge in self.judges]


def jury_loss(real: list[list[Tensor]], made: list[list[Tensor]]) -> Tensor:
    """Least squares: real wants 1, made wants 0; summed over judges."""
    total = real[0][-1].new_zeros((), dtype=torch.float32)
    for ours, theirs in zip(real, made, strict=True):
        total = total + (1 - ours[-1].float()).square().mean() + theirs[-1].float().square().mean()
    return total


def maker_loss(real: list[list[Tensor]], made: list[list[Tensor]]) -> tuple[Tensor, Tensor]:
    """(adversarial, feature matching) for the decoder; summed over judges."""
    adversarial = made[0][-1].new_zeros((), dtype=torch.float32)
    matching = torch.zeros_like(adversarial)
    for ours, theirs in zip(real, made, strict=True):
        adversarial = adversarial + (1 - theirs[-1].float()).square().mean()
        for a, b in zip(ours[:-1], theirs[:-1], strict=True):
            a = a.detach().float()
            distance = (a - b.float()).abs().mean() / (a.abs().mean() + 1e-3)
            matching = matching + distance / (len(ours) - 1)
    return adversarial, matching

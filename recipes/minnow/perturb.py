"""What the world does to a recording: room, microphone, band and noise. Knows no model.

A reference to clone is rarely made in a studio. Everything is drawn on the device, a line at a time
and without host synchronisation, so that it can be part of a captured training step.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

ECHO_S = 0.4
"""Length of the longest echo, in seconds."""
NUM_PEAKS = 3


def perturb(wave: Tensor, sample_rate: int) -> Tensor:
    """Send each line through a channel of its own; its loudness stays. float32 [B, N] -> [B, N]."""
    return recordings(wave, sample_rate)[0]


def recordings(wave: Tensor, sample_rate: int) -> tuple[Tensor, Tensor]:
    """(poor recordings, good ones of the same voices): each line through a channel of its own.

    The good one keeps the channel's tone, which may be the speaker's; it has no room, no narrow
    band and no noise. Both are aligned with ``wave`` and equally loud. float32 [B, N] each.
    """
    length = wave.shape[1]
    echo = int(ECHO_S * sample_rate)
    size = length + echo + (length + echo) % 2
    spectrum = torch.fft.rfft(wave, n=size)
    room = torch.fft.rfft(_rooms(wave.shape[0], echo, sample_rate, wave.device), n=size)
    tone, band = _curves(wave.shape[0], spectrum.shape[1], sample_rate, wave.device)
    heard = torch.fft.irfft(spectrum * room * tone * band, n=size)[:, :length]
    good = torch.fft.irfft(spectrum * tone, n=size)[:, :length]
    level = _rms(wave)
    heard, good = heard * (level / _rms(heard)), good * (level / _rms(good))
    return (heard + _noise(heard, sample_rate) * level).clamp(-1, 1), good.clamp(-1, 1)


def _rms(wave: Tensor) -> Tensor:
    return (wave.square().mean(1, keepdim=True) + 1e-9).sqrt()


def _uniform(batch: int, low: float, high: float, device: torch.device) -> Tensor:
    return torch.rand(batch, 1, device=device) * (high - low) + low


def _chance(batch: int, share: float, device: torch.device) -> Tensor:
    return (torch.rand(batch, 1, device=device) < share).float()


def _rooms(batch: int, length: int, sample_rate: int, device: torch.device) -> Tensor:
    """Impulse responses: the direct sound, and for some a decaying tail 3 to 20 dB below it."""
    at = torch.arange(length, device=device)[None] / sample_rate
    decay_s = _uniform(batch, 0.08, 0.5, device)
    tail = torch.randn(batch, length, device=device) * torch.exp(-6.9 * at / decay_s)
    tail = tail / tail.square().sum(1, keepdim=True).sqrt()
    loud = 10 ** (-_uniform(batch, 3, 20, device) / 20) * _chance(batch, 0.6, device)
    direct = (at == 0).float()
    return direct + tail * loud * (at > 0.002)


def _curves(batch: int, bins: int, sample_rate: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Gains of every bin: a slope with a few wide peaks; a band, narrow for half of the lines."""
    hertz = torch.linspace(0, sample_rate / 2, bins, device=device)[None].clamp(min=20)
    octave = torch.log2(hertz / 1000)
    decibels = _uniform(batch, -2.5, 2.5, device) * octave
    for _ in range(NUM_PEAKS):
        centre, width = _uniform(batch, -3, 3, device), _uniform(batch, 0.3, 1.2, device)
        peak = _uniform(batch, -7, 7, device)
        decibels = decibels + peak * torch.exp(-0.5 * ((octave - centre) / width).square())
    narrow = _chance(batch, 0.5, device)
    high = math.log2(11.0) * (1 - narrow) + narrow * _uniform(batch, 1.6, 3.2, device)
    low = -6.0 * (1 - narrow) + narrow * _uniform(batch, -4.5, -1.8, device)
    band = torch.sigmoid((high - octave) * 12) * torch.sigmoid((octave - low) * 12)
    return 10 ** (decibels.clamp(-20, 12) / 20), band


def _noise(wave: Tensor, sample_rate: int) -> Tensor:
    """Noise of level one times what a signal-to-noise ratio of 12 to 45 dB leaves of it."""
    batch, length = wave.shape
    white = torch.fft.rfft(torch.randn_like(wave))
    hertz = torch.linspace(0, sample_rate / 2, white.shape[1], device=wave.device)[None]
    colour = (hertz.clamp(min=50) / 1000) ** -_uniform(batch, 0, 1, wave.device)
    noise = torch.fft.irfft(white * colour, n=length)
    ratio = 10 ** (-_uniform(batch, 12, 45, wave.device) / 20)
    return noise / _rms(noise) * ratio * _chance(batch, 0.7, wave.device)

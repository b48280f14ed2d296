"""The teacher (Kokoro-82M) in PyTorch, batched over lines of different lengths.

Owns phoneme tokens + style -> durations and samples at 24 kHz. Knows nothing of texts and files.
Layout as in the packaged graph: an ALBERT text encoder, a duration and pitch predictor, and an
inverse-STFT vocoder driven by a harmonic source. Padding never leaks: norms over time are masked.

Shapes: B lines, T tokens, N teacher frames (600 samples each). Style [B, 256]: timbre, prosody.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recipes.minnow.masked_norm import norm_leaky, norm_snake

FRAME = 600
# The packaged graph divides its inverse STFT by another window sum.
LOUDNESS = 1.5
LEAK = 0.2


class Teacher:
    """Weights and the two passes: ``durations``, then ``speak``."""

    def __init__(self, weights: dict[str, np.ndarray], device: torch.device) -> None:
        self.device = device
        self.p = {k: torch.from_numpy(v).to(device) for k, v in weights.items() if ".lstm" not in k}
        self.p |= {
            k: torch.from_numpy(v).to(device)
            for k, v in weights.items()
            if ".lstm" in k and not k.endswith(("lstmW", "lstmR", "lstmB"))
        }
        names = {k.removesuffix(".lstmW") for k in weights if k.endswith(".lstmW")}
        self.lstms = {name: make_lstm(weights, name).to(device) for name in names}
        half = torch.float16 if device.type == "cuda" else torch.float32
        self.vocoder = {k: v.to(half) for k, v in self.p.items() if k.startswith("dec.")}

    # ---- text side -----------------------------------------------------------------------------

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.p[name + ".weight"], self.p[name + ".bias"])

    def _lstm(self, name: str, x: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(
            x, lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        out, _ = self.lstms[name](packed)
        return nn.utils.rnn.pad_packed_sequence(out, batch_first=True, total_length=x.shape[1])[0]

    def _norm(self, name: str, x: Tensor) -> Tensor:
        weight, bias = self.p[name + ".weight"], self.p[name + ".bias"]
        return F.layer_norm(x, weight.shape, weight, bias, 1e-12)

    def _albert(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Twelve passes of one shared layer. [B, T] -> [B, T, 768]."""
        p = self.p
        x = p["bert.embeddings.word"][ids] + p["bert.embeddings.pos"][: ids.shape[1]]
        x = self._linear(
            "bert.map", self._norm("bert.embeddings.ln", x + p["bert.embeddings.tok"][0])
        )
        for _ in range(12):
            q, k, v = (
                self._linear(f"bert.{n}", x).unflatten(-1, (12, 64)).transpose(1, 2)
                for n in ("query", "key", "value")
            )
            a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
            a = self._norm("bert.aln", x + self._linear("bert.dense", a.transpose(1, 2).flatten(2)))
            f = F.gelu(self._linear("bert.ffn", a), approximate="tanh")
            x = self._norm("bert.fln", self._linear("bert.ffn_output", f) + a)
        return x

    @torch.inference_mode()
    def durations(
        self, ids: Tensor, lengths: Tensor, style: Tensor, speed: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(frames a token int64 [B, T], prosody states [B, T, 640], text states [B, 512, T])."""
        mask = torch.arange(ids.shape[1], device=self.device)[None] < lengths[:, None]
        keep = mask[..., None].float()
        prosody = style[:, None, 128:].expand(-1, ids.shape[1], -1)
        x = torch.cat((self._linear("bert_encoder", self._albert(ids, mask)), prosody), -1) * keep
        for i in (0, 2, 4):
            out = self._lstm(f"pred.lstms.{i}", x, lengths)
            gain, bias = self._linear(f"pred.lstms.{i + 1}.fc", style[:, 128:])[:, None].chunk(
                2, -1
            )
            out = (1 + gain) * F.layer_norm(out, (512,), None, None, 1e-5) + bias
            x = torch.cat((out, prosody), -1) * keep
        spread = torch.sigmoid(
            self._linear("pred.duration_proj", self._lstm("pred.lstm", x, lengths))
        )
        frames = torch.round(spread.sum(-1) / speed[:, None]).clamp(min=1) * mask
        return frames.long(), x, self._text_states(ids, lengths, keep.transpose(1, 2))

    def _text_states(self, ids: Tensor, lengths: Tensor, keep: Tensor) -> Tensor:
        p = self.p
        x = p["text.embedding"][ids].transpose(1, 2) * keep
        for i in range(3):
            x = F.conv1d(x, p[f"text.cnn.{i}.weight"], p[f"text.cnn.{i}.bias"], padding=2)
            gamma, beta = p[f"text.cnn.{i}.gamma"], p[f"text.cnn.{i}.beta"]
            x = F.layer_norm(x.transpose(1, 2), (512,), gamma, beta, 1e-5)
            x = F.leaky_relu(x, LEAK).transpose(1, 2) * keep
        return self._lstm("text.lstm", x.transpose(1, 2), lengths).transpose(1, 2) * keep

    # ---- sound side ----------------------------------------------------------------------------

    def _style(self, name: str, style: Tensor) -> tuple[Tensor, Tensor]:
        out = F.linear(style, self.p[name + ".fc.weight"], self.p[name + ".fc.bias"])
        gain, bias = out[:, :, None].chunk(2, 1)
        return gain, bias

    def _weights(self, name: str) -> tuple[Tensor, Tensor | None]:
        table = self.vocoder if name.startswith("dec.") else self.p
        return table[name + ".weight"], table.get(name + ".bias")

    def _conv(self, name: str, x: Tensor, **options: int) -> Tensor:
        weight, bias = self._weights(name)
        return F.conv1d(x.to(weight.dtype), weight, bias, **options)  # type: ignore[arg-type]

    def _residual(self, name: str, x: Tensor, style: Tensor, n: Tensor, n_out: Tensor) -> Tensor:
        """AdaIN residual block; doubles the rate where ``n_out`` is twice ``n``."""
        h = norm_leaky(x, *self._style(name + ".norm1", style), n, LEAK)
        if name + ".pool.weight" in self.p:
            weight, bias = self._weights(name + ".pool")
            h = F.conv_transpose1d(
                h.to(weight.dtype), weight, bias, 2, 1, 1, groups=weight.shape[0]
            )
            h = h * mask_of(h, n_out)
            x = F.interpolate(x, scale_factor=2, mode="nearest")
        h = self._conv(name + ".conv1", h, padding=1)
        h = norm_leaky(h, *self._style(name + ".norm2", style), n_out, LEAK)
        h = self._conv(name + ".conv2", h, padding=1)
        if name + ".conv1x1.weight" in self.p:
            x = self._conv(name + ".conv1x1", x)
        return ((h.float() + x.float()) * mask_of(h, n_out) * 0.5**0.5).to(h.dtype)

    def _snake_block(self, name: str, x: Tensor, style: Tensor, n: Tensor, kernel: int) -> Tensor:
        """Three dilated AdaIN + Snake residual pairs."""
        for i, dilation in enumerate((1, 3, 5)):
            p = self.p
            h = norm_snake(x, *self._style(f"{name}.adain1.{i}", style), n, p[f"{name}.alpha1.{i}"])
            h = self._conv(
                f"{name}.convs1.{i}", h, dilation=dilation, padding=(kernel - 1) * dilation // 2
            )
            h = norm_snake(h, *self._style(f"{name}.adain2.{i}", style), n, p[f"{name}.alpha2.{i}"])
            h = self._conv(f"{name}.convs2.{i}", h, padding=(kernel - 1) // 2)
            x = ((h.float() + x.float()) * mask_of(h, n)).to(h.dtype)
        return x

    @torch.inference_mode()
    def speak(
        self,
        frames: Tensor,
        prosody: Tensor,
        text: Tensor,
        style: Tensor,
        pitch_scale: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Samples [B, N * 600] float32 and their counts [B].

        ``pitch_scale`` [B] moves the pitch and leaves the formants where they are.
        """
        n = frames.sum(1)
        at = torch.arange(int(n.max()), device=self.device)[None].expand(len(n), -1).contiguous()
        index = torch.searchsorted(frames.cumsum(1), at, right=True).clamp(max=frames.shape[1] - 1)
        prosody = prosody.gather(1, index[..., None].expand(-1, -1, prosody.shape[2]))
        keep = (at < n[:, None]).float()[:, None]
        text = text.gather(2, index[:, None].expand(-1, 512, -1)) * keep
        x = self._lstm("pred.shared", prosody, n).transpose(1, 2) * keep
        pitch, energy = (self._curve(q, x, style[:, 128:], n) for q in ("F0", "N"))
        if pitch_scale is not None:
            pitch = pitch * pitch_scale[:, None]
        timbre = style[:, :128]
        f = self._conv("dec.F0_conv", pitch[:, None], stride=2, padding=1).float() * keep
        e = self._conv("dec.N_conv", energy[:, None], stride=2, padding=1).float() * keep
        x = self._residual("dec.encode", torch.cat((text, f, e), 1), timbre, n, n)
        text = self._conv("dec.asr_res", text).float() * keep
        for i in range(4):
            n_out = n * 2 if i == 3 else n
            x = self._residual(f"dec.decode.{i}", torch.cat((x, text, f, e), 1), timbre, n, n_out)
        return self._vocode(x, timbre, pitch, n * 2), n * FRAME

    def _curve(self, name: str, x: Tensor, style: Tensor, n: Tensor) -> Tensor:
        """Pitch or energy at twice the frame rate. [B, 512, N] -> [B, 2 N]."""
        x = self._residual(f"pred.{name}.0", x, style, n, n)
        x = self._residual(f"pred.{name}.1", x, style, n, n * 2)
        x = self._residual(f"pred.{name}.2", x, style, n * 2, n * 2)
        out = self._conv(f"pred.{name}_proj", x)
        return (out * mask_of(out, n * 2))[:, 0]

    def _source(self, pitch: Tensor, n: Tensor) -> Tensor:
        """Harmonics of the pitch and noise, as magnitude and phase. [B, 22, T]."""
        harmonics = torch.arange(1, 10, device=self.device).float()[None, :, None]
        turns = torch.cumsum((pitch[:, None] * harmonics / 24000 % 1).double(), 2) * 300
        phase = F.interpolate(turns, scale_factor=300, mode="linear") % 1
        wave = torch.sin(2 * math.pi * phase.float()) * 0.1
        voiced = (pitch > 10).float().repeat_interleave(300, 1)[:, None]
        noise = voiced * 0.003 + (1 - voiced) * (0.1 / 3)
        wave = wave * voiced + noise * torch.randn_like(wave)
        merged = torch.tanh(self._linear("dec.l_linear", wave.transpose(1, 2)))[..., 0]
        merged = merged * mask_of(merged[:, None], n * 300)[:, 0]
        spectrum = torch.stft(
            merged, 20, 5, 20, self._taper(), return_complex=True, pad_mode="replicate"
        )
        return torch.cat((spectrum.abs(), spectrum.angle()), 1)

    def _taper(self) -> Tensor:
        return torch.hann_window(20, device=self.device)

    def _vocode(self, x: Tensor, style: Tensor, pitch: Tensor, n: Tensor) -> Tensor:
        source = self._source(pitch, n)
        for i, (rate, kernel, source_kernel) in enumerate(((10, 20, 7), (6, 12, 11))):
            n = n * rate + (1 if i == 1 else 0)
            x = F.leaky_relu(x, 0.1)
            options = {"stride": 6, "padding": 3} if i == 0 else {}
            h = self._conv(f"dec.noise_convs.{i}", source, **options)
            h = h * mask_of(h, n).to(h.dtype)
            h = self._snake_block(f"dec.noise_res.{i}", h, style, n, source_kernel)
            weight, bias = self._weights(f"dec.ups.{i}")
            x = F.conv_transpose1d(x.to(weight.dtype), weight, bias, rate, (kernel - rate) // 2)
            if i == 1:
                x = F.pad(x, (1, 0), mode="reflect")
            x = ((x.float() + h.float()) * mask_of(x, n)).to(x.dtype)
            x = (
                sum(
                    self._snake_block(f"dec.resblocks.{i * 3 + j}", x, style, n, k)
                    for j, k in enumerate((3, 7, 11))
                )
                / 3
            )
        x = self._conv("dec.conv_post", F.leaky_relu(x), padding=3).float()
        magnitude = torch.exp(x[:, :11].clamp(max=8)) * mask_of(x, n)
        spectrum = torch.polar(magnitude, torch.sin(x[:, 11:]))
        return LOUDNESS * torch.istft(spectrum, 20, 5, 20, self._taper())


def mask_of(x: Tensor, n: Tensor) -> Tensor:
    """1 inside each line's length. x [B, C, T], n [B] -> float32 [B, 1, T]."""
    return (torch.arange(x.shape[-1], device=x.device)[None] < n[:, None]).float()[:, None]


def make_lstm(weights: dict[str, np.ndarray], name: str) -> nn.LSTM:
    """ONNX orders the gates input, output, forget, cell; torch input, forget, cell, output."""
    w, r, b = (torch.from_numpy(weights[f"{name}.lstm{part}"].copy()) for part in "WRB")
    size = r.shape[2]
    lstm = nn.LSTM(w.shape[2], size, batch_first=True, bidirectional=True)

    def reorder(x: Tensor) -> Tensor:
        i, o, f, c = x.split(size)
        return torch.cat((i, f, c, o))

    with torch.no_grad():
        for d, suffix in ((0, ""), (1, "_reverse")):
            getattr(lstm, "weight_ih_l0" + suffix).copy_(reorder(w[d]))
            getattr(lstm, "weight_hh_l0" + suffix).copy_(reorder(r[d]))
            getattr(lstm, "bias_ih_l0" + suffix).copy_(reorder(b[d][: 4 * size]))
            getattr(lstm, "bias_hh_l0" + suffix).copy_(reorder(b[d][4 * size :]))
    return lstm

"""Train the language model of `minnow` on codes.

    python -m recipes.minnow.train_ar --codes DIR --pack PACK --out DIR --seconds 900

Two attention heads are shown which characters each frame speaks (from the teacher's durations):
with that, twenty million parameters learn to read in minutes instead of hours. Saves every minute
to ``OUT/model.safetensors``, with the seconds spent, and goes on from there when run again.
``--seconds`` are those that are left: the learning rate comes down to its end in them, whatever was
spent before.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader

from fishtts.models.dual_ar.net import DualAR, DualARConfig
from fishtts.weights import read_tensors
from recipes.minnow.examples import IGNORE, LENGTHS, Batches, held_out_batches
from recipes.minnow.layout import (
    END_ID,
    NUM_CODEBOOKS,
    NUM_SEMANTIC,
    SEMANTIC_BEGIN,
    model_config,
)
from recipes.minnow.optim import CapturedStep, Optimiser
from recipes.minnow.train_codec import Clock, seconds_spent

GUIDED_LAYERS = (2, 4)
GUIDE_WEIGHT = 0.15
DROPOUT = 0.05
# Share of audio input frames replaced by others, so that the model survives its own mistakes.
CORRUPTED = 0.04


def rotary(length: int, size: int, base: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """cos and sin [T, size / 2], rounded to bf16 as at inference."""
    frequency = 1.0 / (base ** (torch.arange(0, size, 2, device=device).float() / size))
    angle = torch.arange(length, device=device).float()[:, None] * frequency[None]
    return angle.cos().bfloat16().float(), angle.sin().bfloat16().float()


def rotate(x: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
    """Interleaved rotary embedding. x [B, T, H, D]."""
    cos, sin = (t[None, :, None] for t in table)
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).to(x.dtype)


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal grouped attention over [B, T, H, D] -> [B, T, H * D]."""
    repeat = q.shape[2] // k.shape[2]
    k, v = (t.repeat_interleave(repeat, 2) for t in (k, v))
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


class TrainingNet(nn.Module):
    """The teacher-forced forward over whole sequences, on the product's own parameters."""

    def __init__(self, net: DualAR) -> None:
        super().__init__()
        self.net = net
        config = model_config()
        self.slow, self.fast = config["text_config"], config["audio_decoder_config"]

    def _heads(self, qkv: Tensor, sizes: dict) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[type-arg]
        n, g, d = sizes["n_head"], sizes["n_local_heads"], sizes["head_dim"]
        return tuple(  # type: ignore[return-value]
            t.unflatten(-1, (-1, d)) for t in qkv.split([n * d, g * d, g * d], -1)
        )

    def _block(
        self, layer: nn.Module, x: Tensor, sizes: dict, table: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[type-arg]
        attention = layer.attention
        q, k, v = self._heads(attention.wqkv(layer.attention_norm(x)), sizes)
        if sizes["attention_qk_norm"]:
            shape = (sizes["head_dim"],)
            q = F.rms_norm(q.float(), shape, attention.q_norm.weight, 1e-6).to(v.dtype)
            k = F.rms_norm(k.float(), shape, attention.k_norm.weight, 1e-6).to(v.dtype)
        q, k = rotate(q, table), rotate(k, table)
        x = x + F.dropout(attention.wo(attend(q, k, v)), DROPOUT, self.training)
        ffn = layer.feed_forward
        n = layer.ffn_norm(x)
        x = x + F.dropout(ffn.w2(F.silu(ffn.w1(n)) * ffn.w3(n)), DROPOUT, self.training)
        return x, q, k

    def backbone(self, rows: Tensor, first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """rows [B, 1 + C, T] -> (normed hidden [B, T, E], guide loss)."""
        model = self.net.text_model.model
        x = self._embed(rows)
        length = x.shape[1]
        table = rotary(length, self.slow["head_dim"], self.slow["rope_base"], x.device)
        at = torch.arange(length, device=x.device)
        causal = at[None, :] <= at[:, None]
        wanted = (at >= first[..., None]) & (at <= last[..., None]) & causal
        known = (first >= 0).float()
        guide = x.new_zeros((), dtype=torch.float32)
        for index, layer in enumerate(model.layers):
            x, q, k = self._block(layer, x, self.slow, table)
            if index in GUIDED_LAYERS:
                scores = q[:, :, 0].float() @ k[:, :, 0].float().mT / math.sqrt(q.shape[-1])
                scores = scores.masked_fill(~causal, -1e4)
                missed = scores.logsumexp(-1) - scores.masked_fill(~wanted, -1e4).logsumexp(-1)
                guide = guide + (missed * known).sum() / known.sum().clamp(min=1)
        return model.norm(x), guide

    def _embed(self, rows: Tensor) -> Tensor:
        decoder = self.net.audio_decoder
        ids = rows[:, 0]
        base = F.embedding(ids, self.net.text_model.model.embeddings.weight)
        offset = torch.arange(NUM_CODEBOOKS, device=rows.device)[:, None] * NUM_SEMANTIC
        codes = F.embedding(rows[:, 1:] + offset, decoder.codebook_embeddings.weight).sum(1)
        audio = (ids >= SEMANTIC_BEGIN) & (ids < SEMANTIC_BEGIN + NUM_SEMANTIC)
        return torch.where(audio[..., None], (base + codes) / math.sqrt(NUM_CODEBOOKS + 1), base)

    def slow_logits(self, hidden: Tensor) -> Tensor:
        """Semantic codes, then the end token. [..., E] -> [..., 1025]."""
        table = self.net.text_model.model.embeddings.weight
        semantic = table[SEMANTIC_BEGIN : SEMANTIC_BEGIN + NUM_SEMANTIC]
        return F.linear(hidden, torch.cat((semantic, table[END_ID : END_ID + 1])))

    def fast_logits(self, hidden: Tensor, codes: Tensor) -> Tensor:
        """hidden [K, E], codes [K, C] -> logits of codes 1 to C - 1 [K, C - 1, V]."""
        decoder = self.net.audio_decoder
        start = decoder.project_in(hidden)
        x = torch.cat((start[:, None], F.embedding(codes[:, :-1], decoder.embeddings.weight)), 1)
        table = rotary(x.shape[1], self.fast["head_dim"], self.fast["rope_base"], x.device)
        for layer in decoder.layers:
            x, _, _ = self._block(layer, x, self.fast, table)
        return decoder.output(decoder.norm(x[:, 1:]))


def initialise(net: DualAR) -> None:
    """Fan-in scaled matrices, small outputs of each block, small embeddings."""
    for name, p in net.named_parameters():
        if p.ndim < 2:
            nn.init.zeros_(p) if name.endswith("bias") else nn.init.ones_(p)
        elif "embeddings" in name:
            nn.init.normal_(p, std=0.02)
        else:
            nn.init.normal_(p, std=p.shape[1] ** -0.5)
            if name.endswith(("wo.weight", "w2.weight")):
                p.data.mul_(0.3)


def corrupt(rows: Tensor) -> Tensor:
    """Replace a few audio frames by frames of other rows of the batch."""
    other = rows[torch.rand(rows.shape[0], device=rows.device).argsort()]
    chosen = torch.rand(rows.shape[0], 1, rows.shape[2], device=rows.device) < CORRUPTED
    for ids in (rows[:, :1], other[:, :1]):
        chosen = chosen & (ids >= SEMANTIC_BEGIN) & (ids < SEMANTIC_BEGIN + NUM_SEMANTIC)
    return torch.where(chosen, other, rows)


class Trainer:
    """Model, optimiser and one captured step for each sequence length."""

    def __init__(self, net: DualAR, device: torch.device) -> None:
        self.model = TrainingNet(net).to(device)
        self.device = device
        self.optimiser = Optimiser(
            net.named_parameters(),
            lambda name, p: p.ndim == 2 and ".layers." in name,
            muon_lr=0.02,
            adam_lr=2e-3,
        )
        self.report = {
            name: torch.zeros((), device=device) for name in ("slow", "fast", "guide", "end")
        }
        self.inputs: dict[int, dict[str, Tensor]] = {}
        self.steps: dict[int, CapturedStep] = {}
        self.pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    def losses(
        self, batch: dict[str, Tensor], noisy: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(slow, fast, guide, end-token) losses of one batch on the device."""
        rows = batch["rows"].long()
        target, weight = batch["target"].long(), batch["weight"]
        codes = batch["fast_codes"].long()
        autocast = torch.autocast(
            self.device.type, dtype=torch.bfloat16, enabled=self.device.type == "cuda"
        )
        with autocast:
            hidden, guide = self.model.backbone(
                corrupt(rows) if noisy else rows, batch["first"].long(), batch["last"].long()
            )
            logits = self.model.slow_logits(hidden)
            chosen = hidden.flatten(0, 1).index_select(0, batch["fast_at"].long())
            fast_logits = self.model.fast_logits(chosen, codes)
        each = F.cross_entropy(
            logits.float().flatten(0, 1), target.flatten(), ignore_index=IGNORE, reduction="none"
        )
        slow = (each * weight.flatten()).sum() / weight.sum()
        fast = F.cross_entropy(fast_logits.float().flatten(0, 1), codes[:, 1:].flatten())
        ends = (target.flatten() == NUM_SEMANTIC).float()
        return slow, fast, guide, (each * ends).sum() / ends.sum().clamp(min=1)

    def _step(self, length: int) -> None:
        slow, fast, guide, end = self.losses(self.inputs[length], noisy=True)
        self.optimiser.zero_grad()
        (slow + fast + GUIDE_WEIGHT * guide).backward()
        self.optimiser.step()
        for name, value in zip(self.report, (slow, fast, guide, end), strict=True):
            self.report[name].copy_(value.detach())

    def train(self, batch: dict[str, Tensor]) -> None:
        length = batch["rows"].shape[2]
        if length not in self.inputs:
            self.inputs[length] = {k: v.to(self.device) for k, v in batch.items()}
            self.steps[length] = CapturedStep(lambda: self._step(length), pool=self.pool)
        for name, tensor in batch.items():
            self.inputs[length][name].copy_(tensor, non_blocking=True)
        self.steps[length]()

    @torch.no_grad()
    def validate(self, batches: list[dict[str, Tensor]]) -> str:
        self.model.eval()
        values = torch.stack(
            [
                torch.stack(self.losses({k: v.to(self.device) for k, v in b.items()}, noisy=False))
                for b in batches
            ]
        ).mean(0)
        self.model.train()
        return " ".join(f"{n} {v:.3f}" for n, v in zip(self.report, values.tolist(), strict=True))


def save(net: DualAR, out: Path, clock: Clock) -> None:
    """Write bf16 weights beside and rename them into place."""
    out.mkdir(parents=True, exist_ok=True)
    tensors = {k: v.detach().bfloat16().contiguous().cpu() for k, v in net.state_dict().items()}
    save_file(tensors, out / "model.tmp", metadata=clock.metadata)
    (out / "model.tmp").rename(out / "model.safetensors")


def relative_rate(progress: float, step: int) -> float:
    """Warm up over 150 steps, hold for 30 % of the time, then fall linearly to a hundredth."""
    return min(1.0, (step + 1) / 150) * min(1.0, max(0.01, 1 - (progress - 0.3) / 0.7))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--codes", "--pack", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--start", type=Path, help="weights to start from, until OUT has some")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rate", type=float, default=1.0, help="of the learning rate")
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--num-fast", type=int, default=8192)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--max-steps", type=int, default=0, help="for trying it out")
    parser.add_argument("--print-every", type=int, default=200)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    device = torch.device(args.device)
    net = DualAR(DualARConfig.from_dict(model_config())).to(device)
    initialise(net)
    kept = args.out / "model.safetensors"
    start = kept if kept.exists() else args.start
    if start is not None:
        net.load_state_dict({k: v.float() for k, v in read_tensors(start).items()})
    trainer = Trainer(net, device)
    data = DataLoader(
        Batches(args.codes, args.pack, args.tokens, args.num_fast, seed=int(time.time())),
        batch_size=None,
        num_workers=args.workers,
        pin_memory=device.type == "cuda",
        prefetch_factor=4 if args.workers else None,
    )
    held_out = held_out_batches(args.codes, args.pack, args.tokens, args.num_fast)
    clock = Clock(
        args.seconds, "ar", args.print_every, spent=seconds_spent(kept), max_steps=args.max_steps
    )
    for batch in data:
        if clock.progress >= 1.0:
            break
        trainer.optimiser.set_rate(args.rate * relative_rate(clock.progress, clock.steps))
        trainer.train(batch)
        clock.tick(trainer.report, lambda: save(net, args.out, clock))
        if clock.steps % (args.print_every * 10) == 0 and held_out:
            print("held out", trainer.validate(held_out), flush=True)
    # First what is needed, then what is nice to know: the time may be up at any moment.
    save(net, args.out, clock)
    print("held out", trainer.validate(held_out) if held_out else "-", flush=True)
    print(json.dumps({"steps": clock.steps, "lengths": LENGTHS}), flush=True)


if __name__ == "__main__":
    main()

"""Train the codec: first the whole of it, then the decoder alone against judges.

    python -m recipes.minnow.train_codec whole   --shards DIR --pack PACK --out DIR --seconds 420
    python -m recipes.minnow.train_codec decoder --shards DIR --pack PACK --out DIR --seconds 900

The second stage freezes encoder and quantiser, so that codes already made stay true. Both save
every minute to ``OUT/codec.safetensors``, with the seconds spent, and go on from there when run
again. ``--seconds`` are those that are left: the learning rate comes down to its end in them,
whatever was spent before. A part of every batch is made poor recordings (``perturb.py``); the
decoder learns to make good ones of them.

With ``--after FILE`` the process takes in speech until that file exists, and so do the weights to
start from: what it costs to start is spent while others speak. The waiting counts as time spent.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from fishtts.codec.spectral import SpectralCodec, SpectralConfig
from recipes.minnow.losses import Jury, SpectralDistance, jury_loss, maker_loss
from recipes.minnow.optim import CapturedStep, Optimiser
from recipes.minnow.pool import NO_LABEL, AudioPool
from recipes.minnow.texts import Texts

NUM_PHONEMES = 178
SAVE_EVERY_S = 60.0
AVERAGE_SHARE = 1e-3
# Noise under what the judges hear (-80 dB), the same under both: else they tell digital silence,
# which pads short lines and which no decoder makes.
DITHER = 1e-4


def is_hidden_matrix(name: str, p: nn.Parameter) -> bool:
    """Square-ish matrices between hidden layers; heads, norms and quantisers are AdamW's."""
    return p.ndim == 2 and not any(part in name for part in ("magnitude", "phase", "quantizer"))


class TrainingQuantizer:
    """The training pass of the codec's own quantiser: straight-through, with dead codes revived."""

    def __init__(self, codec: SpectralCodec) -> None:
        q = codec.quantizer
        self.books = [q.semantic_quantizer.quantizers[0], *q.quantizer.quantizers]
        device = next(codec.parameters()).device
        # Zero usage makes every code dead at first: the first step seeds them from the data.
        self.usage = [torch.zeros(b.codebook.weight.shape[0], device=device) for b in self.books]
        self.reviving = torch.ones((), device=device)

    def __call__(self, z: Tensor, keep: Tensor) -> tuple[Tensor, Tensor, list[Tensor], Tensor]:
        """z [B, T, D], keep [B] residual books used -> (quantised, semantic part, codes, loss)."""
        rest, total = z, torch.zeros_like(z)
        semantic = z
        codes: list[Tensor] = []
        loss = z.new_zeros(())
        for index, book in enumerate(self.books):
            out, code, book_loss = self._one(index, book, rest)
            used = (index <= keep).float()
            total = total + out * used[:, None, None]
            rest = rest - out
            loss = loss + (book_loss * used).mean()
            codes.append(code)
            if index == 0:
                semantic = out
        return total, semantic, codes, loss

    def _one(self, index: int, book: nn.Module, rest: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        e = F.linear(rest, book.in_proj.weight[:, :, 0], book.in_proj.bias)
        table = book.codebook.weight
        with torch.no_grad():
            flat = e.detach().flatten(0, 1)
            self._revive(index, book, flat)
            code = (F.normalize(flat) @ F.normalize(table).t()).argmax(1)
            one_hot = F.one_hot(code, table.shape[0]).float()
            self.usage[index].lerp_(one_hot.sum(0), 0.02)
        row = (one_hot @ table).view_as(e)
        loss = 0.25 * (e - row.detach()).square().mean((1, 2))
        loss = loss + (row - e.detach()).square().mean((1, 2))
        straight = e + (row - e).detach()
        out = F.linear(straight, book.out_proj.weight[:, :, 0], book.out_proj.bias)
        return out, code.view(e.shape[:2]), loss

    def _revive(self, index: int, book: nn.Module, flat: Tensor) -> None:
        usage, table = self.usage[index], book.codebook.weight
        dead = (usage < 0.02) & (self.reviving > 0)
        pick = torch.randint(0, flat.shape[0], (table.shape[0],), device=flat.device)
        table.copy_(torch.where(dead[:, None], flat[pick], table))
        usage.copy_(torch.where(dead, torch.ones_like(usage), usage))


def phoneme_targets(labels: Tensor) -> Tensor:
    """What the semantic code must tell: the two phonemes of its frame and the two before.

    [B, 2 F] -> [B, F, 4].
    """
    pairs = labels.view(labels.shape[0], -1, 2)
    before = F.pad(pairs, (0, 0, 1, 0), value=NO_LABEL)[:, :-1]
    return torch.cat((pairs, before), 2)


class WholeCodec:
    """Stage one: encoder, quantiser and decoder by reconstruction and phoneme supervision."""

    def __init__(self, codec: SpectralCodec, pool: AudioPool, batch: int, frames: int) -> None:
        device = pool.device
        self.codec, self.pool, self.batch, self.frames = codec, pool, batch, frames
        self.quantize = TrainingQuantizer(codec)
        self.head = nn.Linear(codec.config.latent_dim, 4 * NUM_PHONEMES).to(device)
        self.distance = SpectralDistance(codec.sample_rate).to(device)
        named = [*codec.named_parameters(), *self.head.named_parameters(prefix="quantizer.head")]
        self.optimiser = Optimiser(named, is_hidden_matrix, muon_lr=0.01, adam_lr=1e-3)
        self.report = {
            name: torch.zeros((), device=device)
            for name in ("mel", "linear", "phonemes", "right", "books", "used")
        }

    def step(self) -> None:
        device, config = self.pool.device, self.codec.config
        wave, _, labels = self.pool.draw(self.batch, self.frames, self.batch // 4)
        books = config.num_residual_codebooks
        keep = torch.randint(1, books + 1, (self.batch,), device=device)
        keep = torch.where(torch.rand(self.batch, device=device) < 0.3, keep, books)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            z = self.codec.encoder(wave)
        quantised, semantic, _, book_loss = self.quantize(z.float(), keep)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
            made = self.codec.synthesise(quantised)
        logits = self.head(semantic).view(self.batch, self.frames, 4, NUM_PHONEMES)
        target = phoneme_targets(labels)
        phonemes = F.cross_entropy(logits.flatten(0, 2), target.flatten(), ignore_index=NO_LABEL)
        # The last windows have no followers inside a segment.
        end = wave.shape[1] - (config.window // config.hop) * config.hop
        mel, linear = self.distance(made[:, :end], wave[:, :end])
        loss = 2.0 * mel + 0.5 * linear + book_loss + 0.5 * phonemes
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        with torch.no_grad():
            known = target != NO_LABEL
            right = ((logits.argmax(-1) == target) & known).sum() / known.sum()
            used = (self.quantize.usage[0] > 0.1).float().mean()
        for name, value in zip(
            self.report, (mel, linear, phonemes, right, book_loss, used), strict=True
        ):
            self.report[name].copy_(value.detach())

    def set_progress(self, progress: float, step: int, scale: float) -> None:
        warm = min(1.0, (step + 1) / 200) * scale
        self.optimiser.set_rate(warm * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * progress))))
        # Codes must settle before they are frozen.
        self.quantize.reviving.fill_(1.0 if progress < 0.8 else 0.0)


class DecoderOnly:
    """Stage two: the decoder on frozen codes, later against the judges.

    What is kept is a running average of the decoder's weights: against judges the weights of any
    one step wander.
    """

    def __init__(self, codec: SpectralCodec, pool: AudioPool, batch: int, frames: int) -> None:
        device = pool.device
        self.codec, self.pool, self.batch, self.frames = codec, pool, batch, frames
        codec.requires_grad_(False)
        codec.decoder.requires_grad_(True)
        self.distance = SpectralDistance(codec.sample_rate).to(device)
        self.jury = Jury().to(device)
        self.num_poor = batch // 8
        self.average = Average(codec.decoder)
        self.optimiser = Optimiser(
            codec.decoder.named_parameters(),
            is_hidden_matrix,
            muon_lr=0.008,
            adam_lr=8e-4,
            betas=(0.8, 0.95),
        )
        self.jury_optimiser = Optimiser(
            self.jury.named_parameters(),
            lambda *_: False,
            muon_lr=0.0,
            adam_lr=3e-4,
            betas=(0.8, 0.95),
        )
        self.ramp = torch.zeros((), device=device)
        self.report = {
            name: torch.zeros((), device=device)
            for name in ("mel", "linear", "jury", "adversarial", "matching")
        }

    def _pair(self) -> tuple[Tensor, Tensor]:
        """(made, target) without the last windows."""
        device, config = self.pool.device, self.codec.config
        wave, wanted, _ = self.pool.draw(self.batch, self.frames, self.num_poor)
        half = {"dtype": torch.bfloat16, "enabled": device.type == "cuda"}
        with torch.no_grad():
            with torch.autocast(device.type, **half):
                z = self.codec.encoder(wave)
            # Codes are found in float32, as they are at inference.
            z = self.codec.quantizer(z.float().transpose(1, 2)).transpose(1, 2)
        # 16-bit activations are noise at -37 dB, which judges hear and the decoder cannot help.
        made = self.codec.synthesise(z)
        end = wave.shape[1] - (config.window // config.hop) * config.hop
        return made[:, :end], wanted[:, :end]

    def plain_step(self) -> None:
        made, wave = self._pair()
        mel, linear = self.distance(made, wave)
        self.optimiser.zero_grad()
        (2.0 * mel + 0.5 * linear).backward()
        self.optimiser.step()
        self.report["mel"].copy_(mel.detach())
        self.report["linear"].copy_(linear.detach())

    def judged_step(self) -> None:
        device = self.pool.device
        made, wave = self._pair()
        mel, linear = self.distance(made, wave)
        # Judges are dear: they see half of the lines, and three quarters of a second of each. Of
        # the poor recordings they see half too: what those lack cannot be made up truly.
        crop = min(self.codec.sample_rate * 3 // 4, made.shape[1])
        first = self.num_poor // 2
        judged = slice(first, first + max(1, self.batch // 2))
        start = (torch.rand((), device=device) * (made.shape[1] - crop)).long()
        at = start + torch.arange(crop, device=device)
        real, fake = (
            side[judged].index_select(1, at) + DITHER * torch.randn(1, crop, device=device)
            for side in (wave, made)
        )
        autocast = torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda")
        self.jury.requires_grad_(True)
        with autocast:
            verdicts = jury_loss(self.jury(real), self.jury(fake.detach()))
        self.jury_optimiser.zero_grad()
        verdicts.backward()
        self.jury_optimiser.step(10.0)
        self.jury.requires_grad_(False)
        with autocast:
            with torch.no_grad():
                judged_real = self.jury(real)
            adversarial, matching = maker_loss(judged_real, self.jury(fake))
        loss = 15.0 * mel + linear + self.ramp * (adversarial + 2.0 * matching)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step(5.0)
        for name, value in zip(
            self.report, (mel, linear, verdicts, adversarial, matching), strict=True
        ):
            self.report[name].copy_(value.detach())

    def set_progress(self, progress: float, step: int, scale: float) -> None:
        warm = min(1.0, (step + 1) / 200)
        down = 0.5 * (1 + math.cos(math.pi * progress))
        self.optimiser.set_rate(scale * warm * (0.02 + 0.98 * down))
        # The judges know nothing at first, whatever the decoder knows: ``scale`` is not theirs.
        self.jury_optimiser.set_rate(warm * max(down, 0.1))


class Average:
    """An exponential moving average of a module's parameters, over about the last 1,000 updates."""

    def __init__(self, module: nn.Module) -> None:
        self.live = dict(module.named_parameters())
        self.kept = {name: p.detach().clone() for name, p in self.live.items()}
        self.updates = 0

    @torch.no_grad()
    def update(self) -> None:
        """Take in the parameters as they are now. Early on the average is over fewer updates."""
        self.updates += 1
        share = max(AVERAGE_SHARE, 9 / (9 + self.updates))
        torch._foreach_lerp_(list(self.kept.values()), list(self.live.values()), share)


def save(
    codec: SpectralCodec, out: Path, clock: Clock, instead: dict[str, Tensor] | None = None
) -> None:
    """Write the weights, some ``instead`` of the codec's own, beside and rename them into place."""
    out.mkdir(parents=True, exist_ok=True)
    state = codec.state_dict() | (instead or {})
    tensors = {k: v.detach().contiguous().cpu() for k, v in state.items()}
    broken = next((k for k, v in tensors.items() if not torch.isfinite(v).all()), None)
    if broken is not None:
        raise SystemExit(f'"{broken}" is not finite any more; the weights of a minute ago are kept')
    save_file(tensors, out / "codec.tmp", metadata=clock.metadata)
    (out / "codec.tmp").rename(out / "codec.safetensors")


class Clock:
    """Steps until the time is up; prints and saves now and then.

    ``seconds`` are those left to the stage, ``spent`` those of earlier processes. A stage may also
    be told to end after ``max_steps`` of this process, for trying it out.
    """

    def __init__(
        self, seconds: float, label: str, every: int, *, spent: float = 0.0, max_steps: int = 0
    ) -> None:
        self.start = self.saved = self.printed = time.monotonic()
        self.seconds, self.label, self.every, self.steps = seconds, label, every, 0
        self.spent, self.max_steps = spent, max_steps

    @property
    def progress(self) -> float:
        """Share of the whole stage that is over, from 0 to 1."""
        if self.max_steps and self.steps >= self.max_steps:
            return 1.0
        elapsed = time.monotonic() - self.start
        return min(1.0, (self.spent + elapsed) / max(1e-6, self.spent + self.seconds))

    @property
    def metadata(self) -> dict[str, str]:
        """What goes into a file of weights."""
        return {"seconds": f"{self.spent + time.monotonic() - self.start:.1f}"}

    def tick(self, report: dict[str, Tensor], store: Callable[[], None], note: str = "") -> None:
        self.steps += 1
        if self.steps % self.every:
            return
        values = " ".join(f"{name} {value.item():.3f}" for name, value in report.items())
        now = time.monotonic()
        pace = (now - self.printed) * 1000 / self.every
        self.printed = now
        print(
            f"{self.label} {now - self.start:.0f} s step {self.steps} {values} {pace:.1f} ms "
            f"{note}",
            flush=True,
        )
        if now - self.saved > SAVE_EVERY_S:
            store()
            self.saved = now


def seconds_spent(path: Path) -> float:
    """What ``Clock.metadata`` wrote into a file of weights; 0 where there is none."""
    if not path.exists():
        return 0.0
    with safe_open(path, framework="pt") as file:
        return float((file.metadata() or {}).get("seconds", 0.0))


def train_whole(
    codec: SpectralCodec, pool: AudioPool, clock: Clock, args: argparse.Namespace
) -> None:
    stage = WholeCodec(codec, pool, args.batch, args.frames)
    step = CapturedStep(stage.step)
    while clock.progress < 1.0:
        stage.set_progress(clock.progress, clock.steps, args.rate)
        step()
        if clock.steps % 25 == 0:
            pool.poll(args.shards)
        clock.tick(stage.report, lambda: save(codec, args.out, clock), f"hours {pool.hours:.1f}")
    save(codec, args.out, clock)


def train_decoder(
    codec: SpectralCodec, pool: AudioPool, clock: Clock, args: argparse.Namespace
) -> None:
    stage = DecoderOnly(codec, pool, args.batch, args.frames)
    plain, judged = CapturedStep(stage.plain_step), CapturedStep(stage.judged_step)

    def store() -> None:
        kept = {f"decoder.{name}": p for name, p in stage.average.kept.items()}
        save(codec, args.out, clock, kept)

    num_judged = 0
    while clock.progress < 1.0:
        progress = clock.progress
        stage.set_progress(progress, clock.steps, args.rate)
        if progress < args.judged_from:
            plain()
        else:
            # The judges are new in every process: first they learn, then they are listened to.
            num_judged += 1
            stage.ramp.fill_(min(1.0, max(0.0, (num_judged - 200) / 600)))
            judged()
        stage.average.update()
        if clock.steps % 25 == 0:
            pool.poll(args.shards)
        clock.tick(stage.report, store, f"hours {pool.hours:.1f}")
    store()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage", choices=("whole", "decoder"))
    for name in ("--shards", "--pack", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--start", type=Path, help="weights to start from, until OUT has some")
    parser.add_argument("--after", type=Path, help="take in speech until this file exists")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rate", type=float, default=1.0, help="of the learning rate")
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--frames", type=int, default=40)
    parser.add_argument("--hours", type=float, default=40.0)
    parser.add_argument("--judged-from", type=float, default=0.25)
    parser.add_argument("--max-steps", type=int, default=0, help="for trying it out")
    parser.add_argument("--print-every", type=int, default=200)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def gather(pool: AudioPool, shards: Path, awaited: list[Path], end: float) -> None:
    """Take in speech until there is no more for the moment and the files ``awaited`` exist."""
    while True:
        is_ready = all(path.exists() for path in awaited)
        if pool.poll(shards):
            continue
        if is_ready and pool.used:
            return
        if time.monotonic() > end:
            missing = [str(path) for path in awaited if not path.exists()] or ["any speech"]
            raise SystemExit(f"the time is up, without {', '.join(missing)}")
        time.sleep(0.2)


def main() -> None:
    begun = time.monotonic()
    args = arguments()
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    device = torch.device(args.device)
    kept = args.out / "codec.safetensors"
    start = kept if kept.exists() else args.start
    pool = AudioPool(Texts.load(args.pack), args.hours, device)
    gather(pool, args.shards, [path for path in (args.after, start) if path], begun + args.seconds)
    codec = SpectralCodec(SpectralConfig()).to(device)
    if start is not None:
        codec.load_state_dict({k: v.float() for k, v in load_file(start).items()})
    print(f"begins after {time.monotonic() - begun:.0f} s, hours {pool.hours:.1f}", flush=True)
    clock = Clock(
        max(1.0, begun + args.seconds - time.monotonic()),
        args.stage,
        args.print_every,
        spent=seconds_spent(kept),
        max_steps=args.max_steps,
    )
    (train_whole if args.stage == "whole" else train_decoder)(codec, pool, clock, args)
    print(f"{args.stage} done after {clock.steps} steps", flush=True)


if __name__ == "__main__":
    main()

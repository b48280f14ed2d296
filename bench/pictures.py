"""Draw what the benches measured: frames a second by streams, and products against the memory.

    python bench/pictures.py --out docs/performance [--baseline fishtts/baselines/h200.json]

Needs matplotlib (``pip install matplotlib``), which nothing else here does. The figures are those
of the baseline, the published ones those that docs/performance.md names.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

FLOOR = {1: 577, 16: 8_626, 64: 28_117, 128: 45_102}
"""Frames/s that 4.3 TB/s allow with FP8 weights and FP8 keys, context 512."""
PUBLISHED = {1: 154, 64: 8_006}
PUBLISHED_MLP_US = {1: 32.61, 16: 33.44, 64: 34.64, 128: 39.01}
"""The best that was published for the block, each number of tokens by whoever was fastest."""
PEAK_FLOPS, BYTES_PER_S = 1.979e15, 4.3e12
MLP_WEIGHTS = 3 * 2560 * 9728
FORMS = {
    "bsfp8 pdl": "ours, FP8",
    "torch scaled_mm, compiled": "torch, FP8",
    "torch bf16": "torch, bf16",
}


def sweep(rows: list[dict[str, Any]], path: Path) -> None:
    """Frames a second by streams."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for form in sorted({row["format"] for row in rows}):
        own = [row for row in rows if row["format"] == form]
        counts = [row["streams"] for row in own]
        axes.plot(counts, [row["frames_per_s"] for row in own], "o-", label=f"measured, {form}")
    axes.plot(*zip(*FLOOR.items(), strict=True), "k--", label="floor: FP8 at 4.3 TB/s")
    axes.plot(*zip(*PUBLISHED.items(), strict=True), "s", color="grey", label="published")
    axes.set(xscale="log", yscale="log", xlabel="streams", ylabel="frames/s of all streams")
    axes.set_xticks(list(FLOOR), [str(count) for count in FLOOR])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path)


def roofline(rows: list[dict[str, Any]], path: Path) -> None:
    """The MLP block's operations a second by its operations a byte of weights."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    intensities = [1, 500]
    roof = [min(PEAK_FLOPS, BYTES_PER_S * x) / 1e12 for x in range(1, 501)]
    axes.plot(range(1, 501), roof, "k--", label="roof: 4.3 TB/s, 1,979 TFLOP/s")
    for form, label in FORMS.items():
        own = [r for r in rows if (r["name"], r["form"]) == ("mlp", form) and r["us"]]
        bytes_a_weight = 2 if "bf16" in form else 1
        axes.plot(
            [2 * r["num_tokens"] / bytes_a_weight for r in own],
            [2 * MLP_WEIGHTS * r["num_tokens"] / r["us"] / 1e6 for r in own],
            "o-",
            label=label,
        )
    published = [(2 * m, 2 * MLP_WEIGHTS * m / us / 1e6) for m, us in PUBLISHED_MLP_US.items()]
    axes.plot(*zip(*published, strict=True), "s", color="grey", label="published, FP8")
    axes.set(xscale="log", yscale="log", xlim=intensities, ylabel="TFLOP/s")
    axes.set(xlabel="operations a byte of weights (M = 1, 16, 64, 128)")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--baseline", type=Path, default=Path("fishtts/baselines/h200.json"))
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    values = json.loads(args.baseline.read_bytes())
    args.out.mkdir(parents=True, exist_ok=True)
    sweep(values["streams"], args.out / "sweep.png")
    roofline(values["kernels"]["rows"], args.out / "roofline.png")


if __name__ == "__main__":
    main()

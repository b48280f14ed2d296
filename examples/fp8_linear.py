# /// script
# dependencies = ["fishtts"]
# ///
"""Multiply in FP8: python examples/fp8_linear.py

On a CUDA device the products run as Triton kernels, on a CPU as their specification in torch.
"""

import torch

from fishtts import kernels

device = "cuda" if torch.cuda.is_available() else "cpu"
x = torch.randn(4, 512, device=device).bfloat16()
weight = torch.randn(1024, 512, device=device).bfloat16()
exact = x.float() @ weight.float().t()

blocks = kernels.quantize_128x128(weight)
groups = kernels.quantize_1x32(weight)
products = {
    "bsfp8": kernels.bsgemm(*kernels.quantize_1x128(x), *blocks),
    "w8a16": kernels.w8a16_linear(x, *blocks),
    "mxfp8": kernels.mxfp8_linear(*kernels.quantize_1x32(x), *groups),
}
for name, product in products.items():
    error = (product.float() - exact).norm() / exact.norm()
    print(f"{name}: relative error {error:.3f} on {device}")

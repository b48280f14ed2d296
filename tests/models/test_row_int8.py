"""Weights that are int8 by nature are multiplied so; all others are left alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fishtts.models import row_int8
from fishtts.models.quantized import linear
from tests.kernels.tolerances import cosine_loss

pytestmark = pytest.mark.skipif(
    not row_int8._has_product(), reason="torch has no such product for this processor"
)


def int8_weight(rows: int, columns: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(-127, 128, (rows, columns), generator=generator)
    codes[:, 0] = 127
    return codes * (torch.rand(rows, 1, generator=generator) + 0.5) / 1000


@pytest.mark.parametrize("positions", [1, 8, 9, 40])
def test_products_are_those_of_the_floats(positions: int) -> None:
    weight, x = int8_weight(96, 128), torch.randn(1, positions, 128)
    out = linear(weight)(x)
    assert (out.shape, out.dtype) == ((1, positions, 96), torch.float32)
    exact = x @ weight.t()
    # Rounded to bfloat16 where there are few: by 2^-9 at most, three times over.
    if row_int8.is_few(x) or (row_int8.is_some(x) and row_int8._has_tiles()):
        assert not torch.equal(out, exact)
        assert cosine_loss(out, exact) < 1e-5
    else:
        torch.testing.assert_close(out, exact)


def test_swiglu_is_that_of_the_floats() -> None:
    w1, w3, w2 = int8_weight(192, 128, 1), int8_weight(192, 128, 2), int8_weight(128, 192, 3)
    run = row_int8.swiglu(w1, w2, w3)
    assert run is not None
    for positions in (1, 20, 40):
        x = torch.randn(positions, 128)
        exact = (torch.nn.functional.silu(x @ w1.t()) * (x @ w3.t())) @ w2.t()
        assert cosine_loss(run(x), exact) < 1e-4
        assert run(x).dtype == torch.float32


def test_what_is_not_int8_by_nature_stays_as_it_is() -> None:
    weight = int8_weight(96, 128)
    assert row_int8.packed(weight) is not None
    late = weight.clone()
    late[90, 5] += weight[90, 0] / 300
    others = [torch.randn(96, 128), weight.bfloat16().float(), weight.double(), late]
    for other in others:
        assert row_int8.packed(other) is None
    x = torch.randn(1, 128)
    assert torch.equal(linear(others[0])(x), torch.nn.functional.linear(x, others[0]))


def test_rows_of_zeros_are_zeros() -> None:
    weight = int8_weight(16, 64)
    weight[3] = 0
    out = linear(weight)(torch.randn(1, 64))
    assert float(out[0, 3]) == 0
    assert out.isfinite().all()

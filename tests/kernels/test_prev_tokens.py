"""The window of tokens drawn lately: what a shift does, and what is refused."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fishtts.kernels import reference
from fishtts.kernels.prev_tokens import prev_tokens_shift_
from tests.kernels.conftest import DEVICE, HAS_TRITON

BACKENDS = ["reference", "triton_backend"] if HAS_TRITON else ["reference"]
sizes = st.tuples(
    st.integers(0, 5), st.sampled_from([1, 2, 3, 10, 16, 63, 130]), st.sampled_from([0, 1, 10, 11])
)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> ModuleType:
    return import_module(f"fishtts.kernels.{request.param}")


def window(num_rows: int, width: int, num_columns: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(num_rows * 10007 + width * 101 + num_columns)
    limits = torch.iinfo(torch.int32)
    shape = (num_rows, width + 1, num_columns)
    both = torch.randint(limits.min, limits.max, shape, generator=generator).int()
    return both[:, :width].contiguous().to(DEVICE), both[:, width].contiguous().to(DEVICE)


@settings(deadline=None, max_examples=25)
@given(size=sizes)
def test_the_oldest_falls_out_and_the_new_comes_last(size: tuple[int, int, int]) -> None:
    for name in BACKENDS:
        previous, new = window(*size)
        expected = [
            [*row[1:], last] for row, last in zip(previous.tolist(), new.tolist(), strict=True)
        ]
        shifted = import_module(f"fishtts.kernels.{name}").prev_tokens_shift_(previous, new)
        assert shifted is previous
        assert previous.tolist() == expected


def test_a_window_longer_than_a_program_takes_is_cut_by_columns(backend: ModuleType) -> None:
    previous, new = window(2, 4000, 5)
    expected = torch.cat((previous[:, 1:], new[:, None]), dim=1)
    assert torch.equal(backend.prev_tokens_shift_(previous, new), expected)


def test_what_is_shifted_in_may_be_the_window_itself(backend: ModuleType) -> None:
    previous, _ = window(1, 10, 11)
    expected = torch.cat((previous[:, 1:], previous[:, :1]), dim=1)
    assert torch.equal(backend.prev_tokens_shift_(previous, previous[:, 0]), expected)


def test_after_as_many_shifts_as_it_is_wide_a_window_holds_what_came(backend: ModuleType) -> None:
    previous, _ = window(3, 10, 11)
    came = [window(3, 1, 11)[1] + step for step in range(10)]
    for new in came:
        backend.prev_tokens_shift_(previous, new)
    assert torch.equal(previous, torch.stack(came, dim=1))


def _refused() -> list[tuple[str, Tensor, Tensor]]:
    previous, new = (t.cpu() for t in window(4, 10, 11))
    return [
        ("an extra axis of the new", previous, new[:, None]),
        ("an extra axis of the window", previous[None], new),
        ("one new row for all", previous, new[:1]),
        ("a new row without its batch", previous, new[0]),
        ("other columns", previous, new[:, :10].contiguous()),
        ("one column for all", previous, new[:, :1].contiguous()),
        ("other rows", previous[:3], new),
        ("long new tokens", previous, new.long()),
        ("a long window", previous.long(), new),
        ("both long", previous.long(), new.long()),
        ("floats", previous.float(), new.float()),
        ("unsigned", previous, new.view(torch.uint32)),
        ("every second column", previous, new.repeat_interleave(2, dim=1)[:, ::2]),
        ("a repeated row", previous, new[:1].expand(4, 11)),
        ("a transposed window", previous.transpose(1, 2).contiguous().transpose(1, 2), new),
        ("a window of nothing", previous[:, :0], new),
        ("another device", previous, new.to("meta")),
    ]


@pytest.mark.parametrize(("previous", "new"), [pytest.param(*c[1:], id=c[0]) for c in _refused()])
def test_nothing_is_cast_or_broadcast(backend: ModuleType, previous: Tensor, new: Tensor) -> None:
    before, strides = previous.clone(), (previous.stride(), new.stride())
    new = new if new.device.type == "meta" else new.to(DEVICE)
    here = previous.to(DEVICE)
    if (here.stride(), new.stride()) != strides:
        pytest.skip("the copy to the device lost the layout")
    with pytest.raises(ValueError, match="previous is") as refusal:
        backend.prev_tokens_shift_(here, new)
    for tensor in (here, new):
        assert f"{tensor.dtype} {list(tensor.shape)}" in str(refusal.value)
    assert torch.equal(here.cpu(), before)


def test_the_public_function_shifts_where_the_window_is() -> None:
    previous, new = window(3, 10, 11)
    twin = previous.clone()
    assert prev_tokens_shift_(previous, new) is previous
    assert torch.equal(previous, reference.prev_tokens_shift_(twin, new))


@pytest.mark.gpu
def test_a_replayed_graph_shifts_what_is_there_then() -> None:
    previous, new = window(64, 10, 11)
    twin = previous.clone()
    prev_tokens_shift_(previous.clone(), new)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        prev_tokens_shift_(previous, new)
    for step in range(3):
        new.fill_(step)
        graph.replay()
        reference.prev_tokens_shift_(twin, new)
        assert torch.equal(previous, twin)

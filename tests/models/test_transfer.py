"""What goes over to a device and back is what was sent, whatever happens to it afterwards."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fishtts.models.transfer import to_device, to_host

DEVICES = [pytest.param("cuda", marks=pytest.mark.gpu), "cpu"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float32])
def test_a_part_of_an_array_goes_over_and_comes_back(device: str, dtype: type) -> None:
    whole = np.arange(60).reshape(5, 12).astype(dtype)
    there = to_device(whole[:, 3:9], torch.device(device))
    assert (there.device.type, there.shape) == (device, (5, 6))
    back = to_host(there)()
    assert back.dtype == dtype
    assert np.array_equal(back, whole[:, 3:9])


@pytest.mark.parametrize("device", DEVICES)
def test_what_comes_back_is_as_it_was_when_it_was_asked_for(device: str) -> None:
    tensor = torch.zeros(1000, dtype=torch.int64, device=device)
    answers = []
    for _ in range(20):
        answers.append(to_host(tensor))
        tensor += 1
    for number, answer in enumerate(answers):
        assert (answer() == number).all()


@pytest.mark.gpu
def test_what_came_back_holds_no_pinned_memory_and_nobody_waited_meanwhile() -> None:
    torch.cuda.set_sync_debug_mode("error")
    try:
        answer = to_host(to_device(np.arange(1000), torch.device("cuda")) * 2)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    found = torch.from_numpy(answer())
    assert not found.is_pinned()
    assert torch.equal(found, torch.arange(0, 2000, 2))

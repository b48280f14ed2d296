"""Numbers from the host to a device and back, without the host waiting for the device.

Owns the pinned memory on the way: a copy from or to any other makes the host wait until the device
has done all that it was asked for before. Knows nothing of what the numbers mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[Any]


def to_device(array: Array, device: torch.device) -> Tensor:
    """Bring an array to a device. On a CPU the tensor is the array's own memory where it can be."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if device.type != "cuda":
        return tensor.to(device)
    # The allocator keeps the pinned memory until the copy is done.
    return tensor.pin_memory().to(device, non_blocking=True)


def to_host(tensor: Tensor) -> Callable[[], Array]:
    """Begin to bring a tensor as it is now to the host; what is answered waits until it is there,
    and gives it.

    The array's memory is its own, and not pinned: that is made slowly, and is for those on the way.
    """
    if tensor.device.type != "cuda":
        array = tensor.cpu().numpy().copy()
        return lambda: array
    pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    pinned.copy_(tensor, non_blocking=True)
    ready = torch.cuda.Event()
    ready.record(torch.cuda.current_stream(tensor.device))

    def arrived() -> Array:
        ready.synchronize()
        return pinned.numpy().copy()

    return arrived

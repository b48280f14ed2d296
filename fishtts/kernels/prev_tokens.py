"""The window of tokens drawn lately, shifted in place on whatever device it is.

Owns the choice of the backend; ``reference.py`` says what is done and what is refused. Does not
know who looks at a window, or why.
"""

from __future__ import annotations

from torch import Tensor

from fishtts.kernels import backend


def prev_tokens_shift_(previous: Tensor, new: Tensor) -> Tensor:
    """Shift each row's window by one, in place: the oldest tokens fall out, the new ones go last.

    Shapes: previous int32 [B, W, C], oldest first, new int32 [B, C] -> previous itself.

    Raises: ``ValueError`` for any other shape, type, device or layout; nothing is cast or
    broadcast.
    """
    shifted: Tensor = backend(previous.device).prev_tokens_shift_(previous, new)
    return shifted

"""Triton's interpreter, mended where it does not do what a GPU does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

_FP8_MAX = 448.0


def exact_casts(convert: Callable[..., Any]) -> Callable[..., Any]:
    """Replace the interpreter's casts between float32, bfloat16, float16 and E4M3 by torch's.

    Its own forget to carry from the mantissa into the exponent (124.3 became 64 in E4M3), round
    ties up, wrap instead of saturating, and turn FP8 zeros into other numbers in bfloat16. Torch's
    round to nearest even; with a clamp before E4M3 that is what the hardware does.
    """
    import triton.language as tl
    from triton.runtime.interpreter import _ir

    kinds = {
        tl.float32: torch.float32,
        tl.float16: torch.float16,
        tl.bfloat16: torch.bfloat16,
        tl.float8e4nv: torch.float8_e4m3fn,
    }
    integers = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32}

    def cast(values: Any, source: Any, target: Any, rounding: Any) -> Any:
        if source not in kinds or target not in kinds or rounding == _ir.ROUNDING_MODE.RTZ:
            return convert(values, source, target, rounding)
        before = torch.frombuffer(bytearray(values.tobytes()), dtype=kinds[source])
        if target == tl.float8e4nv and source != target:
            before = before.float().clamp(-_FP8_MAX, _FP8_MAX)
        after = before.to(kinds[target])
        return after.view(integers[after.itemsize]).numpy().reshape(values.shape)

    return cast


def exact_dot(create_dot: Callable[..., Any]) -> Callable[..., Any]:
    """Let the interpreter's product take bfloat16, whose bits it would multiply as integers."""
    import triton.language as tl

    def dot(builder: Any, a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
        a, b = (
            builder.cast_impl(side, tl.float32) if side.dtype.scalar == tl.bfloat16 else side
            for side in (a, b)
        )
        return create_dot(builder, a, b, *args, **kwargs)

    return dot


@contextmanager
def mended() -> Iterator[None]:
    """Mend the interpreter for a while."""
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    before = interpreter._convert_float, builder.create_dot
    interpreter._convert_float = exact_casts(before[0])
    builder.create_dot = exact_dot(before[1])
    try:
        yield
    finally:
        interpreter._convert_float, builder.create_dot = before

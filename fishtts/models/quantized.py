"""Linear layers whose weights are FP8: how they multiply, and which of a model's are so.

Owns the formats by name, the modules that take the place of dense ones, and the table in
``config.json`` that says which layers are stored how. Knows no kernel's insides, no files, and of
an architecture only that its blocks have ``attention`` and ``feed_forward``.

Shapes: K columns in, N rows out; F columns of a gated half.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fishtts import kernels
from fishtts.config import WEIGHT_FORMATS
from fishtts.errors import ModelError, UsageError
from fishtts.kernels import reference
from fishtts.models import row_int8

FORMATS = WEIGHT_FORMATS
"""``bsfp8``: weights in 128x128 blocks, activations in 1x128 groups. ``mxfp8``: both in 1x32 groups
with power-of-two scales. ``w8a16``: weights as in bsfp8, activations stay 16-bit."""

DENSE = "bf16"
"""What a layer is called that is not quantised."""

_VERSION = 1
_UNIT = re.compile(r"(?:.+\.)?layers\.\d+\.(?:attention\.(?:wqkv|wo)|feed_forward)")


class QuantizedLinear(nn.Module):
    """A linear layer without bias whose weight is FP8; ``reference.py`` has the layouts.

    Its buffers are what a checkpoint holds: ``codes`` [N, K], and ``scale``
    [ceil(N / 128), K / 128] or, for mxfp8, ``exponents`` [K / 128, N, 4]. ``deterministic`` makes a
    row's result independent of how many rows there are; ``backend_name`` is as in
    ``kernels.backend``.
    """

    codes: Tensor

    def __init__(self, num_columns: int, num_rows: int, form: str) -> None:
        super().__init__()
        self.form = form
        self.deterministic = False
        self.backend_name = "auto"
        blocks = num_columns // reference.GROUP
        self.register_buffer("codes", torch.empty(num_rows, num_columns, dtype=reference.FP8))
        if form == "mxfp8":
            scale = torch.empty(blocks, num_rows, 4, dtype=torch.uint8)
        else:
            scale = torch.empty(-(-num_rows // reference.GROUP), blocks, dtype=torch.float32)
        self.register_buffer(self.scale_name, scale)
        self._dense: Tensor | None = None
        self._backend: ModuleType | None = None
        self.register_load_state_dict_post_hook(lambda layer, _: layer._forget())

    @property
    def scale_name(self) -> str:
        """The name of the buffer beside the codes."""
        return "exponents" if self.form == "mxfp8" else "scale"

    @property
    def weight(self) -> QuantizedLinear:
        """Itself: what ``linear`` takes in the place of a dense weight."""
        return self

    @classmethod
    def from_dense(cls, weight: Tensor, form: str) -> QuantizedLinear:
        """Quantise a weight [N, K]; its values never leave its device."""
        num_rows, num_columns = weight.shape
        with torch.device("meta"):
            layer = cls(num_columns, num_rows, form)
        backend = kernels.backend(weight.device)
        quantize = backend.quantize_1x32 if form == "mxfp8" else backend.quantize_128x128
        layer.codes, scale = quantize(weight.detach())
        setattr(layer, layer.scale_name, scale)
        return layer

    def _forget(self) -> None:
        self._dense = self._backend = None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> QuantizedLinear:
        """Move, but never change the types: a cast would read codes as numbers."""
        self._forget()
        for name, buffer in self.named_buffers(recurse=False):
            device = fn(torch.empty(0, device=buffer.device)).device
            setattr(self, name, buffer.to(device))
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Multiply x [..., K] -> [..., N], in x's type."""
        rows = x.reshape(-1, x.shape[-1])
        return self.multiply(self.operands(rows), x.dtype).view(*x.shape[:-1], -1)

    def operands(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Quantise activations [M, K], unless they stay as they are."""
        if self.form == "w8a16":
            return (rows,)
        quantize = "quantize_1x32" if self.form == "mxfp8" else "quantize_1x128"
        return tuple(getattr(self._ops, quantize)(rows))

    def normed_operands(
        self, x: Tensor, weight: Tensor, eps: float, residual: Tensor | None
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        """Add a residual, norm [M, K], and ``operands``, in one; also answers the sum [M, K]."""
        if self.form == "w8a16":
            normed, total = self._ops.residual_rms_norm(x, weight, eps, residual)
            return (normed,), total
        group = reference.MX_GROUP if self.form == "mxfp8" else reference.GROUP
        *operands, total = self._ops.residual_rms_norm_quantize(
            x, weight, eps, residual, group=group
        )
        return tuple(operands), total

    def gated_operands(self, gate_up: Tensor) -> tuple[Tensor, ...]:
        """SwiGLU of [M, 2 F], and ``operands``, in one."""
        if self.form == "w8a16":
            return (self._ops.silu_mul(gate_up),)
        group = reference.MX_GROUP if self.form == "mxfp8" else reference.GROUP
        return tuple(self._ops.silu_mul_quantize(gate_up, group=group))

    def multiply(self, x: tuple[Tensor, ...], dtype: torch.dtype) -> Tensor:
        """Multiply operands of [M, K] -> [M, N] of a type."""
        if not self.has_kernels:
            return self._multiply_by_reference(x, dtype)
        scale = getattr(self, self.scale_name)
        options: dict[str, Any] = {"deterministic": self.deterministic}
        if self.form == "w8a16":
            out: Tensor = self._ops.w8a16_linear(*x, self.codes, scale, **options)
            return out
        op = self._ops.mxfp8_linear if self.form == "mxfp8" else self._ops.bsgemm
        out = op(*x, self.codes, scale, out_dtype=dtype, **options)
        return out

    def swiglu(self, rows: Tensor) -> Tensor:
        """Multiply [M, K] and take SwiGLU -> [M, F], in one kernel; for w8a16."""
        scale = getattr(self, self.scale_name)
        options = {"deterministic": self.deterministic}
        out: Tensor = self._ops.w8a16_swiglu(rows, self.codes, scale, **options)
        return out

    @property
    def has_kernels(self) -> bool:
        """Whether products run by kernels, and not by the reference."""
        return self._ops is not reference

    @property
    def _ops(self) -> ModuleType:
        """The kernels of the device that the weight is on, chosen once."""
        if self._backend is None:
            self._backend = kernels.backend(self.codes.device, self.backend_name)
        return self._backend

    def _multiply_by_reference(self, x: tuple[Tensor, ...], dtype: torch.dtype) -> Tensor:
        """The reference, but for the weight, which becomes float32 once and not every time."""
        if self._dense is None:
            scale = getattr(self, self.scale_name)
            is_mx = self.form == "mxfp8"
            dequantize = reference.dequantize_1x32 if is_mx else reference.dequantize_128x128
            self._dense = dequantize(self.codes, scale)
        if self.form == "w8a16":
            values = x[0].float()
        elif self.form == "mxfp8":
            values = reference.dequantize_1x32(*x)
        else:
            values = reference.dequantize_1x128(*x)
        return F.linear(values, self._dense).to(dtype)


class QuantizedFeedForward(nn.Module):
    """SwiGLU with FP8 weights: gate and up are one product, SwiGLU ends in the next one's form."""

    def __init__(self, num_columns: int, num_hidden: int, form: str) -> None:
        super().__init__()
        self.w13 = QuantizedLinear(num_columns, 2 * num_hidden, form)
        self.w2 = QuantizedLinear(num_hidden, num_columns, form)

    @classmethod
    def from_dense(cls, w1: Tensor, w2: Tensor, w3: Tensor, form: str) -> QuantizedFeedForward:
        """Quantise w1 and w3 [F, K], and w2 [K, F]; w13 has their rows in turn."""
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        layer.w13 = QuantizedLinear.from_dense(torch.stack((w1, w3), dim=1).flatten(0, 1), form)
        layer.w2 = QuantizedLinear.from_dense(w2, form)
        return layer

    def forward(self, x: Tensor) -> Tensor:
        """w2(silu(w1 x) * w3 x): x [..., K] -> [..., K], in x's type."""
        rows = x.reshape(-1, x.shape[-1])
        return self.multiply(self.w13.operands(rows), x.dtype).view(x.shape)

    def multiply(self, operands: tuple[Tensor, ...], dtype: torch.dtype) -> Tensor:
        """The same from operands of ``w13`` -> [M, K] of a type."""
        if self.w13.form == "w8a16" and self.w13.has_kernels:
            return self.w2.multiply((self.w13.swiglu(*operands),), dtype)
        gate_up = self.w13.multiply(operands, dtype)
        return self.w2.multiply(self.w2.gated_operands(gate_up), dtype)


def linear(weight: Tensor | QuantizedLinear) -> Callable[[Tensor], Tensor]:
    """Make a product ready to run, x [..., K] -> [..., N]: with a weight that is dense or FP8, or
    dense and by nature int8."""
    if isinstance(weight, QuantizedLinear):
        return weight
    return row_int8.product(weight) or (lambda x: F.linear(x, weight))


def feed_forward(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """Make a block's SwiGLU ready to run: with w1, w2 and w3 in plain attributes, or in FP8."""
    if isinstance(module, QuantizedFeedForward):
        return module
    w1, w2, w3 = (getattr(module, name).weight for name in ("w1", "w2", "w3"))

    def run(x: Tensor) -> Tensor:
        return F.linear(F.silu(F.linear(x, w1)).mul_(F.linear(x, w3)), w2)

    return row_int8.swiglu(w1, w2, w3) or run


@dataclass(frozen=True, slots=True)
class Quantization:
    """Which layers of a model are stored in which format, by the names of their units.

    A unit is a block's ``attention.wqkv``, ``attention.wo`` or ``feed_forward``. Units that are not
    named are dense.
    """

    formats: Mapping[str, str]

    def as_dict(self) -> dict[str, Any]:
        """What stands in ``config.json`` under ``quantization_config``."""
        return {"quant_method": "fishtts", "version": _VERSION, "formats": dict(self.formats)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Quantization | None:
        """Read the table of a ``config.json``; None for a model that has none.

        Raises: ``ModelError`` for a table that is another program's, newer, or makes no sense.
        """
        table = values.get("quantization_config")
        if table is None:
            return None
        if not isinstance(table, Mapping) or table.get("quant_method") != "fishtts":
            raise ModelError(
                "config.json describes weights that another program has quantised.",
                hint="Quantise the original: fishtts models quantize",
            )
        if table.get("version") != _VERSION:
            raise ModelError(
                f"The quantised weights have the version {table.get('version')}; this program reads"
                f" {_VERSION}.",
                hint="Update fishtts, or quantise the original anew: fishtts models quantize",
            )
        formats = table.get("formats")
        if set(table) != {"quant_method", "version", "formats"} or not isinstance(formats, Mapping):
            raise ModelError("quantization_config of config.json has unknown or missing keys.")
        for unit, form in formats.items():
            if form not in FORMATS or not _UNIT.fullmatch(unit):
                raise ModelError(f'quantization_config of config.json says "{unit}": "{form}".')
        return cls(dict(formats))


def units(net: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every layer that may be quantised, by name."""
    for name, module in net.named_modules():
        if _UNIT.fullmatch(name):
            yield name, module


def weights_of(module: nn.Module) -> dict[str, Any]:
    """The dense weights of a unit by their names within it."""
    if isinstance(module, nn.Linear):
        return {"weight": module.weight}
    return {f"{name}.weight": getattr(module, name).weight for name in ("w1", "w2", "w3")}


def choose(net: nn.Module, form: str, keep: Mapping[str, str] | None = None) -> Quantization:
    """Say which units of a net become what.

    ``keep`` gives other formats (or bf16) to the units whose names match a pattern; the first that
    matches counts. Units whose columns are no multiple of 128 stay dense.

    Raises: ``UsageError`` for an unknown format or a pattern without a unit, ``ModelError`` where
    nothing could be quantised.
    """
    keep = keep or {}
    for wanted in (form, *keep.values()):
        if wanted not in FORMATS and (wanted != DENSE or wanted == form):
            raise UsageError(f'There is no format "{wanted}".', hint=f"Use: {', '.join(FORMATS)}.")
    formats: dict[str, str] = {}
    unused = set(keep)
    for name, module in units(net):
        matching = [pattern for pattern in keep if fnmatchcase(name, pattern)]
        unused -= set(matching)
        chosen = keep[matching[0]] if matching else form
        fits = all(w.shape[1] % reference.GROUP == 0 for w in weights_of(module).values())
        if fits and chosen != DENSE:
            formats[name] = chosen
    if unused:
        raise UsageError(
            f'No layer is called "{min(unused)}".',
            hint="Layers are called like text_model.model.layers.0.attention.wqkv; * stands for any"
            " part of a name.",
        )
    if not formats:
        raise ModelError(
            "Nothing in this model can be quantised: no layer has a multiple of 128 columns."
        )
    return Quantization(formats)


def quantize_unit(module: nn.Module, form: str) -> nn.Module:
    """Make the quantised form of a unit from its dense weights."""
    if isinstance(module, nn.Linear):
        return QuantizedLinear.from_dense(module.weight, form)
    w1, w2, w3 = (getattr(module, name).weight.detach() for name in ("w1", "w2", "w3"))
    return QuantizedFeedForward.from_dense(w1, w2, w3, form)


def empty_unit(module: nn.Module, form: str) -> nn.Module:
    """Make the quantised form of a unit without values, to be filled from a checkpoint."""
    if isinstance(module, nn.Linear):
        return QuantizedLinear(module.in_features, module.out_features, form)
    w1 = weights_of(module)["w1.weight"]
    return QuantizedFeedForward(w1.shape[1], w1.shape[0], form)


def install(
    net: nn.Module,
    quantization: Quantization,
    make: Callable[[nn.Module, str], nn.Module] = empty_unit,
) -> None:
    """Put quantised units in the places of dense ones: empty ones, or ``quantize_unit``'s.

    One after another, so that no more than one unit exists twice. To be done before the net runs
    for the first time: it keeps what it has made ready.

    Raises: ``ModelError`` for a unit that the model does not have.
    """
    for name, form in quantization.formats.items():
        parent, _, child = name.rpartition(".")
        try:
            module = net.get_submodule(name)
        except AttributeError:
            raise ModelError(
                f'config.json names a quantised layer that the model has not: "{name}".'
            ) from None
        setattr(net.get_submodule(parent), child, make(module, form))


def quantize_net(net: nn.Module, form: str, keep: Mapping[str, str] | None = None) -> Quantization:
    """Quantise a loaded net where it is; as ``choose`` and ``install``."""
    quantization = choose(net, form, keep)
    install(net, quantization, quantize_unit)
    return quantization


def format_of(net: nn.Module) -> str:
    """Name the format that all layers of a net have, dense or not; ``mixed`` where they differ."""
    kinds = {
        module.form if isinstance(module, QuantizedLinear) else DENSE
        for _, unit in units(net)
        for module in unit.modules()
        if isinstance(module, nn.Linear | QuantizedLinear)
    }
    return kinds.pop() if len(kinds) == 1 else "mixed"


def runs_by_kernels(net: nn.Module) -> bool:
    """Whether any product of a net runs by kernels, and not by the reference."""
    return any(isinstance(m, QuantizedLinear) and m.has_kernels for m in net.modules())


def use_backend(net: nn.Module, name: str) -> None:
    """Let the products of a net run by the backend of a name; see ``kernels.backend``."""
    for module in net.modules():
        if isinstance(module, QuantizedLinear):
            module.backend_name = name
            module._forget()


def make_deterministic(net: nn.Module, is_on: bool = True) -> None:
    """Let rows not depend on their neighbours in a batch, at some cost in speed."""
    for module in net.modules():
        if isinstance(module, QuantizedLinear):
            module.deterministic = is_on

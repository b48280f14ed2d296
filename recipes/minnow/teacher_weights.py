"""The teacher's weights: from the packaged int8 graph to float tensors under our own names.

Runs on the CPU, before the GPU run. Kokoro-82M comes as one ONNX file whose products were quantised
dynamically; multiplying the scales back in gives a float network that a GPU runs in PyTorch.
"""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors.numpy import load, save

if TYPE_CHECKING:
    import onnx

ALBERT = "encoder.bert.encoder.albert_layer_groups.0.albert_layers.0."
MAX_VALUES = 256
SMALL = 4096


class Graph:
    """An ONNX graph with the look-ups that following its edges needs."""

    def __init__(self, path: Path) -> None:
        # Here, because the machine that reads the packed weights need not have it.
        import onnx
        from onnx import numpy_helper

        graph = onnx.load(str(path)).graph
        self.nodes = list(graph.node)
        self.arrays = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
        self.maker = {out: node for node in self.nodes for out in node.output}
        self.users: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in node.input:
                self.users.setdefault(name, []).append(node)

    def user(self, name: str) -> onnx.NodeProto:
        (node,) = self.users[name]
        return node

    def product(self, node: onnx.NodeProto) -> tuple[np.ndarray, np.ndarray | None]:
        """Float weight and bias of an integer product, as the graph applies them."""
        after, bias = self.user(node.output[0]), None
        if after.op_type == "Add":
            # A convolution's bias is divided by the scale first, to be added as an integer.
            other = next(n for n in after.input if n != node.output[0])
            divide = self.maker[other]
            while divide.op_type in ("Reshape", "Cast", "Floor", "Unsqueeze"):
                divide = self.maker[divide.input[0]]
            bias = self.arrays[divide.input[0]]
            after = self.user(after.output[0])
        multiply = self.user(after.output[0])
        scales = self.maker[next(n for n in multiply.input if n != after.output[0])]
        (scale_name,) = [n for n in scales.input if n in self.arrays]
        weight, scale = self.arrays[node.input[1]], self.arrays[scale_name]
        zero = self.arrays[node.input[3]] if len(node.input) > 3 and node.input[3] else np.zeros(1)
        if node.op_type == "ConvInteger":
            shape = (-1, *[1] * (weight.ndim - 1))
            scale, zero = (
                v.reshape(-1) if v.size == 1 else v.reshape(shape) for v in (scale, zero)
            )
        float_weight = (weight.astype(np.float32) - zero.astype(np.float32)) * scale
        if bias is None and node.op_type == "MatMulInteger":
            adds = [n for n in self.users.get(multiply.output[0], []) if n.op_type == "Add"]
            names = [n for n in adds[0].input if n in self.arrays] if adds else []
            bias = self.arrays[names[0]] if names else None
        return float_weight.astype(np.float32), bias

    def lstm(self, node: onnx.NodeProto) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(W, R, B) of a quantised LSTM in ONNX's gate order (input, output, forget, cell)."""

        def spread(v: np.ndarray, directions: int) -> np.ndarray:
            if v.ndim == 1 and v.size == directions:
                return v.reshape(-1, 1, 1).astype(np.float32)
            return (v[:, None, :] if v.ndim == 2 else v).astype(np.float32)

        w, r = self.arrays[node.input[1]], self.arrays[node.input[2]]
        w_scale, w_zero, r_scale, r_zero = (self.arrays[n] for n in node.input[8:12])
        sides = []
        for q, scale, zero in ((w, w_scale, w_zero), (r, r_scale, r_zero)):
            full = (q.astype(np.float32) - spread(zero, q.shape[0])) * spread(scale, q.shape[0])
            sides.append(full.transpose(0, 2, 1))
        return sides[0], sides[1], self.arrays[node.input[3]]


RENAMES = (
    (r"^decoder/decoder/generator/", "dec/"),
    (r"^decoder/decoder/", "dec/"),
    (r"^encoder/(F0|N)", r"pred/\1"),
    (r"^encoder/shared", "pred/shared"),
    (r"^encoder/predictor/text_encoder/", "pred/"),
    (r"^encoder/predictor/", "pred/"),
    (r"^encoder/bert/encoder/albert_layer_groups\.0/albert_layers\.0/attention/", "bert/"),
    (r"^encoder/bert/encoder/albert_layer_groups\.0/albert_layers\.0/", "bert/"),
    (r"^encoder/bert/encoder/embedding_hidden_mapping_in", "bert/map"),
    (r"^encoder/bert_encoder", "bert_encoder"),
    (r"^encoder/text_encoder/cnn\.(\d)/cnn.*", r"text/cnn.\1"),
    (r"^encoder/text_encoder/lstm", "text/lstm"),
    (r"dec/asr_res/asr_res\.0", "dec/asr_res"),
    (r"m_source/l_linear", "l_linear"),
    (r"duration_proj/linear_layer", "duration_proj"),
)


def our_name(path: str) -> str:
    """A module path of the graph under the shorter names of ``teacher.py``."""
    path = path.strip("/")
    for pattern, replacement in RENAMES:
        path = re.sub(pattern, replacement, path)
    return path.replace("/", ".")


def float_tensors(path: Path) -> dict[str, np.ndarray]:
    """All weights of the teacher by our names, float32."""
    graph = Graph(path)
    out: dict[str, np.ndarray] = {}

    def put(name: str, weight: np.ndarray, bias: np.ndarray | None) -> None:
        out[name + ".weight"] = weight
        if bias is not None:
            out[name + ".bias"] = bias

    for node in graph.nodes:
        name = our_name("/".join(node.name.split("/")[:-1]))
        repeated = re.search(r"_\d+$", name) is not None
        if node.op_type == "ConvInteger":
            put(name, *graph.product(node))
        elif node.op_type in ("Conv", "ConvTranspose") and "istft" not in node.name:
            has_bias = len(node.input) > 2 and node.input[2]
            bias = graph.arrays[node.input[2]] if has_bias else None
            put(name, graph.arrays[node.input[1]], bias)
        elif node.op_type == "MatMulInteger" and not repeated:
            weight, bias = graph.product(node)
            put(name, weight.T.copy(), bias)
        elif node.op_type == "MatMul" and node.input[1] in graph.arrays and not repeated:
            weight = graph.arrays[node.input[1]]
            adds = [n for n in graph.users.get(node.output[0], []) if n.op_type == "Add"]
            names = [n for n in adds[0].input if n in graph.arrays] if adds else []
            put(name, weight.T.copy(), graph.arrays[names[0]] if names else None)
        elif node.op_type == "DynamicQuantizeLSTM":
            out[name + ".lstmW"], out[name + ".lstmR"], out[name + ".lstmB"] = graph.lstm(node)
    _add_loose(graph, out)
    return {k: np.ascontiguousarray(v, dtype=np.float32) for k, v in out.items()}


def _add_loose(graph: Graph, out: dict[str, np.ndarray]) -> None:
    """Parameters that no product holds: norms, snake slopes, style biases, embeddings."""
    arrays = graph.arrays
    prefixes = (
        ("decoder.decoder.generator.", "dec/"),
        ("decoder.decoder.", "dec/"),
        ("encoder.predictor.text_encoder.", "pred/"),
        ("encoder.predictor.", "pred/"),
    )
    for key, array in arrays.items():
        if m := re.match(
            r"(?:decoder\.decoder\.generator\.|decoder\.decoder\.)(.*\.alpha[12]\.\d)$", key
        ):
            out["dec." + m[1]] = array
        if m := re.match(r"(.*)\.fc\.bias$", key):
            name = m[1]
            for old, new in prefixes:
                name = name.replace(old, new)
            out[our_name(name) + ".fc.bias"] = array
        if m := re.match(r"encoder\.text_encoder\.cnn\.(\d)\.1\.(gamma|beta)$", key):
            out[f"text.cnn.{m[1]}.{m[2]}"] = array

    def quantised(name: str) -> np.ndarray:
        return arrays[name + "_quantized"].astype(np.float32) * arrays[name + "_scale"]

    for long, short in (("word", "word"), ("position", "pos"), ("token_type", "tok")):
        key = f"encoder.bert.embeddings.{long}_embeddings.weight"
        out[f"bert.embeddings.{short}"] = quantised(key)
    out["text.embedding"] = quantised("encoder.text_encoder.embedding.weight")
    for part in (
        "ffn",
        "ffn_output",
        "attention.query",
        "attention.key",
        "attention.value",
        "attention.dense",
    ):
        out["bert." + part.split(".")[-1] + ".bias"] = arrays[ALBERT + part + ".bias"]
    norms = (
        ("encoder.bert.embeddings.LayerNorm", "bert.embeddings.ln"),
        (ALBERT + "attention.LayerNorm", "bert.aln"),
        (ALBERT + "full_layer_layer_norm", "bert.fln"),
    )
    for long, short in norms:
        for part in ("weight", "bias"):
            out[f"{short}.{part}"] = arrays[f"{long}.{part}"]


def row_grid(array: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """(step of each row float32, int8 multiples) where every row lies on a grid of its own."""
    rows = array.reshape(len(array), -1)
    ordered = np.sort(rows, 1)
    gaps = np.diff(ordered, axis=1)
    # Rounding leaves tiny gaps between equal values: those are no steps.
    floor = np.abs(rows).max(1, keepdims=True) / 1000
    step = np.where(gaps > floor, gaps, np.inf).min(1)
    step[~np.isfinite(step)] = 1.0
    # The smallest gap carries rounding: refine it by the farthest value.
    far = rows[np.arange(len(rows)), np.abs(rows).argmax(1)]
    step = np.abs(far) / np.maximum(np.round(np.abs(far) / step), 1)
    step[step == 0] = 1.0
    multiple = np.round(rows / step[:, None])
    if np.abs(multiple).max() > 255:
        return None
    if np.abs(multiple * step[:, None] - rows).max() > 1e-5 * np.abs(rows).max():
        return None
    return step.astype(np.float32), multiple.astype(np.int16).reshape(array.shape)


def write_packed(tensors: dict[str, np.ndarray], folder: Path) -> None:
    """Write two entropy-coded halves: int8 tensors as indices or row multiples, others fp16."""
    halves: list[dict[str, np.ndarray]] = [{}, {}]
    total = sum(v.size for v in tensors.values())
    seen = 0
    for name, array in tensors.items():
        half = halves[seen * 2 > total]
        seen += array.size
        parts = {name: array}
        if array.size > SMALL and array.ndim > 2 and array.shape[0] == 2:
            parts = {f"{name}@{i}": array[i] for i in range(2)}
        for key, part in parts.items():
            if part.size <= SMALL:
                half[key] = part
                continue
            values, index = np.unique(part, return_inverse=True)
            if len(values) <= MAX_VALUES:
                half[key + "|values"] = values
                half[key + "|index"] = index.reshape(part.shape).astype(np.uint8)
            elif (grid := row_grid(part)) is not None:
                half[key + "|step"], multiple = grid
                wide = np.abs(multiple).max() > 127
                half[key + "|multiple"] = multiple if wide else multiple.astype(np.int8)
            else:
                half[key] = part.astype(np.float16)
    for i, half in enumerate(halves):
        # Quantised weights never repeat, so matching would only cost time.
        coder = zlib.compressobj(6, zlib.DEFLATED, 15, 9, zlib.Z_HUFFMAN_ONLY)
        (folder / f"teacher{i}.bin").write_bytes(coder.compress(save(half)) + coder.flush())


def read_packed(folder: Path) -> dict[str, np.ndarray]:
    """The tensors that ``write_packed`` wrote, float32."""
    raw: dict[str, np.ndarray] = {}
    for i in range(2):
        raw.update(load(zlib.decompress((folder / f"teacher{i}.bin").read_bytes())))
    flat: dict[str, np.ndarray] = {}
    for key, array in raw.items():
        name, _, kind = key.partition("|")
        if kind == "index":
            flat[name] = raw[name + "|values"][array]
        elif kind == "multiple":
            step = raw[name + "|step"].reshape(-1, *[1] * (array.ndim - 1))
            flat[name] = array.astype(np.float32) * step
        elif not kind:
            flat[name] = array.astype(np.float32)
    out = {k: v for k, v in flat.items() if "@" not in k}
    for key in flat:
        if key.endswith("@0"):
            name = key.removesuffix("@0")
            out[name] = np.stack((flat[name + "@0"], flat[name + "@1"]))
    return out

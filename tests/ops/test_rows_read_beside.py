"""Rows that a kernel keeps for itself (of a norm, of a softmax), read beside the point that it computes: by a window that ends
with the row. The evaluator looks at every address, and so does the compiler where sizes are known."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

tensorbox = pytest.importorskip("tensorbox")

ROWS = {
    "LayerNormalization": [helper.make_node("LayerNormalization", ["x", "scale"], ["rows"])],
    "Softmax": [helper.make_node("Softmax", ["x"], ["rows"])],
    "Sub": [helper.make_node("ReduceMax", ["x"], ["most"], axes=[3]), helper.make_node("Sub", ["x", "most"], ["rows"])],
}


def model_of(rows: str, channels: int, dims: list[int | str], size: int) -> onnx.ModelProto:
    nodes = [*ROWS[rows], helper.make_node("Transpose", ["rows"], ["image"], perm=[0, 3, 1, 2]),
             helper.make_node("LRN", ["image"], ["y"], size=size, alpha=0.5, beta=0.6, bias=1.5)]
    infos = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in (("x", dims), ("y", [None] * 4))]
    scale = numpy_helper.from_array(np.linspace(0.5, 2, channels, dtype=np.float32), "scale")
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], [scale])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def in_double(rows: str, x: np.ndarray, size: int) -> np.ndarray:
    x = x.astype(np.float64)
    if rows == "LayerNormalization":
        x = (x - x.mean(3, keepdims=True)) / np.sqrt(x.var(3, keepdims=True) + 1e-5) * np.linspace(0.5, 2, x.shape[3])
    elif rows == "Softmax":
        e = np.exp(x - x.max(3, keepdims=True))
        x = e / e.sum(3, keepdims=True)
    else:
        x = x - x.max(3, keepdims=True)
    squares = np.zeros_like(x)
    channels = x.shape[3]
    for c in range(channels):
        squares[..., c] = (x[..., max(0, c - (size - 1) // 2):c + size // 2 + 1] ** 2).sum(3)
    return (x / (1.5 + 0.5 / size * squares) ** 0.6).transpose(0, 3, 1, 2)


@pytest.mark.parametrize(("shape", "compiled"), [
    ((2, 3, 2, 8), False), ((1, 1, 1, 1), False), ((3, 4, 5, 40), False), ((2, 3, 2, 8), True), ((400, 2, 5, 3), True)])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("rows", ROWS)
def test_window_over_rows(rows: str, shape: tuple[int, ...], dynamic: bool, compiled: bool) -> None:
    x = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
    dims = ["n", "h", "w", shape[3]] if dynamic else list(shape)
    for size in (5, 7):
        session = tensorbox.Session(model_of(rows, shape[3], dims, size), compile=compiled)
        np.testing.assert_allclose(session.run({"x": x})["y"], in_double(rows, x, size), rtol=1e-5, atol=1e-5)

"""Without the pass `widen_halves` every result of a model in float16 or bfloat16 is rounded as its node says.

The references round after each node. Their operands have few bits, so that sums of products are exact in float32; the
other operators are those that IEEE 754 rounds correctly. So no bit may differ.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper
from peers import tensorbox

ml_dtypes = pytest.importorskip("ml_dtypes")
HALVES = [np.float16, ml_dtypes.bfloat16]
Reference = dict[str, np.ndarray]


class Rounded:
    """Builds a model, and beside it its values, each rounded once."""

    def __init__(self, dtype: type) -> None:
        self.dtype = np.dtype(dtype)
        self.kind = helper.np_dtype_to_tensor_dtype(self.dtype)
        self.nodes: list[onnx.NodeProto] = []
        self.values: Reference = {}
        self.constants: list[str] = []

    def value(self, name: str, data: np.ndarray, constant: bool = False) -> str:
        self.values[name] = np.asarray(data).astype(self.dtype)
        if constant:
            self.constants.append(name)
        return name

    def node(self, op: str, inputs: list[str], exact: Callable[..., np.ndarray], **attributes: object) -> str:
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        self.values[name] = exact(*(self.values[i].astype(np.float64) for i in inputs)).astype(np.float32).astype(self.dtype)
        return name

    def model(self, inputs: list[str], output: str) -> onnx.ModelProto:
        infos = [helper.make_tensor_value_info(n, self.kind, self.values[n].shape) for n in inputs]
        result = [helper.make_tensor_value_info(output, self.kind, None)]
        given = [helper.make_tensor(n, self.kind, self.values[n].shape, self.values[n].tobytes(), raw=True)
                 for n in self.constants]
        graph = helper.make_graph(self.nodes, "rounded", infos, result, given)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def few_bits(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-8, 9, shape) / 8


def joins(b: Rounded, x: str, y: str) -> str:
    """Scale, shift, residual and what else libraries and kernels take along with a product."""
    scale, shift = b.value("scale", np.array(1.37), True), b.value("shift", np.array(-0.777), True)
    scaled = b.node("Mul", [y, scale], np.multiply)
    shifted = b.node("Add", [scaled, shift], np.add)
    squared = b.node("Mul", [shifted, shifted], np.multiply)
    root = b.node("Sqrt", [squared], np.sqrt)
    halved = b.node("Div", [root, scale], np.divide)
    relu = b.node("Relu", [halved], lambda v: np.maximum(v, 0))
    return b.node("Add", [relu, x], np.add)


@pytest.mark.parametrize("device", ["", "cuda"])
@pytest.mark.parametrize("rows", [1, 33])
@pytest.mark.parametrize("dtype", HALVES, ids=["float16", "bfloat16"])
def test_products(dtype: type, rows: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TBX_FAKE_CUDA", "1")
    rng = np.random.default_rng(rows)
    b = Rounded(dtype)
    x = b.value("x", few_bits(rng, rows, 65))
    weights = b.value("weights", few_bits(rng, 65, 65), True)
    bias = b.value("bias", rng.standard_normal(65), True)
    first = b.node("Add", [b.node("MatMul", [x, weights], np.matmul), bias], np.add)
    output = joins(b, x, first)
    m = b.model([x], output)
    got = tensorbox.Session(m, device=device, disable_passes=["widen_halves"]).run({"x": b.values[x]})[output]
    np.testing.assert_array_equal(got.astype(np.float32), b.values[output].astype(np.float32))


@pytest.mark.parametrize("device", ["", "cuda"])
@pytest.mark.parametrize("dtype", HALVES, ids=["float16", "bfloat16"])
def test_convolutions(dtype: type, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TBX_FAKE_CUDA", "1")
    rng = np.random.default_rng(5)
    b = Rounded(dtype)
    x = b.value("x", few_bits(rng, 2, 17, 9, 7))
    weights = b.value("weights", few_bits(rng, 17, 17, 1, 1), True)
    y = b.node("Conv", [x, weights], lambda v, w: np.einsum("nchw,oc->nohw", v, w[:, :, 0, 0]))
    output = joins(b, x, y)
    m = b.model([x], output)
    got = tensorbox.Session(m, device=device, disable_passes=["widen_halves"]).run({"x": b.values[x]})[output]
    np.testing.assert_array_equal(got.astype(np.float32), b.values[output].astype(np.float32))

"""Quantised products whose scales are multiplied to no normal number, while each makes numbers of its integers: plain
products in double."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from peers import tensorbox

RNG = np.random.default_rng(2)
K, N = 40, 24
A = RNG.integers(0, 256, (3, K)).astype(np.uint8)
W = RNG.integers(-128, 128, (K, N)).astype(np.int8)
SCALES = {"infinite": (1e30, 1e10), "subnormal": (1e-25, 1e-20), "0": (1e-30, 1e-18), "of one column": (1e-25, [1.0] * 23 + [1e-20])}


def model_of(op: str, a_scale: float, w_scale: list[float] | float) -> onnx.ModelProto:
    scales = np.array(w_scale, np.float32)
    x, w, axis = ([1, K, 1, 3], W.T.reshape(N, K, 1, 1), 0) if op == "Conv" else ([3, K], W, 1)
    constants = {"sa": np.array(a_scale, np.float32), "za": np.uint8(3), "w": np.ascontiguousarray(w), "sw": scales,
                 "zw": np.zeros(scales.shape, np.int8)}
    nodes = [helper.make_node("DequantizeLinear", ["x", "sa", "za"], ["a"]),
             helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["b"], axis=axis), helper.make_node(op, ["a", "b"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.UINT8, x)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize("op", ["MatMul", "Gemm", "Conv"])
@pytest.mark.parametrize("name", SCALES)
def test_scales_of_products(name: str, op: str) -> None:
    a_scale, w_scale = SCALES[name]
    a = np.full_like(A, 3) if name == "infinite" else A  # its zero point: each product is 0
    left, right = (a.astype("d") - 3) * a_scale, W.astype("d") * w_scale
    want = left @ right
    feed = a.T.reshape(1, K, 1, 3) if op == "Conv" else a
    got = tensorbox.Session(model_of(op, a_scale, w_scale), compile=False).run({"x": feed})["y"]
    got = got.reshape(N, 3).T if op == "Conv" else got
    # What sums of float32 lose: half of the last digit at each step, or half of the least float32.
    bound = (K + 3) * 2.0**-24 * (abs(left) @ abs(right)) + K * 2.0**-150
    assert (abs(got - want) <= bound).all()

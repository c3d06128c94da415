"""NaN and infinities behind products, where activations are no part of the library's call (docs/libraries.md)."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from peers import tensorbox

X = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 3.3e38, -3.3e38, 0, 2, -2], np.float32)
DEPTH = 64
ACTIVATIONS = {
    "Relu": ([], lambda x: np.maximum(x, 0)),
    "Clip": ([-1.0, 3.0], lambda x: np.clip(x, -1, 3)),
    "HardSigmoid": ([], lambda x: np.clip(np.float32(0.2) * x + 0.5, 0, 1)),
    "LeakyRelu": ([], lambda x: np.where(x < 0, np.float32(0.01) * x, x)),
}


@pytest.mark.parametrize("precision", ["strict", "any"])
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("product", ["MatMul", "Conv"])
def test_numbers_without_end(product: str, name: str, precision: str) -> None:
    """Each result is one element of x, times 1; all else that is added is 0."""
    bounds, function = ACTIVATIONS[name]
    weights = np.zeros((DEPTH, DEPTH), np.float32)
    weights[0] = 1
    x = np.zeros((X.size, DEPTH), np.float32)
    x[:, 0] = X
    if product == "Conv":
        weights, x = weights.T[:, :, None, None].copy(), x[:, :, None, None]
    constants = [numpy_helper.from_array(weights, "w"), *(numpy_helper.from_array(np.float32(b), f"b{i}") for i, b in enumerate(bounds))]
    nodes = [helper.make_node(product, ["x", "w"], ["s"]), helper.make_node(name, ["s", *(c.name for c in constants[1:])], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    got = tensorbox.Session(model, fuse_extern=False, precision=precision).run({"x": x})["y"]
    with np.errstate(all="ignore"):
        want = function(X)
    np.testing.assert_allclose(got.reshape(X.size, DEPTH)[:, 1], want, rtol=1e-2 if precision == "any" else 1e-6)

"""Repeated tensors with a border, where a run brings a size of 0: the border is all there is, and no place is divided by 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from peers import tensorbox

REPEATS, BEFORE, AFTER = (2, 2, 1), (0, 1, 3), (2, 2, 1)


def model() -> onnx.ModelProto:
    constants = {"r": np.array(REPEATS, np.int64), "p": np.array(BEFORE + AFTER, np.int64)}
    nodes = [helper.make_node("Tile", ["x", "r"], ["t"]), helper.make_node("Pad", ["t", "p"], ["y"])]
    graph = helper.make_graph(nodes, "tiles", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["a", 3, "c"])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["d", "e", "f"])],
                              [numpy_helper.from_array(v, n) for n, v in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize("options", [{}, {"compile": False}, {"reference": True}, {"threads": 1}])
def test_sizes_of_zero(options: dict[str, Any]) -> None:
    session = tensorbox.Session(model(), **options)
    for a, c in ((0, 4), (3, 0), (0, 0), (1, 1), (5, 33)):
        x = np.random.default_rng(a + c).standard_normal((a, 3, c)).astype(np.float32)
        expected = np.pad(np.tile(x, REPEATS), list(zip(BEFORE, AFTER)))
        np.testing.assert_array_equal(session.run({"x": x})["y"], expected)

"""MaxPool between DequantizeLinear and QuantizeLinear: the pool is of bytes. Against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from peers import expected, tensorbox

CASES: dict[str, dict[str, Any]] = {
    "of resnet": {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    "even": {"kernel_shape": [2, 2], "strides": [2, 2]},
    "same": {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER", "strides": [2, 1]},
    "dilated": {"kernel_shape": [2, 2], "dilations": [2, 3], "pads": [1, 1, 1, 1]},
    "ceiling": {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
}


def model(kind: type, pool: dict[str, Any], zero: int, after: tuple[float, int], opset: int) -> onnx.ModelProto:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    constants = [onnx.numpy_helper.from_array(np.array(value, dtype), name) for name, value, dtype in
                 [("s", 0.0371, np.float32), ("z", zero, kind), ("t", after[0], np.float32), ("u", after[1], kind)]]
    nodes = [helper.make_node("DequantizeLinear", ["x", "s", "z"], ["d"]), helper.make_node("MaxPool", ["d"], ["p"], **pool),
             helper.make_node("QuantizeLinear", ["p", "t", "u"], ["q"]), helper.make_node("DequantizeLinear", ["q", "t", "u"], ["y"]),
             helper.make_node("Relu", ["p"], ["r"])]
    inputs = [helper.make_tensor_value_info("x", element, ["n", "c", "h", "w"])]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "r")]
    graph = helper.make_graph(nodes, "pool", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("zero", "after"), [(0, (0.0371, 0)), (3, (0.0371, 3)), (17, (0.05, -4))])
def test_pools_of_bytes(kind: type, name: str, zero: int, after: tuple[float, int]) -> None:
    limits = np.iinfo(kind)
    m = model(kind, CASES[name], zero, (after[0], max(limits.min, after[1])), 17)
    sessions = [tensorbox.Session(m.SerializeToString(), **how) for how in ({}, {"compile": False}, {"disable_passes": ["pool_integers"]})]
    for shape in [(1, 1, 7, 7), (2, 3, 8, 9), (1, 64, 28, 30), (1, 70, 15, 15), (0, 3, 8, 8)]:
        x = np.random.default_rng(shape[1]).integers(limits.min, limits.max + 1, shape, kind)
        want = expected(m, {"x": x}) if x.size else None
        for session in sessions:
            got = session.run({"x": x})
            for output, value in zip(("y", "r"), want or [got["y"], got["r"]], strict=True):
                np.testing.assert_array_equal(got[output], value)
                assert want or got[output].shape[:2] == shape[:2]


def test_the_pool_reads_bytes() -> None:
    m = model(np.uint8, CASES["of resnet"], 3, (0.0371, 3), 11)  # which has no pool of bytes
    session = tensorbox.Session(m.SerializeToString())
    assert "MaxPool" in session.dump("simplify")
    assert "uint8[" in next(line for line in session.dump("simplify").splitlines() if "= MaxPool" in line)

"""Rows that a Reshape joins from dimensions that lie otherwise in memory, at sizes that a run brings: the loops over them are
split and turned, which must change neither values nor positions."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from peers import tensorbox

CHANNELS = 24


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def instance_norm(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


KINDS = {
    "ReduceSum": ({"keepdims": 0}, lambda x: x.sum(-1)),
    "ReduceMax": ({"keepdims": 0}, lambda x: x.max(-1)),
    "ArgMax": ({"axis": 2, "keepdims": 0}, lambda x: x.argmax(-1)),
    "ArgMin": ({"axis": 2, "keepdims": 0, "select_last_index": 1}, lambda x: x.shape[-1] - 1 - x[..., ::-1].argmin(-1)),
    "CumSum": ({}, lambda x: x.cumsum(-1)),
    "Softmax": ({"axis": 2}, softmax),
    "InstanceNormalization": ({}, instance_norm),
}


def model(op: str, rows: int):
    """[n, width, CHANNELS] in memory, of which `rows` rows are made, each of whole channels."""
    extra = {
        "ReduceSum": [("axes", TensorProto.INT64, [1], [2])],
        "ReduceMax": [("axes", TensorProto.INT64, [1], [2])],
        "CumSum": [("axis", TensorProto.INT64, [], [2])],
        "InstanceNormalization": [
            ("scale", TensorProto.FLOAT, [rows], [1.0] * rows),
            ("bias", TensorProto.FLOAT, [rows], [0.0] * rows),
        ],
    }.get(op, [])
    attributes = {key: value for key, value in KINDS[op][0].items()}
    nodes = [
        helper.make_node("Slice", ["x", "begin", "end", "along"], ["part"]),
        helper.make_node("Transpose", ["part"], ["image"], perm=[0, 2, 1]),
        helper.make_node("Reshape", ["image", "shape"], ["flat"]),
        helper.make_node(op, ["flat", *(name for name, *_ in extra)], ["y"], **attributes),
    ]
    constants = [
        helper.make_tensor("shape", TensorProto.INT64, [3], [0, rows, -1]),
        helper.make_tensor("begin", TensorProto.INT64, [1], [1]),
        helper.make_tensor("end", TensorProto.INT64, [1], [1 << 40]),
        helper.make_tensor("along", TensorProto.INT64, [1], [1]),
        *(helper.make_tensor(name, kind, shape, values) for name, kind, shape, values in extra),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "width", CHANNELS])
    y = helper.make_tensor_value_info("y", TensorProto.INT64 if op.startswith("Arg") else TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("op", KINDS)
def test_rows(op: str, rows: int, compiled: bool) -> None:
    session = tensorbox.Session(model(op, rows), compile=compiled)
    random = np.random.default_rng(3)
    for n, width in ((1, 101), (2, 8), (3, 2), (1, 700)):
        x = random.integers(-8, 8, (n, width, CHANNELS)).astype(np.float32)  # some elements are equal
        flat = x[:, 1:].transpose(0, 2, 1).reshape(n, rows, -1)
        want = KINDS[op][1](flat.astype(np.float64))
        got = session.run({"x": x})["y"]
        assert got.shape == want.shape
        if op.startswith("Arg"):
            np.testing.assert_array_equal(got, want)
        else:
            np.testing.assert_allclose(got, want, 1e-5, 1e-5)

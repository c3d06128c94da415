"""Operands whose dimensions have names of their own: that they are equal shows when they meet, and loops over them are one."""
from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

tensorbox = pytest.importorskip("tensorbox")


def _model(nodes: list, channels: int) -> bytes:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "h", "w", channels]),
              helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m", channels, "p", "q"])]
    graph = helper.make_graph(nodes, "meeting", inputs, [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()


MOVED = helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2])


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("channels", [1, 5, 300])  # from 256 on height and width are one loop across the channels
def test_points_of_two_images(channels: int, compiled: bool) -> None:
    rng = np.random.default_rng(channels)
    session = tensorbox.Session(_model([MOVED, helper.make_node("Mul", ["t", "y"], ["z"])], channels), compile=compiled)
    pairs = [((2, 12, 17), (2, 12, 17)), ((1, 1, 1), (1, 1, 1)), ((3, 5, 2), (3, 5, 2)), ((0, 3, 2), (0, 3, 2)),
             ((2, 0, 3), (2, 0, 3)), ((1, 9, 40), (1, 9, 40)),
             ((2, 4, 3), (1, 4, 3)), ((2, 1, 3), (2, 4, 1)), ((1, 1, 1), (3, 2, 7))]  # one of them is repeated
    for a, b in pairs:
        x = rng.standard_normal((*a, channels), np.float32)
        y = rng.standard_normal((b[0], channels, b[1], b[2]), np.float32)
        got = session.run({"x": x, "y": y})["z"]
        np.testing.assert_array_equal(got, x.transpose(0, 3, 1, 2) * y)
    with pytest.raises(tensorbox.Error):
        session.run({"x": np.zeros((1, 4, 3, channels), np.float32), "y": np.zeros((1, channels, 3, 4), np.float32)})


@pytest.mark.parametrize("compiled", [False, True])
def test_sums_of_what_met(compiled: bool) -> None:
    rng = np.random.default_rng(1)
    nodes = [MOVED, helper.make_node("Add", ["t", "y"], ["s"]), helper.make_node("Softmax", ["s"], ["p"], axis=1),
             helper.make_node("ReduceMax", ["p"], ["z"], keepdims=0)]
    nodes[-1].input.append("axes")
    model = helper.make_model(helper.make_graph(
        nodes, "sums", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "h", "w", 260]),
                        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m", 260, "p", "q"])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
        [helper.make_tensor("axes", TensorProto.INT64, [2], [2, 3])]), opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    session = tensorbox.Session(model.SerializeToString(), compile=compiled)
    for n, h, w in ((1, 1, 1), (2, 5, 3), (1, 16, 16)):
        x, y = rng.standard_normal((n, h, w, 260), np.float32), rng.standard_normal((n, 260, h, w), np.float32)
        s = x.transpose(0, 3, 1, 2).astype(np.float64) + y
        e = np.exp(s - s.max(axis=1, keepdims=True))
        np.testing.assert_allclose(session.run({"x": x, "y": y})["z"], (e / e.sum(axis=1, keepdims=True)).max(axis=(2, 3)), 1e-5)

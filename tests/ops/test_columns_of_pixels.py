"""Convolutions along an image of one pixel in each line, as exporters write those of one dimension: computed as lines."""
from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

tensorbox = pytest.importorskip("tensorbox")


def _column(x: np.ndarray, w: np.ndarray, group: int, stride: int, dilation: int, pads: tuple[int, int]) -> np.ndarray:
    """In plain loops over taps, of float64 or int64."""
    x = np.pad(x, ((0, 0), (0, 0), pads, (0, 0)))[..., 0]
    n, channels, length = x.shape
    filters, depth, taps = w.shape[:3]
    out = (length - (taps - 1) * dilation - 1) // stride + 1
    y = np.zeros((n, filters, out), x.dtype)
    each = filters // group
    for f in range(filters):
        first = f // each * depth
        for k in range(taps):
            at = x[:, first : first + depth, k * dilation : k * dilation + (out - 1) * stride + 1 : stride]
            y[:, f] += np.einsum("ncl,c->nl", at, w[f, :, k, 0])
    return y[..., None]


CASES = [  # channels, filters, group, taps, length, stride, dilation, pads
    (64, 48, 1, 5, 300, 1, 1, (0, 0)),
    (64, 48, 1, 5, 5, 1, 1, (0, 0)),
    (3, 1, 1, 3, 41, 2, 1, (1, 1)),
    (16, 16, 16, 3, 97, 1, 2, (2, 2)),
    (32, 32, 4, 7, 64, 3, 1, (3, 0)),
    (8, 24, 8, 2, 33, 1, 1, (0, 1)),
    (12, 40, 1, 1, 50, 1, 1, (0, 0)),
    (16, 8, 1, 3, 1, 1, 1, (1, 1)),
]


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_floats(case: tuple, named: bool) -> None:
    channels, filters, group, taps, length, stride, dilation, pads = case
    rng = np.random.default_rng(taps)
    w = rng.standard_normal((filters, channels // group, taps, 1)).astype(np.float32)
    b = rng.standard_normal(filters).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], group=group, strides=[stride, 2], dilations=[dilation, 3],
                              pads=[pads[0], 0, pads[1], 0]),
             helper.make_node("Add", ["c", "r"], ["s"]), helper.make_node("Relu", ["s"], ["y"])]
    n, size = ("n", "length") if named else (2, length)
    graph = helper.make_graph(nodes, "column", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [n, channels, size, 1]),
                                                helper.make_tensor_value_info("r", TensorProto.FLOAT, ["m", filters, "out", 1])],
                              [helper.make_empty_tensor_value_info("y")], [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")])
    session = tensorbox.Session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8))
    for batch, long in ((2, length), (1, length + 7), (3, length + 64), (0, length)) if named else ((2, length),):
        x = rng.standard_normal((batch, channels, long, 1)).astype(np.float32)
        products = _column(x.astype(np.float64), w.astype(np.float64), group, stride, dilation, pads) + b[:, None, None]
        r = rng.standard_normal(products.shape).astype(np.float32)
        got = session.run({"x": x, "r": r})["y"]
        assert got.shape == products.shape
        np.testing.assert_allclose(got, np.maximum(products + r, 0), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_bytes(case: tuple) -> None:
    channels, filters, group, taps, length, stride, dilation, pads = case
    rng = np.random.default_rng(taps)
    x = rng.integers(0, 256, (2, channels, length, 1)).astype(np.uint8)
    w = rng.integers(-127, 128, (filters, channels // group, taps, 1)).astype(np.int8)
    node = helper.make_node("ConvInteger", ["x", "w", "zero"], ["y"], group=group, strides=[stride, 1], dilations=[dilation, 1],
                            pads=[pads[0], 0, pads[1], 0])
    graph = helper.make_graph([node], "column", [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)],
                              [helper.make_empty_tensor_value_info("y")],
                              [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.array(7, np.uint8), "zero")])
    session = tensorbox.Session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8))
    want = _column(x.astype(np.int64) - 7, w.astype(np.int64), group, stride, dilation, pads)
    np.testing.assert_array_equal(session.run({"x": x})["y"], want)

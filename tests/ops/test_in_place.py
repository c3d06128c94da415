"""Kernels that write their result over what they read: results stay right, and runs need less memory."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from peers import tensorbox


def activated(channels: int, height: int, width: int, kind: str, batch: int | str = 1, dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """A convolution (a product of channels), what `kind` makes of it, and another one."""
    rng = np.random.default_rng(3)
    store = helper.tensor_dtype_to_np_dtype(dtype)
    w = [onnx.numpy_helper.from_array((rng.standard_normal((channels, channels, 1, 1)) / channels**0.5).astype(store), n) for n in ("w0", "w1")]
    n = helper.make_node
    nodes = {
        "silu": [n("Sigmoid", ["c"], ["s"]), n("Mul", ["c", "s"], ["a"])],
        "pooled": [n("Sigmoid", ["c"], ["s"]), n("Mul", ["c", "s"], ["t"]), n("GlobalAveragePool", ["t"], ["g"]), n("Mul", ["t", "g"], ["a"])],
        "chain": [n("Sigmoid", ["c"], ["s"]), n("Mul", ["c", "s"], ["t"]), n("Softmax", ["t"], ["u"], axis=1), n("Mul", ["t", "u"], ["a"])],
        "two": [n("Tanh", ["c"], ["t"]), n("Sigmoid", ["c"], ["s"]), n("Conv", ["s", "w1"], ["d"]), n("Mul", ["t", "d"], ["a"])],
    }[kind]
    shape = [batch, channels, height, width]
    graph = helper.make_graph(
        [n("Conv", ["x", "w0"], ["c"]), *nodes, n("Conv", ["a", "w1"], ["y"])],
        "g", [helper.make_tensor_value_info("x", dtype, shape)], [helper.make_tensor_value_info("y", dtype, shape)], w)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def by_numpy(model: onnx.ModelProto, x: np.ndarray, kind: str) -> np.ndarray:
    w0, w1 = (onnx.numpy_helper.to_array(t).astype(np.float64)[:, :, 0, 0] for t in model.graph.initializer)
    conv = lambda w, v: np.einsum("oc,nchw->nohw", w, v)  # noqa: E731
    sigmoid = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
    c = conv(w0, x.astype(np.float64))
    t = c * sigmoid(c)
    if kind == "pooled":
        t = t * t.mean((2, 3), keepdims=True)
    elif kind == "chain":
        e = np.exp(t - t.max(1, keepdims=True))
        t = t * e / e.sum(1, keepdims=True)
    elif kind == "two":
        t = np.tanh(c) * conv(w1, sigmoid(c))
    return conv(w1, t)


@pytest.mark.parametrize("kind", ["silu", "pooled", "chain", "two"])
@pytest.mark.parametrize("channels,height,width", [(1, 1, 1), (3, 7, 5), (40, 15, 17), (48, 33, 31), (144, 28, 28)])
def test_results(kind: str, channels: int, height: int, width: int) -> None:
    model = activated(channels, height, width, kind)
    x = np.random.default_rng(4).standard_normal((1, channels, height, width)).astype(np.float32)
    want = by_numpy(model, x, kind)
    for options in ({"threads": 1}, {"threads": 2}, {"threads": 3, "isa": "avx2"}, {"compile": False, "threads": 2}):
        session = tensorbox.Session(model.SerializeToString(), **options)
        for _ in range(2):  # the second run finds what the first one left
            np.testing.assert_allclose(session.run({"x": x})["y"], want, rtol=2e-5, atol=2e-5, err_msg=str(options))


def test_sizes_that_change() -> None:
    model = activated(32, 16, 16, "silu", batch="n")
    session = tensorbox.Session(model.SerializeToString())
    for n in (2, 0, 1, 5):
        x = np.random.default_rng(n).standard_normal((n, 32, 16, 16)).astype(np.float32)
        np.testing.assert_allclose(session.run({"x": x})["y"], by_numpy(model, x, "silu"), rtol=2e-5, atol=2e-5)


def test_half_precision() -> None:
    model = activated(32, 24, 24, "silu", dtype=TensorProto.FLOAT16)
    x = np.random.default_rng(8).standard_normal((1, 32, 24, 24)).astype(np.float16)
    got = tensorbox.Session(model.SerializeToString()).run({"x": x})["y"]
    np.testing.assert_allclose(got.astype(np.float64), by_numpy(model, x, "silu"), rtol=1e-2, atol=1e-2)


def test_a_reason_is_given() -> None:
    model = activated(64, 56, 56, "silu").SerializeToString()
    taken = tensorbox.Session(model)
    apart = tensorbox.Session(model, disable_passes=["write_in_place"])
    reason = "the result takes its memory"
    assert any(reason in line for step in taken.explain() for line in step["decisions"])
    assert not any(reason in line for step in apart.explain() for line in step["decisions"])

"""ConvTranspose with strides and what follows it in decoders, against plain loops."""
from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

tensorbox = pytest.importorskip("tensorbox")


@pytest.mark.parametrize("channels, size, made", [(12, (127, 32), 8), (128, (2, 4), 8), (3, (1, 1), 1), (64, (7, 9), 33)])
@pytest.mark.parametrize("kernel", [2, 4])
@pytest.mark.parametrize("steps", [("Add",), ("Relu", "Add"), ("Add", "Mul"), ("Sigmoid", "Add", "Mul", "Mul")])
def test_residuals(channels: int, size: tuple[int, int], made: int, kernel: int, steps: tuple[str, ...]) -> None:
    """A skip connection is added in its own memory, which is no matter of the kernels that are refused."""
    rng = np.random.default_rng(channels)
    pads = [(kernel - 2) // 2] * 4
    out = [1, made, 2 * size[0], 2 * size[1]]
    feeds = {"x": rng.standard_normal((1, channels, *size), np.float32)}
    w = rng.standard_normal((channels, made, kernel, kernel), np.float32) / channels ** 0.5
    nodes = [helper.make_node("ConvTranspose", ["x", "w", "b"], ["v0"], strides=[2, 2], pads=pads)]
    for i, op in enumerate(steps):
        inputs = [f"v{i}"]
        if op in ("Add", "Mul"):
            inputs.append(f"r{i}")
            feeds[f"r{i}"] = rng.standard_normal(out, np.float32)
        nodes.append(helper.make_node(op, inputs, [f"v{i + 1}"]))
    last = nodes[-1].output[0]
    graph = helper.make_graph(
        nodes, "decoder", [helper.make_tensor_value_info(n, TensorProto.FLOAT, v.shape) for n, v in feeds.items()],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, out)],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(rng.standard_normal(made, np.float32), "b")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    want = tensorbox.Session(model, reference=True).run(feeds)[last]
    for compiled in (False, True):
        np.testing.assert_allclose(tensorbox.Session(model, compile=compiled).run(feeds)[last], want, 1e-4, 1e-4)
    onnx.checker.check_model(model)

"""Pools with ceil_mode leave out windows that would start behind the input, in every version and however sizes are known."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from peers import expected, model_of, tensorbox

TYPES = onnx.TensorProto.FLOAT


@pytest.mark.parametrize("version", [12, 19, 22])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(("padding", "size", "kernel", "stride"), [
    ({"auto_pad": "VALID"}, 8, 1, 3), ({}, 7, 2, 4), ({"pads": [1, 1]}, 8, 2, 3), ({"pads": [0, 1]}, 5, 2, 3), ({}, 1, 1, 2), ({}, 9, 3, 2)])
def test_what_is_joined_to_a_pool(version: int, op: str, padding: dict, size: int, kernel: int, stride: int) -> None:
    """The result meets another of the right size, which ONNX's inference before version 22, and with it ONNX Runtime, refuses."""
    begin, end = padding.get("pads", [0, 0])
    count = -(-(size + begin + end - kernel) // stride) + 1
    if (count - 1) * stride >= size + begin:
        count -= 1
    nodes = [helper.make_node(op, ["x"], ["p"], kernel_shape=[kernel], strides=[stride], ceil_mode=1, **padding),
             helper.make_node("Concat", ["p", "z"], ["y"], axis=1)]
    rng = np.random.default_rng(size)
    inputs = {"x": rng.standard_normal((2, 3, size)).astype("f"), "z": rng.standard_normal((2, 1, count)).astype("f")}
    infos = [helper.make_tensor_value_info(name, TYPES, value.shape) for name, value in inputs.items()]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_tensor_value_info("y", TYPES, [2, 4, count])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)
    alone = model_of(op, {"x": inputs["x"]}, ["p"], version, kernel_shape=[kernel], strides=[stride], ceil_mode=1, **padding)
    alone.graph.output[0].type.tensor_type.ClearField("shape")  # which inference has just got wrong
    (pooled,) = expected(alone, {"x": inputs["x"]}, "ort")
    want = np.concatenate([pooled, inputs["z"]], 1)
    for dynamic in (False, True):
        session = tensorbox.Session(model, compile=False, all_dims_dynamic=dynamic)
        np.testing.assert_allclose(session.run(inputs)["y"], want, rtol=1e-6)
    assert tensorbox.Session(model, compile=False).outputs[0].shape == [2, 4, count]

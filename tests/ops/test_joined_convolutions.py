"""Heads of a detector, pairs of a 1x1 and a depthwise convolution over one input, which are computed as one pair: right against
ONNX Runtime without optimisations, at odd sizes, and fewer calls of the library."""
from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

tensorbox = pytest.importorskip("tensorbox")


def _model(heads: list[int], inputs: int, dims: int) -> onnx.ModelProto:
    """x of `inputs` channels and `dims` dimensions of pixels -> each head's results, channels last."""
    rng = np.random.default_rng(sum(heads) * 64 + inputs)
    constants, nodes, outputs = [], [], []
    for k, channels in enumerate(heads):
        shapes = {"p": (channels, inputs) + (1,) * dims, "d": (channels, 1) + (3,) * dims, "bd": (channels,)}
        if k != 1:
            shapes["bp"] = (channels,)  # the second has no bias between
        constants += [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), f"{name}{k}") for name, s in shapes.items()]
        nodes += [helper.make_node("Conv", ["x", f"p{k}", *([f"bp{k}"] if "bp" in shapes else [])], [f"between{k}"]),
                  helper.make_node("Conv", [f"between{k}", f"d{k}", f"bd{k}"], [f"head{k}"], group=channels, pads=[1] * (2 * dims)),
                  helper.make_node("Transpose", [f"head{k}"], [f"y{k}"], perm=[0, *range(2, dims + 2), 1])]
        outputs.append(helper.make_empty_tensor_value_info(f"y{k}"))
        outputs[-1].type.tensor_type.elem_type = TensorProto.FLOAT
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", inputs, *(f"n{d}" for d in range(dims))])
    return helper.make_model(helper.make_graph(nodes, "heads", [x], outputs, constants), opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("heads", [[1, 4, 1, 10], [2, 2], [15, 3, 15], [1, 1]])
@pytest.mark.parametrize(("dims", "shapes"), [(2, [(1, 40, 40), (2, 13, 7), (1, 1, 1), (3, 1, 17)]), (1, [(1, 33), (2, 1)])])
def test_heads(heads: list[int], dims: int, shapes: list[tuple[int, ...]]) -> None:
    inputs = 64
    model = _model(heads, inputs, dims)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    reference = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    session, apart = tensorbox.Session(model), tensorbox.Session(model, disable_passes=["join_convolutions"])
    assert (session.stats.extern_kernels, apart.stats.extern_kernels) == (2, 2 * len(heads))
    rng = np.random.default_rng(5)
    for batch, *pixels in shapes:
        x = rng.standard_normal((batch, inputs, *pixels), np.float32)
        got = session.run({"x": x})
        for k, want in enumerate(reference.run(None, {"x": x})):
            assert got[f"y{k}"].shape == want.shape
            np.testing.assert_allclose(got[f"y{k}"], want, rtol=1e-5, atol=1e-4)

"""Files as old tools wrote them: what they leave out or repeat is read as ONNX Runtime reads it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, parser

tensorbox = pytest.importorskip("tensorbox")


def test_the_last_of_several_versions_of_an_operator_set_counts() -> None:
    """Squeeze takes its axes as an attribute in opset 11, as an input from 13 on."""
    model = parser.parse_model('<ir_version: 7, opset_import: ["": 13]> g (float[1,2] x) => (float[2] y) '
                               "{ y = Squeeze<axes = [0]>(x) }")
    model.opset_import.append(helper.make_opsetid("ai.onnx", 11))
    x = np.array([[1, 2]], np.float32)
    np.testing.assert_array_equal(tensorbox.Session(model, compile=False).run({"x": x})["y"], x[0])
    del model.opset_import[0]
    model.opset_import.append(helper.make_opsetid("", 0))
    with pytest.raises(tensorbox.ModelError, match="imports version 0 of the operator set 'ai.onnx'"):
        tensorbox.Session(model, compile=False)


def test_ai_onnx_ml_without_an_import() -> None:
    node = helper.make_node("Scaler", ["x"], ["y"], domain="ai.onnx.ml", offset=[1.0, 2.0], scale=[2.0, 3.0])
    infos = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 2]) for name in "xy"]
    graph = helper.make_graph([node], "g", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=3)
    got = tensorbox.Session(model, compile=False).run({"x": np.array([[3, 4]], np.float32)})["y"]
    np.testing.assert_array_equal(got, [[4, 6]])


@pytest.mark.parametrize(("opset", "result"), [(11, np.float32), (17, None)])
def test_layer_normalization_of_onnxruntime_gives_the_type_of_its_scale(opset: int, result: type | None) -> None:
    x = np.arange(12, dtype=np.float16).reshape(3, 4)
    scale = np.array([1, 2, 3, 4], np.float32)
    node = helper.make_node("LayerNormalization", ["x", "s"], ["y"])
    info = helper.make_tensor_value_info
    graph = helper.make_graph([node], "g", [info("x", onnx.TensorProto.FLOAT16, [3, 4])],
                              [info("y", onnx.TensorProto.FLOAT, [3, 4])], [onnx.numpy_helper.from_array(scale, "s")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    if result is None:  # ONNX's own has one type for both
        with pytest.raises(tensorbox.ModelError):
            tensorbox.Session(model, compile=False)
        return
    got = tensorbox.Session(model, compile=False).run({"x": x})["y"]
    wide = x.astype(np.float64)
    want = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * scale
    assert got.dtype == result
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3)

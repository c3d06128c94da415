"""Inputs that have an initializer as default, and inputs of which the model leaves the number of dimensions open."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

tensorbox = pytest.importorskip("tensorbox")

X = np.arange(6, dtype=np.float32).reshape(3, 2)
W = np.full((1, 2), 10, np.float32)
FLOAT = TensorProto.FLOAT


def model(shape: Any = ("n", 2), ir_version: int = 8, default: np.ndarray = W, x: Any = (3, 2),
          element: int = FLOAT) -> onnx.ModelProto:
    """y = x * w + c, where w and c are initializers and w is an input, too."""
    nodes = [helper.make_node("Mul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "c"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", FLOAT, x), helper.make_tensor_value_info("w", element, shape)]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", FLOAT, None)],
                              [numpy_helper.from_array(default, "w"), numpy_helper.from_array(np.ones(2, np.float32), "c")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=ir_version)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("ir_version", [3, 8])
def test_initializer_is_a_default(compiled: bool, ir_version: int) -> None:
    s = tensorbox.Session(model(ir_version=ir_version), compile=compiled, overridable=["w"])
    assert [(i.name, i.shape, i.has_default) for i in s.inputs] == [("x", [3, 2], False), ("w", ["n", 2], True)]
    np.testing.assert_array_equal(s.run({"x": X})["y"], X * W + 1)
    for w in (W * 2, np.arange(6, dtype=np.float32).reshape(3, 2)):
        np.testing.assert_array_equal(s.run({"w": w, "x": X})["y"], X * w + 1)
    np.testing.assert_array_equal(s.run({"x": X})["y"], X * W + 1)
    with pytest.raises(tensorbox.ModelError, match="input 'x' is missing"):
        s.run({"w": W})
    with pytest.raises(tensorbox.ModelError, match="'w'"):
        s.run({"x": X, "w": np.ones((3, 5), np.float32)})


def test_without_the_option_it_is_a_constant() -> None:
    s = tensorbox.Session(model(), compile=False)
    assert [i.name for i in s.inputs] == ["x"]
    assert [(i.name, i.shape) for i in s.overridable_initializers] == [("w", ["n", 2])]
    with pytest.raises(tensorbox.ModelError, match=r"'w' .* has an initializer.* overridable = \[\"w\"\]"):
        s.run({"x": X, "w": W})
    with pytest.raises(tensorbox.ModelError, match="no input 'c'; its inputs are: x"):
        s.run({"x": X, "c": W})
    old = tensorbox.Session(model(ir_version=3), compile=False)
    assert old.overridable_initializers == []  # all had to be declared as inputs
    with pytest.raises(tensorbox.ModelError, match=r"overridable = \[\"w\"\]"):
        old.run({"x": X, "w": W})


def test_default_of_target_shape() -> None:
    """Whose elements the code depends on."""
    nodes = [helper.make_node("Reshape", ["x", "to"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", FLOAT, ["n", 2]),
              helper.make_tensor_value_info("to", TensorProto.INT64, [2])]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", FLOAT, None)],
                              [numpy_helper.from_array(np.array([1, -1]), "to")])
    s = tensorbox.Session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
                          compile=False, overridable=["to"])
    assert s.run({"x": X})["y"].shape == (1, 6)
    assert s.run({"x": X, "to": np.array([2, 3])})["y"].shape == (2, 3)
    assert s.run({"x": X})["y"].shape == (1, 6)


def test_default_strings() -> None:
    nodes = [helper.make_node("StringConcat", ["x", "w"], ["y"])]
    inputs = [helper.make_tensor_value_info(n, TensorProto.STRING, ["n"]) for n in "xw"]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.STRING, ["n"])],
                              [helper.make_tensor("w", TensorProto.STRING, [1], [b"!"])])
    s = tensorbox.Session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9),
                          compile=False, overridable=["w"])
    x = np.array(["a", "b"], object)
    for _ in range(2):
        assert s.run({"x": x})["y"].tolist() == ["a!", "b!"]
    assert s.run({"x": x, "w": np.array(["?", "."], object)})["y"].tolist() == ["a?", "b."]


def test_bad_names_and_declarations() -> None:
    for name in ("c", "x", "nix", "y"):
        with pytest.raises(tensorbox.ModelError, match=f"option overridable: .*{name}.* is no initializer that"):
            tensorbox.Session(model(), compile=False, overridable=[name])
    with pytest.raises(TypeError, match="overridable is a list"):
        tensorbox.Session(model(), compile=False, overridable="w")
    with pytest.raises(tensorbox.ModelError, match=r"w.* declared with the shape \[7, 2\].* has the shape \[1, 2\]"):
        tensorbox.Session(model(shape=[7, 2]), compile=False, overridable=["w"])
    with pytest.raises(tensorbox.ModelError, match="declared with another type than its initializer"):
        tensorbox.Session(model(element=TensorProto.INT32), compile=False, overridable=["w"])
    twice = model()
    twice.graph.initializer.append(twice.graph.initializer[0])
    with pytest.raises(tensorbox.ModelError, match="w"):
        tensorbox.Session(twice, compile=False, overridable=["w"])


def test_as_onnxruntime_shows_it() -> None:
    s = tensorbox.InferenceSession(model().SerializeToString(), compile=False)
    assert [i.name for i in s.get_inputs()] == ["x"]
    assert [(i.name, i.shape, i.type) for i in s.get_overridable_initializers()] == [("w", ["n", 2], "tensor(float)")]
    with pytest.raises(tensorbox.ModelError, match="overridable"):
        s.run(None, {"x": X, "w": W})
    s = tensorbox.InferenceSession(model().SerializeToString(), compile=False, overridable=["w"])
    assert [i.name for i in s.get_inputs()] == ["x"]
    assert [i.name for i in s.get_overridable_initializers()] == ["w"]
    np.testing.assert_array_equal(s.run(None, {"x": X})[0], X * W + 1)
    np.testing.assert_array_equal(s.run(["y"], {"x": X, "w": -W})[0], 1 - X * W)
    assert tensorbox.InferenceSession(model(ir_version=3), compile=False).get_overridable_initializers() == []


def test_rank_that_is_left_open() -> None:
    """Not to be taken for a scalar."""
    either = model(x=None)
    s = tensorbox.Session(either, compile=False)
    assert s.inputs[0].shape is None and s.outputs[0].shape is None
    assert str(s.inputs[0]) == "x: float32[...]" and "x: float32[...] -> y: float32[...]" in repr(s)
    for x in (X, X[0], X[None]):
        np.testing.assert_array_equal(s.run({"x": x})["y"], x * W + 1)
    assert tensorbox.Session(model(x=[]), compile=False).inputs[0].shape == []
    compatible = tensorbox.InferenceSession(either.SerializeToString(), compile=False)
    assert compatible.get_inputs()[0].shape == []  # as ONNX Runtime says it
    default = tensorbox.Session(model(shape=None), compile=False)
    assert default.overridable_initializers[0].shape is None
    s = tensorbox.Session(model(shape=None), compile=False, overridable=["w"])
    assert s.inputs[1].shape is None
    np.testing.assert_array_equal(s.run({"x": X})["y"], X * W + 1)
    np.testing.assert_array_equal(s.run({"x": X, "w": np.float32(3)})["y"], X * 3 + 1)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_question_mark_is_no_name(compiled: bool) -> None:
    """Exporters write it for a size that they do not know: no two are the same."""
    inputs = [helper.make_tensor_value_info("a", FLOAT, ["?", 2]), helper.make_tensor_value_info("b", FLOAT, ["?", "?"])]
    nodes = [helper.make_node("MatMul", ["a", "t"], ["y"]), helper.make_node("Transpose", ["b"], ["t"])][::-1]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", FLOAT, ["?", "?"])])
    s = tensorbox.Session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), compile=compiled)
    a, b = np.ones((3, 2), np.float32), np.ones((5, 2), np.float32)
    np.testing.assert_array_equal(s.run({"a": a, "b": b})["y"], a @ b.T)
    names = [d for i in s.inputs for d in i.shape if d != 2]
    assert len(set(names)) == 3 and "?" not in names

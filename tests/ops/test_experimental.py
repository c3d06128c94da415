"""Operators of before 2018 that ONNX lists as experimental: wanted values by numpy, and by ONNX Runtime where it is
installed and still has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

tensorbox = pytest.importorskip("tensorbox")

X = np.linspace(-3, 3, 2 * 3 * 5 * 6, dtype=np.float32).reshape(2, 3, 5, 6)


def softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0, x.astype(np.float64)).astype(x.dtype)


CASES = [
    ("Affine", {"alpha": 2.5, "beta": -1.0}, lambda x: 2.5 * x - 1),
    ("Affine", {}, lambda x: x),
    ("ParametricSoftplus", {"alpha": 0.5, "beta": 2.0}, lambda x: 0.5 * softplus(2 * x)),
    ("ScaledTanh", {"alpha": 1.5, "beta": 0.25}, lambda x: 1.5 * np.tanh(0.25 * x)),
    ("Scale", {"scale": 0.125}, lambda x: 0.125 * x),
    ("ImageScaler", {"scale": 0.5, "bias": [1.0, -2.0, 3.0]},
     lambda x: x * np.float32(0.5) + np.array([1, -2, 3], x.dtype).reshape(3, 1, 1)),
    ("Crop", {"border": [1, 0, 2, 3]}, lambda x: x[:, :, 0:2, 1:4]),
    ("Crop", {"border": [1, 2, 0, 0], "scale": [2, 3]}, lambda x: x[:, :, 2:4, 1:4]),
]
OF_ONNXRUNTIME = {"Affine", "Crop", "ImageScaler", "ParametricSoftplus", "ScaledTanh"}


def model(op: str, attributes: dict[str, Any], inputs: dict[str, np.ndarray | None], constants=()) -> onnx.ModelProto:
    node = helper.make_node(op, list(inputs), ["y"], name="n", **attributes)
    kind = helper.np_dtype_to_tensor_dtype
    infos = [helper.make_tensor_value_info(name, kind(v.dtype), [f"{name}{i}" for i in range(v.ndim)])
             for name, v in inputs.items() if name not in constants]
    tensors = [onnx.numpy_helper.from_array(inputs[name], name) for name in constants]
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", infos, [output], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=4)


@pytest.mark.parametrize(("op", "attributes", "numpy_form"), CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_values(op: str, attributes: dict[str, Any], numpy_form, dtype: type) -> None:
    x = X.astype(dtype)
    proto = model(op, attributes, {"x": x})
    proto.graph.output[0].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(x.dtype)
    got = tensorbox.Session(proto, compile=False).run({"x": x})["y"]
    want = numpy_form(x).astype(dtype)
    tolerance = 1e-3 if dtype == np.float16 else 1e-6
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    if dtype != np.float32 or op not in OF_ONNXRUNTIME:
        return
    try:
        import onnxruntime
    except ImportError:
        return
    theirs = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})[0]
    np.testing.assert_allclose(got, theirs, rtol=1e-5, atol=1e-5)


def test_fills() -> None:
    shape = np.array([2, 3], np.int64)
    x = np.zeros((4, 1), np.float32)
    for attributes, inputs, want in [
        ({"value": 1.5, "shape": [2, 2]}, {}, np.full((2, 2), 1.5)),
        ({"value": 1.5}, {"x": x}, np.full((4, 1), 1.5)),
        ({"value": 2.0, "input_as_shape": 1, "extra_shape": [2]}, {"s": shape}, np.full((2, 3, 2), 2)),
    ]:
        proto = model("ConstantFill", attributes, inputs)
        got = tensorbox.Session(proto, compile=False).run(inputs)["y"]
        np.testing.assert_array_equal(got, want.astype(np.float32))
    proto = model("GivenTensorFill", {"values": [1.0, 2.0, 3.0, 4.0], "shape": [2, 2]}, {})
    np.testing.assert_array_equal(tensorbox.Session(proto, compile=False).run({})["y"], [[1, 2], [3, 4]])


@pytest.mark.parametrize("constant", [False, True])
def test_dynamic_slice(constant: bool) -> None:
    bounds = {"starts": np.array([1, -3], np.int64), "ends": np.array([3, 100], np.int64),
              "axes": np.array([2, 3], np.int64)}
    proto = model("DynamicSlice", {}, {"x": X} | bounds, constants=list(bounds) if constant else ["axes"])
    feeds = {"x": X} | ({} if constant else {k: bounds[k] for k in ("starts", "ends")})
    np.testing.assert_array_equal(tensorbox.Session(proto, compile=False).run(feeds)["y"], X[:, :, 1:3, -3:])


@pytest.mark.parametrize(("op", "attributes", "text"), [
    ("ImageScaler", {"bias": [1.0, 2.0]}, "bias"),
    ("Crop", {"border": [1, 1]}, "attribute 'border' has 2 numbers, expected 4"),
    ("Crop", {"border": [3, 3, 3, 3]}, "is cut to"),
    ("Crop", {"border": [0, 0, 0, 0], "scale": [9, 9]}, "is cut to"),
    ("Crop", {"border": [-1, 0, 0, 0]}, "a border is negative"),
    ("ConstantFill", {"shape": [-1]}, "size -1 is negative"),
    ("GivenTensorFill", {"values": [1.0], "shape": [2]}, "reshape"),
])
def test_bad_attributes_are_refused(op: str, attributes: dict[str, Any], text: str) -> None:
    inputs = {} if "Fill" in op else {"x": X}
    proto = model(op, attributes, inputs)
    for info, dims in zip(proto.graph.input, [X.shape]):
        for d, size in zip(info.type.tensor_type.shape.dim, dims):
            d.dim_value = size
    with pytest.raises(tensorbox.ModelError, match=text) as error:
        tensorbox.Session(proto, compile=False)
    assert op in str(error.value) and "'n'" in str(error.value)


def test_images_too_small_to_crop() -> None:
    session = tensorbox.Session(model("Crop", {"border": [0, 0, 0, 0], "scale": [2, 3]}, {"x": X}), compile=False)
    np.testing.assert_array_equal(session.run({"x": X})["y"], X[:, :, :2, :3])
    for shape in ((1, 1, 1, 6), (1, 1, 5, 2), (1, 1, 0, 0)):
        with pytest.raises(tensorbox.ModelError, match="is cut to"):
            session.run({"x": np.zeros(shape, np.float32)})


@pytest.mark.parametrize("op", ["ATen", "GRUUnit"])
def test_the_others_are_refused_by_name(op: str) -> None:
    with pytest.raises(tensorbox.UnsupportedError, match=op):
        tensorbox.Session(model(op, {}, {"x": X}), compile=False)

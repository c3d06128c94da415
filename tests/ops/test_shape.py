"""Operators that only rearrange and that the backend suite has no cases of, against numpy."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser
from peers import compare, model_of, tensorbox

SHAPES = [(7,), (3, 8), (2, 5, 6), (2, 1, 9, 3), (0, 4), (4, 0, 5)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8, np.int64, np.uint16, np.bool_])
@pytest.mark.parametrize("shape", SHAPES)
def test_unfold_tensor(shape: tuple[int, ...], dtype: type) -> None:
    rng = np.random.default_rng(len(shape))
    x = rng.integers(0, 100, shape).astype(dtype)
    for axis in range(-len(shape), len(shape)):
        if not shape[axis]:
            continue
        size, step = int(rng.integers(1, shape[axis] + 1)), int(rng.integers(1, 4))
        windows = np.lib.stride_tricks.sliding_window_view(x, size, axis)  # every one, places last
        want = windows[(slice(None),) * (axis % len(shape)) + (slice(None, None, step),)]
        model = model_of("UnfoldTensor", {"x": x}, ["y"], 17, domain="com.microsoft", dim=axis, size=size, step=step)
        compare(model, {"x": x}, rtol=0, atol=0, want=[want])


def test_unfold_tensor_defaults() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    model = model_of("UnfoldTensor", {"x": x}, ["y"], 17, domain="com.microsoft", size=2)
    compare(model, {"x": x}, rtol=0, atol=0, want=[np.lib.stride_tricks.sliding_window_view(x, 2, -1)])


@pytest.mark.parametrize("attributes,message", [
    ({}, "size"), ({"size": 0}, "size is 0"), ({"size": 2, "step": 0}, "step is 0"), ({"size": 2, "dim": 2}, "dim|axis"),
    ({"size": 5}, "axis 1 has fewer elements than a window of 5")])
def test_unfold_tensor_refuses(attributes: dict[str, int], message: str) -> None:
    x = np.zeros((2, 4), np.float32)
    model = model_of("UnfoldTensor", {"x": x}, ["y"], 17, domain="com.microsoft", **attributes)
    with pytest.raises(tensorbox.ModelError, match=f"(?s)UnfoldTensor.*({message})|({message}).*UnfoldTensor"):
        tensorbox.Session(model, compile=False)


def test_unfold_tensor_checks_dynamic_sizes() -> None:
    model = model_of("UnfoldTensor", {"x": np.zeros((2, 4), np.float32)}, ["y"], 17, domain="com.microsoft", size=3)
    session = tensorbox.Session(model, compile=False, all_dims_dynamic=True)
    with pytest.raises(tensorbox.ModelError, match="fewer elements than a window of 3"):
        session.run({"x": np.zeros((2, 2), np.float32)})


LONGEST = 2**63 - 1


@pytest.mark.parametrize("start,end,step,want", [
    (0, LONGEST, LONGEST, slice(0, 1)), (LONGEST, -LONGEST - 1, -LONGEST - 1, slice(5, 6)), (1, 6, 2**49, slice(1, 2)),
    (3, -LONGEST - 1, -LONGEST, slice(3, 4)), (6, LONGEST, LONGEST, slice(6, 6)), (4, 5, -2**50, slice(4, 4)),
])
@pytest.mark.parametrize("constant", [False, True])
def test_slice_with_a_step_longer_than_any_axis(start: int, end: int, step: int, want: slice, constant: bool) -> None:
    inputs = {"x": np.arange(18, dtype=np.float32).reshape(3, 6)}
    for name, value in {"starts": start, "ends": end, "axes": 1, "steps": step}.items():
        inputs[name] = np.array([value], np.int64)
    model = model_of("Slice", inputs, ["y"], 13, [name for name in inputs if constant and name != "x"])
    compare(model, inputs, rtol=0, atol=0, want=[inputs["x"][:, want]])


@pytest.mark.parametrize("compiled", [True, False])
def test_more_than_2_to_31_elements(compiled: bool) -> None:
    """Indices beyond 32 bits. The array is of zeros that the system has not laid out, so it takes no memory."""
    n = (1 << 31) + 24
    x = np.zeros(n, np.uint8)
    x[[-1, n // 2, 3]] = 7, 9, 5
    inputs = {"x": x, "at": np.array([-1, n // 2, 3, 1 << 31]), "start": np.array([n - 3]), "end": np.array([n])}
    nodes = [helper.make_node("Gather", ["x", "at"], ["some"]), helper.make_node("Slice", ["x", "start", "end"], ["last"])]
    infos = [helper.make_tensor_value_info("x", 2, ["n"]),
             *(helper.make_tensor_value_info(name, 7, inputs[name].shape) for name in ("at", "start", "end"))]
    results = [helper.make_tensor_value_info("some", 2, [4]), helper.make_tensor_value_info("last", 2, ["m"])]
    model = helper.make_model(helper.make_graph(nodes, "large", infos, results), opset_imports=[helper.make_opsetid("", 21)],
                              ir_version=10)
    got = tensorbox.Session(model, compile=compiled).run(inputs)
    assert got["some"].tolist() == [7, 9, 5, 0]
    assert got["last"].tolist() == [0, 0, 7]


def _size_through(float_type: int, *between: onnx.NodeProto, fixed: int | None = None) -> onnx.ModelProto:
    """The size of x by way of a float: as a number, and as a length."""
    nodes = [helper.make_node("Shape", ["x"], ["n"]), helper.make_node("Cast", ["n"], ["a"], to=float_type), *between,
             helper.make_node("Cast", [between[-1].output[0] if between else "a"], ["size"], to=TensorProto.INT64),
             helper.make_node("ConstantOfShape", ["size"], ["y"])]
    graph = helper.make_graph(
        nodes, "sizes", [helper.make_tensor_value_info("x", TensorProto.UINT8, ["n" if fixed is None else fixed])],
        [helper.make_tensor_value_info("size", TensorProto.INT64, [1]),
         helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m"])],
        [helper.make_tensor("half", float_type, [], [0.5]), helper.make_tensor("three", float_type, [], [3.0])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


FLOATS = {TensorProto.FLOAT16: np.float16, TensorProto.FLOAT: np.float32, TensorProto.DOUBLE: np.float64}


@pytest.mark.parametrize("float_type", FLOATS)
def test_sizes_round_as_floats_do(float_type: int) -> None:
    dynamic = tensorbox.Session(_size_through(float_type), compile=False)
    for n in (5, 2049, 2051, 2**24 - 1, 2**24 + 1, 2**24 + 3, 7):
        if float_type == TensorProto.FLOAT16 and n > 65504:
            continue
        want = int(FLOATS[float_type](n))
        for session in (dynamic, tensorbox.Session(_size_through(float_type, fixed=n), compile=False)):
            got = session.run({"x": np.zeros(n, np.uint8)})
            assert got["size"].tolist() == [want]
            assert got["y"].shape == (want,)


@pytest.mark.parametrize("float_type", [TensorProto.FLOAT, TensorProto.DOUBLE])
@pytest.mark.parametrize("op", ["Floor", "Ceil"])
def test_parts_of_sizes_round_as_floats_do(op: str, float_type: int) -> None:
    scalar = FLOATS[float_type]
    whole = {"Floor": np.floor, "Ceil": np.ceil}[op]
    for by, combine in (("half", np.multiply), ("three", np.divide)):
        between = [helper.make_node("Mul" if by == "half" else "Div", ["a", by], ["b"]),
                   helper.make_node(op, ["b"], ["c"])]
        session = tensorbox.Session(_size_through(float_type, *between), compile=False)
        for n in (0, 1, 10, 11, 2**24 + 1, 2**24 + 3, 12):
            want = int(whole(combine(scalar(n), scalar(0.5 if by == "half" else 3))))
            got = session.run({"x": np.zeros(n, np.uint8)})
            assert (got["size"].tolist(), got["y"].shape) == ([want], (want,)), (by, n)


def test_quotients_of_sizes_round_before_they_are_added() -> None:
    between = [helper.make_node("Div", ["a", "three"], ["b"]), helper.make_node("Add", ["b", "b"], ["c"]),
               helper.make_node("Add", ["c", "b"], ["d"]), helper.make_node("Floor", ["d"], ["e"])]
    session = tensorbox.Session(_size_through(TensorProto.FLOAT, *between), compile=False)
    for n in (1, 5, 7, 11, 1000):
        third = np.float32(n) / np.float32(3)
        want = int(np.floor((third + third) + third))
        assert session.run({"x": np.zeros(n, np.uint8)})["size"].tolist() == [want]


def test_squeeze_without_axes_of_unknown_dimensions() -> None:
    """The rank of the result is decided by the shapes of a run, or by data."""
    model = parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g (float[n,m,1] x) => (float[] y) '
                               "{ y = Squeeze(x) }")
    for compiled in (False, True):
        session = tensorbox.Session(model, compile=compiled)
        for shape in ((3, 4, 1), (1, 4, 1), (3, 1, 1), (1, 1, 1), (3, 4, 1), (0, 1, 1), (2, 0, 1)):
            x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
            np.testing.assert_array_equal(session.run({"x": x})["y"], np.squeeze(x), err_msg=str(shape))
            assert session.run({"x": x})["y"].shape == np.squeeze(x).shape
    model = parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (int64[] y, float[] z) { '
                               "i = NonZero(x) y = Squeeze(i) v = Gather(x, y) z = Add(v, v) }")
    session = tensorbox.Session(model, compile=False)
    for x in ([1, 0, 2], [0, 3], [0, 0], [4, 5, 6]):
        x = np.array(x, np.float32)
        want = np.squeeze(np.array(np.nonzero(x)))
        got = session.run({"x": x})
        assert got["y"].shape == want.shape
        np.testing.assert_array_equal(got["y"], want)
        np.testing.assert_array_equal(got["z"], 2 * x[want])


def test_what_is_taken_for_granted_may_not_fit_the_model() -> None:
    """Were no dimension 1, NonZero would give pairs, and the second Squeeze had nothing to squeeze."""
    model = parser.parse_model('<ir_version: 8, opset_import: ["": 12]> g (bool[n,m] x) => (int64[k] y) '
                               "{ s = Squeeze(x) i = NonZero(s) t = Transpose(i) y = Squeeze<axes = [1]>(t) }")
    session = tensorbox.Session(model, compile=False)
    for x in ([[1, 0, 1]], [[0, 1]], [[0], [1], [1]]):
        x = np.array(x, np.bool_)
        np.testing.assert_array_equal(session.run({"x": x})["y"], np.nonzero(x.squeeze())[0])
    with pytest.raises(tensorbox.ModelError, match="only 1 can be squeezed"):
        session.run({"x": np.ones((2, 2), np.bool_)})

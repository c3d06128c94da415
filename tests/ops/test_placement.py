"""Scatter operators whose updates meet, and Pad by other elements: in the evaluator and compiled, against numpy."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from peers import model_of, tensorbox

COMBINE = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "min": min,
    "max": max,
}


def check(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], want: np.ndarray) -> None:
    """Fixed sizes by compiled kernels and in the evaluator, dynamic sizes in the evaluator: equal to `want`."""
    for options in {"compile": True}, {"compile": False}, {"compile": False, "all_dims_dynamic": True}:
        got = tensorbox.Session(model, threads=3, **options).run(feeds)
        np.testing.assert_array_equal(next(iter(got.values())), want, err_msg=str(options))


def scattered(data: np.ndarray, places: np.ndarray, updates: np.ndarray, reduction: str) -> np.ndarray:
    """`updates`, in order, combined with the elements of `data` at `places` [rank, *updates.shape]."""
    out = data.copy()
    for at in np.ndindex(*updates.shape):
        place = tuple(places[(slice(None), *at)])
        out[place] = COMBINE[reduction](out[place], updates[at])
    return out


@pytest.mark.parametrize("reduction", COMBINE)
@pytest.mark.parametrize("shape,axis", [((5, 37), 1), ((37, 21), 0), ((3, 19, 5), 1), ((70,), 0)])
def test_scatter_elements_in_order(shape: tuple[int, ...], axis: int, reduction: str) -> None:
    rng = np.random.default_rng(len(shape) + axis)
    data = rng.integers(-4, 5, shape).astype(np.float32)
    count = tuple(2 * n if d == axis else max(1, n - 1) for d, n in enumerate(shape))  # every place is met
    indices = rng.integers(-shape[axis], shape[axis], count)
    updates = rng.integers(-3, 4, count).astype(np.float32)
    if reduction == "mul":
        updates = np.sign(updates)  # products stay whole
    places = np.indices(count)
    places[axis] = indices % shape[axis]
    feeds = {"x": data, "i": indices, "u": updates}
    model = model_of("ScatterElements", feeds, ["y"], 18, axis=axis, reduction=reduction)
    check(model, feeds, scattered(data, places, updates, reduction))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.uint8])
@pytest.mark.parametrize("reduction", COMBINE)
def test_scatter_rows_in_order(reduction: str, dtype: type) -> None:
    rng = np.random.default_rng(3)
    data, updates = (rng.integers(1, 3, shape).astype(dtype) for shape in ((4, 3, 35), (6, 35)))
    indices = np.array([[1, 2], [0, 0], [1, 2], [-3, -1], [3, 1], [-1, -2]])
    if reduction == "mul":
        updates = np.minimum(updates, dtype(1))
    rows = np.broadcast_to((indices % (4, 3))[:, None, :], (6, 35, 2))
    places = np.concatenate([np.moveaxis(rows, -1, 0), np.indices((6, 35))[1:]])
    feeds = {"x": data, "i": indices, "u": updates}
    model = model_of("ScatterND", feeds, ["y"], 18, reduction=reduction)
    check(model, feeds, scattered(data, places, updates, reduction))


def test_scatter_checks_indices_of_every_part() -> None:
    feeds = {"x": np.zeros((40, 33), np.float32), "i": np.zeros((2, 33), np.int64), "u": np.ones((2, 33), np.float32)}
    model = model_of("ScatterElements", feeds, ["y"], 18, axis=0)
    session = tensorbox.Session(model, threads=3)
    feeds["i"][1, 32] = 40
    with pytest.raises(tensorbox.ModelError, match="ScatterElements.*index 40 is outside an axis of size 40"):
        session.run(feeds)


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
@pytest.mark.parametrize("shape,before,after", [
    ((3, 5, 40), (0, 2, 3), (1, 0, 5)), ((2, 70), (0, 1), (0, 0)), ((4, 6), (1, 40), (3, 7)), ((2, 3, 4), (1, 2, 0), (0, 1, 0)),
    ((90,), (33,), (0,)), ((5, 1), (2, 9), (0, 30))])
def test_pad_by_elements(mode: str, shape: tuple[int, ...], before: tuple[int, ...], after: tuple[int, ...]) -> None:
    for dtype in np.float32, np.int64, np.uint8:
        x = np.random.default_rng(1).integers(0, 99, shape).astype(dtype)
        inputs = {"x": x, "pads": np.array(before + after)}
        model = model_of("Pad", inputs, ["y"], 19, constants=["pads"], mode=mode)
        check(model, {"x": x}, np.pad(x, list(zip(before, after, strict=True)), mode=mode))


@pytest.mark.parametrize("mode", ["edge", "reflect"])
def test_pad_by_elements_of_a_computed_row(mode: str) -> None:
    """What is padded is no memory: its loads are those of a gather, whose positions must stay inside."""
    x, i = np.arange(200, dtype=np.float32).reshape(2, 100), np.array([*range(99, 50, -1), 3])
    n = onnx.helper.make_node
    infos = [onnx.helper.make_tensor_value_info("x", 1, x.shape), onnx.helper.make_tensor_value_info("i", 7, i.shape)]
    graph = onnx.helper.make_graph(
        [n("Gather", ["x", "i"], ["g"], axis=1), n("Neg", ["g"], ["m"]), n("Pad", ["m", "pads"], ["y"], mode=mode)], "g", infos,
        [onnx.helper.make_empty_tensor_value_info("y")], [onnx.numpy_helper.from_array(np.array([0, 7, 0, 20]), "pads")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10)
    model.graph.output[0].type.tensor_type.elem_type = 1
    check(model, {"x": x, "i": i}, np.pad(-x[:, i], [(0, 0), (7, 20)], mode=mode))


def test_scatter_whose_result_is_output_read_and_scattered_into() -> None:
    """The memory of a result that is an output is the output's: what reads it, or stores into a copy of it, comes after."""
    n = onnx.helper.make_node
    x, u = np.arange(40, dtype=np.float32).reshape(8, 5), -np.ones((2, 5), np.float32)
    i, j = np.array([[1], [6]]), np.array([[6], [0]])
    values = {"x": x, "u": u, "i": i, "j": j}
    nodes = [n("ScatterND", ["x", "i", "u"], ["a"]), n("ScatterND", ["a", "j", "u"], ["b"], reduction="add"),
             n("Identity", ["a"], ["c"]), n("Add", ["a", "x"], ["d"]), n("Transpose", ["b"], ["e"], perm=[1, 0])]
    infos = [onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
             for name, value in values.items()]
    names = ["a", "b", "c", "d", "e"]
    outputs = [onnx.helper.make_tensor_value_info(name, 1, None) for name in names]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", infos, outputs),
                                   opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10)
    a = x.copy()
    a[i[:, 0]] = u
    b = a.copy()
    b[j[:, 0]] += u
    for options in {"compile": True}, {"compile": False}, {"compile": False, "all_dims_dynamic": True}:
        got = tensorbox.Session(model, **options).run(values)
        for name, want in zip(names, (a, b, a, a + x, b.T), strict=True):
            np.testing.assert_array_equal(got[name], want, err_msg=f"{name} {options}")

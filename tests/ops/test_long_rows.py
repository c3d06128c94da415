"""Few long rows, which threads share in parts: places of the greatest and least elements, exponentials, and reductions that
look at one row together. Against float64, at lengths that divide and that do not."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from peers import model_of, tensorbox

LONG = [(1, 1 << 18), (2, 262147), (1, 20011, 3), (1, 5), (1, 1)]
compiled = pytest.mark.parametrize("compiled", [False, True], ids=["evaluated", "compiled"])


def long_axis(shape: tuple[int, ...]) -> int:
    return int(np.argmax(shape))


@compiled
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_places(op: str, last: int, dynamic: bool, compiled: bool) -> None:
    rng = np.random.default_rng(1)
    find = np.argmax if op == "ArgMax" else np.argmin
    for shape in LONG:
        axis = long_axis(shape)
        model = model_of(op, {"x": np.zeros(shape, np.float32)}, ["y"], 13, axis=axis, keepdims=0, select_last_index=last)
        session = tensorbox.Session(model, compile=compiled, all_dims_dynamic=dynamic)
        worst = -np.inf if op == "ArgMax" else np.inf
        ties = rng.integers(0, 50, shape).astype(np.float32)
        nan = ties.copy()
        nan[(0,) * len(shape)] = nan[tuple(s // 2 for s in shape)] = np.nan
        for x in (rng.standard_normal(shape).astype(np.float32), ties, ties + 1, -1 - ties, np.full(shape, worst, np.float32), nan):
            want = shape[axis] - 1 - find(np.flip(x, axis), axis) if last else find(x, axis)
            np.testing.assert_array_equal(session.run({"x": x})["y"], want, f"{shape}")


@compiled
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.float16])
def test_places_of_other_types(dtype: type, compiled: bool) -> None:
    rng = np.random.default_rng(2)
    low = np.iinfo(dtype).min if np.issubdtype(dtype, np.integer) else -np.inf
    for x in (rng.integers(0, 100, (1, 300007)).astype(dtype), np.full((1, 300007), low, dtype)):
        for last in (0, 1):
            model = model_of("ArgMax", {"x": x}, ["y"], 13, axis=1, keepdims=1, select_last_index=last)
            got = tensorbox.Session(model, compile=compiled).run({"x": x})["y"]
            assert got == (x.shape[1] - 1 - np.argmax(x[:, ::-1], 1) if last else np.argmax(x, 1)), last


def exponentials(op: str, x: np.ndarray, axis: int) -> np.ndarray:
    wide = x.astype(np.longdouble)
    shifted = wide - wide.max(axis, keepdims=True)
    total = np.exp(shifted).sum(axis, keepdims=True)
    return np.exp(shifted) / total if op == "Softmax" else shifted - np.log(total)


@compiled
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_exponentials(op: str, dynamic: bool, compiled: bool) -> None:
    rng = np.random.default_rng(3)
    for shape in LONG:
        axis = long_axis(shape)
        session = tensorbox.Session(model_of(op, {"x": np.zeros(shape, np.float32)}, ["y"], 13, axis=axis), compile=compiled,
                                    all_dims_dynamic=dynamic)
        x = (rng.standard_normal(shape) * 5).astype(np.float32)
        masked = x.copy()
        front = [slice(None)] * len(shape)
        front[axis] = slice(0, shape[axis] * 2 // 3)  # whole parts without a number
        masked[tuple(front)] = -np.inf
        for given in (x, x + 1000, masked):
            got = session.run({"x": given})["y"]
            np.testing.assert_allclose(got, exponentials(op, given, axis), rtol=2e-5, atol=2.4e-38 * shape[axis] if op == "Softmax" else 2e-5)
        x.flat[x.size // 2] = np.nan
        place = np.unravel_index(x.size // 2, shape)
        row = tuple(slice(None) if d == axis else place[d] for d in range(len(shape)))
        assert np.isnan(session.run({"x": x})["y"][row]).all()
        assert np.isnan(session.run({"x": np.full(shape, -np.inf, np.float32)})["y"]).all()


def test_a_long_softmax_is_read_twice_by_many_tasks() -> None:
    session = tensorbox.Session(model_of("Softmax", {"x": np.zeros((1, 1 << 20), np.float32)}, ["y"], 13), compile=False)
    steps = [line for line in session.dump("plan").splitlines() if ": kernel " in line]
    assert len(steps) == 3 and sum("(b0" in line for line in steps) == 2
    assert all(int(line.split("tasks ")[1].split()[0]) >= 8 for line in steps if "(b0" in line)


@pytest.mark.parametrize(("threads", "kernels"), [(2, 1), (16, 2)])
def test_more_threads_take_more_parts(threads: int, kernels: int) -> None:
    """Of 20 rows 2 threads have enough, 16 threads have not. Each is more than the cache of any core holds."""
    x = np.random.default_rng(5).standard_normal((20, 1 << 20)).astype(np.float32)
    model = model_of("ReduceSum", {"x": x, "axes": np.array([1])}, ["y"], 18, constants=["axes"], keepdims=0)
    session = tensorbox.Session(model, compile=False, threads=threads)
    assert session.dump("plan").count(": kernel ") == kernels
    np.testing.assert_allclose(session.run({"x": x})["y"], x.astype(np.float64).sum(1), rtol=0, atol=2e-6 * np.abs(x).sum(1).max())


SIBLINGS = {
    "min and max": [("ReduceMin", ["x"], "a", {"keepdims": 0}), ("ReduceMax", ["x"], "b", {"keepdims": 0})],
    "row and sum": [("Relu", ["x"], "a", {}), ("ReduceSum", ["x", "last"], "b", {"keepdims": 0})],
    "sum and row": [("ReduceSum", ["x", "last"], "b", {"keepdims": 0}), ("Neg", ["x"], "a", {})],
    "sum and mean": [("ReduceSum", ["x", "last"], "a", {}), ("ReduceMean", ["x", "last"], "b", {})],
}


@compiled
@pytest.mark.parametrize("what", SIBLINGS)
def test_siblings_read_their_input_once(what: str, compiled: bool) -> None:
    nodes = [helper.make_node(op, inputs, [y], **attributes) for op, inputs, y, attributes in SIBLINGS[what]]
    for shape in [(128, 768), (33, 129), (64, 1000), (1, 1), (5, 0), (0, 70)]:
        if 0 in shape and what == "min and max":
            continue
        graph = helper.make_graph(nodes, "siblings", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                                  [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "ab"],
                                  [helper.make_tensor("last", TensorProto.INT64, [1], [1])])
        session = tensorbox.Session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), compile=compiled)
        x = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
        wide, got = x.astype(np.float64), session.run({"x": x})
        with np.errstate(invalid="ignore"):
            want = {"min and max": lambda: (wide.min(), wide.max()), "row and sum": lambda: (np.maximum(wide, 0), wide.sum(1)),
                    "sum and row": lambda: (-wide, wide.sum(1)),
                    "sum and mean": lambda: (wide.sum(1, keepdims=True), wide.sum(1, keepdims=True) / np.float64(shape[1]))}[what]()
        for name, value in zip("ab", want):
            np.testing.assert_allclose(got[name], value, rtol=1e-5, atol=1e-4)
        if min(shape) >= 33:
            assert session.dump("plan").count(": kernel ") == 1, shape

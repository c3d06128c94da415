"""Concatenations of parts of one tensor: rolls and cuts that are undone are views, anything else is copied."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from peers import tensorbox

BIG = 2**31


def build(shape: tuple[int, ...], cuts: list[tuple[int, int, int]], axis: int, square: bool = True) -> onnx.ModelProto:
    """Concat along `axis` of the slices (start, end, step) of x * x (or x), and 1 added."""
    constants, nodes = [], [helper.make_node("Mul", ["x", "x"], ["s"])] if square else [helper.make_node("Identity", ["x"], ["s"])]
    for i, cut in enumerate(cuts):
        for name, value in zip(("start", "end", "step"), cut):
            constants.append(helper.make_tensor(f"{name}{i}", TensorProto.INT64, [1], [value]))
        nodes.append(helper.make_node("Slice", ["s", f"start{i}", f"end{i}", "axis", f"step{i}"], [f"p{i}"]))
    constants += [helper.make_tensor("axis", TensorProto.INT64, [1], [axis]), helper.make_tensor("one", TensorProto.FLOAT, [], [1])]
    nodes += [helper.make_node("Concat", [f"p{i}" for i in range(len(cuts))], ["c"], axis=axis), helper.make_node("Add", ["c", "one"], ["y"])]
    graph = helper.make_graph(nodes, "joined", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def expected(x: np.ndarray, cuts: list[tuple[int, int, int]], axis: int, square: bool = True) -> np.ndarray:
    s = x.astype(np.float64) ** 2 if square else x.astype(np.float64)
    rest = [slice(None)] * axis
    return np.concatenate([s[(*rest, slice(start, end if abs(end) < BIG else None, step))] for start, end, step in cuts], axis) + 1


CUTS = {
    "roll": [(3, BIG, 1), (0, 3, 1)],
    "roll back": [(-3, BIG, 1), (0, -3, 1)],
    "cut": [(0, 2, 1), (2, 5, 1), (5, BIG, 1)],
    "overlap": [(3, BIG, 1), (0, 4, 1)],
    "gap": [(4, BIG, 1), (0, 3, 1)],
    "twice": [(0, 3, 1), (0, 3, 1)],
    "every other": [(0, BIG, 2), (1, BIG, 2)],
    "three": [(4, BIG, 1), (2, 4, 1), (0, 2, 1)],
}


@pytest.mark.parametrize("compiled", [False, True], ids=["evaluated", "compiled"])
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("what", CUTS)
def test_parts_of_one_tensor(what: str, dynamic: bool, compiled: bool) -> None:
    rng = np.random.default_rng(6)
    shapes = [((7, 33), 0), ((2, 56, 31, 5), 1), ((3, 9, 2), 1), ((5, 70), 1), ((1200,), 0), ((7, 0), 0), ((6, 1), 0), ((56, 56, 96), 0)]
    for shape, axis in shapes[1:2] if compiled else shapes:
        for square in (True,) if compiled else (True, False):
            session = tensorbox.Session(build(shape, CUTS[what], axis, square), compile=compiled, all_dims_dynamic=dynamic)
            x = rng.standard_normal(shape).astype(np.float32)
            got = session.run({"x": x})["y"]
            want = expected(x, CUTS[what], axis, square)
            assert got.shape == want.shape, shape
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6, err_msg=str(shape))


def test_a_roll_over_two_axes_and_windows_is_one_kernel() -> None:
    """As shifted windows of Swin: rolled, cut into windows of 7 x 7, and multiplied."""
    n = helper.make_node
    ints = {"three": [3], "zero": [0], "far": [BIG], "rows": [0], "columns": [1], "windows": [8, 7, 8, 7, 96], "flat": [64 * 49, 96]}
    nodes = []
    for of, to, axis in (("x", "r", "rows"), ("r", "c", "columns")):
        nodes += [n("Slice", [of, "three", "far", axis], [f"{to}0"]), n("Slice", [of, "zero", "three", axis], [f"{to}1"]),
                  n("Concat", [f"{to}0", f"{to}1"], [to], axis=0 if axis == "rows" else 1)]
    nodes += [n("Reshape", ["c", "windows"], ["w"]), n("Transpose", ["w"], ["t"], perm=[0, 2, 1, 3, 4]), n("Reshape", ["t", "flat"], ["m"]),
              n("MatMul", ["m", "k"], ["y"])]
    rng = np.random.default_rng(8)
    k, x = (rng.standard_normal(s).astype(np.float32) for s in ((96, 8), (56, 56, 96)))
    graph = helper.make_graph(nodes, "windows", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [*(helper.make_tensor(c, TensorProto.INT64, [len(v)], v) for c, v in ints.items()),
                               helper.make_tensor("k", TensorProto.FLOAT, k.shape, k.tobytes(), raw=True)])
    session = tensorbox.Session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), compile=False)
    want = np.roll(x, (-3, -3), (0, 1)).reshape(8, 7, 8, 7, 96).transpose(0, 2, 1, 3, 4).reshape(-1, 96).astype(np.float64) @ k
    np.testing.assert_allclose(session.run({"x": x})["y"], want, rtol=1e-5, atol=1e-4)
    assert session.dump("plan").count(": kernel ") == 1


@pytest.mark.parametrize("rows", [(1, 28, 28), (3, 5), (2, 0)])
def test_a_norm_before_a_product_of_all_rows_is_one_kernel(rows: tuple[int, ...]) -> None:
    rng = np.random.default_rng(9)
    x, s, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((*rows, 48), (48,), (48, 32)))
    graph = helper.make_graph([helper.make_node("LayerNormalization", ["x", "s"], ["n"]), helper.make_node("MatMul", ["n", "w"], ["y"])], "norm",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                              [helper.make_tensor(c, TensorProto.FLOAT, v.shape, v.tobytes(), raw=True) for c, v in (("s", s), ("w", w))])
    session = tensorbox.Session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), compile=False)
    wide = x.astype(np.float64)
    normal = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5) * s
    np.testing.assert_allclose(session.run({"x": x})["y"], normal @ w, rtol=1e-4, atol=1e-4)
    if 0 not in rows:
        assert session.dump("plan").count(": kernel ") == 1

"""Products with weights that the model stores as integers with scales: they stay integers in memory."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from peers import tensorbox

TYPES = {"int8": (TensorProto.INT8, -128, 127), "uint8": (TensorProto.UINT8, 0, 255), "int4": (TensorProto.INT4, -8, 7),
         "uint4": (TensorProto.UINT4, 0, 15)}


def tensor(name: str, kind: int, values: np.ndarray) -> onnx.TensorProto:
    if kind in (TensorProto.INT4, TensorProto.UINT4):
        return helper.make_tensor(name, kind, values.shape, values.reshape(-1).tolist())
    return helper.make_tensor(name, kind, values.shape, values.astype(np.int8 if kind == TensorProto.INT8 else np.uint8).tobytes(), raw=True)


def case(
    kind: str, k: int, n: int, scales: str, zeros: bool, gemm: bool, rows: int, fixed: bool = False
) -> tuple[onnx.ModelProto, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(k + n + rows)
    code, low, high = TYPES[kind]
    q = rng.integers(low, high + 1, (k, n))
    block = int(scales) if scales.isdigit() else 0
    count = {"one": (), "column": (n,)}.get(scales, (-(-k // block), n) if block else ())
    s = np.asarray((rng.random(count) + 0.5) / (high * np.sqrt(k)), np.float32)
    z = rng.integers(low, high + 1, count)
    wide = {"one": lambda v: np.broadcast_to(v, (k, n)), "column": lambda v: np.broadcast_to(v, (k, n))}.get(
        scales, lambda v: np.repeat(v, block, 0)[:k])
    w = (q - (wide(z) if zeros else 0)) * wide(s).astype(np.float64)
    x = rng.standard_normal((rows, k)).astype(np.float32)
    b = rng.standard_normal(n).astype(np.float32)
    turn = (lambda v: np.ascontiguousarray(v.T)) if gemm else (lambda v: v)
    attributes = ({"axis": int(gemm), "block_size": block} if block else {"axis": 1 - int(gemm)})
    inputs = ["q", "s"] + (["z"] if zeros else [])
    nodes = [helper.make_node("DequantizeLinear", inputs, ["w"], **attributes),
             helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1) if gemm else helper.make_node("MatMul", ["x", "w"], ["y"])]
    values = [tensor("q", code, turn(q)), onnx.numpy_helper.from_array(turn(s) if block else s, "s"), onnx.numpy_helper.from_array(b, "b")]
    if zeros:
        values.append(tensor("z", code, turn(z) if block else np.asarray(z)))
    graph = helper.make_graph(nodes, "weights", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows if fixed else "rows", k])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", n])], values)
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return m, x, x.astype(np.float64) @ w + (b if gemm else 0)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("scales", ["one", "column", "32"])
@pytest.mark.parametrize(("zeros", "gemm"), [(False, False), (True, True), (True, False)])
@pytest.mark.parametrize(("k", "n"), [(200, 333)])
def test_weights_stay_integers(kind: str, scales: str, zeros: bool, gemm: bool, k: int, n: int) -> None:
    for rows in (0, 1, 3, 16, 17, 24, 25, 70, 193):
        m, x, want = case(kind, k, n, scales, zeros, gemm, rows)
        session = tensorbox.Session(m, compile=False)
        got = session.run({"x": x})["y"]
        assert got.shape == want.shape
        assert np.abs(got - want).max(initial=0) < 2e-5 * max(1, np.abs(want).max(initial=0))
        plan = session.dump("plan")
        assert "MatMulNBits" in plan
        assert not any("float32" in line and f"[{a}, {b}]" in line for line in plan.splitlines() if "constant" in line
                       for a, b in ((k, n), (n, k)))


def test_small_weights_and_other_forms_stay_products_of_floats() -> None:
    m, x, want = case("int8", 16, 24, "column", True, False, 3)
    session = tensorbox.Session(m, compile=False)
    assert "MatMulNBits" not in session.dump("plan")
    assert np.abs(session.run({"x": x})["y"] - want).max() < 1e-5


@pytest.mark.parametrize("rows", [1, 17, 64, 400])
def test_weights_stay_integers_however_many_rows_every_run_has(rows: int) -> None:
    for gemm in (False, True):
        m, x, want = case("int8", 530, 384, "column", gemm, gemm, rows, fixed=True)
        session = tensorbox.Session(m, compile=False)
        assert "MatMulNBits" in session.dump("plan")
        assert np.abs(session.run({"x": x})["y"] - want).max() < 1e-4


def test_the_pass_can_be_left_out() -> None:
    m, x, want = case("int8", 256, 384, "column", False, False, 2)
    session = tensorbox.Session(m, compile=False, disable_passes=["keep_weights_packed"])
    assert "MatMulNBits" not in session.dump("plan")
    assert np.abs(session.run({"x": x})["y"] - want).max() < 1e-4

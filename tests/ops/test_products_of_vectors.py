"""Matrices times vectors and products of one step of sums, against sums in float64: read in loops, not by a library."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from peers import model_of, tensorbox

SHAPES = {
    "columns": [(3, 5, 7, 1), (3, 5, 1, 6)],
    "outer": [(9, 1), (1, 11)],
    "matrix_vector": [(33, 70), (70, 1)],
    "matrix_vector_1d": [(4, 33, 70), (70,)],
    "batched_matrix_vector": [(2, 1, 9, 40), (1, 3, 40, 1)],
    "batched_row": [(4, 1, 24), (4, 24, 50)],
    "row_over_a_batch": [(1, 24), (4, 24, 50)],
    "row": [(1, 24), (24, 50)],
    "row_of_a_layer": [(1, 768), (768, 3072)],
    "row_1d": [(33,), (33, 71)],
    "dots": [(6, 1, 19), (6, 19, 1)],
    "nothing_to_sum": [(3, 2, 0), (3, 0, 1)],
    "long": [(3, 40000), (40000, 1)],
}


def check(model, inputs: dict[str, np.ndarray], want: np.ndarray, size: np.ndarray) -> None:
    for compiled in (False, True):
        session = tensorbox.Session(model, compile=compiled)
        got = session.run(inputs)["y"]
        assert got.shape == want.shape and got.dtype == np.float32
        assert np.all(np.abs(got - want) <= 2e-6 * size + 1e-7)
        assert all(kernel["kind"] != "extern" for kernel in session.explain())


@pytest.mark.parametrize("shapes", SHAPES)
def test_matmul(shapes: str) -> None:
    random = np.random.default_rng(5)
    a, b = (random.normal(size=shape).astype(np.float32) for shape in SHAPES[shapes])
    inputs = {"a": a, "b": b}
    exact, size = (np.matmul(f(a.astype(np.float64)), f(b.astype(np.float64))) for f in (lambda x: x, np.abs))
    check(model_of("MatMul", inputs, ["y"], 13), inputs, exact, size)


@pytest.mark.parametrize("inner", [1, 6])
@pytest.mark.parametrize("bias", [(4, 1), (1,), (1, 1), None])
def test_gemm(bias: tuple[int, ...] | None, inner: int) -> None:
    """Scales and a bias of one column; with one element to sum, of all columns."""
    random = np.random.default_rng(6)
    columns = 5 if inner == 1 else 1
    inputs = {
        "a": random.normal(size=(inner, 4)).astype(np.float32),
        "b": random.normal(size=(columns, inner)).astype(np.float32),
    }
    if bias:
        inputs["c"] = random.normal(size=bias).astype(np.float32)
    wide = {name: value.astype(np.float64) for name, value in inputs.items()}
    want = 0.5 * wide["a"].T @ wide["b"].T + (-2 * wide["c"] if bias else 0)
    model = model_of("Gemm", inputs, ["y"], 13, transA=1, transB=1, alpha=0.5, beta=-2.0)
    check(model, inputs, want, np.full_like(want, 10))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("terms, columns", [(1000, 333), (64, 4096), (17, 1)])
def test_gemm_of_one_row(terms: int, columns: int, turned: bool) -> None:
    """The matrix is an input of the run, by rows or by columns."""
    random = np.random.default_rng(8)
    a = random.normal(size=(1, terms)).astype(np.float32)
    b = random.normal(size=(columns, terms) if turned else (terms, columns)).astype(np.float32)
    c = random.normal(size=(columns,)).astype(np.float32)
    wide = b.T.astype(np.float64) if turned else b.astype(np.float64)
    want = a.astype(np.float64) @ wide + c
    size = np.abs(a).astype(np.float64) @ np.abs(wide) + np.abs(c)
    inputs = {"a": a, "b": b, "c": c}
    check(model_of("Gemm", inputs, ["y"], 13, transB=int(turned)), inputs, want, size)


def test_gathered_matrices() -> None:
    """Of each token the matrices of its experts."""
    random = np.random.default_rng(7)
    weights = random.normal(size=(5, 16, 24)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["w", "experts"], ["chosen"], axis=0),
            helper.make_node("Einsum", ["x", "chosen"], ["y"], equation="td,tkhd->tkh"),
        ],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["t", 24]),
            helper.make_tensor_value_info("experts", TensorProto.INT64, ["t", 2]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["t", 2, 16])],
        [helper.make_tensor("w", TensorProto.FLOAT, weights.shape, weights.tobytes(), raw=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    x, experts = random.normal(size=(7, 24)).astype(np.float32), random.integers(-5, 5, (7, 2))
    chosen = weights.astype(np.float64)[experts]
    want = np.einsum("td,tkhd->tkh", x.astype(np.float64), chosen)
    size = np.einsum("td,tkhd->tkh", np.abs(x.astype(np.float64)), np.abs(chosen))
    check(model, {"x": x, "experts": experts}, want, size)

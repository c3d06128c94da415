"""Products on GPUs and what they do beside multiplying, on the fake device (or the GPU of the machine) against numpy in float64."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

import tensorbox

RNG = np.random.default_rng(17)
erf = np.vectorize(math.erf)


@pytest.fixture(autouse=True)
def _fake_device(monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.environ.get("TBX_TEST_GPU"):
        monkeypatch.setenv("TBX_FAKE_CUDA", "1")


def session_of(nodes: list[NodeProto], x: tuple[Any, ...], kind: int, constants: dict[str, np.ndarray]) -> tensorbox.Session:
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", kind, x)],
                              [helper.make_tensor_value_info("y", kind, None)],
                              [numpy_helper.from_array(w, n) for n, w in constants.items()])
    return tensorbox.Session(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), device="cuda")


def random(kind: int, *sizes: int) -> np.ndarray:
    return RNG.standard_normal(sizes).astype(helper.tensor_dtype_to_np_dtype(kind))


def kernels(session: tensorbox.Session) -> list[dict[str, Any]]:
    return [k for k in session.explain() if k["kind"] != "copy"]


# A class token before the patches of an image, products beside each other and behind each other; parts whose rows are dense,
# and with several images lie apart.
@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("order", ["cp", "pc", "pp"])
@pytest.mark.parametrize(("batch", "rows", "terms", "columns"), [(1, 49, 24, 64), (3, 17, 8, 40), ("b", 33, 16, 32)])
def test_products_write_into_parts_of_a_concatenation(batch: Any, rows: int, terms: int, columns: int, order: str, axis: int,
                                                      kind: int) -> None:
    count = 1 if batch == "b" else batch
    weights = {n: random(kind, terms, columns) for n in ("w", "w2")}
    constants = {**weights, "b": random(kind, columns), "c": random(kind, count, rows, columns)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["p"]),
             helper.make_node("MatMul", ["x", "w2"], ["q"])]
    parts = {"cp": ["c", "p"], "pc": ["p", "c"], "pp": ["p", "q"]}[order]
    if order != "pp":
        nodes.pop()
    if batch == "b" and "c" in parts:
        constants["c"] = constants["c"][:1]
        nodes += [helper.make_node("Shape", ["x"], ["s"], start=0, end=1),
                  helper.make_node("Concat", ["s", "sizes"], ["all"], axis=0), helper.make_node("Expand", ["c", "all"], ["e"])]
        constants["sizes"] = np.array([rows, columns], "q")
        parts = ["e" if n == "c" else n for n in parts]
    nodes += [helper.make_node("Concat", parts, ["j"], axis=axis), helper.make_node("Softmax", ["j"], ["y"], axis=-1)]
    session = session_of(nodes, (batch, rows, terms), kind, constants)
    for b in (1, 2, 5, 0) if batch == "b" else (count,):
        x = random(kind, b, rows, terms)
        wide = {n: v.astype("d") for n, v in constants.items()}
        p, q = x.astype("d") @ wide["w"] + wide["b"], x.astype("d") @ wide["w2"]
        values = {"p": p, "q": q, "c": np.broadcast_to(wide["c"], (b, rows, columns))}
        joined = np.concatenate([values[n] for n in {"cp": "cp", "pc": "pc", "pp": "pq"}[order]], axis=axis)
        powers = np.exp(joined - joined.max(-1, keepdims=True)) if joined.size else joined
        expected = powers / powers.sum(-1, keepdims=True)
        got = session.run({"x": x})["y"]
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-4 if kind == TensorProto.FLOAT else 3e-2, atol=1e-6 if kind == TensorProto.FLOAT else 1e-3)


def test_a_class_token_costs_one_small_kernel() -> None:
    """[1, 1 + patches, width] is one buffer that the product of the patches writes: no copy of it."""
    kind = TensorProto.FLOAT16
    constants = {"w": random(kind, 48, 768), "c": random(kind, 1, 1, 768)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Concat", ["c", "p"], ["j"], axis=1),
             helper.make_node("Softmax", ["j"], ["y"], axis=-1)]
    names = [k["name"] for k in kernels(session_of(nodes, (1, 196, 48), kind, constants))]
    assert len(names) == 3, names


# Few rows of halves: exact GELU is part of the product. Many rows, float32 and what lies behind an addition stay as they were.
@pytest.mark.parametrize(("x", "columns", "kind", "inside"), [
    ((1, 128, 64), 96, TensorProto.FLOAT16, True), ((17, 33), 7, TensorProto.FLOAT16, True), ((2, 3, 16), 8, TensorProto.BFLOAT16, True),
    ((1, 513, 16), 8, TensorProto.FLOAT16, False), ((1, 16), 8, TensorProto.FLOAT16, None), ((128, 64), 96, TensorProto.FLOAT, False),
    (("n", 16), 8, TensorProto.FLOAT16, False), ((0, 16), 8, TensorProto.FLOAT16, False), ((2, 3, 4, 16), 8, TensorProto.FLOAT16, True)])
@pytest.mark.parametrize("bias", [False, True])
def test_exact_gelu_behind_a_product(x: tuple[Any, ...], columns: int, kind: int, inside: bool | None, bias: bool) -> None:
    constants = {"w": random(kind, x[-1], columns), "b": random(kind, columns)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["a"]),
             helper.make_node("Gelu", ["a" if bias else "m"], ["y"])]
    if not bias:
        nodes.pop(1)
    session = session_of(nodes, x, kind, constants)
    if inside is not None:  # products of one row have an end of their own
        assert any("gelu_erf" in k["name"] for k in kernels(session)) == inside
    for n in (1, 5) if x[0] == "n" else (x[0],):
        value = random(kind, n, *x[1:])
        wide = value.astype("d") @ constants["w"].astype("d") + (constants["b"].astype("d") if bias else 0)
        expected = 0.5 * wide * (1 + erf(wide * math.sqrt(0.5))) if wide.size else wide
        step = {TensorProto.FLOAT: 2.0**-17, TensorProto.FLOAT16: 2.0**-9, TensorProto.BFLOAT16: 2.0**-6}[kind]
        got = np.asarray(session.run({"x": value})["y"]).astype("d")
        np.testing.assert_allclose(got, expected, rtol=2 * step, atol=2 * step)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_few_rows_through_a_layer(approximate: str, kind: int) -> None:
    """A norm, two products, GELU and a sum, of rows that few-row kernels take and others; each shape is compiled, recorded and
    replayed, with other rows each time."""
    terms, inner = 256, 1024
    constants = {"scale": random(kind, terms), "shift": random(kind, terms), "w": random(kind, terms, inner) / 16, "b": random(kind, inner),
                 "w2": random(kind, terms, inner) / 32, "b2": random(kind, terms)}
    constants = {n: v.astype(helper.tensor_dtype_to_np_dtype(kind)) for n, v in constants.items()}
    nodes = [helper.make_node("LayerNormalization", ["x", "scale", "shift"], ["n"], axis=-1),
             helper.make_node("MatMul", ["n", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["p"]),
             helper.make_node("Gelu", ["p"], ["g"], approximate=approximate),
             helper.make_node("Gemm", ["g", "w2", "b2"], ["q"], transB=1), helper.make_node("Add", ["q", "x"], ["y"])]
    session = session_of(nodes, ("m", terms), kind, constants)
    c = {n: v.astype("d") for n, v in constants.items()}
    half = 2e-2 if kind == TensorProto.FLOAT16 else 1.5e-1
    for rows in (64, 2, 49, 128, 1, 0, 300):
        for _ in range(3):
            x = random(kind, rows, terms)
            wide = x.astype("d")
            centred = wide - wide.mean(-1, keepdims=True)
            n = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * c["scale"] + c["shift"]
            p = n @ c["w"] + c["b"]
            inside = erf(p / math.sqrt(2)) if approximate == "none" and rows else np.tanh(math.sqrt(2 / math.pi) * (p + 0.044715 * p**3))
            expected = (p * (1 + inside) / 2) @ c["w2"].T + c["b2"] + wide
            got = session.run({"x": x})["y"].astype("d")
            assert got.shape == expected.shape
            np.testing.assert_allclose(got, expected, rtol=half, atol=2 * half)

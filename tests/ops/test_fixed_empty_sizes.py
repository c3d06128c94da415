"""Sizes of 0 that the model says itself: what they give has the shape that the same sizes of a run give, and the values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import parser
from peers import tensorbox

W = "<float[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}, float[4, 4, 1, 1] c = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}>"
ROWS = "float[n, 5, 5] s, float[n, 5, 4] v, float[n, 5, 4] a, float[n, 5, 4] b"
IMAGE = "float[2, 4, n, m] x"

# Inputs, nodes, and the shape of the result where there are n (and m) of something.
CASES: dict[str, tuple[str, str, Any]] = {
    "sums of products": (ROWS, "m = MatMul(s, v) c1 = Add(m, a) q = MatMul(b, w) y = Add(c1, q)", lambda n, m: (n, 5, 4)),
    "scaled products": (ROWS, "m = MatMul(s, v) c1 = Mul(m, a) q = MatMul(b, w) y = Mul(c1, q)", lambda n, m: (n, 5, 4)),
    "convolutions": (IMAGE, "p = Conv(x, c) q = Conv(x, c) r = Relu(p) t = Mul(r, x) y = Add(t, q)", lambda n, m: (2, 4, n, m)),
    "maximum": (IMAGE, "y = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x)", lambda n, m: (2, 4, n, m)),
    "maximum of large windows": (IMAGE, "y = MaxPool<kernel_shape = [9, 9], pads = [4, 4, 4, 4]>(x)", lambda n, m: (2, 4, n, m)),
    "mean": (IMAGE, "y = AveragePool<kernel_shape = [9, 9], pads = [4, 4, 4, 4]>(x)", lambda n, m: (2, 4, n, m)),
    "norm": (IMAGE, "y = LpPool<kernel_shape = [9, 9], pads = [4, 4, 4, 4]>(x)", lambda n, m: (2, 4, n, m)),
    "transposed": (IMAGE, "y = ConvTranspose<strides = [1, 1]>(x, c)", lambda n, m: (2, 4, n, m)),
}


@pytest.mark.parametrize("options", [{"compile": False}, {}, {"reference": True}], ids=str)
@pytest.mark.parametrize("sizes", [(0, 3), (3, 0), (0, 0), (3, 6)], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_sizes_that_the_model_says(name: str, sizes: tuple[int, int], options: dict[str, bool]) -> None:
    inputs, nodes, shape = CASES[name]
    text = f'<ir_version: 8, opset_import: ["": 17]> g ({inputs}) => (float[d0, d1, d2{", d3" if inputs == IMAGE else ""}] y) {W} {{ {nodes} }}'
    dims = dict(zip("nm", sizes, strict=True))
    model = parser.parse_model(text)
    feeds = {i.name: np.ones([dims.get(d.dim_param, d.dim_value) for d in i.type.tensor_type.shape.dim], np.float32) for i in model.graph.input}
    of_run = tensorbox.Session(model, **options).run(feeds)["y"]
    fixed = tensorbox.Session(model, dims={k: v for k, v in dims.items() if f"{k}, " in inputs or f"{k}]" in inputs}, **options).run(feeds)["y"]
    assert of_run.shape == fixed.shape == shape(*sizes)
    np.testing.assert_allclose(fixed, of_run, 1e-5)


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("compile", [False, True])
def test_parts_that_are_not_equal(opset: int, compile: bool) -> None:
    """Before opset 18 they have to be."""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g (float[n] x) => (float[a] p, float[b] q, float[c] r) {{ p, q, r = Split(x) }}')
    session = tensorbox.Session(model, compile=compile)
    for n in (6, 0, 3):
        x = np.arange(n, dtype=np.float32)
        got = session.run({"x": x})
        for part, want in zip("pqr", np.split(x, 3), strict=True):
            np.testing.assert_array_equal(got[part], want)
    for n in (1, 2, 7, 17):
        with pytest.raises(tensorbox.ModelError, match=r"node 'p' \(Split, opset \d+\): n elements along axis 0 are no 3 equal parts \(n = \d+\)"):
            session.run({"x": np.zeros(n, np.float32)})


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("compile", [False, True])
def test_the_best_of_nothing(op: str, compile: bool) -> None:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 13]> g (float[n, m] x) => (int64[n, 1] y) {{ y = {op}<axis = 1>(x) }}')
    session = tensorbox.Session(model, compile=compile)
    for n, m in ((2, 3), (0, 3), (0, 0), (1, 1)):
        x = np.random.default_rng(n).standard_normal((n, m)).astype(np.float32)
        best = x.argmax if op == "ArgMax" else x.argmin
        want = best(1, keepdims=True) if m else np.zeros((0, 1), np.int64)
        np.testing.assert_array_equal(session.run({"x": x})["y"], want)
    with pytest.raises(tensorbox.ModelError, match="no elements along the axis"):
        session.run({"x": np.zeros((2, 0), np.float32)})


@pytest.mark.parametrize("compile", [False, True])
def test_parts_of_regrouped_elements(compile: bool) -> None:
    """Where there are none, nothing is read, and the check of what is read divides by no size."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["": 17]> g (float[r, 7] x, int64[2, n] i) => (float[m] y)
      <int64[1] all = {-1}, int64[1] from = {2}, int64[1] to = {12}, int64[1] axis = {0}>
      { e = GatherElements<axis = 1>(x, i) f = Reshape(e, all) y = Slice(f, from, to, axis) }""")
    session = tensorbox.Session(model, compile=compile)
    rng = np.random.default_rng(4)
    x = rng.standard_normal((33, 7)).astype(np.float32)
    for n in (7, 0, 1, 5, 17, 0):
        i = rng.integers(-7, 7, (2, n))
        np.testing.assert_array_equal(session.run({"x": x, "i": i})["y"], np.take_along_axis(x[:2], i, 1).ravel()[2:12])

"""Indices outside of their axis end in an error that names node, index and size, in the evaluator and compiled."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser
from peers import tensorbox

HEADER = '<ir_version: 10, opset_import: ["": 21]> '
OUTSIDE = r"(?s)node .*(index -?\d+|index .*) is outside an axis of size"

both = pytest.mark.parametrize("compiled", [False, True])


def session_of(text: str, compiled: bool, **options: object) -> tensorbox.Session:
    return tensorbox.Session(parser.parse_model(HEADER + text), compile=compiled, **options)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


# A graph of x [N, 4] whose output takes row {0} of it, what is done with that row, and the node at fault.
USES = {
    "view": ("y = Gather(x, i)", lambda x, i, b: x[i]),
    "two views": ("t = Transpose(x)  y = Gather<axis = 1>(t, i)", lambda x, i, b: x[i]),
    "matmul": ("v = Gather(x, i)  r = Unsqueeze(v, a)  y = MatMul(r, b)", lambda x, i, b: x[i][None] @ b),
    "residual": ("t = MatMul(x, b)  v = Gather(t, i)  m = MatMul(b, b)  y = Add(m, v)", lambda x, i, b: b @ b + (x @ b)[i]),
    "residual of a view": ("v = Gather(x, i)  m = MatMul(b, b)  y = Add(m, v)", lambda x, i, b: b @ b + x[i]),
    "reduction": ("v = Gather(x, i)  y = ReduceSum(v)", lambda x, i, b: np.sum(x[i], keepdims=True)),
    "softmax": ("v = Gather(x, i)  y = Softmax(v)", lambda x, i, b: np.exp(x[i]) / np.exp(x[i]).sum()),
    "scan": ("v = Gather(x, i)  z = Constant<value = int64 {0}>()  y = CumSum(v, z)", lambda x, i, b: np.cumsum(x[i])),
    "computed": ("n = Neg(x)  y = Gather(n, i)", lambda x, i, b: -x[i]),
    "elements": ("w = Reshape(i, s)  j = Expand(w, e)  y = GatherElements(x, j)", lambda x, i, b: x[i][None]),
    "tuples": ("j = Reshape(i, s1)  y = GatherND(x, j)", lambda x, i, b: x[i]),
}


@both
@pytest.mark.parametrize("index", [0, 3, -1, -4, 25, 10**12, -10**12])
@pytest.mark.parametrize("use", USES)
def test_an_index_known_while_compiling(use: str, index: int, compiled: bool) -> None:
    """... is compared with the sizes of every run."""
    if compiled and abs(index) > 25:
        index = 25 if index > 0 else -25  # one kernel less to build
    nodes, expected = USES[use]
    text = f"""g (float[N, 4] x, float[4, 4] b) => (float[] y) <int64 i = {{{index}}}, int64[1] a = {{0}}, int64[2] s = {{1, 1}},
      int64[2] e = {{1, 4}}, int64[1] s1 = {{1}}> {{ {nodes} }}"""
    session = session_of(text, compiled)
    b = floats(4, 4)
    for n in (0, 1, 3, 4, 5, 26, 1000):
        x = floats(n, 4)
        if -n <= index < n:
            np.testing.assert_allclose(session.run({"x": x, "b": b})["y"], expected(x, index, b), rtol=1e-5, atol=1e-5)
        else:
            with pytest.raises(tensorbox.ModelError, match=OUTSIDE):
                session.run({"x": x, "b": b})


@both
def test_an_index_that_is_a_size(compiled: bool) -> None:
    session = session_of("g (float[A, B] x, float[C] z) => (float[] y) { i = Shape(z)  y = Gather(x, i) }", compiled)
    for a, c in [(3, 0), (3, 2), (1, 0), (400, 399)]:
        x = floats(a, 2)
        np.testing.assert_array_equal(session.run({"x": x, "z": floats(c)})["y"], x[[c]])
    for a, c in [(3, 3), (1, 1), (0, 0), (1, 1 << 20)]:
        with pytest.raises(tensorbox.ModelError, match=OUTSIDE):
            session.run({"x": floats(a, 2), "z": floats(c)})


@both
def test_sizes_as_indices_into_one_element(compiled: bool) -> None:
    """All of them are looked at, though each that is right is 0."""
    session = session_of("g (float[1, B] x, float[C, D] z) => (float[] y) { i = Shape(z)  y = Gather(x, i) }", compiled)
    x = floats(1, 2)
    np.testing.assert_array_equal(session.run({"x": x, "z": floats(0, 0)})["y"], x[[0, 0]])
    for shape in [(1, 0), (0, 1), (7, 7)]:
        with pytest.raises(tensorbox.ModelError, match=OUTSIDE):
            session.run({"x": x, "z": floats(*shape)})


@both
def test_the_counter_of_a_loop(compiled: bool) -> None:
    session = session_of("""g (float[N, 4] x, float[4] b) => (float[] y) <int64 t = {5}> { y = Loop<body = l
      (int64 j, bool k, float[4] p) => (bool k2, float[4] o) { k2 = Identity(k)  v = Gather(x, j)  o = Add(v, p) }>(t, , b) }""",
                         compiled)
    b = floats(4)
    for n in (5, 6, 50):
        x = floats(n, 4)
        np.testing.assert_allclose(session.run({"x": x, "b": b})["y"], b + x[:5].sum(0), rtol=1e-5)
    for n in (0, 1, 4):
        with pytest.raises(tensorbox.ModelError, match=OUTSIDE):
            session.run({"x": floats(n, 4), "b": b})


# Values that are the same all along axis 0, so that nothing that is computed depends on the index.
FLAT = {
    "one element": "t = Mul(x, x)",
    "one element in memory": "t = Identity(x)",
    "broadcast": "t = Expand(x, e)",
    "broadcast sum": "u = Expand(x, e)  t = Mul(u, x)",
    "constant": "t = Constant<value = float[3, 2] {1, 1, 1, 1, 1, 1}>()",
    "expanded constant": "c = Constant<value = float[1, 2] {1, 2}>()  t = Expand(c, e)",
    "sizes": "q = Shape(x)  f = Cast<to = 1>(q)  r = Reshape(f, s)  t = Expand(r, e)",
}
GATHERS = {"Gather": "y = Gather(t, i)", "GatherND": "j = Reshape(i, m)  y = GatherND(t, j)",
           "GatherElements": "r2 = Reshape(i, m)  y = GatherElements(t, r2)"}


@both
@pytest.mark.parametrize("gather", GATHERS)
@pytest.mark.parametrize("flat", FLAT)
def test_indices_that_no_value_depends_on(flat: str, gather: str, compiled: bool) -> None:
    rows = 1 if flat.startswith("one") else 3
    text = f"""g (float[1, 2] x, int64[K] i) => (float[] y) <int64[2] e = {{{rows}, 2}}, int64[2] s = {{1, 2}}, int64[2] m = {{-1, 1}}>
      {{ {FLAT[flat]}  {GATHERS[gather]} }}"""
    session = session_of(text, compiled)
    x = floats(1, 2)
    for good in (0, rows - 1, -rows):
        session.run({"x": x, "i": np.array([good, 0, good])})
    for bad in (rows, -rows - 1, 10**6):
        with pytest.raises(tensorbox.ModelError, match=f"node .*index {bad} is outside an axis of size {rows}"):
            session.run({"x": x, "i": np.array([0, bad, 0])})


def test_an_index_that_no_run_can_use() -> None:
    for index in (5, -6):
        with pytest.raises(tensorbox.ModelError, match=f"node 'y' .*index {index} is outside an axis of size 5"):
            session_of(f"g (float[5] x) => (float y) <int64 i = {{{index}}}> {{ y = Gather(x, i) }}", False)


@both
def test_rows_of_an_empty_sequence(compiled: bool) -> None:
    """The first token of no tokens, as pooling of transformers takes it."""
    model = """g (int64[B, S] ids, float[10, 4] table, float[4, 4] w) => (float[] y) <int64 i = {0}> {
      e = Gather(table, ids)  t = MatMul(e, w)  f = Gather<axis = 1>(t, i)  y = MatMul(f, w) }"""
    session = session_of(model, compiled)
    table, w = floats(10, 4), floats(4, 4)
    for shape in [(2, 1), (2, 5), (0, 3)]:
        ids = np.arange(shape[0] * shape[1]).reshape(shape) % 10
        np.testing.assert_allclose(session.run({"ids": ids, "table": table, "w": w})["y"], table[ids[:, 0]] @ w @ w, rtol=1e-4)
        with pytest.raises(tensorbox.ModelError, match=OUTSIDE):
            session.run({"ids": np.zeros((2, 0), np.int64), "table": table, "w": w})


# The column begins behind the first element of its buffer, which may have none.
@pytest.mark.parametrize("options", [{}, {"compile": False}, {"reference": True}], ids=["compiled", "evaluated", "reference"])
@pytest.mark.parametrize(("text", "expected"), [
    ("v = Gather<axis = 1>(t, i)  y = ReduceMax<keepdims = 0>(v, z)", lambda t: t[:, 7].max(initial=-np.inf)),
    ("v = Gather<axis = 1>(t, i)  y = Neg(v)", lambda t: -t[:, 7]),
    ("v = Slice(t, five, nine, one)  y = ReduceSum<keepdims = 0>(v, z)", lambda t: t[:, 5:9].sum(0))])
def test_a_column_of_no_rows(text: str, expected: object, options: dict[str, object]) -> None:
    constants = ("int64 i = {7}, int64[1] z = {0}, int64[1] five = {5}, int64[1] nine = {9}, int64[1] one = {1}, "
                 "int64 axis = {1}")
    y = "float y" if "Max" in text else "float[M] y"
    model = parser.parse_model(HEADER + f"g (float[N, 16] x) => ({y}) <{constants}> {{ t = CumSum(x, axis)  {text} }}")
    session = tensorbox.Session(model, **options)
    for rows in (3, 0, 1):
        x = floats(rows, 16)
        got = session.run({"x": x})["y"]
        want = expected(np.cumsum(x.astype("d"), axis=1))
        assert got.shape == np.shape(want)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@both
@pytest.mark.parametrize("part", ["Slice(x, from, to, axis)", "ReduceMax(x, axis)", "Gather(x, one)"])
def test_an_index_into_an_axis_of_one_element(part: str, compiled: bool) -> None:
    """... that the same kernel makes and nothing has to find is looked at all the same."""
    session = session_of(f"""g (float[17, 3] x, int64[1] i) => (float[1, 3] y)
      <int64[1] from = {{4}}, int64[1] to = {{5}}, int64[1] axis = {{0}}, int64[1] one = {{4}}> {{ v = {part}  y = Gather(v, i) }}""", compiled)
    x = floats(17, 3)
    want = x.max(0) if "Max" in part else x[4]
    for index in (0, -1):
        np.testing.assert_array_equal(session.run({"x": x, "i": np.array([index])})["y"], want[None])
    for index in (1, -2, 16, 2**40):
        with pytest.raises(tensorbox.ModelError, match=OUTSIDE):
            session.run({"x": x, "i": np.array([index])})

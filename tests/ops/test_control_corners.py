"""Corners of If, Loop and Scan: no iterations, ignored conditions, shapes that data decides, captures over two levels,
sequences and optionals as state. The values wanted are written with numpy; ONNX Runtime is asked, too, where it is
installed and follows the specification."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from onnx import parser
from peers import expected
from test_values import flags, i64, same

tensorbox = pytest.importorskip("tensorbox")

F = np.float32
X = np.arange(1, 5, dtype=F)
Feeds = dict[str, Any]


def f32(value: Any) -> np.ndarray:
    return np.array(value, F)


def check(text: str, *cases: tuple[Feeds, list[Any]], opset: int = 17, peer: bool = True) -> None:
    """Runs all cases in one session, with declared and with forgotten dimensions; each brings its outputs."""
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]>\n{text}')
    for dynamic in (False, True):
        session = tensorbox.Session(model, compile=False, all_dims_dynamic=dynamic)
        for feeds, want in cases:
            got = list(session.run(feeds).items())
            assert len(got) == len(want)
            for (name, value), w in zip(got, want):
                if dynamic and not isinstance(w, list) and w.size == 0:  # nothing says what an element would be
                    assert (value.size, value.ndim, value.dtype) == (0, w.ndim, w.dtype)
                else:
                    same(w, value, f"{name} of {feeds}, dynamic {dynamic}")
    if peer and _have_onnxruntime():
        for feeds, want in cases:
            for theirs, w in zip(expected(model, feeds, "ort"), want, strict=True):
                same(w, theirs, f"ONNX Runtime for {feeds}")


def _have_onnxruntime() -> bool:
    try:
        import onnxruntime  # noqa: F401
    except ImportError:
        return False
    return True


TRUE = "c = Constant<value = bool {1}>()"


# --- Loop: how often

@pytest.mark.parametrize("trips", ["known", "given"])
def test_loop_gives_its_numbers_the_rank_that_the_body_declares(trips: str) -> None:
    """Exporters of before 2019 declare the iteration number and the condition as of shape [1]."""
    known = "n = Constant<value = int64 {3}>()" if trips == "known" else "n = Identity(t)"
    check(f"""g (int64 t, float[1] x) => (float[1] last, int64[k, 1] numbers, bool[k, 1] conditions) {{
            c = Constant<value = bool[1] {{1}}>()
            {known}
            last, numbers, conditions = Loop(n, c, x) <body = b (int64[1] i, bool[1] go, float[1] v)
                => (bool[1] keep, float[1] w, int64[1] number, bool[1] condition) {{
              keep = Identity(go)
              f = Cast<to = 1>(i)
              w = Add(v, f)
              number = Identity(i)
              condition = Identity(go)
            }}>
        }}""",
          ({"t": i64(3), "x": f32([1])}, [f32([4]), i64([[0], [1], [2]]), flags([[1], [1], [1]])]))


@pytest.mark.parametrize("shape", ["", "[1]"])
def test_loop_of_no_iterations(shape: str) -> None:
    """Scan outputs are empty along their first axis and have the sizes that the body declares for an element."""
    text = f"""g(int64{shape} n, bool{shape} c, float[4] x) => (float[4] y, float[t,4] rows, int64[u] at, float[v,2,4] pairs) {{
        y, rows, at, pairs = Loop(n, c, x) <body = body(int64 i, bool ci, float[4] s)
            => (bool co, float[4] so, float[4] row, int64 j, float[2,4] pair) {{
          co = Identity(ci) so = Add(s, s) row = Identity(s) j = Identity(i) z = Constant<value_ints=[0]>()
          u = Unsqueeze(s, z) pair = Concat<axis=0>(u, u) }}> }}"""
    def feeds(n: int, c: bool) -> Feeds:
        return {"n": i64([n] if shape else n), "c": flags([c] if shape else c), "x": X}
    none = [X, np.zeros((0, 4), F), i64([]), np.zeros((0, 2, 4), F)]
    rows = np.stack([X, X * 2])
    two = [X * 4, rows, i64([0, 1]), np.stack([rows, rows], 1)]
    cases = (feeds(0, True), none), (feeds(3, False), none), (feeds(-2, True), none), (feeds(2, True), two)
    check(text, *cases, peer=not shape)  # ONNX Runtime wants the condition of the rank that the body declares


@pytest.mark.parametrize("trips", ["known", "given"])
def test_no_iteration_makes_what_the_body_declares(trips: str) -> None:
    """Inference knows less than the file says: a slice between bounds of data has a size that nothing tells."""
    known = "n = Constant<value = int64 {0}>()" if trips == "known" else "n = Identity(t)"
    check(f"""g (int64 t, float[5] x) => (float[k, 2] rows) {{
            {TRUE}
            {known}
            two = Constant<value = int64[1] {{2}}>()
            axis = Constant<value = int64[1] {{0}}>()
            rows = Loop(n, c) <body = b (int64 i, bool go) => (bool keep, float[2] row) {{
              keep = Identity(go)
              from = Unsqueeze(i, axis)
              to = Add(from, two)
              row = Slice(x, from, to)
            }}>
        }}""",
          ({"t": i64(0), "x": f32([1, 2, 3, 4, 5])}, [np.zeros((0, 2), F)]))


def test_no_iteration_of_a_body_that_names_what_another_loop_gave() -> None:
    """Nobody knows the rank of what the first loop gives; the second one's body declares it."""
    text = f"""g(int64 m, int64 n, float[2] x) => (float[t,2] rows) {{ {TRUE}
        a = Loop(m, c, x) <body = first(int64 i, bool ci, float[k] s) => (bool co, float[k] so) {{
          co = Identity(ci) so = Add(s, s) }}>
        rows = Loop(n, c) <body = second(int64 j, bool di) => (bool do, float[2] row) {{ do = Identity(di) row = Identity(a) }}> }}"""
    for m in (0, 1):
        a = X[:2] * 2 ** m
        check(text, *(({"m": i64(m), "n": i64(n), "x": X[:2]}, [np.stack([a] * n) if n else np.zeros((0, 2), F)]) for n in (0, 2)))


def test_loop_of_no_iterations_known_while_compiling() -> None:
    for n, c in ((0, 1), (5, 0)):
        check(f"""g(float[4] x) => (float[4] y, float[t,4] rows) {{
            n = Constant<value_int={n}>() c = Constant<value = bool {{{c}}}>()
            y, rows = Loop(n, c, x) <body = body(int64 i, bool ci, float[4] s) => (bool co, float[4] so, float[4] row) {{
              co = Identity(ci) so = Add(s, s) row = Identity(s) }}> }}""", ({"x": X}, [X, np.zeros((0, 4), F)]))


def test_loop_of_no_iterations_whose_elements_are_as_large_as_inputs() -> None:
    """ONNX Runtime takes sizes with a name for 0 here."""
    text = f"""g(int64 n, float[k] x, float[m] w) => (float[k] y, float[t,k] rows, float[u,m,2] pairs) {{ {TRUE} v = Neg(w)
        y, rows, pairs = Loop(n, c, x) <body = body(int64 i, bool ci, float[k] s)
            => (bool co, float[k] so, float[k] row, float[m,2] pair) {{
          co = Identity(ci) so = Add(s, s) row = Identity(s) z = Constant<value_ints=[1]>()
          a = Unsqueeze(v, z) pair = Concat<axis=1>(a, a) }}> }}"""
    for w in (X[:3], X[:2]):
        pair = -np.stack([w, w], 1)
        check(text, ({"n": i64(0), "x": X, "w": w}, [X, np.zeros((0, 4), F), np.zeros((0, len(w), 2), F)]),
              ({"n": i64(1), "x": X, "w": w}, [X * 2, X[None], pair[None]]), peer=False)


def test_loop_of_no_iterations_whose_elements_have_no_known_size() -> None:
    """It is 0 then."""
    text = f"""g(int64 n, float[k] x) => (int64[t,d] at) {{ {TRUE}
        at = Loop(n, c) <body = body(int64 i, bool ci) => (bool co, int64[d] o) {{
          co = Identity(ci) z = Constant<value_ints=[0]>() nz = NonZero(x) o = Squeeze(nz, z) }}> }}"""
    x = f32([0, 2, 0, 5])
    check(text, ({"n": i64(0), "x": x}, [np.zeros((0, 0), np.int64)]),
          ({"n": i64(2), "x": x}, [i64([[1, 3], [1, 3]])]), ({"n": i64(1), "x": x[:1]}, [np.zeros((1, 0), np.int64)]))


BOUNDED = """g({inputs}float[k] x) => (float[k] y, int64 count) {{ zero = Constant<value_int=0>() {more}
    y, count = Loop({limit}, x, zero) <body = body(int64 i, bool ci, float[k] s, int64 n) => (bool co, float[k] so, int64 no) {{
      m = ReduceMax<keepdims=0>(s) top = Constant<value_float=50.0>() co = Less(m, top) so = Add(s, s)
      one = Constant<value_int=1>() no = Add(n, one) }}> }}"""


def test_loop_while_the_body_says_so() -> None:
    text = BOUNDED.format(inputs="", limit='"", c', more=TRUE)
    check(text, ({"x": X}, [X * 32, i64(5)]), ({"x": X * 64}, [X * 128, i64(1)]))


def test_loop_of_a_trip_count_and_a_condition_ends_with_the_first() -> None:
    text = BOUNDED.format(inputs="int64 n, bool c, ", limit="n, c", more="")
    check(text, ({"n": i64(3), "c": flags(True), "x": X}, [X * 8, i64(3)]),
          ({"n": i64(9), "c": flags(True), "x": X}, [X * 32, i64(5)]),
          ({"n": i64(9), "c": flags(False), "x": X}, [X, i64(0)]))


def test_loop_without_a_first_condition_ends_when_the_body_says_so() -> None:
    """As in ONNX Runtime; the specification has the body's condition ignored then, which no exporter counts on."""
    text = BOUNDED.format(inputs="int64 n, ", limit='n, ""', more="")
    check(text, ({"n": i64(3), "x": X}, [X * 8, i64(3)]), ({"n": i64(9), "x": X}, [X * 32, i64(5)]))
    check(BOUNDED.format(inputs="", limit='"", ""', more=""), ({"x": X}, [X * 32, i64(5)]))


# --- Loop: what is carried and collected

def test_loop_hands_through_what_it_does_not_change() -> None:
    """Outputs of the body that are its inputs, values from outside, constants, or the same value twice."""
    text = f"""g(int64 n, float[4] x, float[4] w) => (float[4] a, float[4] b, float[t,4] us, float[t,4] vs, float[t] ks, int64[t] at) {{
        {TRUE} v = Neg(w)
        a, b, us, vs, ks, at = Loop(n, c, x, w) <body = body(int64 i, bool ci, float[4] p, float[4] q)
            => (bool ci, float[4] q, float[4] p, float[4] u, float[4] u2, float f, int64 i2) {{
          u = Identity(v) u2 = Identity(p) f = Constant<value_float=7.0>() i2 = Identity(i) }}> }}"""
    w = X * 10
    def want(n: int) -> list[Any]:
        a, b, seen = X, w, []
        for _ in range(n):
            seen.append(a)
            a, b = b, a
        empty = np.zeros((0, 4), F)
        return [a, b, np.stack([-w] * n) if n else empty, np.stack(seen) if n else empty, f32([7] * n), i64(range(n))]
    check(text, *(({"n": i64(n), "x": X, "w": w}, want(n)) for n in (0, 1, 2, 5)))


def test_loop_collects_elements_of_a_size_that_data_decides() -> None:
    text = f"""g(int64 n, float[k] x) => (float[t,d] rows) {{ {TRUE}
        rows = Loop(n, c) <body = body(int64 i, bool ci) => (bool co, float[d] o) {{
          co = Identity(ci) zero = Constant<value_float=0.0>() p = Greater(x, zero) q = Compress<axis=0>(x, p)
          f = Cast<to=1>(i) o = Add(q, f) }}> }}"""
    x = f32([-1, 2, 0, 5])
    check(text, ({"n": i64(3), "x": x}, [f32([[2, 5], [3, 6], [4, 7]])]), ({"n": i64(2), "x": -x}, [f32([[1], [2]])]))


def test_loop_does_not_collect_elements_of_different_shapes() -> None:
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]> g(int64 n, float[k] x) => (float[t,d] rows) {{
        {TRUE} rows = Loop(n, c) <body = body(int64 i, bool ci) => (bool co, float[d] o) {{
          co = Identity(ci) z = Constant<value_ints=[0]>() one = Constant<value_ints=[1]>() j = Unsqueeze(i, z)
          e = Add(j, one) o = Slice(x, z, e) }}> }}""")
    session = tensorbox.Session(model, compile=False)
    assert session.run({"n": i64(1), "x": X})["rows"].tolist() == [[1]]
    with pytest.raises(tensorbox.ModelError, match=r"(?s)Loop.*(\[1\].*\[2\]|shape)"):
        session.run({"n": i64(2), "x": X})


# --- captures

def test_captures_over_two_levels() -> None:
    """A branch in a loop reads the model's input, a value of the loop's body, the state and the counter."""
    text = f"""g(int64 n, float[4] x, float[4] w) => (float[4] y, float[t,4] rows) {{ {TRUE} v = Neg(w)
        y, rows = Loop(n, c, x) <body = body(int64 i, bool ci, float[4] s) => (bool co, float[4] so, float[4] row) {{
          co = Identity(ci) f = Cast<to=1>(i) mine = Mul(s, f) two = Constant<value_int=2>() r = Mod(i, two)
          zero = Constant<value_int=0>() even = Equal(r, zero)
          so, row = If(even) <
            then_branch = t() => (float[4] a, float[4] b) {{ p = Add(mine, v) a = Add(p, x) b = Identity(s) }},
            else_branch = e() => (float[4] d, float[4] e2) {{
              big = Constant<value_int=2>() late = Greater(i, big)
              d = If(late) <then_branch = tt() => (float[4] g1) {{ h = Sub(mine, w) g1 = Add(h, f) }},
                            else_branch = ee() => (float[4] g2) {{ g2 = Identity(w) }}>
              e2 = Mul(mine, x) }}> }}> }}"""
    w = X[::-1].copy()
    def want(n: int) -> list[Any]:
        s, rows = X, []
        for i in range(n):
            mine = s * F(i)
            rows.append(s if i % 2 == 0 else mine * X)
            s = mine - w + X if i % 2 == 0 else mine - w + F(i) if i > 2 else w
        return [s, np.stack(rows) if rows else np.zeros((0, 4), F)]
    check(text, *(({"n": i64(n), "x": X, "w": w}, want(n)) for n in (0, 1, 2, 5, 6)))


def test_loop_in_a_branch_in_a_loop() -> None:
    text = f"""g(int64 n, int64 m, float[k] x) => (float[k] y) {{ {TRUE}
        y = Loop(n, c, x) <body = body(int64 i, bool ci, float[k] s) => (bool co, float[k] so) {{
          co = Identity(ci) lim = Constant<value_int=1>() few = LessOrEqual(i, lim) half = Constant<value_float=0.5>()
          so = If(few) <
            then_branch = t() => (float[k] a) {{
              a = Loop(m, c, s) <body = inner(int64 j, bool cj, float[k] r) => (bool cjo, float[k] ro) {{
                cjo = Identity(cj) ij = Add(i, j) g1 = Cast<to=1>(ij) h = Mul(g1, x) ro = Add(r, h) }}> }},
            else_branch = e() => (float[k] b) {{ b = Mul(s, half) }}> }}> }}"""
    def want(n: int, m: int) -> list[Any]:
        s = X
        for i in range(n):
            s = s + F(sum(i + j for j in range(m))) * X if i <= 1 else s * F(0.5)
        return [s]
    check(text, *(({"n": i64(n), "m": i64(m), "x": X}, want(n, m)) for n, m in ((0, 3), (1, 0), (2, 3), (4, 2))))


# --- If

IF_SHAPES = """g(bool c, float[n,m] x) => ({out} y, int64[r] shape) {{
    y = If(c) <then_branch = t() => ({then} a) {{ {make_then} }}, else_branch = e() => ({other} b) {{ {make_else} }}>
    shape = Shape(y) }}"""
BRANCHES = {
    "other sizes": ("float[p,q]", "float[n,m]", "a = Neg(x)", "float[m,n]", "b = Transpose(x)",
                    lambda x: -x, lambda x: x.T),
    "other ranks": ("float[]", "float[n,m]", "a = Neg(x)", "float[k]",
                    "z = Constant<value_ints=[-1]>() b = Reshape(x, z)", lambda x: -x, lambda x: x.reshape(-1)),
    "a scalar": ("float[]", "float[n,m]", "a = Exp(x)", "float", "b = ReduceSum<keepdims=0>(x)",
                 np.exp, lambda x: x.sum()),
    "an empty one": ("float[p,q]", "float[n,m]", "a = Neg(x)", "float[0,m]",
                     "z = Constant<value_ints=[0]>() b = Slice(x, z, z)", lambda x: -x, lambda x: x[:0]),
    "an outer value": ("float[p,q]", "float[n,m]", "a = Identity(x)", "float[1,1]", "b = Constant<value = float[1,1] {3}>()",
                       lambda x: x, lambda x: f32([[3]])),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_branches_of_different_shapes(name: str) -> None:
    out, then, make_then, other, make_else, want_then, want_else = BRANCHES[name]
    text = IF_SHAPES.format(out=out, then=then, make_then=make_then, other=other, make_else=make_else)
    cases = []
    for x in (X.reshape(1, 4), np.arange(6, dtype=F).reshape(3, 2)):
        for c in (True, False):
            y = np.asarray((want_then if c else want_else)(x), F)
            cases.append(({"c": flags(c), "x": x}, [y, i64(y.shape)]))
    check(text, *cases)


def test_what_follows_branches_of_different_ranks() -> None:
    text = """g(bool c, float[n,m] x, float[m] w) => (float[] y) {
        u = If(c) <then_branch = t() => (float[n,m] a) { a = Neg(x) },
                   else_branch = e() => (float[m] b) { z = Constant<value_ints=[0]>() b = ReduceSum<keepdims=0>(x, z) }>
        v = Add(u, w) y = Softmax<axis=-1>(v) }"""
    def softmax(v: np.ndarray) -> np.ndarray:
        e = np.exp(v - v.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)
    x, w = np.arange(6, dtype=F).reshape(2, 3), f32([1, 0, -1])
    check(text, ({"c": flags(True), "x": x, "w": w}, [softmax(w - x)]),
          ({"c": flags(False), "x": x, "w": w}, [softmax(x.sum(0) + w)]))


# --- Scan

SCAN = """g(float[{x}] x, float[2] s0) => (float[2] s, float[a,b] ys, float[p,q] zs) {{
    s, ys, zs = Scan<num_scan_inputs=1, scan_input_axes=[{axis}], scan_input_directions=[{back}],
                     scan_output_axes=[{out}, 0], scan_output_directions=[{out_back}, 0],
        body = body(float[2] u, float[2] v) => (float[2] so, float[2] o, float[2] o2) {{
          so = Add(u, v) o = Sub(so, s0) o2 = Mul(v, v) }}>(s0, x) }}"""


@pytest.mark.parametrize("opset", [9, 11, 16, 21])
@pytest.mark.parametrize("axis,out", [(0, 0), (1, 1), (-1, -1), (-2, -2), (1, -2)])
def test_scan_axes_and_directions(opset: int, axis: int, out: int) -> None:
    if opset < 11 and min(axis, out) < 0:
        pytest.skip("negative axes came with opset 11")
    s0, rows = f32([1, 2]), np.arange(10, dtype=F).reshape(5, 2)
    for back in (0, 1):
        for out_back in (0, 1):
            seen = rows[::-1] if back else rows
            sums = np.cumsum(seen, 0)
            ys = np.stack(sums[::-1] if out_back else sums, out % 2)
            x = rows if axis % 2 == 0 else rows.T.copy()
            check(SCAN.format(x="t,2" if axis % 2 == 0 else "2,t", axis=axis, back=back, out=out, out_back=out_back),
                  ({"x": x, "s0": s0}, [s0 + rows.sum(0), ys.copy(), seen * seen]), opset=opset)


@pytest.mark.parametrize("directions", ["[0]", "[1]"])
def test_scan_of_opset_8(directions: str) -> None:
    """With a batch dimension, and as many steps for each entry as its length says; what lies behind is 0."""
    text = f"""g(int64[b] lengths, float[b,k] s0, float[b,t,k] x) => (float[b,k] s, float[b,t,k] ys) {{
        s, ys = Scan<num_scan_inputs=1, directions={directions},
            body = body(float[k] u, float[k] v) => (float[k] so, float[k] o) {{ so = Add(u, v) o = Mul(so, v) }}>(lengths, s0, x) }}"""
    x, s0 = np.arange(12, dtype=F).reshape(2, 3, 2), f32([[1, 2], [3, 4]])
    def want(lengths: list[int]) -> list[Any]:
        s, ys = s0.copy(), np.zeros_like(x)
        for b, n in enumerate(lengths):
            rows = x[b, :n][::-1] if directions == "[1]" else x[b, :n]
            for t, row in enumerate(rows):
                s[b] = s[b] + row
                ys[b, t] = s[b] * row
        return [s, ys]
    check(text, *(({"lengths": i64(n), "s0": s0, "x": x}, want(n)) for n in ([3, 3], [1, 3], [2, 1])), opset=8)
    check(text.replace("int64[b] lengths, ", "").replace("(lengths, s0", '("", s0'),
          ({"s0": s0, "x": x}, want([3, 3])), opset=8)


def test_scan_of_no_slices() -> None:
    text = """g(float[t,4] x, float[4] s0) => (float[4] s, float[t,4] ys, float[4,t] zs) {
        s, ys, zs = Scan<num_scan_inputs=1, scan_output_axes=[0, 1],
            body = body(float[4] u, float[4] v) => (float[4] so, float[4] o, float[4] o2) {
              so = Add(u, v) o = Neg(so) o2 = Identity(o) }>(s0, x) }"""
    ys = -(X + X * np.arange(1, 4, dtype=F)[:, None])
    check(text, ({"x": np.zeros((0, 4), F), "s0": X}, [X, np.zeros((0, 4), F), np.zeros((4, 0), F)]),
          ({"x": np.tile(X, (3, 1)), "s0": X}, [X * 4, ys, ys.T.copy()]), peer=False)


def test_scan_without_state_or_without_results() -> None:
    check("""g(float[t,k] x) => (float[t,k] ys) { ys = Scan<num_scan_inputs=1,
        body = body(float[k] v) => (float[k] o) { o = Softmax<axis=0>(v) }>(x) }""",
          ({"x": np.zeros((3, 2), F)}, [np.full((3, 2), 0.5, F)]))
    check("""g(float[t,k] x, float[k] s0) => (float[k] s) { s = Scan<num_scan_inputs=1,
        body = body(float[k] u, float[k] v) => (float[k] o) { o = Max(u, v) }>(s0, x) }""",
          ({"x": np.stack([X, X * 3, X * 2]), "s0": X}, [X * 3]))


@pytest.mark.parametrize("slices", [1, 3])
def test_scan_beside_dimensions_that_differ(slices: int) -> None:
    """Other code than that for equal dimensions knows the length that the model gives the Scan, too."""
    text = f"""g(bool c, float[a] x, float[b] z, float[{slices},4] t, float[4] s0)
          => (float[k] sum, float[4] q, float[4] s, float[{slices},4] ys) {{
        sum = Add(x, z)
        q = If (c) <then_branch = one() => (float[4] p) {{ p = Neg(s0) }}, else_branch = two() => (float[4] r) {{ r = Relu(s0) }}>
        s, ys = Scan<num_scan_inputs=1, body = body(float[4] u, float[4] v) => (float[4] so, float[4] o) {{
              so = Max(u, v) o = Neg(so) }}>(s0, t) }}"""
    rows = np.stack([X * (-1) ** i * i for i in range(slices)])
    best = np.maximum(np.maximum.accumulate(rows), X)
    check(text, *(({"c": np.array(c), "x": x, "z": X, "t": rows, "s0": X}, [x + X, -X if c else X, best[-1], -best])
                  for c in (True, False) for x in (X, X[:1])))


# --- sequences and optionals

def test_parts_of_what_an_operator_outside_of_onnx_gives() -> None:
    """Of its result nothing is known before it is compiled; what SplitToSequence makes of it is a sequence anyway."""
    text = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
      g(float[a,b] x) => (float[c,d] joined, float[e,f] last, int64 n) {
        v = com.microsoft.Gelu(x)
        s = SplitToSequence<axis=0, keepdims=1>(v)
        joined = ConcatFromSequence<axis=1>(s)
        at = Constant<value = int64 {-1}>()
        last = SequenceAt(s, at)
        n = SequenceLength(s) }"""
    model = parser.parse_model(text)
    session = tensorbox.Session(model, compile=False)
    for rows in (1, 3):
        x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(F)
        y = np.array([v / 2 * (1 + math.erf(v / math.sqrt(2))) for v in x.ravel().astype(float)]).reshape(rows, 4)
        got = session.run({"x": x})
        np.testing.assert_allclose(got["joined"], y.reshape(1, -1), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(got["last"], y[-1:], rtol=1e-5, atol=1e-6)
        assert got["n"] == rows


def test_sequences_carried_and_captured() -> None:
    """A sequence from outside is read in a loop, another one grows and shrinks."""
    text = f"""g(seq(float[4]) q, int64 n) => (seq(float[4]) r, float[t,4] rows, int64 len) {{ {TRUE}
        e = SequenceEmpty<dtype=1>()
        r, rows = Loop(n, c, e) <body = body(int64 i, bool ci, seq(float[4]) s) => (bool co, seq(float[4]) so, float[4] row) {{
          co = Identity(ci) len2 = SequenceLength(q) j = Mod(i, len2) row = SequenceAt(q, j) two = Constant<value_int=2>()
          zero = Constant<value_int=0>() have = SequenceLength(s) full = Equal(have, two)
          room = If(full) <then_branch = t() => (seq(float[4]) a) {{ a = SequenceErase(s, zero) }},
                           else_branch = f() => (seq(float[4]) b) {{ b = Identity(s) }}>
          so = SequenceInsert(room, row) }}>
        len = SequenceLength(r) }}"""
    q = [X, X * 2, X * 3]
    def want(n: int) -> list[Any]:
        rows = [q[i % 3] for i in range(n)]
        return [rows[-2:], np.stack(rows) if n else np.zeros((0, 4), F), i64(min(n, 2))]
    check(text, *(({"q": q, "n": i64(n)}, want(n)) for n in (1, 2, 4, 0)), peer=False)
    check(text, ({"q": q, "n": i64(4)}, want(4)))


def test_optionals_carried() -> None:
    """An optional that is empty at first holds the running maximum after the first iteration."""
    text = f"""g(optional(float[k]) first, float[t,k] x, int64 n) => (bool has, float[k] y) {{ {TRUE}
        last = Loop(n, c, first) <body = body(int64 i, bool ci, optional(float[k]) s) => (bool co, optional(float[k]) so) {{
          co = Identity(ci) row = Gather<axis=0>(x, i) given = OptionalHasElement(s)
          m = If(given) <then_branch = t() => (float[k] a) {{ v = OptionalGetElement(s) a = Max(v, row) }},
                         else_branch = e() => (float[k] b) {{ b = Identity(row) }}>
          so = Optional(m) }}>
        has = OptionalHasElement(last)
        y = If(has) <then_branch = tt() => (float[k] p) {{ p = OptionalGetElement(last) }},
                     else_branch = ff() => (float[k] q) {{ z = Constant<value_float=0.0>() q = Mul(x0, z) }}> }}"""
    text = text.replace("{ " + TRUE, "{ " + TRUE + " k0 = Constant<value_int=0>() x0 = Gather<axis=0>(x, k0)", 1)
    x = np.stack([X, X[::-1], X * 0])
    check(text, ({"first": None, "x": x, "n": i64(0)}, [flags(False), X * 0]),
          ({"first": None, "x": x, "n": i64(1)}, [flags(True), X]),
          ({"first": None, "x": x, "n": i64(3)}, [flags(True), np.maximum(X, X[::-1])]),
          ({"first": X * 9, "x": x, "n": i64(2)}, [flags(True), X * 9]),
          ({"first": X * 9, "x": x, "n": i64(0)}, [flags(True), X * 9]), opset=18, peer=False)


def test_branches_of_sequences() -> None:
    text = """g(bool c, seq(float[k]) q, float[k] x) => (seq(float[k]) r, float[n] flat) {
        r = If(c) <then_branch = t() => (seq(float[k]) a) { a = SequenceInsert(q, x) },
                   else_branch = e() => (seq(float[k]) b) { b = SequenceConstruct(x) }>
        flat = ConcatFromSequence<axis=0>(r) }"""
    check(text, ({"c": flags(True), "q": [X, X * 2], "x": X * 3}, [[X, X * 2, X * 3], np.concatenate([X, X * 2, X * 3])]),
          ({"c": flags(False), "q": [X], "x": X * 3}, [[X * 3], X * 3]))

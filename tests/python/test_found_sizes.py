"""Steps that find out sizes in a run: what comes before and beside them has places from the beginning, what comes behind gets
them when the sizes are known."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import onnx.parser
import pytest

import tensorbox

# Two stretches behind NonZero, work beside them, results of every kind: of known size, found, and made by the step itself.
MODEL = """<ir_version: 9, opset_import: ["": 18]>
g (float[n, 8] x, float[8, 8] w) => (float[n, 8] soft, float[a, 8] rows, int64[2, b] at, float[c, 8] few, float total) {
  half = Constant <value = float {0.5}> ()
  p = MatMul (x, w)
  soft = Softmax <axis = -1> (p)
  first = Constant <value = int64[1] {0}> ()
  one = Constant <value = int64[1] {1}> ()
  heads = ReduceMax <keepdims = 0> (x, one)
  are = Greater (heads, half)
  found = NonZero (are)
  places = Squeeze (found, first)
  taken = Gather <axis = 0> (p, places)
  again = MatMul (taken, w)
  sure = Softmax <axis = -1> (again)
  rows = Add (sure, taken)
  high = Greater (rows, half)
  at = NonZero (high)
  sums = ReduceSum <keepdims = 0> (rows, one)
  zero = Sub (half, half)
  above = Greater (sums, zero)
  left = Compress <axis = 0> (rows, above)
  twice = MatMul (left, w)
  few = Tanh (twice)
  joined = MatMul (soft, w)
  total = ReduceSum <keepdims = 0> (joined)
}"""


def given(n: int, share: float, seed: int = 0) -> dict[str, np.ndarray]:
    """About this share of the rows is found."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 0.4, (n, 8)).astype(np.float32)
    x[rng.random(n) < share, 3] = 1
    return {"x": x, "w": rng.standard_normal((8, 8)).astype(np.float32)}


def expected(x: np.ndarray, w: np.ndarray) -> dict[str, np.ndarray]:
    def softmax(a: np.ndarray) -> np.ndarray:
        e = np.exp(a - a.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True)

    x, w = x.astype(np.float64), w.astype(np.float64)
    p = x @ w
    taken = p[x.max(1) > 0.5] if len(x) else p
    rows = softmax(taken @ w) + taken if len(taken) else taken
    soft = softmax(p) if len(p) else p
    few = np.tanh(rows[rows.sum(1) > 0] @ w)
    return {"soft": soft, "rows": rows, "at": np.array(np.nonzero(rows > 0.5)), "few": few, "total": (soft @ w).sum()}


def check(got: dict[str, np.ndarray], inputs: dict[str, np.ndarray]) -> None:
    for name, want in expected(**inputs).items():
        assert got[name].shape == want.shape, name
        np.testing.assert_allclose(got[name], want, rtol=2e-4, atol=2e-4, err_msg=name)


@pytest.fixture(scope="module", params=[{}, {"compile": False}, {"isa": "sse"}, {"every_value": True}],
                ids=["compiled", "evaluator", "sse", "every value"])
def session(request: pytest.FixtureRequest) -> tensorbox.Session:
    return tensorbox.Session(onnx.parser.parse_model(MODEL), **request.param)


SHAPES = [(40, 0.5), (40, 0.5), (40, 1), (40, 0), (40, 0.1), (3, 1), (0, 0), (200, 0.02), (1, 0), (1, 1), (40, 0.5), (2000, 0.7),
          (2000, 0.6), (5, 0.5)]


def test_counts_that_change_from_run_to_run(session: tensorbox.Session) -> None:
    """Also none at all, and more than ever before, and the same once more."""
    for seed, (n, share) in enumerate(SHAPES):
        inputs = given(n, share, seed)
        for _ in range(2):
            check(session.run(inputs), inputs)


def test_several_callers_with_other_counts(session: tensorbox.Session) -> None:
    def run(seed: int) -> None:
        n, share = SHAPES[seed % len(SHAPES)]
        inputs = given(n, share, seed)
        check(session.run(inputs), inputs)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(60)))


def test_outputs_into_memory_of_the_caller(session: tensorbox.Session) -> None:
    inputs = given(30, 0.5)
    want = session.run(inputs)
    out = {name: np.zeros_like(value) for name, value in want.items()}
    session.run(inputs, out=out)
    assert all(np.array_equal(out[name], value) for name, value in want.items())
    out["rows"] = np.zeros((31, 8), np.float32)
    with pytest.raises(tensorbox.ModelError, match="rows"):
        session.run(inputs, out=out)
    check(session.run(inputs), inputs)  # and a run that failed leaves nothing


def test_runs_that_are_bound(session: tensorbox.Session) -> None:
    """Memory that fits the counts of one run is written by all runs that find as much; a run that finds more says so."""
    inputs = given(30, 0.5)
    out = {name: np.full(value.shape, -1, value.dtype) for name, value in session.run(inputs).items()}
    bound = session.bind(inputs, out)
    rng = np.random.default_rng(1)
    for _ in range(3):
        inputs["x"][:] = rng.permutation(inputs["x"])
        check(bound.run(), inputs)
    kept = inputs["x"].copy()
    inputs["x"][:, 3] = 1
    with pytest.raises(tensorbox.ModelError, match=r"has shape .* in this run, and memory of shape"):
        bound.run()
    inputs["x"][:] = kept
    check(bound.run(), inputs)
    with pytest.raises(tensorbox.ModelError, match=r"'soft' has shape \[29, 8\], expected \[30, 8\]"):
        session.bind(inputs, out | {"soft": np.zeros((29, 8), np.float32)}).run()


def test_explain_says_what_runs_took() -> None:
    session = tensorbox.Session(onnx.parser.parse_model(MODEL), threads=1)

    def took() -> list[float]:
        return [float(found[1]) for kernel in session.explain() for line in kernel["decisions"]
                if (found := re.fullmatch(r"finds out sizes: runs so far took up to ([\d.]+) MB", line))]

    assert not took()
    session.run(given(100, 1))
    first = took()
    assert len(first) == 3 and len(set(first)) == 1  # a line at each step that finds
    assert first[0] * 1e6 >= 100 * 8 * 4 * 3  # soft, rows and few alone
    session.run(given(10, 1))
    assert took() == first
    session.run(given(1000, 1))
    assert took()[0] > 5 * first[0]


def test_a_package_computes_the_same(session: tensorbox.Session, tmp_path) -> None:
    session.save(tmp_path / "m.tbx")
    loaded = tensorbox.Session(tmp_path / "m.tbx")
    for seed, (n, share) in enumerate(SHAPES[:6]):
        check(loaded.run(given(n, share, seed)), given(n, share, seed))


def test_the_limit_of_memory_counts_what_is_found() -> None:
    """Runs that find little go on under a limit that others exceed; so do those that come after one that did."""
    n = 20_000
    least = n * 8 * 4 * 6  # p, soft and what is made of them
    session = tensorbox.Session(onnx.parser.parse_model(MODEL), max_memory=least)
    little, much = given(n, 0), given(n, 1)
    check(session.run(little), little)
    with pytest.raises(tensorbox.ModelError, match="limit|memory"):
        session.run(much)
    check(session.run(little), little)


def test_what_a_step_makes_counts_once_for_as_long_as_it_lives() -> None:
    """Each of many steps makes a mebibyte that the next one reads: never more than a few of them live."""
    count, steps = 1 << 17, 40
    body = "\n".join(f"  n{i} = NonZero (v{i})\n  f{i} = Cast <to = 1> (n{i})\n  s{i} = Squeeze (f{i}, first)\n  "
                     f"v{i + 1} = Add (s{i}, one)" for i in range(steps))
    text = f"""<ir_version: 9, opset_import: ["": 18]>
g (float[n] v0) => (float[m] v{steps}) {{
  first = Constant <value = int64[1] {{0}}> ()
  one = Constant <value = float {{1.0}}> ()
{body}
}}"""
    session = tensorbox.Session(onnx.parser.parse_model(text), max_memory=6 * 8 * count)
    for _ in range(3):
        got = session.run({"v0": np.ones(count, np.float32)})[f"v{steps}"]
        assert np.array_equal(got, np.arange(1, count + 1, dtype=np.float32))
    small = tensorbox.Session(onnx.parser.parse_model(text), max_memory=count * 8)
    with pytest.raises(tensorbox.ModelError, match="memory"):
        small.run({"v0": np.ones(count, np.float32)})


def test_every_value_shows_what_a_step_made() -> None:
    session = tensorbox.Session(onnx.parser.parse_model(MODEL), every_value=True)
    for share in (0.5, 0, 1):
        inputs = given(40, share)
        got = session.run(inputs)
        found = np.nonzero(inputs["x"].max(1) > 0.5)
        assert np.array_equal(got["found"], np.array(found)) and got["taken"].shape == (len(found[0]), 8)


@pytest.mark.parametrize("options", [{}, {"compile": False}, {"reference": True}])
def test_what_is_selected_of_found_rows_and_columns(options: dict) -> None:
    """A step whose result has a size that it finds itself beside one that an earlier step has found."""
    session = tensorbox.Session(onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 18]>
      g (float[n, m] x, bool[k] which) => (float[a, b] part, float[c, d] once) {
        rows = Unique <axis = 0> (x)
        part = Compress <axis = 1> (rows, which)
        once = Unique <axis = 1> (part)
      }"""), **options)
    rng = np.random.default_rng(0)
    for n, m in ((6, 5), (1, 1), (9, 17), (3, 4)):
        x = rng.integers(0, 2, (n, m)).astype(np.float32)
        for share in (0, 0.5, 1):
            which = rng.random(m) < share
            which[0] |= share > 0  # numpy finds nothing in columns of which there are none
            part = np.compress(which, np.unique(x, axis=0), axis=1)
            got = session.run({"x": x, "which": which})
            assert np.array_equal(got["part"], part) and got["part"].shape == part.shape
            once = np.unique(part, axis=1) if part.size else part
            assert np.array_equal(got["once"], once) and got["once"].shape == once.shape

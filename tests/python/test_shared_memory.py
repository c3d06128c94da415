"""Memory of the caller's for outputs that inputs, or other outputs, lie in as well."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

tensorbox = pytest.importorskip("tensorbox")

TURNED = """<ir_version: 8, opset_import: ["": 18]>
    g (float[n, n] x) => (float[n, n] turned, float[n, n] positive) {
      one = Constant<value = float {1}>()
      more = Add(x, one)
      turned = Transpose<perm = [1, 0]>(more)
      positive = Relu(x)
    }"""
BRANCHES = """<ir_version: 8, opset_import: ["": 18]>
    g (float[n, n] x, bool c) => (float[n, n] turned, float[n, n] positive) {
      turned = If (c) <then_branch = a () => (t) { t = Transpose<perm = [1, 0]>(x) }, else_branch = b () => (t) { t = Identity(x) }>
      positive = Relu(x)
    }"""
X = np.random.default_rng(3).standard_normal((33, 33)).astype(np.float32)


@pytest.fixture(scope="module", params=[False, True], ids=["evaluated", "compiled"])
def session(request: pytest.FixtureRequest) -> tensorbox.Session:
    return tensorbox.Session(parser.parse_model(TURNED), compile=request.param)


@pytest.mark.parametrize("name", ["turned", "positive"])
@pytest.mark.parametrize("shift", [0, 1, 500], ids=["all", "all but one", "a part"])
def test_an_output_over_the_input(session: tensorbox.Session, name: str, shift: int) -> None:
    memory = np.zeros(2 * X.size, np.float32)
    x, over = memory[:X.size].reshape(X.shape), memory[shift:X.size + shift].reshape(X.shape)
    x[...] = X
    other = {"turned": "positive", "positive": "turned"}[name]
    got = session.run({"x": x}, out={name: over, other: np.empty_like(X)})
    np.testing.assert_array_equal(got["turned"], X.T + 1)
    np.testing.assert_array_equal(got["positive"], np.maximum(X, 0))


def test_bound_runs_in_place(session: tensorbox.Session) -> None:
    x = X.copy()
    bound = session.bind({"x": x}, {"turned": x, "positive": np.empty_like(X)})
    for step in range(1, 4):
        bound.run()
        np.testing.assert_allclose(x, (X.T if step % 2 else X) + step, rtol=1e-6)


@pytest.mark.parametrize("shift", [0, 1, 500])
def test_outputs_over_each_other(session: tensorbox.Session, shift: int) -> None:
    memory = np.zeros(2 * X.size, np.float32)
    parts = [memory[at:X.size + at].reshape(X.shape) for at in (0, shift)]
    with pytest.raises(tensorbox.ModelError, match="outputs 'turned' and 'positive' are given the same memory"):
        session.run({"x": X}, out=dict(zip(["turned", "positive"], parts, strict=True)))


def test_outputs_beside_each_other(session: tensorbox.Session) -> None:
    memory = np.zeros(2 * X.size, np.float32)
    got = session.run({"x": X}, out={"turned": memory[:X.size].reshape(X.shape), "positive": memory[X.size:].reshape(X.shape)})
    np.testing.assert_array_equal(got["turned"], X.T + 1)
    empty = memory[:0].reshape(0, 0)
    assert session.run({"x": empty}, out={"turned": empty, "positive": empty})["turned"].shape == (0, 0)


@pytest.mark.parametrize("turns", [False, True])
def test_branches(turns: bool) -> None:
    x = X.copy()
    got = tensorbox.Session(parser.parse_model(BRANCHES), compile=False).run(
        {"x": x, "c": np.array(turns)}, out={"turned": np.empty_like(X), "positive": x})
    np.testing.assert_array_equal(got["turned"], X.T if turns else X)
    np.testing.assert_array_equal(got["positive"], np.maximum(X, 0))

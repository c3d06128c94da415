"""Memory of the caller's for outputs that inputs, or other outputs, lie in as well."""

from __future__ import annotations

import numpy as np
import onnx
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


UNKNOWN_RANK = """<ir_version: 8, opset_import: ["": 18]>
    g (float x) => (float positive, float same, float negative) {
      positive = Relu(x)
      same = Identity(x)
      negative = Neg(x)
    }"""


def unknown_rank() -> onnx.ModelProto:
    model = parser.parse_model(UNKNOWN_RANK)
    for info in (*model.graph.input, *model.graph.output):
        info.type.tensor_type.ClearField("shape")
    return model


@pytest.mark.parametrize("shift", [0, 1, 500])
def test_outputs_of_unknown_rank_over_each_other(shift: int) -> None:
    memory = np.zeros(2 * X.size, np.float32)
    parts = [memory[at:X.size + at].reshape(X.shape) for at in (0, shift)]
    session = tensorbox.Session(unknown_rank(), compile=False)
    out = {"positive": parts[0], "same": np.empty_like(X), "negative": parts[1]}
    with pytest.raises(tensorbox.ModelError, match="outputs 'positive' and 'negative' are given the same memory"):
        session.run({"x": X}, out=out)
    with pytest.raises(tensorbox.ModelError, match="outputs 'positive' and 'negative' are given the same memory"):
        session.bind({"x": X}, out).run()


@pytest.mark.parametrize("over", ["positive", "same", "negative"])
@pytest.mark.parametrize("shift", [0, 1, 500])
def test_outputs_of_unknown_rank_over_the_input(over: str, shift: int) -> None:
    """An input that is given out as it is lies where an earlier output goes."""
    session = tensorbox.Session(unknown_rank(), compile=False)
    for use in ("run", "bind"):
        memory = np.zeros(2 * X.size, np.float32)
        x = memory[:X.size].reshape(X.shape)
        x[...] = X
        out = {name: np.empty_like(X) for name in ("positive", "same", "negative")}
        out[over] = memory[shift:X.size + shift].reshape(X.shape)
        if use == "run":
            session.run({"x": x}, out=out)
        else:
            session.bind({"x": x}, out).run()
        for name, want in {"positive": np.maximum(X, 0), "same": X, "negative": -X}.items():
            np.testing.assert_array_equal(out[name], want, err_msg=name)


def test_an_input_that_is_given_out_is_the_callers_no_more() -> None:
    x = X.copy()
    got = tensorbox.Session(unknown_rank(), compile=False).run({"x": x})["same"]
    x[...] = 0
    np.testing.assert_array_equal(got, X)

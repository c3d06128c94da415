"""Integers at the ends of their type, as constants that could be sizes: the same as data, against numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper
from peers import model_of, tensorbox

LOW, HIGH = -(2**63), 2**63 - 1
A = np.array([0, LOW, HIGH, LOW, HIGH, -1, 2**31, -(2**31), LOW], np.int64)
B = np.array([LOW, LOW, LOW, HIGH, HIGH, LOW, 2**31, -(2**31), 2], np.int64)
UNARY: dict[str, Callable] = {
    "Neg": np.negative,
    "Abs": np.abs,
    "Sign": np.sign,
    "Identity": np.array,
}
BINARY: dict[str, Callable] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Min": np.minimum,
    "Max": np.maximum,
    "Equal": np.equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Greater": np.greater,
}


def check(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray], want: np.ndarray) -> None:
    """Every bit, with fixed and with dynamic sizes; float64, in which others compare, has too few."""
    wanted = {info.name for info in model.graph.input}
    for dynamic in (False, True):
        session = tensorbox.Session(model, compile=False, all_dims_dynamic=dynamic)
        got = session.run({name: value for name, value in inputs.items() if name in wanted})["y"]
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("op", UNARY)
def test_unary(op: str, constant: bool) -> None:
    model = model_of(op, {"x": A}, ["y"], 13, ["x"] * constant)
    with np.errstate(over="ignore"):
        check(model, {"x": A}, UNARY[op](A))


@pytest.mark.parametrize("constants", ["", "a", "b", "ab"])
@pytest.mark.parametrize("op", BINARY)
def test_binary(op: str, constants: str) -> None:
    model = model_of(op, {"a": A, "b": B}, ["y"], 13, list(constants))
    with np.errstate(over="ignore"):
        check(model, {"a": A, "b": B}, BINARY[op](A, B))


@pytest.mark.parametrize("constants", ["", "a", "b", "ab"])
@pytest.mark.parametrize("op", [*BINARY, "Div", "Mod", "Where"])
def test_unsigned_beyond_what_a_size_may_be(op: str, constants: str) -> None:
    """As 64 bits with a sign they are small numbers below 0."""
    a, b = np.array([1, 7, 2**64 - 5, 2**64 - 2, 3], np.uint64), np.array([2**64 - 2, 2**64 - 1, 2**64 - 3, 5, 2], np.uint64)
    for x, y in ((a, b), (b, a), (a, b[:1]), (a[:1], b)):
        inputs, functions = {"a": x, "b": y}, {**BINARY, "Div": np.floor_divide, "Mod": np.mod, "Where": np.maximum}
        if op == "Where":
            inputs = {"c": np.broadcast_to(x > y, np.broadcast_shapes(x.shape, y.shape)).copy(), **inputs}
        with np.errstate(over="ignore"):
            check(model_of(op, inputs, ["y"], 13, list(constants)), inputs, functions[op](x, y))


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin", "ReduceSum"])
def test_unsigned_reduced(op: str, constant: bool) -> None:
    x = np.array([[2**64 - 5, 3], [2**64 - 2, 2**64 - 4], [1, 7]], np.uint64)
    function = {"ReduceMax": np.max, "ReduceMin": np.min, "ReduceSum": np.sum}[op]
    check(model_of(op, {"x": x, "axes": np.array([0])}, ["y"], 18, ["x", "axes"] if constant else ["axes"], keepdims=0), {"x": x}, function(x, axis=0))


@pytest.mark.parametrize("low", [0, 9])
def test_sizes_as_unsigned_numbers(low: int) -> None:
    """A difference of sizes that is below 0 wraps, where the sizes are those of a run, too."""
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
      g (float[n] x, float[m] z) => (uint64[a] apart, bool[b] more, double[c] wide) <uint64[1] low = {{{low}}}> {{
        i = Shape (x) j = Shape (z)
        u = Cast <to = 13> (i) v = Cast <to = 13> (j)
        apart = Sub (u, v) more = Greater (apart, low) wide = Cast <to = 11> (apart)
      }}""")
    for dynamic in (False, True):
        session = tensorbox.Session(model, compile=False, all_dims_dynamic=dynamic)
        for n, m in ((5, 3), (3, 5), (4, 4), (0, 1)):
            apart = (n - m) % 2**64
            got = session.run({"x": np.ones(n, np.float32), "z": np.ones(m, np.float32)})
            assert got["apart"] == [np.uint64(apart)] and got["more"] == [apart > low] and got["wide"] == [float(apart)]


@pytest.mark.parametrize("constants", ["", "a", "b", "ab"])
def test_division(constants: str) -> None:
    a, b = np.array([LOW, HIGH, LOW, 7, -7], np.int64), np.array([3, -1, HIGH, LOW, 2], np.int64)
    want = np.array([-(2**63 // 3), -HIGH, -1, 0, -3], np.int64)
    check(model_of("Div", {"a": a, "b": b}, ["y"], 14, list(constants)), {"a": a, "b": b}, want)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("to", [np.bool_, np.int32, np.uint8, np.float64])
def test_cast(to: type, constant: bool) -> None:
    model = model_of("Cast", {"x": A}, ["y"], 13, ["x"] * constant, to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))
    check(model, {"x": A}, A.astype(to))


@pytest.mark.parametrize("start,limit,delta,want", [
    (5, -7, LOW, [5]), (5, 7, 5 - HIGH, []), (0, HIGH, HIGH, [0]), (HIGH - 3, HIGH, 2, [HIGH - 3, HIGH - 1]),
    (LOW + 3, LOW, -2, [LOW + 3, LOW + 1]),
])
@pytest.mark.parametrize("constant", [False, True])
def test_range(start: int, limit: int, delta: int, want: list[int], constant: bool) -> None:
    inputs = {name: np.array(v, np.int64) for name, v in (("start", start), ("limit", limit), ("delta", delta))}
    model = model_of("Range", inputs, ["y"], 11, list(inputs) if constant else [])
    check(model, inputs, np.array(want, np.int64))


def test_products() -> None:
    """Sums of products wrap."""
    a, b, c = A[:8].reshape(2, 4), B[:8].reshape(4, 2), A[4:8].reshape(2, 2)
    with np.errstate(over="ignore"):
        check(model_of("MatMul", {"a": a, "b": b}, ["y"], 13), {"a": a, "b": b}, a @ b)
        gemm = model_of("Gemm", {"a": a, "b": b, "c": c}, ["y"], 13, alpha=-3.0, beta=2.0)
        check(gemm, {"a": a, "b": b, "c": c}, (a @ b) * -3 + c * 2)


@pytest.mark.parametrize("alpha", [1.5, 1e30, np.nan])
def test_products_with_other_factors(alpha: float) -> None:
    inputs = {"a": A[:8].reshape(2, 4), "b": B[:8].reshape(4, 2)}
    with pytest.raises(tensorbox.ModelError, match="must be whole for integer operands"):
        tensorbox.Session(model_of("Gemm", inputs, ["y"], 13, alpha=alpha), compile=False)


def test_mean_of_large_unsigned_integers() -> None:
    """Sums of up to 2^64 - 1, which no signed integer holds."""
    x = np.array([[2**63, 4], [2**63 + 6, 2**63 - 8], [2**64 - 1, 0], [3, 4]], np.uint64)
    want = np.array([(int(a) + int(b)) // 2 for a, b in x], np.uint64)
    model = model_of("ReduceMean", {"x": x, "axes": np.array([1])}, ["y"], 18, ["axes"], keepdims=0)
    check(model, {"x": x}, want)

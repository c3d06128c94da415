"""Sizes and lists that a few nodes make long: as formulas of a plan they would take exponential memory."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable

import numpy as np
import onnx
import onnx.parser
import pytest

tensorbox = pytest.importorskip("tensorbox")

HEADER = '<ir_version: 10, opset_import: ["": 24]> '
CONSTANTS = "<int64[1] two = {2}, int64[1] three = {3}, int64[1] seven = {7}, int64[1] five = {5}>"


def model(inputs: str, nodes: str) -> onnx.ModelProto:
    """Its result is what the nodes make p, elements of a tensor of zeros."""
    return onnx.parser.parse_model(f"{HEADER} g ({inputs}) => (int64[1] y) {CONSTANTS} {{ {nodes} y = Identity(p) }}")


def product_of_sums(count: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray], int]:
    inputs = ", ".join(f"float[A{i}] a{i}, float[B{i}] b{i}" for i in range(count))
    nodes = "p0 = Identity(two) " + " ".join(
        f"c{i} = Concat<axis = 0>(a{i}, b{i}) s{i} = Shape(c{i}) p{i + 1} = Mul(p{i}, s{i})" for i in range(count))
    lengths = [(i % 2, (i + 1) % 2 + (i % 7 == 0)) for i in range(count)]
    feeds = {f"{name}{i}": np.zeros(n, np.float32) for i, pair in enumerate(lengths) for name, n in zip("ab", pair)}
    return model(inputs, f"{nodes} p = Identity(p{count})"), feeds, 2 * functools.reduce(operator.mul, map(sum, lengths))


def quotients_and_rests(count: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray], int]:
    nodes = " ".join(f"d{i} = Div(p{i}, three) m{i} = Mod(p{i}, seven) p{i + 1} = Add(d{i}, m{i})" for i in range(count))
    n = 1234
    for _ in range(count):
        n = n // 3 + n % 7
    return model("float[N] x", f"p0 = Shape(x) {nodes} p = Identity(p{count})"), {"x": np.zeros(1234, np.float32)}, n


def least_and_greatest(count: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray], int]:
    nodes = " ".join(f"e{i} = Div(p{i}, three) d{i} = Max(p{i}, q) m{i} = Min(e{i}, d{i}) p{i + 1} = Add(d{i}, m{i})"
                     for i in range(count))
    n, q = 2, 5
    for _ in range(count):
        n = max(n, q) + min(n // 3, max(n, q))
    return (model("float[N] x, float[M] z", f"p0 = Shape(x) q = Shape(z) {nodes} p = Identity(p{count})"),
            {"x": np.zeros(2, np.float32), "z": np.zeros(5, np.float32)}, n)


def continued_fraction(count: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray], int]:
    """Each number waits for the divisor behind it."""
    nodes = " ".join(f"d{i} = Div(s, p{i}) p{i + 1} = Add(d{i}, five)" for i in range(count))
    n = 1007
    for _ in range(count):
        n = 1000 // n + 5
    return model("float[N] x", f"s = Shape(x) p0 = Add(s, seven) {nodes} p = Identity(p{count})"), {"x": np.zeros(1000, np.float32)}, n


@pytest.mark.parametrize("count", [1, 7, 30, 60])
@pytest.mark.parametrize("made", [product_of_sums, quotients_and_rests, least_and_greatest, continued_fraction])
def test_sizes_of_many_operations(made: Callable[[int], tuple[onnx.ModelProto, dict[str, np.ndarray], int]], count: int) -> None:
    m, feeds, expected = made(count)
    got = tensorbox.Session(m, compile=False, load_memory=64 << 20, load_time_limit_ms=60_000).run(feeds)["y"]
    np.testing.assert_array_equal(got, [expected])


@pytest.mark.parametrize("made", [product_of_sums, quotients_and_rests, least_and_greatest, continued_fraction])
def test_tensors_of_such_sizes(made: Callable[[int], tuple[onnx.ModelProto, dict[str, np.ndarray], int]]) -> None:
    """What a plan keeps of a buffer is the formula of its size."""
    m, feeds, expected = made(12 if made is least_and_greatest else 40)
    expected %= 1000
    m.graph.node.insert(len(m.graph.node) - 1, onnx.parser.parse_node('r = Mod(p, thousand)'))
    m.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1000]), "thousand"))
    m.graph.node[-1].CopyFrom(onnx.parser.parse_node("y = ConstantOfShape(r)"))
    m.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    m.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "L"
    got = tensorbox.Session(m, compile=False, load_memory=64 << 20, load_time_limit_ms=60_000).run(feeds)["y"]
    np.testing.assert_array_equal(got, np.zeros(expected, np.float32))


def insertions(count: int) -> onnx.ModelProto:
    nodes = " ".join(f"s{i + 1} = SequenceInsert(s{i}, x)" for i in range(count))
    return onnx.parser.parse_model(
        f"{HEADER} g (float[N] x) => (int64 y) {{ s0 = SequenceConstruct(x) {nodes} y = SequenceLength(s{count}) }}")


def test_lists_that_grow_count() -> None:
    """Each list is one of its own: some gigabytes."""
    feeds = {"x": np.zeros(3, np.float32)}
    assert tensorbox.Session(insertions(100), compile=False, load_memory=64 << 20).run(feeds)["y"] == 101
    with pytest.raises(tensorbox.ModelError, match=r"SequenceInsert, opset 24\).*raise load_memory"):
        tensorbox.Session(insertions(4000), compile=False, load_memory=64 << 20)

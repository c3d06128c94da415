"""Kernels that differ in factors alone are one kernel, on the fake device (or the GPU of the machine) against numpy in float64."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tensorbox

SIZE = 40


@pytest.fixture(autouse=True)
def _fake_device(monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.environ.get("TBX_TEST_GPU"):
        monkeypatch.setenv("TBX_FAKE_CUDA", "1")


def layers(factors: Sequence[tuple[str, float]], size: int | str = SIZE) -> bytes:
    """For each factor: softmax over the rows of x <operator> factor, and their transpose, which keeps layers apart."""
    nodes, constants, x = [], {}, "x"
    for i, (operator, factor) in enumerate(factors):
        constants[f"f{i}"] = np.float32(factor)
        nodes += [helper.make_node(operator, [x, f"f{i}"], [f"a{i}"]), helper.make_node("Softmax", [f"a{i}"], [f"s{i}"]),
                  helper.make_node("Transpose", [f"s{i}"], [f"t{i}"], perm=[1, 0])]
        x = f"t{i}"
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [size, size])],
                              [helper.make_tensor_value_info(x, TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()


def expected(x: np.ndarray, factors: Sequence[tuple[str, float]]) -> np.ndarray:
    y = x.astype(np.float64)
    if y.size == 0:
        return y
    for operator, factor in factors:
        of = {"Mul": np.multiply, "Add": np.add, "Sub": np.subtract, "Div": np.divide}[operator]
        a = of(y, np.float64(np.float32(factor)))
        e = np.exp(a - a.max(-1, keepdims=True))
        y = (e / e.sum(-1, keepdims=True)).T
    return y


def names(session: tensorbox.Session) -> list[str]:
    return re.findall(r'extern "C" __global__ .*?\b(k_\w+)\(', session.dump("cuda"))


# The first layer reads rows as they lie, the last one stores them so; those between are alike.
@pytest.mark.parametrize("factors", [
    [("Mul", 2.5), ("Mul", 30.0), ("Mul", 47.5), ("Mul", -20.25), ("Mul", 1e-3)],
    [("Div", 0.75), ("Div", 0.03), ("Div", 0.011), ("Div", -0.07), ("Div", 3.0)],
    [("Mul", 2.5), ("Mul", 0.0), ("Mul", 17.0), ("Mul", 19.0), ("Mul", 1.5)]])
@pytest.mark.parametrize("size", [SIZE, "n"])
def test_layers_with_factors_of_their_own_share_a_kernel(factors: list[tuple[str, float]], size: int | str) -> None:
    session = tensorbox.Session(layers(factors, size), device="cuda")
    assert len(set(names(session))) == 3
    apart = tensorbox.Session(layers(factors, size), device="cuda", disable_passes=["share_kernels"])
    assert len(set(names(apart))) == len(factors)
    for n in (SIZE,) if size == SIZE else (SIZE, 0, 1, 7, 129):
        x = np.random.default_rng(n).standard_normal((n, n)).astype(np.float32)
        for _ in range(3):  # the last one from a graph
            y, = session.run({"x": x}).values()
            np.testing.assert_allclose(y, expected(x, factors), rtol=2e-5, atol=1e-7)
        last_place = 3e-7 if factors[0][0] == "Div" else 0
        np.testing.assert_allclose(y, next(iter(apart.run({"x": x}).values())), rtol=last_place, atol=0)


def test_few_layers_stay_as_they_are() -> None:
    session = tensorbox.Session(layers([("Mul", 2.5), ("Mul", 30.0), ("Mul", 47.5), ("Mul", -1.5)]), device="cuda")
    assert len(set(names(session))) == 4

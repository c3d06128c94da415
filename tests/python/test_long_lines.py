"""Convolutions of long lines, as of sound: a new length costs no more than a few runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

tensorbox = pytest.importorskip("tensorbox")
WIDTH, DILATIONS = 8, (1, 3, 5)


def network(taps: int) -> tuple[object, list[np.ndarray]]:
    """Convolutions one after the other whose padding keeps the length; and their weights."""
    random = np.random.default_rng(1)
    weights = [random.normal(size=(WIDTH, WIDTH, taps)).astype(np.float32) / 8 for _ in DILATIONS]
    nodes = []
    for i, dilation in enumerate(DILATIONS):
        pad = dilation * (taps - 1) // 2
        nodes.append(
            helper.make_node("Conv", [f"x{i}", f"w{i}"], [f"x{i + 1}"], dilations=[dilation], pads=[pad, pad])
        )
    shape = [1, WIDTH, "length"]
    graph = helper.make_graph(
        nodes,
        "lines",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(f"x{len(DILATIONS)}", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), weights


def convolved(x: np.ndarray, weights: list[np.ndarray]) -> np.ndarray:
    """In float64, tap by tap."""
    y = x[0].astype(np.float64)
    for w, dilation in zip(weights, DILATIONS, strict=True):
        pad = dilation * (w.shape[2] - 1) // 2
        padded = np.pad(y, ((0, 0), (pad, pad)))
        y = sum(
            w[:, :, k].astype(np.float64) @ padded[:, k * dilation : k * dilation + x.shape[2]] for k in range(w.shape[2])
        )
    return y[None]


@pytest.mark.parametrize("length", [1, 13, 255, 257, 511, 5000, 24577])
@pytest.mark.parametrize("taps", [3, 11])
def test_values(taps: int, length: int) -> None:
    model, weights = network(taps)
    x = np.random.default_rng(length).normal(size=(1, WIDTH, length)).astype(np.float32)
    (got,) = tensorbox.Session(model, compile=False, threads=2).run({"x0": x}).values()
    want = convolved(x, weights)
    assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("length", [2**21, 2**21 + 3])
def test_a_line_that_the_library_is_not_asked_for(length: int, dynamic: bool) -> None:
    """It would look for the length of parts for seconds. What comes behind the convolution is computed as well."""
    random = np.random.default_rng(3)
    x = random.normal(size=(1, 2, length)).astype(np.float32)
    w, bias = random.normal(size=(3, 2, 4)).astype(np.float32), random.normal(size=3).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w", "bias"], ["sum"], strides=[2], pads=[1, 2]),
        helper.make_node("Relu", ["sum"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "line",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, "length" if dynamic else length])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(bias, "bias")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    got = tensorbox.Session(model, compile=False, threads=2).run({"x": x})["y"]
    padded = np.pad(x[0].astype(np.float64), ((0, 0), (1, 2)))
    results = (length + 3 - 4) // 2 + 1
    want = bias[:, None] + sum(w[:, :, k].astype(np.float64) @ padded[:, k : k + 2 * results - 1 : 2] for k in range(4))
    want = np.maximum(want, 0)[None]
    assert got.shape == want.shape and np.abs(got - want).max() <= 1e-5 * np.abs(want).max()


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_memory_of_a_new_length() -> None:
    model, _ = network(11)
    session = tensorbox.Session(model, compile=False, threads=2)
    session.run({"x0": np.zeros((1, WIDTH, 24001), np.float32)})
    before = resident()
    for length in (23001, 22001, 21001, 20001):  # smaller ones find room where the first one was
        session.run({"x0": np.zeros((1, WIDTH, length), np.float32)})
    assert resident() - before < 16 << 20

"""Recurrent layers on device="cuda": the fake device here, a GPU with TBX_TEST_GPU=1, where they are kernels of ours. All
results of a layer together, held against plain loops in float64."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tensorbox

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
ON_A_GPU = bool(os.environ.get("TBX_TEST_GPU"))


@pytest.fixture(autouse=True)
def _fake_device(monkeypatch: pytest.MonkeyPatch) -> None:
    if not ON_A_GPU:
        monkeypatch.setenv("TBX_FAKE_CUDA", "1")


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def step(op: str, linear: bool, x: np.ndarray, h: np.ndarray, c: np.ndarray, r: np.ndarray, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`x`: the gates' products with the input and its bias; `own`: the recurrent bias."""
    if op == "RNN":
        return np.tanh(x + r @ h + own), c
    if op == "LSTM":
        i, o, f, g = np.split(x + r @ h + own, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c
    xz, xr, xh = np.split(x, 3)
    rz, rr, rh = np.split(r, 3)
    bz, br, bh = np.split(own, 3)
    z, reset = sigmoid(xz + rz @ h + bz), sigmoid(xr + rr @ h + br)
    candidate = np.tanh(xh + (reset * (rh @ h + bh) if linear else rh @ (reset * h) + bh))
    return (1 - z) * candidate + z * h, c


def plain(op: str, linear: bool, feeds: dict[str, np.ndarray], lengths: list[int], directions: int) -> list[np.ndarray]:
    x, w, r, b, h0, c0 = (feeds[k].astype("d") for k in ("x", "w", "r", "b", "h0", "c0"))
    steps, batch, hidden = x.shape[0], x.shape[1], r.shape[2]
    y, h, c = np.zeros((steps, directions, batch, hidden)), h0.copy(), c0.copy()
    rows = r.shape[1]
    for d in range(directions):
        for k in range(batch):
            order = range(lengths[k]) if d == 0 else reversed(range(lengths[k]))
            for t in order:
                h[d, k], c[d, k] = step(op, linear, w[d] @ x[t, k] + b[d, :rows], h[d, k], c[d, k], r[d], b[d, rows:])
                y[t, d, k] = h[d, k]
    return [y, h, c] if op == "LSTM" else [y, h]


def layer(op: str, dtype: str, steps: int, batch: int, hidden: int, lengths: list[int] | None, constant_lengths: bool,
          **attributes: Any) -> tuple[onnx.ModelProto, dict[str, np.ndarray], dict[str, np.ndarray]]:
    rng, size, directions = np.random.default_rng(7), 6, 2 if attributes.get("direction") == "bidirectional" else 1
    gates = GATES[op] * hidden
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    weights = {"w": rng.standard_normal((directions, gates, size)) * 0.4, "r": rng.standard_normal((directions, gates, hidden)) / hidden**0.5,
               "b": rng.standard_normal((directions, 2 * gates)) * 0.3}
    given = {"x": rng.standard_normal((steps, batch, size)), "h0": rng.standard_normal((directions, batch, hidden)) * 0.5,
             "c0": rng.standard_normal((directions, batch, hidden)) * 0.5}
    weights = {k: v.astype(dtype) for k, v in weights.items()}
    given = {k: v.astype(dtype) for k, v in given.items()}
    inputs = [helper.make_tensor_value_info(k, kind, v.shape) for k, v in given.items() if k != "c0" or op == "LSTM"]
    fixed = dict(weights)
    feeds = {i.name: given[i.name] for i in inputs}
    if lengths is not None:
        n = np.asarray(lengths, "int32")
        if constant_lengths:
            fixed["n"] = n
        else:
            inputs.append(helper.make_tensor_value_info("n", TensorProto.INT32, n.shape))
            feeds["n"] = n
    outputs = ["y", "h"] + (["c"] if op == "LSTM" else [])
    node = helper.make_node(op, ["x", "w", "r", "b", "n" if lengths is not None else "", "h0"] + (["c0"] if op == "LSTM" else []), outputs,
                            hidden_size=hidden, **attributes)
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info(o, kind, None) for o in outputs],
                              [onnx.numpy_helper.from_array(v, k) for k, v in fixed.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return model, feeds, weights | given


CASES = [("LSTM", {}), ("LSTM", {"direction": "bidirectional"}), ("GRU", {"direction": "bidirectional"}),
         ("GRU", {"direction": "bidirectional", "linear_before_reset": 1}), ("RNN", {"direction": "bidirectional"})]
SIZES = [(4, 3, 8), (2, 1, 5)] + ([(100, 1, 256), (30, 20, 96), (12, 3, 130), (6, 2, 600)] if ON_A_GPU else [])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("steps, batch, hidden", SIZES)
@pytest.mark.parametrize("op, attributes", CASES)
def test_all_results(op: str, attributes: dict[str, Any], steps: int, batch: int, hidden: int, dtype: str) -> None:
    lengths = [steps - k % steps for k in range(batch)]
    model, feeds, values = layer(op, dtype, steps, batch, hidden, lengths, True, **attributes)
    session = tensorbox.Session(model, device="cuda")
    assert {kernel["device"] for kernel in session.explain()} == {"cuda"}
    expected = plain(op, bool(attributes.get("linear_before_reset")), values, lengths, values["r"].shape[0])
    for _ in range(3):  # the second run records, the third starts what was recorded
        for name, want in zip(["y", "h", "c"], expected):
            exact = dtype == "float32"
            np.testing.assert_allclose(session.run(feeds)[name].astype("d"), want, rtol=1e-4 if exact else 5e-3, atol=1e-5 if exact else 5e-3)


def test_lengths_that_are_computed_are_checked_by_the_host() -> None:
    model, feeds, values = layer("LSTM", "float32", 4, 3, 8, [4, 1, 0], False)
    session = tensorbox.Session(model, device="cuda")
    expected = plain("LSTM", False, values, [4, 1, 0], 1)
    np.testing.assert_allclose(session.run(feeds)["y"], expected[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(tensorbox.ModelError, match=r"sequence_lens\[1\] is 5, the input has 4 steps"):
        session.run(feeds | {"n": np.asarray([4, 5, 0], "int32")})
    assert any("lengths of sequences that are no constants" in d for k in session.explain() for d in k["decisions"])


def test_constant_lengths_that_are_too_long_are_an_error() -> None:
    model, feeds, _ = layer("GRU", "float32", 4, 3, 8, [4, 5, 0], True)
    with pytest.raises(tensorbox.ModelError, match=r"sequence_lens.* 5, the input has 4 steps"):
        tensorbox.Session(model, device="cuda").run(feeds)

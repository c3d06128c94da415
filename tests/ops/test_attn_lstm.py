"""com.microsoft AttnLSTM against numpy and ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from peers import expected, tensorbox

Array = np.ndarray
STEPS, BATCH, WIDTH, HIDDEN, MEMORY, DEPTH, ATTENTION = 5, 3, 4, 6, 7, 3, 5
NAMES = ["X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P", "QW", "MW", "V", "M", "memory_seq_lens", "AW"]


def make_inputs(directions: int = 1, layer: int = 8, without: tuple[str, ...] = (), dtype: type = np.float32) -> dict[str, Array]:
    rng = np.random.default_rng(directions + layer)

    def f(*shape: int) -> Array:
        return (rng.standard_normal(shape) * 0.6).astype(dtype)

    attended = layer or DEPTH
    inputs = {"X": f(STEPS, BATCH, WIDTH), "W": f(directions, 4 * HIDDEN, WIDTH + attended),
              "R": f(directions, 4 * HIDDEN, HIDDEN), "B": f(directions, 8 * HIDDEN),
              "sequence_lens": np.array([5, 2, 4], np.int32), "initial_h": f(directions, BATCH, HIDDEN),
              "initial_c": f(directions, BATCH, HIDDEN), "P": f(directions, 3 * HIDDEN),
              "QW": f(directions, HIDDEN, ATTENTION), "MW": f(directions, DEPTH, ATTENTION),
              "V": f(directions, ATTENTION), "M": f(BATCH, MEMORY, DEPTH),
              "memory_seq_lens": np.array([7, 3, 1], np.int32)}
    if layer:
        inputs["AW"] = f(directions, DEPTH + HIDDEN, layer)
    return {name: value for name, value in inputs.items() if name not in without}


def model_of(inputs: dict[str, Array], fixed: bool = True, **attributes: Any) -> onnx.ModelProto:
    names = [name if name in inputs else "" for name in NAMES]
    while not names[-1]:
        names.pop()
    outputs = ["Y", "Y_h", "Y_c"]
    node = helper.make_node("AttnLSTM", names, outputs, name="lstm", domain="com.microsoft", hidden_size=HIDDEN, **attributes)
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype),
                                           v.shape if fixed else [f"{n}{i}" for i in range(v.ndim)])
             for n, v in inputs.items()]
    kind = helper.np_dtype_to_tensor_dtype(inputs["X"].dtype)
    results = [helper.make_tensor_value_info(n, kind, [None] * (4 if n == "Y" else 3)) for n in outputs]
    graph = helper.make_graph([node], "attn_lstm", infos, results)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def reference(inputs: dict[str, Array], direction: str) -> list[Array]:
    x, memory = inputs["X"], inputs["M"]
    lengths = inputs.get("sequence_lens", np.full(BATCH, STEPS))
    ends = inputs.get("memory_seq_lens", np.full(BATCH, MEMORY))
    directions = 2 if direction == "bidirectional" else 1
    y = np.zeros((STEPS, directions, BATCH, HIDDEN))
    y_h, y_c = np.zeros((2, directions, BATCH, HIDDEN))
    for d in range(directions):
        w, r, qw, mw, v = (inputs[n][d] for n in ("W", "R", "QW", "MW", "V"))
        bias = inputs["B"][d].reshape(2, -1).sum(0) if "B" in inputs else np.zeros(4 * HIDDEN)
        pi, po, pf = inputs["P"][d].reshape(3, -1) if "P" in inputs else np.zeros((3, HIDDEN))
        for b in range(BATCH):
            h, c = (inputs[n][d, b] if n in inputs else np.zeros(HIDDEN) for n in ("initial_h", "initial_c"))
            seen = np.zeros(w.shape[1] - WIDTH)
            times = range(lengths[b])
            for t in reversed(times) if direction == "reverse" or d == 1 else times:
                i, o, f, g = (w @ np.concatenate([x[t, b], seen]) + r @ h + bias).reshape(4, -1)
                i, f = sigmoid(i + pi * c), sigmoid(f + pf * c)
                c = f * c + i * np.tanh(g)
                h = sigmoid(o + po * c) * np.tanh(c)
                y[t, d, b] = h
                known = memory[b, : ends[b]]
                p = np.exp(np.tanh(known @ mw + h @ qw) @ v)
                context = p / p.sum() @ known
                seen = np.concatenate([h, context]) @ inputs["AW"][d] if "AW" in inputs else context
            y_h[d, b], y_c[d, b] = h, c
    return [y, y_h, y_c]


FORMS: dict[str, dict[str, Any]] = {
    "all": {},
    "no_layer": {"layer": 0},
    "no_lengths": {"without": ("sequence_lens", "memory_seq_lens")},
    "least": {"without": ("B", "sequence_lens", "initial_h", "initial_c", "P", "memory_seq_lens")},
    "double": {"dtype": np.float64},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_attn_lstm(form: str, direction: str) -> None:
    inputs = make_inputs(2 if direction == "bidirectional" else 1, **FORMS[form])
    want = reference(inputs, direction)
    for fixed in (True, False):
        session = tensorbox.Session(model_of(inputs, fixed, direction=direction), compile=False)
        for have, right in zip(session.run(inputs).values(), want, strict=True):
            np.testing.assert_allclose(have, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("options", [{}, {"clip": 0.4}, {"input_forget": 1}, {
    "activations": ["HardSigmoid", "Tanh", "ScaledTanh"], "activation_alpha": [0.3, 0.8], "activation_beta": [0.4, 1.1]}])
def test_as_onnxruntime(direction: str, options: dict[str, Any]) -> None:
    directions = 2 if direction == "bidirectional" else 1
    inputs = make_inputs(directions)
    options = {name: value * directions if isinstance(value, list) else value for name, value in options.items()}
    model = model_of(inputs, direction=direction, **options)
    want = expected(model, inputs, "ort")
    for have, right in zip(tensorbox.Session(model, compile=False).run(inputs).values(), want, strict=True):
        np.testing.assert_allclose(have, right, rtol=1e-4, atol=1e-5)


def test_compiled() -> None:
    inputs = make_inputs(2)
    session = tensorbox.Session(model_of(inputs, False, direction="bidirectional"))
    for have, right in zip(session.run(inputs).values(), reference(inputs, "bidirectional"), strict=True):
        np.testing.assert_allclose(have, right, rtol=1e-4, atol=1e-5)


def test_bad_models() -> None:
    inputs = make_inputs()
    with pytest.raises(tensorbox.ModelError, match="unknown direction 'sideways'"):
        tensorbox.Session(model_of(inputs, direction="sideways"), compile=False)
    with pytest.raises(tensorbox.ModelError, match="4 activations, expected 3"):
        tensorbox.Session(model_of(inputs, activations=["Tanh"] * 4), compile=False)
    del inputs["QW"]
    with pytest.raises(tensorbox.ModelError, match=r"input 8 \('QW'\) is missing") as error:
        tensorbox.Session(model_of(inputs), compile=False)
    assert "node 'lstm' (com.microsoft.AttnLSTM" in str(error.value)

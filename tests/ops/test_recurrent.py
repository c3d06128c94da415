"""LSTM, GRU and RNN on random shapes, attributes and optional inputs."""

from __future__ import annotations

import numpy as np
import pytest
from peers import compare, model_of, tensorbox

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
ACTIVATIONS = ["Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu",
               "Softsign", "Softplus"]
BOUNDED = ["Tanh", "Sigmoid", "HardSigmoid", "Softsign"]  # gates: others grow without limit
WITH_ALPHA = {"Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu"}
WITH_BETA = {"Affine", "ScaledTanh", "HardSigmoid"}


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("op", GATES)
def test_against_onnxruntime(op: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    direction = ["forward", "reverse", "bidirectional"][seed % 3]
    directions = 2 if direction == "bidirectional" else 1
    steps, batch, width, hidden = (int(rng.integers(1, high)) for high in (7, 20, 9, 40))
    gates = GATES[op]
    attributes: dict = {"direction": direction, "hidden_size": hidden}

    def random(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / 2).astype(np.float32)

    def perhaps(value: np.ndarray) -> np.ndarray | None:
        return value if rng.random() < 0.6 else None

    inputs = {
        "X": random(steps, batch, width), "W": random(directions, gates * hidden, width),
        "R": random(directions, gates * hidden, hidden), "B": perhaps(random(directions, 2 * gates * hidden)),
        "sequence_lens": perhaps(rng.integers(1, steps + 1, batch).astype(np.int32)),
        "initial_h": perhaps(random(directions, batch, hidden)),
    }
    outputs = ["Y", "Y_h"]
    if op == "LSTM":
        inputs["initial_c"] = perhaps(random(directions, batch, hidden))
        inputs["P"] = perhaps(random(directions, 3 * hidden))
        attributes["input_forget"] = int(rng.random() < 0.2)
        outputs.append("Y_c")
    if op == "GRU":
        attributes["linear_before_reset"] = int(rng.integers(2))
    if rng.random() < 0.3:
        attributes["clip"] = float(rng.uniform(0.2, 1))
    if rng.random() < 0.4:
        count = {"LSTM": 3, "GRU": 2, "RNN": 1}[op]
        names = [str(rng.choice(BOUNDED if k % count == 0 else ACTIVATIONS)) for k in range(directions * count)]
        attributes["activations"] = names
        # ONNX Runtime takes 0 for a parameter that is left out, ONNX the default of the operator.
        attributes["activation_alpha"] = [float(rng.uniform(0.1, 0.9)) for name in names if name in WITH_ALPHA] or None
        attributes["activation_beta"] = [float(rng.uniform(0.1, 0.9)) for name in names if name in WITH_BETA] or None
    constants = ["W", "R", "B"] if rng.random() < 0.7 else []
    model = model_of(op, inputs, outputs, int(rng.choice([7, 14])), constants, **attributes)
    compare(model, inputs, rtol=2e-4, atol=2e-5, engine="ort")


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("dtype", ["float16", "float64", "bfloat16"])
def test_batch_first_and_types(op: str, dtype: str) -> None:
    """Layout 1 in another type gives what layout 0 gives in f32."""
    element = getattr(pytest.importorskip("ml_dtypes"), dtype) if dtype == "bfloat16" else np.dtype(dtype).type
    rng = np.random.default_rng(5)
    steps, batch, width, hidden = 5, 3, 4, 18
    x, w = rng.standard_normal((steps, batch, width)) / 2, rng.standard_normal((2, GATES[op] * hidden, width)) / 4
    r, h = rng.standard_normal((2, GATES[op] * hidden, hidden)) / 4, rng.standard_normal((2, batch, hidden)) / 2
    lengths = np.array([5, 0, 3], np.int32)
    results = []
    for layout, cast in ((0, np.float32), (1, element)):
        order = (1, 0, 2) if layout else (0, 1, 2)
        values = {"X": x.transpose(order), "W": w, "R": r, "B": None, "sequence_lens": lengths, "h": h.transpose(order)}
        # The narrow type's values for both.
        inputs = {name: v if v is None or v.dtype == np.int32 else v.astype(element).astype(cast)
                  for name, v in values.items()}
        model = model_of(op, inputs, ["Y", "Y_h"], 22, ["W", "R"], hidden_size=hidden, direction="bidirectional",
                         layout=layout)
        results.append(tensorbox.Session(model, compile=False).run(
            {name: v for name, v in inputs.items() if v is not None and name not in ("W", "R")}))
    tolerance = {"float16": 2e-3, "bfloat16": 2e-2, "float64": 1e-5}[dtype]
    for name, order in (("Y", (1, 2, 0, 3)), ("Y_h", (1, 0, 2))):
        got = results[1][name].astype(np.float64).transpose(order)
        np.testing.assert_allclose(got, results[0][name], tolerance, tolerance)

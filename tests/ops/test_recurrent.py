"""LSTM, GRU and RNN on random shapes, attributes and optional inputs."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from peers import compare, expected, model_of, tensorbox

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


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_two_activations_for_one_direction(direction: str) -> None:
    """As ONNX Runtime saves each RNN: ONNX's default names two, of which one direction takes the first."""
    rng = np.random.default_rng(5)
    inputs = {name: rng.standard_normal(shape).astype(np.float32) / 2
              for name, shape in (("X", (4, 3, 5)), ("W", (1, 6, 5)), ("R", (1, 6, 6)))}
    model = model_of("RNN", inputs, ["Y"], 14, ["W", "R"], hidden_size=6, direction=direction, activations=["Relu", "Tanh"])
    compare(model, inputs, rtol=2e-5, atol=2e-6, engine="ort")


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("constant", ["W", "R"])
@pytest.mark.parametrize("named", [True, False])
def test_one_constant_of_two_weights(op: str, constant: str, named: bool) -> None:
    """The other one, of which only a run knows the sizes, says nothing of the constant's."""
    rng = np.random.default_rng(8)
    steps, batch, width, hidden = 4, 3, 5, 6
    inputs = {name: rng.standard_normal(shape).astype(np.float32) / 2 for name, shape in (
        ("X", (steps, batch, width)), ("W", (1, GATES[op] * hidden, width)), ("R", (1, GATES[op] * hidden, hidden)))}
    attributes = {"hidden_size": hidden} if named else {}
    model = model_of(op, inputs, ["Y"], 14, [constant], **attributes)
    want = None if named else expected(model_of(op, inputs, ["Y"], 14, [constant], hidden_size=hidden),
                                       {name: v for name, v in inputs.items() if name != constant}, "ort")
    compare(model, inputs, rtol=2e-4, atol=2e-5, engine="ort", want=want)
    other = "R" if constant == "W" else "W"
    session = tensorbox.Session(model, compile=False, all_dims_dynamic=True)
    for wrong in (inputs[other][:, :-1], inputs[other][..., :-1]):
        with pytest.raises(tensorbox.ModelError, match="wrong size|has size"):
            session.run({"X": inputs["X"], other: wrong})


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


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def layer_in_double(op: str, x: np.ndarray, w: np.ndarray, r: np.ndarray, b: np.ndarray, linear: bool, state: object) -> np.ndarray:
    """Y of one direction by plain loops; `state` is what the weights multiply of a state."""
    hidden = r.shape[1]
    h, c, y = np.zeros((x.shape[1], hidden)), np.zeros((x.shape[1], hidden)), []
    wb, rb = b[: len(w)], b[len(w):]
    for step in x:
        own, kept = step @ w.T + wb, state(h) @ r.T + rb
        if op == "RNN":
            h = np.tanh(own + kept)
        elif op == "LSTM":
            i, o, f, g = np.split(own + kept, 4, 1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        else:
            z, reset = np.split(sigmoid((own + kept)[:, : 2 * hidden]), 2, 1)
            new = reset * kept[:, 2 * hidden:] if linear else state(reset * h) @ r[2 * hidden:].T + rb[2 * hidden:]
            h = (1 - z) * np.tanh(own[:, 2 * hidden:] + new) + z * h
        y.append(h)
    return np.array(y)


LAYERS = [("LSTM", 0), ("GRU", 0), ("GRU", 1), ("RNN", 0)]


def weights_of(op: str, rng: np.random.Generator, width: int, hidden: int) -> tuple[np.ndarray, ...]:
    rows = GATES[op] * hidden
    w, r = ((rng.standard_normal((2, rows, n)) / np.sqrt(n)).astype(np.float32) for n in (width, hidden))
    return w, r, rng.standard_normal((2, 2 * rows)).astype(np.float32) / 4


def both_directions(op: str, x: np.ndarray, w: np.ndarray, r: np.ndarray, b: np.ndarray, linear: int, state: object) -> np.ndarray:
    want = np.zeros((len(x), 2, x.shape[1], r.shape[2]))
    for d in range(2):
        turn = slice(None, None, -1) if d else slice(None)
        y = layer_in_double(op, x[turn], w[d], r[d], b[d].astype(np.float64), bool(linear), state)
        want[turn, d] = y.reshape(want[:, d].shape)
    return want


@pytest.mark.parametrize("hidden", [96, 250])
@pytest.mark.parametrize(("op", "linear"), LAYERS)
def test_blocks_of_rows(op: str, linear: int, hidden: int) -> None:
    """As many rows as there are to a block, for several threads, by plain loops in double."""
    rng = np.random.default_rng(hidden)
    w, r, b = weights_of(op, rng, 8, hidden)
    attributes = {"linear_before_reset": linear} if op == "GRU" else {}
    for batch in (1, 2, 3, 5, 6, 7, 19, 34):
        x = rng.standard_normal((max(2, 60 // batch), batch, 8)).astype(np.float32)
        inputs = {"X": x, "W": w, "R": r, "B": b}
        model = model_of(op, inputs, ["Y"], 14, ["W", "R", "B"], hidden_size=hidden, direction="bidirectional", **attributes)
        want = both_directions(op, x.astype(np.float64), w.astype(np.float64), r.astype(np.float64), b, linear, lambda h: h)
        for threads in (1, 2, 4):
            got = next(iter(tensorbox.Session(model, compile=False, threads=threads).run({"X": x}).values()))
            np.testing.assert_allclose(got, want, 0, 2e-5)


@pytest.mark.parametrize("hidden", [1, 15, 64, 97, 520])
@pytest.mark.parametrize(("op", "linear"), LAYERS)
def test_weights_in_bfloat16(op: str, linear: int, hidden: int) -> None:
    """With precision bf16 weights, inputs and states are rounded before they multiply each other, nothing else is."""
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    rng = np.random.default_rng(hidden)
    attributes = {"linear_before_reset": linear} if op == "GRU" else {}
    # Without vectors that multiply pairs the rounded weights are widened, and states stay as they are.
    rounds = os.environ.get("TBX_ISA", "avx512") == "avx512"

    def rounded(v: np.ndarray) -> np.ndarray:
        return v.astype(np.float32).astype(bfloat16).astype(np.float64)

    w, r, b = weights_of(op, rng, 9, hidden)
    for steps, batch in ((0, 2), (1, 1), (7, 1), (5, 3), (3, 21)):
        x = rng.standard_normal((steps, batch, 9)).astype(np.float32)
        inputs = {"X": x, "W": w, "R": r, "B": b}
        model = model_of(op, inputs, ["Y"], 14, ["W", "R", "B"], hidden_size=hidden, direction="bidirectional", **attributes)
        notes: list[str] = []
        session = tensorbox.Session(model, compile=False, precision="bf16", threads=2, log=notes.append)
        if any("and nothing else" in n for n in notes):
            pytest.skip("this CPU multiplies float32 faster than bfloat16")
        assert "bfloat16" in session.dump("plan")
        got = next(iter(session.run({"X": x}).values()))
        want = both_directions(op, rounded(x), rounded(w), rounded(r), b, linear, rounded if rounds else lambda h: h)
        # A state in the middle of two bfloat16 goes to either.
        np.testing.assert_allclose(got, want, 0, 4e-3)
        assert np.abs(got - want).mean() < 1e-4 if steps else got.shape == want.shape


MODES = [{"compile": False}, {"compile": True}, {"reference": True}]


@pytest.mark.parametrize("mode", MODES, ids=["evaluated", "compiled", "reference"])
@pytest.mark.parametrize(("op", "linear"), LAYERS)
def test_lengths_of_sequences(op: str, linear: int, mode: dict) -> None:
    """Of 0 to all steps they count by row, in both directions; others are refused, before anything is read by them."""
    rng = np.random.default_rng(3)
    steps, batch, hidden = 3, 4, 17
    w, r, b = weights_of(op, rng, 8, hidden)
    attributes = {"linear_before_reset": linear} if op == "GRU" else {}
    x = rng.standard_normal((steps, batch, 8)).astype(np.float32)
    good = np.array([0, 1, steps, 2], np.int32)
    inputs = {"X": x, "W": w, "R": r, "B": b, "sequence_lens": good}
    model = model_of(op, inputs, ["Y", "Y_h"], 14, ["W", "R", "B"], hidden_size=hidden, direction="bidirectional", **attributes)
    session = tensorbox.Session(model, all_dims_dynamic=True, **mode)
    got = session.run({"X": x, "sequence_lens": good})
    for row, length in enumerate(good):
        wide = (v.astype(np.float64) for v in (x[:length, row:row + 1], w, r))
        want = np.zeros((steps, 2, hidden))
        want[:length] = both_directions(op, *wide, b, linear, lambda h: h)[:, :, 0]
        np.testing.assert_allclose(got["Y"][:, :, row], want, 0, 2e-5)
        last = [want[length - 1, 0], want[0, 1]] if length else np.zeros((2, hidden))
        np.testing.assert_allclose(got["Y_h"][:, row], last, 0, 2e-5)
    for bad in (-1, steps + 1, -2**31, 2**31 - 1):
        for row in range(batch):
            lengths = good.copy()
            lengths[row] = bad
            with pytest.raises(tensorbox.ModelError, match=rf"sequence_lens.* {bad}, the input has {steps} steps"):
                session.run({"X": x, "sequence_lens": lengths})
    constant = model_of(op, inputs | {"sequence_lens": np.array([1, 4, 0, 2], np.int32)}, ["Y"], 14,
                        ["W", "R", "B", "sequence_lens"], hidden_size=hidden, direction="bidirectional", **attributes)
    with pytest.raises(tensorbox.ModelError, match="sequence_lens.* 4, the input has 3 steps"):
        tensorbox.Session(constant, **mode).run({"X": x})


@pytest.mark.parametrize("isa", ["sse", "avx2"])
def test_other_instruction_sets(isa: str) -> None:
    chosen = [f"{__file__}::test_blocks_of_rows", f"{__file__}::test_weights_in_bfloat16"]
    run = subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *chosen], env={**os.environ, "TBX_ISA": isa},
                         capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0 and " passed" in run.stdout, run.stdout[-4000:]

"""Patterns of exporters whose numbers are constants of more dimensions than what they meet, which add dimensions to the
result: activations and normalisations against numpy in double."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from peers import tensorbox

X = np.random.default_rng(3).standard_normal((2, 3)).astype(np.float32)
SCALE, SHIFT = np.array([1, -2, 3], np.float32), np.array([0.5, 0, -1], np.float32)
Steps = list[tuple[str, list[str], str]]
GELU: Steps = [("Div", ["x", "root"], "a"), ("Erf", ["a"], "b"), ("Add", ["b", "one"], "c"), ("Mul", ["x", "c"], "d"),
               ("Mul", ["d", "half"], "y")]
TANH: Steps = [("Pow", ["x", "three"], "a"), ("Mul", ["a", "cubic"], "b"), ("Add", ["x", "b"], "c"), ("Mul", ["c", "slope"], "d"),
               ("Tanh", ["d"], "e"), ("Add", ["e", "one"], "f"), ("Mul", ["x", "half"], "g"), ("Mul", ["g", "f"], "y")]
LAYER_NORM: Steps = [("ReduceMean", ["x"], "m"), ("Sub", ["x", "m"], "a"), ("Pow", ["a", "two"], "b"), ("ReduceMean", ["b"], "c"),
                     ("Add", ["c", "tiny"], "d"), ("Sqrt", ["d"], "e"), ("Div", ["a", "e"], "f"), ("Mul", ["f", "scale"], "g"),
                     ("Add", ["g", "shift"], "y")]
RMS_NORM: Steps = [("Pow", ["x", "two"], "a"), ("ReduceMean", ["a"], "b"), ("Add", ["b", "tiny"], "c"), ("Sqrt", ["c"], "d"),
                   ("Div", ["one", "d"], "e"), ("Mul", ["x", "e"], "f"), ("Mul", ["f", "scale"], "y")]
PATTERNS = {"gelu": GELU, "gelu by tanh": TANH, "layer norm": LAYER_NORM, "rms norm": RMS_NORM}
NUMBERS = {"root": math.sqrt(2), "one": 1.0, "half": 0.5, "two": 2.0, "three": 3.0, "cubic": 0.044715,
           "slope": math.sqrt(2 / math.pi), "tiny": 1e-5}


def wanted(name: str, x: np.ndarray) -> np.ndarray:
    if name == "gelu":
        return x * (1 + np.vectorize(math.erf, otypes="d")(x / math.sqrt(2))) / 2
    if name == "gelu by tanh":
        return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2
    centred = x - x.mean(-1, keepdims=True) if name == "layer norm" else x
    normal = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return normal * SCALE + (SHIFT if name == "layer norm" else 0)


@pytest.mark.parametrize("mode", [{"compile": False}, {"reference": True}, {"compile": False, "all_dims_dynamic": True}], ids=str)
@pytest.mark.parametrize("rank", [0, 1, 2, 3])
@pytest.mark.parametrize("name", PATTERNS)
def test_numbers_of_high_rank(name: str, rank: int, mode: dict[str, bool]) -> None:
    steps = PATTERNS[name]
    nodes = [helper.make_node(op, inputs, [out], **({"axes": [-1]} if op == "ReduceMean" else {})) for op, inputs, out in steps]
    read = {i for _, inputs, _ in steps for i in inputs}
    constants = {n: np.full((1,) * rank, v, np.float32) for n, v in NUMBERS.items()} | {"scale": SCALE, "shift": SHIFT}
    for x in (X, X[0], X[:0], *([X[0, 0]] if "gelu" in name else [])):
        want = wanted(name, x.astype(np.float64))
        want = want.reshape((1,) * (rank - want.ndim) + want.shape)
        graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, want.shape)],
                                  [numpy_helper.from_array(v, n) for n, v in constants.items() if n in read])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        got = tensorbox.Session(model, **mode).run({"x": x})["y"]
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, 1e-5, 1e-6)

"""Elements of a row at the place that the row itself decides: what a classifier thinks of the class that it chose."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser
from peers import tensorbox

FUNCTIONS = {"Sigmoid": lambda x: 1 / (1 + np.exp(-x)), "Softmax<axis = 1>": lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)}


@pytest.mark.parametrize("isa", [None, "avx2", "sse"])
@pytest.mark.parametrize("choice", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("length", [2, 7, 20, 300])
def test_elements_that_a_row_chooses(length: int, function: str, choice: str, isa: str | None) -> None:
    """Few elements: rows lie side by side in vectors, each with a place of its own."""
    text = f"""<ir_version: 8, opset_import: ["": 18]> g (float[rows, {length}] x) => (float[rows, 1] y) {{
        m = {function}(x)
        i = {choice}<axis = 1>(m)
        y = GatherElements<axis = 1>(m, i)
    }}"""
    session = tensorbox.Session(parser.parse_model(text), isa=isa)
    for rows in (0, 1, 6, 33):
        x = np.random.default_rng(rows).standard_normal((rows, length)).astype(np.float32)
        want = FUNCTIONS[function](x.astype(np.float64))
        want = want.max(1, keepdims=True) if choice == "ArgMax" else want.min(1, keepdims=True)
        np.testing.assert_allclose(session.run({"x": x})["y"], want, rtol=1e-5)

"""Gradient nodes that stand before what they differentiate: their y is named, not read."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from peers import tensorbox

HEADER = '<ir_version: 10, opset_import: ["": 12, "ai.onnx.preview.training": 1]> '


def model(outputs: str, *nodes: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEADER + f"g (float[3] a, float[3] b) => ({outputs}) {{ {' '.join(nodes)} }}")


def gradient(results: str, y: str, xs: str = "ab") -> str:
    names = ", ".join(f'"{x}"' for x in xs)
    return f'{results} = ai.onnx.preview.training.Gradient<xs: strings = [{names}], y: string = "{y}">({", ".join(xs)})'


A, B = np.array([1, 2, -3], np.float32), np.array([4, 0, 5], np.float32)


@pytest.mark.parametrize("nodes,want", [
    ([gradient("da, db", "c"), "c = Mul(a, b)"], [B, A]),
    ([gradient("da, db", "c"), "t = Mul(a, b)", "c = Mul(t, a)"], [2 * A * B, A * A]),
    ([gradient("da", "c", "a"), "db = Neg(da)", "c = Mul(a, b)"], [B, -B]),
    ([gradient("da", "c", "a"), gradient("db", "e", "b"), "e = Mul(b, b)", "c = Mul(a, b)"], [B, 2 * B]),
    ([gradient("da", "c", "a"), "e = Mul(da, b)", gradient("db", "e", "b"), "c = Mul(a, a)"], [2 * A, 2 * A]),
    (["c = Mul(a, b)", gradient("da, db", "c")], [B, A]),
])
def test_order(nodes: list[str], want: list[np.ndarray]) -> None:
    session = tensorbox.Session(model("float[3] da, float[3] db", *nodes), compile=False)
    got = session.run({"a": A, "b": B})
    for name, value in zip(("da", "db"), want, strict=True):
        np.testing.assert_array_equal(got[name], value)


@pytest.mark.parametrize("nodes,text", [
    ([gradient("da", "c", "a"), "c = Mul(da, b)"], "'c' depends on its own gradient"),
    ([gradient("da", "c", "a"), gradient("db", "e", "b"), "c = Mul(a, db)", "e = Mul(da, b)"], "gradient"),
])
def test_circles(nodes: list[str], text: str) -> None:
    with pytest.raises(tensorbox.ModelError, match=f"node .*Gradient.*: .*{text}"):
        tensorbox.Session(model("float[3] da", *nodes), compile=False)

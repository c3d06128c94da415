"""Products of what a Slice reads backwards, with sizes that only a run knows."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from peers import tensorbox

# x [A, B, C], w: what is multiplied with x, which is reversed along each of its dimensions.
PRODUCTS = {
    "MatMul": ("float[A, B, C]", "float[A, C, 5]", "y = MatMul (z, w)", lambda x, w: x @ w),
    "right": ("float[A, B, C]", "float[A, 2, B]", "y = MatMul (w, z)", lambda x, w: w @ x),
    "Gemm": ("float[B, C]", "float[C, 5]", "y = Gemm (z, w)", lambda x, w: x @ w),
    "integers": ("uint8[A, B, C]", "uint8[C, 5]", "i = MatMulInteger (z, w) y = Cast <to = 1> (i)", lambda x, w: x.astype(int) @ w.astype(int)),
    "Conv": ("float[A, B, C, C]", "float[4, B, 2, 2]", "y = Conv (z, w)", lambda x, w: sum(
        np.einsum("abij,kb->akij", x[:, :, i:i + x.shape[2] - 1, j:j + x.shape[3] - 1], w[:, :, i, j]) for i in (0, 1) for j in (0, 1))),
}
SIZES = {"A": 3, "B": 6, "C": 4}


def sizes_of(text: str) -> list[int]:
    return [SIZES[d] if d in SIZES else int(d) for d in text[text.index("[") + 1:-1].split(", ")]


@pytest.mark.parametrize("options", [{}, {"compile": False}, {"reference": True}])
@pytest.mark.parametrize("name", PRODUCTS)
def test_operands_read_backwards(name: str, options: dict) -> None:
    given, other, text, product = PRODUCTS[name]
    rng = np.random.default_rng(3)
    kind = "uint8" if name == "integers" else "float32"
    x, w = (rng.integers(0, 9, sizes_of(t)).astype(kind) for t in (given, other))
    for axis in range(x.ndim):
        model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]> g ({given} x, {other} w) => (float y)
          <int64[1] start = {{-1}}, int64[1] end = {{-9999}}, int64[1] axis = {{{axis}}}, int64[1] step = {{-1}}> {{
            z = Slice (x, start, end, axis, step) {text} }}""")
        model.graph.output[0].type.tensor_type.ClearField("shape")
        got = tensorbox.Session(model, **options).run({"x": x, "w": w})["y"]
        want = product(np.flip(x, axis).astype(float if kind == "float32" else kind), w)
        np.testing.assert_array_equal(got, want.astype(np.float32))


@pytest.mark.parametrize("options", [{}, {"compile": False}])
def test_bias_and_heads_read_backwards(options: dict) -> None:
    rng = np.random.default_rng(4)
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 23]>
      g (float[A, C] x, float[C, D] w, float[D] b, float[N, H, S, E] q) => (float[A, D] y, float[N, H, S, E] z)
      <int64[1] start = {-1}, int64[1] end = {-9999}, int64[1] none = {0}, int64[1] two = {2}, int64[1] step = {-1}> {
        back = Slice (b, start, end, none, step) y = Gemm (x, w, back)
        turned = Slice (q, start, end, two, step) z = Attention (turned, turned, q)
      }""")
    x, w, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((5, 7), (7, 17), (17,)))
    q = rng.standard_normal((2, 3, 5, 4)).astype(np.float32)
    got = tensorbox.Session(model, **options).run({"x": x, "w": w, "b": b, "q": q})
    np.testing.assert_array_equal(got["y"], x @ w + b[::-1])
    turned = q[:, :, ::-1].astype(float)
    scores = np.exp(turned @ turned.swapaxes(2, 3) / 2)
    np.testing.assert_allclose(got["z"], scores / scores.sum(-1, keepdims=True) @ q, rtol=1e-5, atol=1e-6)

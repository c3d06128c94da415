"""Biases of products that lie in memory otherwise than side by side: repeated, every second one, a column, read backwards. Kernels
read them as a dense row."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest
from peers import tensorbox

N = 12
# How 12 biases come out of b, and the shape of b.
BIASES = {
    "repeated": ("[1]", "n = Constant <value = int64[1] {12}> () z = Expand (b, n)", lambda b: np.broadcast_to(b, N)),
    "second": ("[24]", "z = Slice (b, zero, end, zero, two)", lambda b: b[::2]),
    "backwards": ("[12]", "z = Slice (b, last, first, zero, last)", lambda b: b[::-1]),
    "column": ("[12, 5]", "i = Constant <value = int64 {3}> () z = Gather <axis = 1> (b, i)", lambda b: b[:, 3]),
    "row": ("[5, 12]", "i = Constant <value = int64 {3}> () z = Gather <axis = 0> (b, i)", lambda b: b[3]),
    "diagonal": ("[3, 4]", "t = Transpose (b) n = Constant <value = int64[1] {-1}> () z = Reshape (t, n)", lambda b: b.T.ravel()),
    "part": ("[30]", "z = Slice (b, two, end2, zero)", lambda b: b[2:14]),
    "computed": ("[1, 3]", "n = Constant <value = int64[2] {4, 3}> () e = Expand (b, n) m = Constant <value = int64[1] {-1}> () z = Reshape (e, m)",
                 lambda b: np.tile(b[0], 4)),
}
CONV = lambda x, w, group: np.stack([  # noqa: E731  one pixel of the kernel
    np.einsum("nchw,kc->nkhw", x[:, g * (x.shape[1] // group):(g + 1) * (x.shape[1] // group)], w[g * (N // group):(g + 1) * (N // group), :, 0, 0])
    for g in range(group)], 1).reshape(x.shape[0], N, *x.shape[2:])
PRODUCTS = {
    "Gemm": ("[5, 7]", "[7, 12]", "y = Gemm (x, w, z)", lambda x, w: x @ w, (1, N)),
    "halved": ("[5, 7]", "[7, 12]", "y = Gemm <beta = 0.5> (x, w, z)", lambda x, w: 2 * (x @ w), (1, N)),
    "MatMul": ("[2, 5, 7]", "[7, 12]", "p = MatMul (x, w) y = Add (p, z)", lambda x, w: x @ w, (1, 1, N)),
    "Conv": ("[2, 6, 5, 4]", "[12, 6, 1, 1]", "y = Conv (x, w, z)", lambda x, w: CONV(x, w, 1), (1, N, 1, 1)),
    "groups": ("[2, 12, 5, 4]", "[12, 1, 1, 1]", "y = Conv <group = 12> (x, w, z)", lambda x, w: CONV(x, w, 12), (1, N, 1, 1)),
    "ConvTranspose": ("[2, 6, 5, 4]", "[6, 12, 1, 1]", "y = ConvTranspose (x, w, z)", lambda x, w: CONV(x, w.swapaxes(0, 1), 1), (1, N, 1, 1)),
}


def shape_of(text: str) -> list[int]:
    return [int(n) for n in text[1:-1].split(", ")]


@pytest.mark.parametrize("options", [{}, {"compile": False}, {"compile": False, "all_dims_dynamic": True}, {"reference": True}], ids=str)
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("product", PRODUCTS)
def test_biases(product: str, bias: str, options: dict) -> None:
    (b_shape, made, taken), (x_shape, w_shape, text, function, broadcast) = BIASES[bias], PRODUCTS[product]
    rng = np.random.default_rng(9)
    x, w, b = (rng.integers(-8, 9, shape_of(shape)).astype(np.float32) for shape in (x_shape, w_shape, b_shape))
    want = function(x.astype(float), w.astype(float)) + taken(b).reshape(broadcast)
    if product == "halved":
        want /= 2
    for constant in (False, True):
        model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
          g (float{x_shape} x, float{w_shape} w, float{b_shape} b) => (float y)
          <int64[1] zero = {{0}}, int64[1] two = {{2}}, int64[1] end = {{24}}, int64[1] end2 = {{14}}, int64[1] last = {{-1}}, int64[1] first = {{-99}}>
          {{ {made} {text} }}""")
        model.graph.output[0].type.tensor_type.ClearField("shape")
        if constant:
            del model.graph.input[2]
            model.graph.initializer.append(onnx.numpy_helper.from_array(b, "b"))
        got = tensorbox.Session(model, **options).run({"x": x, "w": w} | ({} if constant else {"b": b}))["y"]
        np.testing.assert_array_equal(got, want.astype(np.float32))


@pytest.mark.parametrize("taken", ["repeated", "second", "column"])
def test_zero_points(taken: str) -> None:
    shape, made, function = BIASES[taken]
    rng = np.random.default_rng(1)
    x, w, b = (rng.integers(0, 9, s).astype(np.uint8) for s in ((5, 7), (7, N), shape_of(shape)))
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
      g (uint8[5, 7] x, uint8[7, 12] w, uint8{shape} b) => (int32 y) <int64[1] zero = {{0}}, int64[1] two = {{2}}, int64[1] end = {{24}}>
      {{ {made} k = Constant <value = uint8 {{3}}> () y = MatMulInteger (x, w, k, z) }}""")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    for options in ({}, {"compile": False}, {"reference": True}):
        got = tensorbox.Session(model, **options).run({"x": x, "w": w, "b": b})["y"]
        assert np.array_equal(got, (x.astype(int) - 3) @ (w.astype(int) - function(b).astype(int)))

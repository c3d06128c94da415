"""Models that nearly are what a graph pass or a post-operation is for: constants of too many dimensions, masks that make
scores more, sums and factors beyond the range of a type. Against numpy in float64, or ONNX Runtime."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from peers import expected, tensorbox

MODES: list[dict[str, Any]] = [{}, {"compile": False}, {"compile": False, "all_dims_dynamic": True}]
ADDED_IN_FLOAT = 1e-4  # of 70,000 equal terms, rounded the same way each time


def model_of(text: str, constants: Mapping[str, np.ndarray], opset: int = 17) -> onnx.ModelProto:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]>\n' + text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in constants.items())
    return model


def check(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], want: np.ndarray | None = None, rtol: float = 1e-5) -> None:
    if want is None:
        want = expected(model, feeds)[0]
    for mode in MODES:
        got = tensorbox.Session(model, **mode).run(dict(feeds))[model.graph.output[0].name]
        assert got.shape == want.shape, mode
        np.testing.assert_allclose(got.astype(np.float64), want, rtol, 0, err_msg=str(mode))


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).uniform(0.5, 2, shape).astype(np.float32)


@pytest.mark.parametrize("rank", [0, 1, 2, 4])
@pytest.mark.parametrize("sizes", [[6], [2, 3], [1, 6, 1], [0]])
def test_gelu_of_unknown_rank(rank: int, sizes: list[int]) -> None:
    """Half of a GELU may be a constant of more dimensions than what it halves."""
    model = model_of("""g (float[n] x, int64[k] sizes) => (float y) <float one = {1}, float root = {1.4142135381698608}>
{ seen = Reshape(x, sizes)
  a = Div(seen, root)
  b = Erf(a)
  c = Add(b, one)
  d = Mul(seen, c)
  y = Mul(d, half) }""", {"half": np.full((1,) * rank, 0.5, np.float32)})
    check(model, {"x": floats(int(np.prod(sizes))), "sizes": np.array(sizes)}, rtol=1e-4)


def quantised(left: str, right: str, node: str, weights: np.ndarray, zeros: str) -> onnx.ModelProto:
    return model_of(f"""g ({left} x) => ({right} y) <float scale = {{0.25}}, {zeros}>
{{ a = DequantizeLinear(x, scale, zx)
  b = DequantizeLinear(w, scale, zw)
  y = {node} }}""", {"w": weights})


@pytest.mark.parametrize("terms", [33024, 33026, 70001])
@pytest.mark.parametrize("transposed", [False, True])
def test_product_of_bytes_beyond_32_bits(terms: int, transposed: bool) -> None:
    x = np.full((2, terms), 255, np.uint8)
    w = np.full((3, terms), 255, np.uint8)
    w[1] = np.arange(terms) % 3 == 0
    node = "Gemm<transB = 1>(a, b)" if transposed else "MatMul(a, b)"
    model = quantised(f"uint8[2, {terms}]", "float[2, 3]", node, w if transposed else np.ascontiguousarray(w.T),
                      "uint8 zx = {0}, uint8 zw = {0}")
    check(model, {"x": x}, x.astype(np.float64) @ w.T.astype(np.float64) / 16, ADDED_IN_FLOAT)


def test_product_of_other_bytes_beyond_32_bits() -> None:
    model = model_of("""g (int8[2, 70001] x, uint8[70001, 3] w) => (float[2, 3] y) <float scale = {0.25}, int8 zx = {127}>
{ a = DequantizeLinear(x, scale, zx)
  b = DequantizeLinear(w, scale)
  y = MatMul(a, b) }""", {})
    x, w = np.full((2, 70001), -128, np.int8), np.full((70001, 3), 255, np.uint8)
    want = np.full((2, 3), -255.0 * 255 * 70001 / 16)
    for mode in MODES[:2]:
        np.testing.assert_allclose(tensorbox.Session(model, **mode).run({"x": x, "w": w})["y"], want, ADDED_IN_FLOAT)


def test_product_of_bytes_whose_terms_a_run_counts() -> None:
    """Sizes that only a run knows may be too many, which is told, with the way out."""
    model = model_of("""g (uint8[2, k] x, uint8[k, 3] w) => (float[2, 3] y) <float scale = {0.25}>
{ a = DequantizeLinear(x, scale)
  b = DequantizeLinear(w, scale)
  y = MatMul(a, b) }""", {})
    for options in ({}, {"disable_passes": ["multiply_integers"]}):
        session = tensorbox.Session(model, compile=False, **options)
        for terms in (0, 1, 33, 33025, 33026):
            feeds = {"x": np.full((2, terms), 255, np.uint8), "w": np.full((terms, 3), 255, np.uint8)}
            try:
                got = session.run(feeds)["y"]
            except tensorbox.ModelError as error:  # where the CPU multiplies bytes
                assert terms == 33026 and not options
                assert re.search("'y.sum' .*exceed 32 bits.*33025.*multiply_integers.*33026", str(error))
                continue
            np.testing.assert_allclose(got, np.full((2, 3), 255.0 * 255 * terms / 16), ADDED_IN_FLOAT)


@pytest.mark.parametrize("channels", [7200, 7400])
def test_convolution_of_bytes_beyond_32_bits(channels: int) -> None:
    x = np.full((1, channels, 3, 3), 255, np.uint8)
    w = np.full((16, channels, 3, 3), -128, np.int8)
    w[1] = 1
    model = quantised(f"uint8[1, {channels}, 3, 3]", "float[1, 16, 1, 1]", "Conv(a, b)", w, "uint8 zx = {0}, int8 zw = {0}")
    want = np.full((1, 16, 1, 1), -128.0 * 255 * channels * 9 / 16)
    want[0, 1] = 255.0 * channels * 9 / 16
    check(model, {"x": x}, want, ADDED_IN_FLOAT)


@pytest.mark.parametrize("divisor", [1e-39, 2e-39, 3e38, 1e-37, 4.0])
@pytest.mark.parametrize("node", ["MatMul(x, w)", "Gemm(x, w)"])
def test_divisors_without_an_inverse(divisor: float, node: str) -> None:
    """What divides a product by 1e-39 is no multiplication by its inverse, which is infinite."""
    model = model_of(f"""g (float[3, 8] x) => (float[3, 5] y)
{{ a = {node}
  b = Relu(a)
  y = Div(b, divisor) }}""", {"w": floats(8, 5) * np.float32(divisor / 32), "divisor": np.array(divisor, np.float32)})
    x, w = floats(3, 8), onnx.numpy_helper.to_array(model.graph.initializer[0])
    check(model, {"x": x}, x.astype(np.float64) @ w.astype(np.float64) / np.float64(np.float32(divisor)), 1e-4)


@pytest.mark.parametrize("factor", [1e-35, 1e-20, 1e30, 0.0])
@pytest.mark.parametrize("how", ["product", "convolution", "norm"])
def test_scales_that_weights_do_not_take(factor: float, how: str) -> None:
    """Scaled weights would be infinite, or have hardly a digit."""
    w = floats(4, 4, 1, 1, seed=1) * np.float32(1e-9 if factor < 1 else 1e9)
    x = floats(1, 4, 3, 3) * np.float32(1e20 if factor < 1 else 1e-30)
    constants = {"w": w, "factor": np.full(4, factor, np.float32), "zero": np.zeros(4, np.float32), "one": np.ones(4, np.float32)}
    text = "g (float[1, 4, 3, 3] x) => (float[1, 4, 3, 3] y) {{ a = Conv(x, w)\n y = {} }}"
    if how == "product":
        x, constants["w"] = x[0, 0], w[:3, :, 0, 0]
        text = "g (float[3, 3] x) => (float[3, 4] y) {{ a = MatMul(x, w)\n y = {} }}"
    if how == "convolution":
        constants["factor"] = constants["factor"].reshape(4, 1, 1)
    node = "BatchNormalization<epsilon = 0.0>(a, factor, zero, zero, one)" if how == "norm" else "Mul(a, factor)"
    wide = constants["w"].astype(np.float64)
    product = x.astype(np.float64) @ wide if how == "product" else np.einsum("bcij,oc->boij", x.astype(np.float64), wide[..., 0, 0])
    check(model_of(text.format(node), constants), {"x": x}, product * np.float64(np.float32(factor)), 1e-4)


@pytest.mark.parametrize("bias", [1, 3, 65])
@pytest.mark.parametrize("node", ["Mul(a, s)", "BatchNormalization(a, s4, s4, s4, s4)", "Relu(a)"])
def test_bias_of_another_length(bias: int, node: str) -> None:
    """Not read beyond its end, and not repeated."""
    constants = {"w": floats(64, 2, 1, 1), "b": floats(bias), "s": floats(), "s4": floats(64)}
    model = model_of(f"g (float[n, 2, 5, 5] x) => (float[n, 64, 5, 5] y) {{ a = Conv(x, w, b)\n y = {node} }}", constants)
    with pytest.raises(tensorbox.ModelError, match=rf"'a' \(Conv, opset 17\).*the bias has {bias} elements, the result 64 channels"):
        tensorbox.Session(model, compile=False).run({"x": floats(1, 2, 5, 5)})


@pytest.mark.parametrize("other", [[1, 400, 1, 1], [2, 1, 1, 1], [1, 2, 1]])
def test_heads_of_different_inputs(other: list[int]) -> None:
    """Two heads over one input whose weights are for inputs of different channels."""
    constants = {"v": floats(1, 2, 1, 1), "w": floats(*other), "t": floats(1, 1, 3, 3), "u": floats(other[0], 1, 3, 3)}
    model = model_of(f"""g (float[n, c, h, w_] x) => (float[n, p, q, r] y, float[n, s, t_, u_] z) {{
  a = Conv(x, v)
  b = Conv(a, t)
  y = Transpose<perm = [0, 2, 3, 1]>(b)
  c = Conv(x, w)
  d = Conv<group = {other[0]}>(c, u)
  z = Transpose<perm = [0, 2, 3, 1]>(d) }}""", constants)
    with pytest.raises(tensorbox.ModelError, match="Conv"):
        tensorbox.Session(model, compile=False).run({"x": floats(1, 2, 5, 5)})


ATTENTION = """
{ s = MatMul(q, k)
  a = Add(s, m)
  p = Softmax<axis = -1>(a)
  y = MatMul(p, v) """


@pytest.mark.parametrize("axis", [2, 3, 4])
def test_one_place_of_attention_with_a_larger_mask(axis: int) -> None:
    """The mask adds a dimension, so that the axis of the result is another one of the queries."""
    model = model_of("g (float[4,4,4,4] q, float[4,4,4,4] k, float[4,4,4,4] v, float[2,4,1,4,4] m) => (float[2,4,4,4] z)"
                     + "<int64 place = {1}>" + ATTENTION + f"\n z = Gather<axis = {axis}>(y, place) }}", {})
    check(model, {n: floats(4, 4, 4, 4, seed=i) for i, n in enumerate("qkv")} | {"m": floats(2, 4, 1, 4, 4)}, rtol=1e-4)


@pytest.mark.parametrize("batch", [1, 3, 4])
@pytest.mark.parametrize("mask", ["float[3, 1, 5, t]", "float[i, 1, j, t]", "float[3, 1, 1, t]"])
def test_masks_that_make_scores_more(batch: int, mask: str) -> None:
    """One session for runs in which the mask repeats, and in which the scores do."""
    model = model_of(f"g (float[b, 2, s, 4] q, float[b, 2, 4, t] k, float[b, 2, t, 4] v, {mask} m) => (float[c, 2, r, 4] y)"
                     + ATTENTION + "}", {})
    for mode in MODES:
        session = tensorbox.Session(model, **mode)
        for queries in (1, 5, 1):
            rows = 1 if "1, 1" in mask else 5
            feeds = {"q": floats(batch, 2, queries, 4), "k": floats(batch, 2, 4, 7), "v": floats(batch, 2, 7, 4),
                     "m": floats(1 if batch == 4 and "i" in mask else 3, 1, rows, 7)}
            if batch == 4 and "i" not in mask:
                with pytest.raises(tensorbox.ModelError, match="3"):
                    session.run(feeds)
                continue
            want = expected(model, feeds)[0]
            got = session.run(feeds)["y"]
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, 1e-4, 1e-6)


def test_scales_of_attention_without_a_product() -> None:
    """1e-25 of queries and of keys is 1e-50, no number of float32."""
    model = model_of("g (float[1,2,3,4] q0, float[1,2,4,5] k0, float[1,2,5,4] v) => (float[1,2,3,4] y) <float c = {1e-25}>"
                     "{ q = Mul(q0, c)\n k = Mul(k0, c)\n s = MatMul(q, k)\n p = Softmax<axis = -1>(s)\n y = MatMul(p, v) }", {})
    q, k, v = floats(1, 2, 3, 4), floats(1, 2, 4, 5), floats(1, 2, 5, 4)
    p = np.exp(q.astype(np.float64) @ k)
    big = np.float32(1e25)
    check(model, {"q0": q * big, "k0": k * big, "v": v}, p / p.sum(-1, keepdims=True) @ v, 1e-4)


OLD = 6  # the last opset whose Add and Mul have an attribute `axis`


def old_function(op: str) -> onnx.FunctionProto:
    """One of an old opset in a model of a new one: the second operand is for the first dimension."""
    node = onnx.helper.make_node(op, ["a", "c"], ["b"], broadcast=1, axis=0)
    return onnx.helper.make_function("old", op, ["a", "c"], ["b"], [node], [onnx.helper.make_opsetid("", OLD)])


def with_old(model: onnx.ModelProto, *ops: str) -> onnx.ModelProto:
    model.functions.extend(old_function(op) for op in ops)
    model.opset_import.append(onnx.helper.make_opsetid("old", 1))
    return model


def test_old_bias_behind_a_product() -> None:
    """As many rows as columns: the bias is one of rows all the same, before a scale and before heads."""
    x, w, c = floats(3, 4), floats(4, 3), np.array([10, 20, 30], np.float32)
    want = (x.astype(np.float64) @ w + c[:, None]) * 3
    text = "g (float[3, 4] x) => (float[{}] y) <float s = {{3}}, int64[2] seen = {{9, 1}}> {{ a = MatMul(x, w)\n b = old.Add(a, c)\n"
    check(with_old(model_of(text.format("3, 3") + "y = Mul(b, s) }", {"w": w, "c": c}), "Add"), {"x": x}, want)
    two = model_of(text.format("9, 1") + "d = Reshape(b, seen)\n e = MatMul(x, v)\n f = old.Add(e, c)\n h = Reshape(f, seen)\n y = Add(d, h) }",
                   {"w": w, "v": w * 2, "c": c})
    check(with_old(two, "Add"), {"x": x}, (x.astype(np.float64) @ w * 3 + 2 * c[:, None]).reshape(9, 1))


def test_old_scale_of_a_norm() -> None:
    x, s = floats(3, 3, seed=2), np.array([1, 2, 3], np.float32)
    model = model_of("""g (float[3, 3] x) => (float[3, 3] y) <float epsilon = {0.00001}> {
  m = ReduceMean<axes = [-1]>(x)
  d = Sub(x, m)
  p = Mul(d, d)
  v = ReduceMean<axes = [-1]>(p)
  w = Add(v, epsilon)
  q = Sqrt(w)
  n = Div(d, q)
  k = old.Mul(n, s)
  y = Add(k, s) }""", {"s": s})
    d = x - x.mean(-1, keepdims=True, dtype=np.float64)
    want = d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5) * s[:, None] + s
    check(with_old(model, "Mul"), {"x": x}, want, 1e-4)


GELU = """g ({0}[n] x) => ({0}[n] y) <{0} half = {{{1}}}, {0} one = {{{2}}}, {0} root = {{{3}}}>
{{ a = Div(x, root)
  b = Erf(a)
  c = Add(b, one)
  d = Mul(x, c)
  y = Mul(d, half) }}"""
erf = np.vectorize(math.erf)


@pytest.mark.parametrize("numbers", [(0.5, 1, math.sqrt(2)), (0.5, 1, 1.41421), (0.50004, 1, math.sqrt(2)), (0.5, 1.00005, math.sqrt(2))])
@pytest.mark.parametrize("kind", ["float", "double"])
def test_numbers_of_a_gelu(numbers: tuple[float, float, float], kind: str) -> None:
    """A number with few digits is what the model says, in double; one that is not a half is none in float either."""
    half, one, root = (np.float64(np.float32(v)) if kind == "float" else v for v in numbers)
    x = np.linspace(-4, 4, 65).astype(np.float32 if kind == "float" else np.float64)
    want = x * (erf(x.astype(np.float64) / root) + one) * half
    tolerance = 1e-12 if kind == "double" else 1e-5
    for mode in MODES:
        got = tensorbox.Session(model_of(GELU.format(kind, *map(repr, map(float, (half, one, root)))), {}), **mode).run({"x": x})["y"]
        np.testing.assert_allclose(got, want, tolerance, tolerance)


@pytest.mark.parametrize("exponent", [2.0, 1.9999, 2.0001])
def test_exponents_near_two(exponent: float) -> None:
    """No power of a negative number but by an integer, so no norm either."""
    model = model_of(f"""g (float[2, 4] x) => (float[2, 4] y) <float p = {{{exponent}}}, float epsilon = {{0.00001}}> {{
  a = Pow(x, p)
  m = ReduceMean<axes = [-1]>(a)
  b = Add(m, epsilon)
  q = Sqrt(b)
  n = Div(x, q)
  y = Mul(n, s) }}""", {"s": floats(4)})
    x = floats(2, 4)
    x[1] *= -1
    with np.errstate(invalid="ignore"):
        want = x / np.sqrt((x.astype(np.float64) ** exponent).mean(-1, keepdims=True) + 1e-5) * floats(4)
    assert np.isnan(want[1]).all() == (exponent != 2)
    check(model, {"x": x}, want)


def test_hard_swish_of_doubles() -> None:
    model = model_of("""g (double[n] x) => (double[n] y) {
  h = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x)
  y = Mul(x, h) }""", {})
    x = np.linspace(-4, 4, 65)
    check(model, {"x": x}, x * np.clip(np.float64(np.float32(0.16666667)) * x + 0.5, 0, 1), 1e-12)


@pytest.mark.parametrize(("node", "scale", "bias", "words"), [
    ("LayerNormalization(x, s, b)", (3, 1, 1, 4), (4,), "the scale of rank 4 for data of rank 3"),
    ("LayerNormalization(x, s, b)", (4,), (3, 5, 4), "dimension 3 of the bias cannot be broadcast to 1"),
    ("LayerNormalization(x, s, b)", (7, 4), (4,), "dimension 7 of the scale cannot be broadcast to 5"),
    ("InstanceNormalization(x, s, b)", (1,), (5,), "a scale of 1 elements for 5 channels"),
    ("InstanceNormalization(x, s, b)", (5,), (6,), "a bias of 6 elements for 5 channels")])
def test_norms_that_their_numbers_make_larger(node: str, scale: tuple[int, ...], bias: tuple[int, ...], words: str) -> None:
    """What scales a norm is repeated, never the norm; no data is read beyond it."""
    for shape in ("1, 5, 4", "n, c, d"):
        model = model_of(f"g (float[{shape}] x) => (float[p, q, r] y) {{ y = {node} }}", {"s": floats(*scale), "b": floats(*bias)})
        with pytest.raises(tensorbox.ModelError, match=words if shape[0] == "1" else "'y'"):
            tensorbox.Session(model, compile=False).run({"x": floats(1, 5, 4)})


@pytest.mark.parametrize("scale", [(4,), (5, 4), (5, 1), (1, 1, 4), (2, 1, 1), (1,)])
def test_norms_whose_numbers_are_repeated(scale: tuple[int, ...]) -> None:
    model = model_of("g (float[n, c, 4] x) => (float[n, c, 4] y) { y = LayerNormalization(x, s, b) }",
                     {"s": floats(*scale), "b": floats(*scale, seed=1)})
    x = floats(2, 5, 4)
    d = x - x.mean(-1, keepdims=True, dtype=np.float64)
    check(model, {"x": x}, d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5) * floats(*scale) + floats(*scale, seed=1), 1e-4)

"""Gradient of every differentiable operator against central differences in double precision."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from gradient_cases import CASES, REFUSED, Case
from peers import tensorbox

GRADIENT = "ai.onnx.preview.training.Gradient"


def shape(sizes: tuple[int, ...]) -> str:
    return f"double[{', '.join(map(str, sizes))}]"


def model_of(case: Case, header: str = "", footer: str = "", outputs: str = "") -> onnx.ModelProto:
    """y = sum(c * fixed weights) of what the case makes of x (and w), with its gradients."""
    names = ["x"] + ["w"] * (case.w is not None)
    inputs = ", ".join(f"{shape(sizes)} {name}" for name, sizes in zip(names, (case.x, case.w), strict=False))
    results = ", ".join(f"{shape(sizes)} d{name}" for name, sizes in zip(names, (case.x, case.w), strict=False))
    text = (
        f'<ir_version: 10, opset_import: ["": {case.opset}, "com.microsoft": 1, "ai.onnx.preview.training": 1]> '
        f"g ({inputs}) => (double[] y, {results}{outputs}) {{ {header} {case.body} "
        "weighted = Sin(c) flat_shape = Constant<value = int64[1] {-1}> () flat = Reshape(weighted, flat_shape) "
        f"half = Constant<value = double {{0.5}}> () mixed = Add(flat, half) squares = Mul(mixed, mixed) "
        f"{case.sum} "
        f"{', '.join('d' + name for name in names)} = {GRADIENT}<xs = [{', '.join(map(quoted, names))}], y = \"y\">"
        f"({', '.join(names)}) {footer} }}")
    return onnx.parser.parse_model(text)


def quoted(name: str) -> str:
    return f'"{name}"'


def inputs_of(case: Case, seed: int = 3) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    feeds = {}
    for name, sizes in (("x", case.x), ("w", case.w)):
        if sizes is None:
            continue
        sign = rng.choice([-1, 1], sizes) if case.signed else 1
        feeds[name] = rng.uniform(case.low, case.high, sizes) * sign
    return feeds


def check(session: tensorbox.Session, case: Case, feeds: dict[str, np.ndarray], y: str = "y", prefix: str = "d") -> None:
    rng = np.random.default_rng(5)
    got = session.run(feeds)
    for name, value in feeds.items():
        assert got[prefix + name].shape == value.shape
        for _ in range(3):
            direction = rng.uniform(-1, 1, value.shape)
            ends = [float(session.run({**feeds, name: value + sign * case.step * direction})[y]) for sign in (1, -1)]
            want = (ends[0] - ends[1]) / (2 * case.step)
            slope = float(np.sum(got[prefix + name] * direction))
            assert slope == pytest.approx(want, rel=case.tolerance, abs=case.tolerance), name


@pytest.mark.parametrize("name", CASES)
def test_differences(name: str) -> None:
    case = CASES[name]
    feeds, model = inputs_of(case), model_of(case)
    session = tensorbox.Session(model, compile=False)
    check(session, case, feeds)
    y = session.run(feeds)["y"]
    del model.graph.node[-1], model.graph.output[1:]  # what is differentiated is what is computed without
    np.testing.assert_allclose(y, tensorbox.Session(model, compile=False).run(feeds)["y"], rtol=1e-9)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    case, text = REFUSED[name]
    with pytest.raises(tensorbox.Error, match=text):
        session = tensorbox.Session(model_of(case), compile=False)
        session.run(inputs_of(case))


def slopes(body: str, points: np.ndarray, opset: int = 20) -> np.ndarray:
    """dc/dx at each point, of a body whose elements do not depend on each other."""
    kind = {"float32": "float", "float64": "double", "float16": "float16"}[points.dtype.name]
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": {opset}, "com.microsoft": 1, "ai.onnx.preview.training": 1]> '
        f'g ({kind}[n] x) => ({kind}[n] d) {{ {body} d = {GRADIENT}<xs = ["x"], y = "c">(x) }}')
    return tensorbox.Session(model, compile=False).run({"x": points})["d"]


@pytest.mark.parametrize("body,want", [
    ("c = Relu(x)", [0, 0, 1]), ("c = Abs(x)", [-1, 0, 1]), ("c = LeakyRelu<alpha = 0.5>(x)", [0.5, 1, 1]),
    ("c = Celu<alpha = 2.0>(x)", [np.exp(-0.5), 1, 1]), ("c = Softplus(x)", [1 / (1 + np.e), 0.5, np.e / (1 + np.e)]),
    ("z = Constant<value_float = 0.0> () c = Max(x, z)", [0, 0.5, 1]), ("c = Max(x, x)", [1, 1, 1]),
    ("z = Constant<value_float = 0.0> () c = Clip(x, z)", [0, 1, 1]),
    ("z = Constant<value_float = 0.0> () c = Pow(x, z)", [0, 0, 0]),
    ("c = HardSigmoid<alpha = 0.5, beta = 0.5>(x)", [0, 0.5, 0]), ("c = ThresholdedRelu(x)", [0, 0, 0]),
    ("c = Sign(x)", [0, 0, 0]), ("c = HardSwish(x)", [1 / 6, 0.5, 5 / 6]),
])
def test_kinks(body: str, want: list[float]) -> None:
    np.testing.assert_allclose(slopes(body, np.array([-1, 0, 1], np.float32)), want, rtol=1e-6)


@pytest.mark.parametrize("op,low,high", [
    ("Elu", 0, 1), ("Selu", 0, 1.0507009873554805), ("Celu", 0, 1), ("Softplus", 0, 1), ("Sigmoid", 0, 0), ("Tanh", 0, 0),
    ("Erf", 0, 0), ("Mish", 0, 1), ("Swish", 0, 1), ("Gelu", 0, 1), ('Gelu<approximate = "tanh">', 0, 1), ("Softsign", 0, 0),
    ("HardSwish", 0, 1), ("com.microsoft.QuickGelu", 0, 1), ("com.microsoft.FastGelu", 0, 1), ("Relu", 0, 1), ("LogSoftmax", 1, 0),
])
def test_far_out(op: str, low: float, high: float) -> None:
    """The slope is finite wherever the function is."""
    if op == "LogSoftmax":
        got = slopes("c = LogSoftmax(x)", np.array([-1e4, 1e4], np.float32))
        np.testing.assert_allclose(got, [1, -1])
        return
    points = np.array([-1e30, -1e4, -200, 200, 1e4, 1e30], np.float32)
    got = slopes(f"c = {op}(x)", points, 24)
    np.testing.assert_allclose(got, [low] * 3 + [high] * 3, atol=3e-5)


@pytest.mark.parametrize("op", ["Softsign"])
def test_precision_far_out(op: str) -> None:
    points = np.array([1e3, 1e5, 1e8], np.float32)
    np.testing.assert_allclose(slopes(f"c = {op}(x)", points), 1 / (1 + points.astype(np.float64)) ** 2, rtol=1e-5)


@pytest.mark.parametrize("name", ["Tanh", "Mish", "Pow", "Div", "ReduceMax", "ReduceProd", "CumProd", "LayerNormalization", "LRN",
                                  "Gather", "GridSample", "Softmax", "Selu", "MatMul", "Conv", "Resize-linear", "ScatterND", "Scan"])
def test_second_derivative(name: str) -> None:
    case = CASES[name]
    header = ""
    footer = f'sines = Sin(dx) y2 = ReduceSum<keepdims = 0>(sines) ddx = {GRADIENT}<xs = ["x"], y = "y2">(x)'
    if case.w is not None:
        footer = footer.replace('["x"], y', '["x"], zs = ["w"], y').replace("(x)", "(x, w)")
    model = model_of(case, header, footer, f", double[] y2, {shape(case.x)} ddx")
    session = tensorbox.Session(model, compile=False)
    feeds = inputs_of(case)
    got = session.run(feeds)["ddx"]
    direction = np.random.default_rng(5).uniform(-1, 1, case.x)
    ends = [float(session.run({**feeds, "x": feeds["x"] + sign * case.step * direction})["y2"]) for sign in (1, -1)]
    assert float(np.sum(got * direction)) == pytest.approx((ends[0] - ends[1]) / (2 * case.step), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("body,x", [
    ("c = ReduceProd<keepdims = 0>(x)", [2, 0, 3]), ("c = ReduceProd<keepdims = 0>(x)", [2, 0, 0]),
    ("a = Constant<value_int = 0> () c = CumProd(x, a)", [2, 0, 3, 0, 5]),
    ("a = Constant<value_int = 0> () c = CumProd<reverse = 1>(x, a)", [2, 0, 3, 0.5]),
    ("a = Constant<value_int = 0> () c = CumProd<exclusive = 1>(x, a)", [0, 2, 3, 0.5]),
])
def test_products_with_zeros(body: str, x: list[float]) -> None:
    case = Case(body, x=(len(x),), opset=26)
    session = tensorbox.Session(model_of(case), compile=False)
    check(session, case, {"x": np.array(x, np.float64)})


def hessian_of_products(x: np.ndarray, sets: list[list[int]], weights: np.ndarray) -> np.ndarray:
    """The second derivatives of sum(weights[k] * the product over sets[k]), factor by factor."""
    out = np.zeros((x.size, x.size))
    for members, weight in zip(sets, weights, strict=True):
        for i in members:
            for j in members:
                if i != j:
                    out[i, j] += weight * np.prod([x.flat[m] for m in members if m not in (i, j)])
    return out


def third_of_product(x: np.ndarray, v: np.ndarray) -> np.ndarray:
    """d/dx of v' H v for the product of all of x."""
    n = x.size
    return np.array([sum(v.flat[i] * v.flat[j] * np.prod([x.flat[m] for m in range(n) if m not in (i, j, k)])
                         for i in range(n) for j in range(n) if len({i, j, k}) == 3) for k in range(n)])


PRODUCTS = {  # operator, shape of x, the factors of each element of its result
    "all": ("c = ReduceProd<keepdims = 0>(x)", (4,), [[0, 1, 2, 3]]),
    "one": ("c = ReduceProd<keepdims = 0>(x)", (1,), [[0]]),
    "two-axes": ("c = ReduceProd<keepdims = 0>(x)", (2, 3), [[0, 1, 2, 3, 4, 5]]),
    "rows": ("a = Constant<value_ints = [1]> () c = ReduceProd(x, a)", (2, 3), [[0, 1, 2], [3, 4, 5]]),
    "outer-axes": ("a = Constant<value_ints = [0, 2]> () c = ReduceProd(x, a)", (2, 2, 2), [[0, 1, 4, 5], [2, 3, 6, 7]]),
    "running": ("a = Constant<value_int = 0> () c = CumProd(x, a)", (5,), [list(range(k + 1)) for k in range(5)]),
    "exclusive": ("a = Constant<value_int = 0> () c = CumProd<exclusive = 1>(x, a)", (5,), [list(range(k)) for k in range(5)]),
    "reverse": ("a = Constant<value_int = 0> () c = CumProd<reverse = 1>(x, a)", (5,), [list(range(k, 5)) for k in range(5)]),
    "both": ("a = Constant<value_int = 1> () c = CumProd<reverse = 1, exclusive = 1>(x, a)", (2, 3),
             [[1, 2], [2], [], [4, 5], [5], []]),
}


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("zeros", [0, 1, 2, 3])
@pytest.mark.parametrize("name", PRODUCTS)
def test_second_derivative_of_products_with_zeros(name: str, zeros: int, compile: bool) -> None:
    body, sizes, sets = PRODUCTS[name]
    rng = np.random.default_rng(zeros)
    x, v = rng.uniform(1, 2, sizes), rng.uniform(-1, 1, sizes)
    x.flat[rng.permutation(x.size)[:zeros]] = 0
    weights = rng.uniform(-1, 1, len(sets))
    table = ", ".join(map(repr, weights.tolist()))
    text = (f'<ir_version: 10, opset_import: ["": 26, "ai.onnx.preview.training": 1]> g ({shape(sizes)} x, {shape(sizes)} v) => '
            f"({shape(sizes)} hv) {{ {body} n = Constant<value_ints = [-1]> () flat = Reshape(c, n) "
            f"w = Constant<value = double[{len(sets)}] {{{table}}}> () weighted = Mul(flat, w) y = ReduceSum<keepdims = 0>(weighted) "
            f'd = {GRADIENT}<xs = ["x"], y = "y">(x) p = Mul(d, v) s = ReduceSum<keepdims = 0>(p) '
            f'hv = {GRADIENT}<xs = ["x"], zs = ["v"], y = "s">(x, v) }}')
    session = tensorbox.Session(onnx.parser.parse_model(text), compile=compile)
    want = (hessian_of_products(x, sets, weights) @ v.ravel()).reshape(sizes)
    np.testing.assert_allclose(session.run({"x": x, "v": v})["hv"], want, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("zeros", [0, 1, 2, 3])
@pytest.mark.parametrize("body", ["c = ReduceProd<keepdims = 0>(x)", "a = Constant<value_int = 0> () all = CumProd(x, a) "
                                  "l = Constant<value_int = -1> () c = Gather(all, l)"])
def test_third_derivative_of_products_with_zeros(body: str, zeros: int) -> None:
    rng = np.random.default_rng(zeros)
    x, v = rng.uniform(1, 2, 4), rng.uniform(-1, 1, 4)
    x[rng.permutation(4)[:zeros]] = 0
    text = ('<ir_version: 10, opset_import: ["": 26, "ai.onnx.preview.training": 1]> g (double[4] x, double[4] v) => (double[4] t) '
            f'{{ {body} d = {GRADIENT}<xs = ["x"], y = "c">(x) p = Mul(d, v) s = ReduceSum<keepdims = 0>(p) '
            f'h = {GRADIENT}<xs = ["x"], zs = ["v"], y = "s">(x, v) q = Mul(h, v) r = ReduceSum<keepdims = 0>(q) '
            f't = {GRADIENT}<xs = ["x"], zs = ["v"], y = "r">(x, v) }}')
    session = tensorbox.Session(onnx.parser.parse_model(text), compile=False)
    np.testing.assert_allclose(session.run({"x": x, "v": v})["t"], third_of_product(x, v), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype", ["float16", "float"])
def test_types(dtype: str) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20, "ai.onnx.preview.training": 1]> '
        f"g ({dtype}[3, 4] x, {dtype}[4] w) => ({dtype}[3, 4] dx, {dtype}[4] dw) {{ p = Mul(x, w) t = Tanh(p) l = Softmax(t) "
        f's = Mul(l, t) y = ReduceSum<keepdims = 0>(s) dx, dw = {GRADIENT}<xs = ["x", "w"], y = "y">(x, w) }}')
    double = onnx.parser.parse_model(onnx.printer.to_text(model).replace(f"{dtype}[", "double["))
    kind = onnx.helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type)
    feeds = {name: value.astype(kind) for name, value in inputs_of(Case("", w=(4,))).items()}
    got = tensorbox.Session(model, compile=False).run(feeds)
    want = tensorbox.Session(double, compile=False).run({name: value.astype(np.float64) for name, value in feeds.items()})
    for name in got:
        assert got[name].dtype == kind
        np.testing.assert_allclose(got[name].astype(np.float64), want[name], atol=2e-2 if dtype != "float" else 1e-5)


@pytest.mark.parametrize("name", ["Add", "Expand", "LayerNormalization", "Pad", "Slice", "ReduceProd", "LRN", "MatMul", "Where",
                                  "InstanceNormalization", "CumProd", "Gather", "LSTM", "Scan"])
def test_dynamic_sizes(name: str) -> None:
    case = CASES[name]
    feeds = inputs_of(case)
    fixed = tensorbox.Session(model_of(case), compile=False).run(feeds)
    dynamic = tensorbox.Session(model_of(case), compile=False, all_dims_dynamic=True).run(feeds)
    for key, value in fixed.items():
        np.testing.assert_allclose(dynamic[key], value, rtol=1e-12, atol=1e-14)


def test_compiled() -> None:
    """Generated code of gradients computes what the evaluator does."""
    case = Case("r = LRN<size = 3, alpha = 0.5>(x) p = LpPool<kernel_shape = [2, 2], strides = [2, 2], p = 3>(r) "
                "s = Constant<value = float[4] {1, 1, 2, 1.5}> () z = Resize<mode = \"linear\">(p, , s) "
                "n = GroupNormalization<num_groups = 2>(z, w, w) c = Mish(n)", x=(2, 4, 4, 6), w=(4,), opset=21)
    feeds = inputs_of(case)
    want = tensorbox.Session(model_of(case), compile=False).run(feeds)
    for name, value in tensorbox.Session(model_of(case)).run(feeds).items():
        np.testing.assert_allclose(value, want[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("gradient,text", [
    ("i = Constant<value = float[2] {1, 2}> ()", "has another size"), ("i = Constant<value = float {1}> ()", "of rank 0"),
    ("i = Constant<value = double[3] {1, 2, 3}> ()", "is float64"),
])
def test_a_derivative_of_another_shape(gradient: str, text: str) -> None:
    """The compiler's own node, as an exported model holds it, is checked like any other."""
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 20, "tensorbox": 1]> g (float[3] x) => (float[3] d) {{ {gradient} '
        'd = tensorbox.Derivative<operator = "Relu", domain = "", outputs = [1], opset = 20> (x, i) }')
    with pytest.raises(tensorbox.ModelError, match=f"node 'd'.*{text}"):
        tensorbox.Session(model, compile=False)

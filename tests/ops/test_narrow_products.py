"""Products and convolutions of halves and of quantised integers, alone and in the chains that models have of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from peers import compare, model_of, tensorbox

ml_dtypes = pytest.importorskip("ml_dtypes")
HALVES = [np.float16, ml_dtypes.bfloat16]
BYTES = [np.uint8, np.int8]


def model(nodes: Sequence[onnx.NodeProto], inputs: dict[str, np.ndarray], constants: dict[str, np.ndarray],
          outputs: dict[str, type]) -> onnx.ModelProto:
    def kind(t: type) -> int:
        return helper.np_dtype_to_tensor_dtype(np.dtype(t))

    infos = [helper.make_tensor_value_info(n, kind(v.dtype), v.shape) for n, v in inputs.items()]
    results = [helper.make_tensor_value_info(n, kind(t), None) for n, t in outputs.items()]
    values = [helper.make_tensor(n, kind(v.dtype), v.shape, v.tobytes(), raw=True) for n, v in constants.items()]
    graph = helper.make_graph(list(nodes), "products", infos, results, values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def run(m: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    return [tensorbox.Session(m, compile=False, all_dims_dynamic=dynamic).run(feeds) for dynamic in (False, True)]


def steps_apart(got: np.ndarray, want: np.ndarray) -> float:
    """The largest distance in units of the last place of the half-precision type of `got`, relative to the largest value."""
    bits = 10 if got.dtype == np.float16 else 7
    largest = max(np.abs(want).max(initial=0), 1e-30)
    return float(np.abs(got.astype(np.float64) - want).max(initial=0) / largest * 2**bits)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("shapes", [((3, 4), (4, 5)), ((2, 3, 17), (17, 65)), ((2, 1, 3, 4), (5, 4, 2)), ((7,), (7,)), ((1, 300), (300, 70)),
                                    ((0, 4), (4, 3)), ((2, 3, 0), (0, 5))])
@pytest.mark.parametrize("constant", [False, True])
def test_matmul_of_halves(half: type, shapes: tuple[tuple[int, ...], tuple[int, ...]], constant: bool) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(s).astype(half) for s in shapes)
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    m = model([node], {"a": a} | ({} if constant else {"b": b}), {"b": b} if constant else {}, {"y": half})
    want = a.astype(np.float64) @ b.astype(np.float64)
    for got in run(m, {"a": a} | ({} if constant else {"b": b})):
        assert got["y"].dtype == half and got["y"].shape == want.shape
        assert steps_apart(got["y"], want) <= 1


@pytest.mark.parametrize("half", HALVES)
def test_large_constants_of_halves_are_widened_by_the_kernel(half: type) -> None:
    rng = np.random.default_rng(2)
    special = np.array([0, -0.0, 1e-7, -3e-5, 6e-8, 1000], np.float32).astype(half)
    a, b = rng.standard_normal((9, 300)).astype(half), rng.standard_normal((300, 400)).astype(half)
    b[0, :6] = special
    nodes = [helper.make_node("Gemm", ["a", "b", "c"], ["t"], transB=1, alpha=0.5), helper.make_node("Relu", ["t"], ["u"]),
             helper.make_node("MatMul", ["u", "d"], ["y"]), helper.make_node("Add", ["u", "u"], ["z"])]
    c, d = rng.standard_normal(400).astype(half), rng.standard_normal((400, 256)).astype(half)
    m = model(nodes, {"a": a}, {"b": np.ascontiguousarray(b.T), "c": c, "d": d}, {"y": half, "z": half})
    u = np.maximum(0.5 * (a.astype(np.float64) @ b.astype(np.float64)) + c.astype(np.float64), 0)
    for got in run(m, {"a": a}):
        assert steps_apart(got["z"], 2 * u) <= 1.5
        assert steps_apart(got["y"], u @ d.astype(np.float64)) <= 2


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("group", [1, 4])
def test_convolution_of_halves(half: type, group: int) -> None:
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((2, 8, 9, 7)).astype(half), rng.standard_normal((12, 8 // group, 3, 3)).astype(half)
    b = rng.standard_normal(12).astype(half)
    attributes = {"group": group, "pads": [1, 0, 1, 2], "strides": [2, 1]}
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["t"], **attributes), helper.make_node("Relu", ["t"], ["y"])]
    m = model(nodes, {"x": x}, {"w": w, "b": b}, {"y": half})
    wide = model(nodes, {"x": x.astype(np.float32)}, {"w": w.astype(np.float32), "b": b.astype(np.float32)}, {"y": np.float32})
    want = onnx.reference.ReferenceEvaluator(wide).run(None, {"x": x.astype(np.float32)})[0]
    for got in run(m, {"x": x}):
        assert got["y"].dtype == half and steps_apart(got["y"], want) <= 1


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize(("channels", "size"), [(96, 3), (32, 5), (7, 3), (100, 3)])
def test_depthwise_convolution_between_products_of_halves(half: type, channels: int, size: int) -> None:
    """oneDNN is slow where the result of such a convolution is float16, and fast where it is float32."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((2, 24, 14, 5)).astype(half)
    constants = {"u": (rng.standard_normal((channels, 24, 1, 1)) / 5).astype(half),
                 "w": (rng.standard_normal((channels, 1, size, size)) / size).astype(half),
                 "b": rng.standard_normal(channels).astype(half),
                 "v": (rng.standard_normal((16, channels, 1, 1)) / np.sqrt(channels)).astype(half)}
    nodes = [helper.make_node("Conv", ["x", "u"], ["t"]), helper.make_node("Relu", ["t"], ["r"]),
             helper.make_node("Conv", ["r", "w", "b"], ["s"], group=channels, pads=[size // 2] * 4), helper.make_node("Conv", ["s", "v"], ["y"])]
    m = model(nodes, {"x": x}, constants, {"y": half})
    session = tensorbox.Session(m, compile=False)
    ours = [step["decisions"] for step in session.explain() if f"group {channels}" in step["name"]]
    assert ours and not any("implementation: brgconv:" in line for line in ours[0])
    double = {n: c.astype(np.float64) for n, c in constants.items()}
    wide = model(nodes, {"x": x.astype(np.float64)}, double, {"y": np.float64})
    want = ReferenceEvaluator(wide).run(None, {"x": x.astype(np.float64)})[0]
    for got in run(m, {"x": x}):
        assert got["y"].dtype == half and steps_apart(got["y"], want) <= 3


def whole(rng: np.random.Generator, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """A third of the numbers at the ends of the range, where 16-bit sums of products saturate."""
    info = np.iinfo(dtype)
    some = rng.integers(info.min, info.max + 1, shape)
    return np.where(rng.random(shape) < 0.33, np.where(rng.random(shape) < 0.5, info.min, info.max), some).astype(dtype)


@pytest.mark.parametrize("a_type", BYTES)
@pytest.mark.parametrize("b_type", BYTES)
@pytest.mark.parametrize("zeros", ["none", "single", "vectors"])
@pytest.mark.parametrize("constant", [False, True])
def test_matmul_integer(a_type: type, b_type: type, zeros: str, constant: bool) -> None:
    rng = np.random.default_rng(4)
    for a_shape, b_shape in [((5, 33), (33, 17)), ((2, 3, 64), (64, 65)), ((2, 4, 8), (2, 8, 3)), ((1, 128), (128, 9)), ((3, 0), (0, 2))]:
        if zeros == "vectors" and len(b_shape) > 2:
            continue
        a, b = whole(rng, a_shape, a_type), whole(rng, b_shape, b_type)
        az = whole(rng, (a_shape[-2],) if zeros == "vectors" else (), a_type)
        bz = whole(rng, (b_shape[-1],) if zeros == "vectors" else (), b_type)
        names = ["a", "b"] + ([] if zeros == "none" else ["az", "bz"])
        given = {"a": a, "b": b, "az": az, "bz": bz}
        fixed = [n for n in names if constant and n in ("b", "bz")]
        m = model([helper.make_node("MatMulInteger", names, ["y"])], {n: given[n] for n in names if n not in fixed},
                  {n: given[n] for n in fixed}, {"y": np.int32})
        left, right = a.astype(np.int64), b.astype(np.int64)
        if zeros != "none":
            left = left - (az.astype(np.int64)[:, None] if zeros == "vectors" else az.astype(np.int64))
            right = right - bz.astype(np.int64)
        for got in run(m, {n: given[n] for n in names if n not in fixed}):
            np.testing.assert_array_equal(got["y"], left @ right)


@pytest.mark.parametrize("x_type", BYTES)
@pytest.mark.parametrize("w_type", BYTES)
@pytest.mark.parametrize("w_zero", [None, "middle", 3])
@pytest.mark.parametrize("constant", [False, True])
def test_conv_integer(x_type: type, w_type: type, w_zero: object, constant: bool) -> None:
    rng = np.random.default_rng(5)
    for group, channels in [(1, 6), (2, 8), (8, 8)]:
        x, w = whole(rng, (2, channels, 7, 8), x_type), whole(rng, (16, channels // group, 3, 2), w_type)
        xz = whole(rng, (), x_type)
        wz = np.asarray(128 if w_type == np.uint8 else 0 if w_zero == "middle" else w_zero or 0, w_type)
        names = ["x", "w", "xz"] + ([] if w_zero is None else ["wz"])
        given = {"x": x, "w": w, "xz": xz, "wz": wz}
        fixed = [n for n in names if constant and n != "x"]
        attributes = {"group": group, "pads": [1, 1, 0, 1], "strides": [1, 2]}
        m = model([helper.make_node("ConvInteger", names, ["y"], **attributes)], {n: given[n] for n in names if n not in fixed},
                  {n: given[n] for n in fixed}, {"y": np.int32})
        real = helper.make_node("Conv", ["x", "w"], ["y"], **attributes)
        left = x.astype(np.float64) - float(xz)
        right = w.astype(np.float64) - (0 if w_zero is None else float(wz))
        want = onnx.reference.ReferenceEvaluator(model([real], {"x": left, "w": right}, {}, {"y": np.float64})).run(None, {"x": left, "w": right})[0]
        for got in run(m, {n: given[n] for n in names if n not in fixed}):
            np.testing.assert_array_equal(got["y"], want)


def quantised(name: str, out: str) -> onnx.NodeProto:
    return helper.make_node("QuantizeLinear", [name, f"{out}_scale", f"{out}_zero"], [out])


def real(name: str, axis: int | None = None) -> onnx.NodeProto:
    return helper.make_node("DequantizeLinear", [name, f"{name}_scale", f"{name}_zero"], [f"{name}_real"],
                            **({} if axis is None else {"axis": axis}))


@pytest.mark.parametrize("kind", ["Conv", "Gemm", "MatMul"])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("types", [(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8)])
def test_quantised_chain(kind: str, per_channel: bool, types: tuple[type, type]) -> None:
    """Q -> DQ -> product -> Relu -> Q -> DQ -> product: within one step of float64 arithmetic on the same integers."""
    rng = np.random.default_rng(6)
    x_type, w_type = types
    n, spatial = 24, (9, 9) if kind == "Conv" else ()
    x = rng.standard_normal((2, 16, *spatial)).astype(np.float32)
    axis = {"Conv": 0, "Gemm": 0, "MatMul": 1}[kind]
    shape = {"Conv": (n, 16, 3, 3), "Gemm": (n, 16), "MatMul": (16, n)}[kind]
    middle = 128 if w_type == np.uint8 else 0
    constants: dict[str, np.ndarray] = {
        "x8_scale": np.float32(0.02), "x8_zero": np.asarray(121 if x_type == np.uint8 else -7, x_type),
        "w": whole(rng, shape, w_type),
        "w_scale": rng.uniform(0.001, 0.004, n if per_channel else ()).astype(np.float32),
        "w_zero": np.full(n if per_channel else (), middle, w_type),
        "b": rng.integers(-4000, 4000, n).astype(np.int32), "b_scale": np.float32(0.00005), "b_zero": np.int32(0),
        "y_scale": np.float32(0.017), "y_zero": np.asarray(3, x_type),
    }
    constants = {k: np.asarray(v) for k, v in constants.items()}
    attributes = {"Conv": {"pads": [1, 1, 1, 1]}, "Gemm": {"transB": 1}, "MatMul": {}}[kind]
    product = helper.make_node(kind, ["x8_real", "w_real"] + (["b_real"] if kind != "MatMul" else []), ["p"], **attributes)
    nodes = [quantised("x", "x8"), real("x8"), real("w", axis if per_channel else None), real("b"), product,
             helper.make_node("Relu", ["p"], ["r"]), quantised("r", "y"), real("y")]
    m = model(nodes, {"x": x}, constants, {"y": x_type, "y_real": np.float32})
    c = {k: v.astype(np.float64) for k, v in constants.items()}
    info = np.iinfo(x_type)
    x8 = np.clip(np.rint(x / constants["x8_scale"]) + c["x8_zero"], info.min, info.max)
    across = tuple(n if per_channel and k == axis else 1 for k in range(len(shape)))
    left, right = (x8 - c["x8_zero"]) * c["x8_scale"], (c["w"] - middle) * c["w_scale"].reshape(across if per_channel else ())
    bias = c["b"] * c["b_scale"] if kind != "MatMul" else np.zeros(n)
    if kind == "Conv":
        inputs = {"x": left, "w": right, "b": bias}
        conv = model([helper.make_node("Conv", ["x", "w", "b"], ["y"], **attributes)], inputs, {}, {"y": np.float64})
        p = onnx.reference.ReferenceEvaluator(conv).run(None, inputs)[0]
    else:
        p = left @ (right.T if kind == "Gemm" else right) + bias
    quotient = np.maximum(p, 0) / c["y_scale"]
    want = np.clip(np.rint(quotient) + c["y_zero"], info.min, info.max)
    for got in run(m, {"x": x}):
        different = got["y"].astype(np.float64) != want
        # Only where float64 is next to a tie may float32 go to its other side.
        assert np.all(np.abs(np.abs(quotient[different] - np.floor(quotient[different])) - 0.5) < 1e-3)
        assert different.mean() < 0.01
        np.testing.assert_allclose(got["y_real"], (got["y"].astype(np.float64) - c["y_zero"]) * c["y_scale"], 1e-6)


@pytest.mark.parametrize("channels", [2, 8, 17, 24, 33, 96])
@pytest.mark.parametrize("type_", [np.uint8, np.int8])
@pytest.mark.parametrize("attributes", [{"pads": [1, 1, 1, 1]}, {"strides": [2, 1], "pads": [0, 2, 1, 0]}, {"dilations": [1, 2], "pads": [1, 2, 1, 2]}])
def test_depthwise_convolution_of_bytes(channels: int, type_: type, attributes: dict[str, list[int]]) -> None:
    """Of an image with a zero point, which padding stands for: as integers, and quantised again."""
    rng = np.random.default_rng(channels)
    x, w = whole(rng, (2, channels, 9, 8), type_), whole(rng, (channels, 1, 3, 3), np.int8)
    zero = np.asarray(117 if type_ == np.uint8 else -90, type_)
    attributes = attributes | {"group": channels}
    conv = model([helper.make_node("Conv", ["x", "w"], ["y"], **attributes)], {"x": x.astype(np.float64), "w": w.astype(np.float64)}, {}, {"y": np.float64})
    sums = ReferenceEvaluator(conv).run(None, {"x": x.astype(np.float64) - float(zero), "w": w.astype(np.float64)})[0]
    m = model([helper.make_node("ConvInteger", ["x", "w", "z"], ["y"], **attributes)], {"x": x}, {"w": w, "z": zero}, {"y": np.int32})
    for got in run(m, {"x": x}):
        np.testing.assert_array_equal(got["y"], sums)
    constants = {"x_scale": np.float32(0.02), "x_zero": zero, "w": w, "w_scale": rng.uniform(0.001, 0.004, channels).astype(np.float32),
                 "w_zero": np.zeros(channels, np.int8), "y_scale": np.float32(0.07), "y_zero": np.asarray(3, type_)}
    constants = {k: np.asarray(v) for k, v in constants.items()}
    nodes = [real("x"), real("w", 0), helper.make_node("Conv", ["x_real", "w_real"], ["p"], **attributes), quantised("p", "y")]
    info = np.iinfo(type_)
    quotient = sums * (0.02 * constants["w_scale"].astype(np.float64))[:, None, None] / 0.07
    want = np.clip(np.rint(quotient) + 3, info.min, info.max)
    near = np.abs(np.abs(quotient % 1) - 0.5) < 1e-3
    session_model = model(nodes, {"x": x}, constants, {"y": type_})
    for got in run(session_model, {"x": x}):
        np.testing.assert_array_equal(got["y"].astype(np.float64)[~near], want[~near])


@pytest.mark.parametrize("kind", ["Conv", "MatMul"])
@pytest.mark.parametrize("types", [(np.uint8, np.uint8), (np.int8, np.uint8), (np.uint8, np.int8)])
@pytest.mark.parametrize("size", [0, 1, 7, 16])
def test_residual_of_bytes(kind: str, types: tuple[type, type], size: int) -> None:
    """Q(DQ(Q(product)) + DQ(residual)): the sum of bytes, which the library adds to what it would have stored."""
    rng = np.random.default_rng(size)
    type_, residual_type = types
    n = 24
    shape = (2, n, size, 5) if kind == "Conv" else (2, size, n)
    constants: dict[str, np.ndarray] = {
        "x8_scale": np.float32(0.02), "x8_zero": np.asarray(100 if type_ == np.uint8 else -7, type_),
        "r8_scale": np.float32(0.035), "r8_zero": np.asarray(3, residual_type),
        "w": rng.integers(-127, 128, (n, n, 1, 1) if kind == "Conv" else (n, n)).astype(np.int8),
        "w_scale": rng.uniform(0.002, 0.008, n).astype(np.float32), "w_zero": np.zeros(n, np.int8),
        "p8_scale": np.float32(0.019), "p8_zero": np.asarray(119 if type_ == np.uint8 else 5, type_),
        "y_scale": np.float32(0.027), "y_zero": np.asarray(9, type_),
    }
    constants = {k: np.asarray(v) for k, v in constants.items()}
    inputs = {"x": 2 * rng.standard_normal(shape).astype(np.float32), "r": 3 * rng.standard_normal(shape).astype(np.float32)}
    nodes = [quantised("x", "x8"), real("x8"), quantised("r", "r8"), real("r8"), real("w", 0 if kind == "Conv" else 1),
             helper.make_node(kind, ["x8_real", "w_real"], ["p"]), quantised("p", "p8"), real("p8"),
             helper.make_node("Add", ["r8_real", "p8_real"], ["s"]), helper.make_node("Relu", ["s"], ["t"]), quantised("t", "y")]
    m = model(nodes, inputs, constants, {"y": type_, "p8": type_} if size == 7 else {"y": type_})
    c = {k: v.astype(np.float64) for k, v in constants.items()}

    def bytes_of(v: np.ndarray, name: str) -> np.ndarray:
        info = np.iinfo(constants[f"{name}_zero"].dtype)
        return np.clip(np.rint(v / c[f"{name}_scale"]) + c[f"{name}_zero"], info.min, info.max)

    def real_of(v: np.ndarray, name: str) -> np.ndarray:
        return (v - c[f"{name}_zero"]) * c[f"{name}_scale"]

    x, r = (real_of(bytes_of(inputs[k], f"{k}8"), f"{k}8") for k in "xr")
    if kind == "Conv":
        w = c["w"][:, :, 0, 0] * c["w_scale"][:, None]
        p = np.einsum("oi,bihw->bohw", w, x)
    else:
        p = x @ (c["w"] * c["w_scale"])
    near = np.abs(np.abs(p / c["p8_scale"] % 1) - 0.5) < 1e-3  # one step more or less before the sum
    total = np.maximum(real_of(bytes_of(p, "p8"), "p8") + r, 0)
    quotient = total / c["y_scale"]
    near |= np.abs(np.abs(quotient % 1) - 0.5) < 1e-3
    want = bytes_of(total, "y")
    assert near.mean() < 0.02 if near.size else True
    for got in run(m, inputs):
        assert got["y"].dtype == type_ and got["y"].shape == shape
        np.testing.assert_array_equal(got["y"].astype(np.float64)[~near], want[~near])


@pytest.mark.parametrize("shape", [(), (1,), (5000,), (1, 1), (3, 7), (9, 129), (2, 40, 200), (130, 3, 5, 9), (0, 130), (9, 0), (1, 8, 4096)])
@pytest.mark.parametrize("low,high", [(-3, 5), (1, 2), (-9, -4), (0, 0)])
def test_dynamic_quantisation(shape: tuple[int, ...], low: float, high: float) -> None:
    """The range of all elements, widened to contain 0, whatever rows it is looked for in."""
    x = np.random.default_rng(8).uniform(low, high, shape).astype(np.float32)
    m = model([helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])], {"x": x}, {},
              {"y": np.uint8, "s": np.float32, "z": np.uint8})
    least, largest = x.min(initial=0), x.max(initial=0)
    scale = np.float32((largest - least) / np.float32(255))
    with np.errstate(invalid="ignore", divide="ignore"):
        zero = np.nan_to_num(np.clip(np.rint(-least / scale), 0, 255))
        y = np.nan_to_num(np.clip(np.rint(x / scale) + zero, 0, 255))
    for got in run(m, {"x": x}):
        assert got["s"] == scale and got["z"] == zero
        if high > 0:
            np.testing.assert_array_equal(got["y"], y)


@pytest.mark.parametrize("per_column", [False, True])
def test_dynamically_quantised_product(per_column: bool) -> None:
    """What ONNX Runtime's quantize_dynamic makes of a MatMul with bias and activation."""
    rng = np.random.default_rng(7)
    x, n = rng.standard_normal((2, 5, 48)).astype(np.float32), 40
    constants = {"w": whole(rng, (48, n), np.int8), "w_zero": np.zeros(n if per_column else (), np.int8),
                 "w_scale": rng.uniform(0.001, 0.01, n if per_column else ()).astype(np.float32),
                 "bias": rng.standard_normal(n).astype(np.float32)}
    constants = {k: np.asarray(v) for k, v in constants.items()}
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["x8", "x_scale", "x_zero"]),
             helper.make_node("MatMulInteger", ["x8", "w", "x_zero", "w_zero"], ["sum"]),
             helper.make_node("Cast", ["sum"], ["real"], to=TensorProto.FLOAT),
             helper.make_node("Mul", ["x_scale", "w_scale"], ["scale"]),
             helper.make_node("Mul", ["real", "scale"], ["scaled"]),
             helper.make_node("Add", ["scaled", "bias"], ["y"]), helper.make_node("Gelu", ["y"], ["z"])]
    m = model(nodes, {"x": x}, constants, {"z": np.float32})
    low, high = min(x.min(), 0), max(x.max(), 0)
    scale = np.float32((high - low) / np.float32(255))
    zero = np.clip(np.rint(-low / scale), 0, 255)
    x8 = np.clip(np.rint(x / scale) + zero, 0, 255)
    y = ((x8 - zero) @ constants["w"].astype(np.float64)) * (float(scale) * constants["w_scale"].astype(np.float64)) + constants["bias"]
    from math import erf
    want = y * 0.5 * (1 + np.vectorize(erf)(y / np.sqrt(2)))
    for got in run(m, {"x": x}):
        np.testing.assert_allclose(got["z"], want, 1e-4, 1e-4)


@pytest.mark.parametrize("left", ["float8_e4m3fn", "float8_e5m2", "int8"])
@pytest.mark.parametrize("right", ["float8_e4m3fnuz", "float8_e5m2", "uint8"])
@pytest.mark.parametrize("result", ["float8_e4m3fn", "float8_e5m2fnuz", "uint8"])
def test_qlinear_matmul_of_8_bit_floats(left: str, right: str, result: str) -> None:
    rng = np.random.default_rng(5)
    a, b, y = (np.dtype(getattr(ml_dtypes, name, None) or name) for name in (left, right, result))
    inputs = {"A": (rng.random((3, 5)) * 12).astype(a), "a_scale": np.float32([0.5]), "a_zero": np.ones((), a),
              "B": (rng.random((5, 4)) * 12).astype(b), "b_scale": np.float32([0.25]), "b_zero": np.ones((), b),
              "y_scale": np.float32([2.0]), "y_zero": np.ones((), y)}
    model = model_of("QLinearMatMul", inputs, ["Y"], 21)
    model.graph.output[0].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(y)
    exact = (inputs["A"].astype(np.float64) - 1) @ (inputs["B"].astype(np.float64) - 1) * 0.5 * 0.25 / 2
    if y.kind == "u":
        want = np.clip(np.rint(exact) + 1, 0, 255).astype(y)
    else:
        largest = float(ml_dtypes.finfo(y).max)
        want = np.clip(exact + 1, -largest, largest).astype(y)
    compare(model, inputs, rtol=0, atol=0, want=[want])


@pytest.mark.parametrize("op", ["QuickGelu", "FastGelu", "Inverse"])
@pytest.mark.parametrize("half", HALVES)
def test_products_behind_values_of_unknown_type(op: str, half: type) -> None:
    """The importer knows no types of com.microsoft: of some the pass that widens halves does, others it leaves alone."""
    if op == "Inverse" and half is not np.float16:
        pytest.skip("Inverse has no bfloat16")
    rng = np.random.default_rng(5)
    x, w, b = (rng.standard_normal(s).astype(half) for s in ((3, 3), (3, 5), (5,)))
    x += 3 * np.eye(3, dtype=half)
    nodes = [helper.make_node(op, ["x"], ["a"], domain="com.microsoft"), helper.make_node("MatMul", ["a", "w"], ["p"]),
             helper.make_node("Add", ["b", "p"], ["y"])]
    m = model(nodes, {"x": x}, {"w": w, "b": b}, {"y": half})
    wide = x.astype(np.float64)
    if op == "Inverse":
        a = np.linalg.inv(wide)
    elif op == "QuickGelu":
        a = wide / (1 + np.exp(-1.702 * wide))
    else:
        a = wide / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))
    for got in run(m, {"x": x}):
        assert got["y"].dtype == half
        assert steps_apart(got["y"], a @ w.astype(np.float64) + b.astype(np.float64)) <= 6


@pytest.mark.parametrize("group,shape", [(1, (4, 3, 3, 3)), (3, (6, 1, 3, 2)), (2, (4, 3, 1, 1)), (1, (5, 4, 3)), (3, (27, 2, 3, 3)),
                                         (20, (20, 1, 3, 3)), (2, (32, 5, 2, 1))])
@pytest.mark.parametrize("zeros", ["one", "each", "low"])
@pytest.mark.parametrize("byte", BYTES)
@pytest.mark.parametrize("op", ["ConvInteger", "QLinearConv"])
def test_convolutions_whose_weights_have_zero_points(op: str, byte: type, zeros: str, group: int,
                                                     shape: tuple[int, ...]) -> None:
    """Weights less their zero points fill 9 bits; where those are `low`, 8 are enough."""
    rng = np.random.default_rng(6)
    low, high = (0, 256) if byte is np.uint8 else (-128, 128)
    x = rng.integers(0, 256, (2, shape[1] * group, *(9, 8)[: len(shape) - 2])).astype(np.uint8)
    w = rng.integers(low, high if zeros != "low" else low + 100, shape).astype(byte)
    w.flat[:2] = low, high - 1 if zeros != "low" else low
    z = rng.integers(low, high if zeros != "low" else low + 20, shape[0] if zeros != "one" else 1).astype(byte)
    attributes = {"group": group, "pads": [1] * (2 * (len(shape) - 2)), "strides": [2] * (len(shape) - 2)}
    wide = w.astype(np.float64) - z.astype(np.float64).reshape(-1, *[1] * (len(shape) - 1))
    exact = ReferenceEvaluator(model([helper.make_node("Conv", ["x", "w"], ["y"], **attributes)],
                                     {"x": x.astype(np.float64)}, {"w": wide}, {"y": np.float64}))
    (want,) = exact.run(None, {"x": x.astype(np.float64) - 100})
    constants = {"w": w, "wz": z, "xz": np.array(100, np.uint8)}
    if op == "ConvInteger":
        node, kind = helper.make_node(op, ["x", "w", "xz", "wz"], ["y"], **attributes), np.int32
    else:
        scales = {"xs": 0.5, "ws": 0.25, "ys": float(np.abs(want).max() / 1000 + 1e-3)}
        constants |= {name: np.array(value, np.float32) for name, value in scales.items()} | {"yz": np.array(9, np.int8)}
        node = helper.make_node(op, ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ["y"], **attributes)
        kind = np.int8
        want = np.clip(np.rint(want * np.float32(0.125) / constants["ys"]) + 9, -128, 127)
    for got in run(model([node], {"x": x}, constants, {"y": kind}), {"x": x}):
        assert got["y"].dtype == kind
        assert np.abs(got["y"].astype(np.float64) - want).max() <= (0 if op == "ConvInteger" else 1)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("left,right", [("u1", "u1"), ("u1", "i1"), ("i1", "i1")])
def test_sums_beyond_float32_are_exact_with_zero_points(left: str, right: str, constant: bool) -> None:
    """Of the largest bytes, where a sum in float32 loses its last bits: 3,072 terms are those of a transformer."""
    rng = np.random.default_rng(3)
    low, high = (np.iinfo(np.dtype(right)).min, np.iinfo(np.dtype(right)).max)
    for rows, k, n in [(0, 600, 3), (1, 520, 7), (5, 3072, 33), (2, 0, 4), (3, 1, 1)]:
        a = rng.choice([np.iinfo(left).min, np.iinfo(left).max, np.iinfo(left).max - 1], (2, rows, k)).astype(left)
        b = rng.choice([low, high, high - 1], (k, n), p=[0.1, 0.5, 0.4]).astype(right)
        for za, zb in [(0, 0), (3, 0), (0, 5), (100, 7)]:
            zeros = {"za": np.array(za, left), "zb": np.array(zb, right)}
            want = (a.astype(np.int64) - za) @ (b.astype(np.int64) - zb)
            feeds = {"a": a, "b": b} | zeros
            model = model_of("MatMulInteger", feeds, ["y"], 10, constants=["b"] if constant else [])
            given = {name: x for name, x in feeds.items() if not (constant and name == "b")}
            np.testing.assert_array_equal(tensorbox.Session(model).run(given)["y"], want.astype(np.int32), f"{rows, k, n, za, zb}")

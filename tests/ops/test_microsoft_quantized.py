"""com.microsoft operators over quantised tensors against ONNX Runtime, whose arithmetic they follow to the bit."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from peers import REFERENCE_SATURATES, expected, tensorbox

pytest.importorskip("onnxruntime")

BYTES = [np.uint8, np.int8]
ONNX_TYPE = helper.np_dtype_to_tensor_dtype


def node_model(op: str, inputs: dict[str, np.ndarray | None], result: int | list[int], constants: tuple[str, ...] = (),
               **attributes: Any) -> onnx.ModelProto:
    """One node of com.microsoft; `result` is the type of its output, or those of several (0: left out)."""
    results = [result] if isinstance(result, int) else result
    names = [name if value is not None else "" for name, value in inputs.items()]
    while names and not names[-1]:
        names.pop()
    outputs = [f"y{i}" if kind else "" for i, kind in enumerate(results)]
    node = helper.make_node(op, names, outputs, domain="com.microsoft", **attributes)
    infos = [helper.make_tensor_value_info(name, ONNX_TYPE(np.dtype(v.dtype)), v.shape)
             for name, v in inputs.items() if v is not None and name not in constants]
    values = [onnx.numpy_helper.from_array(inputs[name], name) for name in constants if inputs[name] is not None]
    graph = helper.make_graph([node], op, infos,
                              [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(outputs, results) if kind],
                              values)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def check(model: onnx.ModelProto, inputs: dict[str, np.ndarray | None], steps: int = 0, share: float = 0, rtol: float = 0,
          atol: float = 0, want: list[np.ndarray] | None = None, compiled: bool = False, ties: np.ndarray | None = None) -> None:
    """Equal in the evaluator with fixed and with dynamic sizes, and compiled where asked. Integers may differ by
    `steps` in a `share` of elements, and by one where `ties` says so, floats by the tolerances."""
    wanted = {info.name for info in model.graph.input}
    feeds = {name: value for name, value in inputs.items() if name in wanted}
    want = expected(model, feeds, "ort") if want is None else want
    for dynamic, compile in [(False, False), (True, False)] + [(False, True), (True, True)] * compiled:
        session = tensorbox.Session(model, compile=compile, all_dims_dynamic=dynamic)
        got = session.run(feeds)
        for info, reference in zip(model.graph.output, want, strict=True):
            message = f"{model.graph.name} {info.name} dynamic={dynamic} compile={compile}"
            value = got[info.name]
            assert value.shape == reference.shape and value.dtype == reference.dtype, message
            if value.dtype.kind in "iub":
                away = np.abs(value.astype(np.int64) - reference.astype(np.int64))
                away -= (away == 1) & (ties if ties is not None else False)
                assert away.max(initial=0) <= steps, message
                assert (away != 0).mean() <= share if away.size else True, f"{message}: {(away != 0).mean()} differ"
            else:
                np.testing.assert_allclose(value, reference, rtol, atol, err_msg=message)


def whole(rng: np.random.Generator, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def right(rng: np.random.Generator, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Right operands, of all bytes where the reference computes them."""
    values = whole(rng, shape, dtype)
    return (values // 2).astype(dtype) if REFERENCE_SATURATES else values


def scale(rng: np.random.Generator, low: float = 0.002, high: float = 0.1, shape: tuple[int, ...] = ()) -> np.ndarray:
    return np.asarray(rng.uniform(low, high, shape), np.float32)


PAIRS = [((3, 5, 7), (3, 5, 7)), ((2, 3, 4, 5), (1, 3, 1, 1)), ((6,), (4, 6)), ((4, 1), (1, 33)), ((), (2, 9)), ((70,), ()),
         ((0, 3), (1, 3)), ((2, 64, 9), (2, 64, 9))]


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("shapes", PAIRS)
def test_binary(op: str, shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: type) -> None:
    rng = np.random.default_rng(zlib.crc32(repr((op, shapes)).encode()))
    for trial in range(3):
        def zero() -> np.ndarray | None:
            return whole(rng, (), dtype) if trial else None

        high = 0.1 if op == "QLinearAdd" else 2e-3
        inputs = {"a": whole(rng, shapes[0], dtype), "as": scale(rng), "az": zero(), "b": whole(rng, shapes[1], dtype),
                  "bs": scale(rng, high=high), "bz": zero(), "cs": scale(rng), "cz": zero()}
        constants = ("as", "az", "bs", "bz", "cs", "cz") if trial == 1 else ()
        model, given = node_model(op, inputs, ONNX_TYPE(np.dtype(dtype)), constants), dict(inputs)
        if not trial:  # the reference does not take absent zero points
            given |= {name: np.zeros((), dtype) for name in ("az", "bz", "cz")}
        want = expected(node_model(op, given, ONNX_TYPE(np.dtype(dtype)), constants),
                        {k: v for k, v in given.items() if k not in constants}, "ort")
        check(model, inputs, compiled=trial == 1, want=want, ties=near_ties(op, {k: np.float64(v) for k, v in given.items()}))


def near_ties(op: str, v: dict[str, Any]) -> np.ndarray:
    """Where the real result lies so close to a half that either neighbour is right: in which order float32 adds depends on
    which operand repeats, which a model of dynamic sizes does not know. The terms are rounded, whatever their sum."""
    a, b = v["as"] * (v["a"] - v["az"]) / v["cs"], v["bs"] * (v["b"] - v["bz"])
    terms = [a, b / v["cs"]] if op == "QLinearAdd" else [a * b]
    exact = sum(terms, v["cz"])
    return np.abs(exact - np.floor(exact) - 0.5) < 1e-6 * sum(map(np.abs, terms), np.abs(v["cz"]))


@pytest.mark.parametrize("dtype", BYTES)
def test_all_byte_pairs(dtype: type) -> None:
    """Every pair of values, where ties and ends of the range occur."""
    info = np.iinfo(dtype)
    values = np.arange(info.min, info.max + 1).astype(dtype)
    a, b = (np.ascontiguousarray(v) for v in np.meshgrid(values, values))
    for scales in [(0.5, 0.25, 0.5), (0.02, 0.02, 0.03), (1.5, 0.1, 0.7)]:
        s = [np.array(v, np.float32) for v in scales]
        zero = [np.array(v, dtype) for v in (3, 5, 7)]
        inputs = {"a": a, "as": s[0], "az": zero[0], "b": b, "bs": s[1], "bz": zero[1], "cs": s[2], "cz": zero[2]}
        constants = ("as", "az", "bs", "bz", "cs", "cz")
        for op in ("QLinearAdd", "QLinearMul"):
            check(node_model(op, inputs, ONNX_TYPE(np.dtype(dtype)), constants), inputs, compiled=True)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("op", ["QLinearSigmoid", "QLinearLeakyRelu"])
@pytest.mark.parametrize("constant", [False, True])
def test_unary(op: str, dtype: type, constant: bool) -> None:
    info = np.iinfo(dtype)
    x = np.arange(info.min, info.max + 1).astype(dtype).reshape(4, 64)
    rng = np.random.default_rng(3)
    for _ in range(10):
        inputs = {"x": x, "xs": scale(rng), "xz": whole(rng, (), dtype), "ys": scale(rng, 0.003, 0.05), "yz": whole(rng, (), dtype)}
        constants = ("xs", "xz", "ys", "yz") if constant else ()
        attributes = {"alpha": float(rng.uniform(0, 0.5))} if op == "QLinearLeakyRelu" else {}
        check(node_model(op, inputs, ONNX_TYPE(np.dtype(dtype)), constants, **attributes), inputs,
              steps=1 if op == "QLinearSigmoid" else 0, share=0.01 if op == "QLinearSigmoid" else 0)
    # The reference does not take absent zero points.
    inputs = {"x": x, "xs": scale(rng), "xz": np.zeros((), dtype), "ys": scale(rng), "yz": np.zeros((), dtype)}
    want = expected(node_model(op, inputs, ONNX_TYPE(np.dtype(dtype))), inputs, "ort")
    inputs["xz"] = inputs["yz"] = None
    check(node_model(op, inputs, ONNX_TYPE(np.dtype(dtype))), inputs, steps=1, share=0.01, want=want, compiled=True)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("constant", [False, True])
def test_concat(dtype: type, constant: bool) -> None:
    rng = np.random.default_rng(11)
    for axis in (0, 1, -1):
        inputs: dict[str, np.ndarray | None] = {"ys": scale(rng), "yz": whole(rng, (), dtype)}
        for i in range(3):
            shape = [2, 3, 5]
            shape[axis] = i + 1
            inputs[f"x{i}"] = whole(rng, tuple(shape), dtype)
            same = i == 1  # one input has the parameters of the result
            inputs[f"s{i}"] = inputs["ys"].copy() if same else scale(rng)
            inputs[f"z{i}"] = inputs["yz"].copy() if same else whole(rng, (), dtype)
        constants = tuple(name for name in inputs if name[0] != "x") if constant else ()
        check(node_model("QLinearConcat", inputs, ONNX_TYPE(np.dtype(dtype)), constants, axis=axis), inputs, compiled=axis == 1)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("shapes", [((3, 4), (3, 4), (3, 4)), ((4,), (3, 1), ()), ((2, 1, 5), (1, 4, 5), (2, 4, 1))])
def test_where(dtype: type, shapes: tuple[tuple[int, ...], ...]) -> None:
    rng = np.random.default_rng(5)
    inputs = {"c": rng.integers(0, 2, shapes[0]).astype(bool), "x": whole(rng, shapes[1], dtype), "xs": scale(rng),
              "xz": whole(rng, (), dtype), "y": whole(rng, shapes[2], dtype), "ys": scale(rng), "yz": whole(rng, (), dtype),
              "zs": scale(rng), "zz": whole(rng, (), dtype)}
    for constants in ((), ("xs", "xz", "ys", "yz", "zs", "zz")):
        check(node_model("QLinearWhere", inputs, ONNX_TYPE(np.dtype(dtype)), constants), inputs)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("opset,shape,axis", [(13, (3, 17), -1), (13, (2, 5, 6), 1), (12, (2, 5, 6), 1), (13, (4, 200), None),
                                              (12, (3, 4), None)])
def test_softmax(dtype: type, opset: int, shape: tuple[int, ...], axis: int | None) -> None:
    rng = np.random.default_rng(7)
    low = int(np.iinfo(dtype).min)
    attributes = {"opset": opset} | ({} if axis is None else {"axis": axis})
    for high in (0.02, 0.2):
        inputs = {"x": whole(rng, shape, dtype), "xs": scale(rng, 0.002, high), "xz": whole(rng, (), dtype),
                  "ys": np.array(1 / 200, np.float32), "yz": np.array(low, dtype)}
        for constants in ((), ("xs", "xz", "ys", "yz")):
            check(node_model("QLinearSoftmax", inputs, ONNX_TYPE(np.dtype(dtype)), constants, **attributes), inputs,
                  steps=1, share=0.002)


@pytest.mark.parametrize("dtype", BYTES)
def test_softmax_of_one_element(dtype: type) -> None:
    """The reference overflows here."""
    inputs = {"x": np.array([[5], [9]], dtype), "xs": np.array(0.1, np.float32), "xz": np.array(1, dtype),
              "ys": np.array(1 / 128, np.float32), "yz": np.array(-1 if dtype == np.int8 else 3, dtype)}
    want = np.full((2, 1), 127 if dtype == np.int8 else 131, dtype)
    check(node_model("QLinearSoftmax", inputs, ONNX_TYPE(np.dtype(dtype)), opset=13), inputs, want=[want])


POOLS = [dict(shape=(2, 3, 9), kernel_shape=[3]), dict(shape=(1, 4, 8, 7), kernel_shape=[3, 2], strides=[2, 1]),
         dict(shape=(2, 3, 7, 7), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
         dict(shape=(2, 3, 7, 6), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 0, 1, 2], count_include_pad=1),
         dict(shape=(2, 3, 8, 8), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
         dict(shape=(2, 3, 8, 8), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1, count_include_pad=1),
         dict(shape=(1, 2, 5, 5), kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_UPPER"),
         dict(shape=(1, 2, 5, 5), kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_LOWER"),
         dict(shape=(1, 2, 5, 6, 4), kernel_shape=[2, 3, 2], strides=[1, 2, 1], pads=[0, 1, 1, 1, 1, 0])]


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("pool", POOLS)
def test_average_pool(dtype: type, last: int, pool: dict[str, Any]) -> None:
    rng = np.random.default_rng(9)
    attributes = {k: v for k, v in pool.items() if k != "shape"}
    x = whole(rng, pool["shape"], dtype)
    if last:
        x = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    s = scale(rng)
    inputs = {"x": x, "xs": s, "xz": whole(rng, (), dtype), "ys": np.array(s * 1.13, np.float32), "yz": whole(rng, (), dtype)}
    for constants in ((), ("xs", "xz", "ys", "yz")):
        check(node_model("QLinearAveragePool", inputs, ONNX_TYPE(np.dtype(dtype)), constants, channels_last=last, **attributes),
              inputs, steps=1, share=0.005, compiled=bool(constants) and not last)
    # The reference does not take absent zero points. Sums are exact here.
    half, zero = np.array(0.5, np.float32), np.zeros((), dtype)
    inputs = {"x": x, "xs": half, "xz": zero, "ys": half, "yz": zero}
    model = node_model("QLinearAveragePool", inputs, ONNX_TYPE(np.dtype(dtype)), channels_last=last, **attributes)
    want = expected(model, inputs, "ort")
    inputs["xz"] = inputs["yz"] = None
    check(node_model("QLinearAveragePool", inputs, ONNX_TYPE(np.dtype(dtype)), channels_last=last, **attributes), inputs, want=want)


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("shape", [(2, 3, 5), (1, 8, 7, 7), (2, 3, 2, 3, 4), (2, 1, 3, 3)])
def test_global_average_pool(dtype: type, last: int, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(13)
    s = scale(rng)
    inputs = {"x": whole(rng, shape, dtype), "xs": s, "xz": whole(rng, (), dtype), "ys": np.array(s / 3, np.float32),
              "yz": whole(rng, (), dtype)}
    for constants in ((), ("xs", "xz", "ys", "yz")):
        check(node_model("QLinearGlobalAveragePool", inputs, ONNX_TYPE(np.dtype(dtype)), constants, channels_last=last), inputs,
              compiled=bool(constants))


@pytest.mark.parametrize("dtype", BYTES)
def test_reduce_mean(dtype: type) -> None:
    """No CPU kernel in ONNX Runtime: against the definition."""
    rng = np.random.default_rng(17)
    x, low, high = whole(rng, (3, 4, 5), dtype), np.iinfo(dtype).min, np.iinfo(dtype).max
    for axes, keep in [([1], 1), ([0, 2], 0), ([-1], 1), ([0, 1, 2], 0)]:
        inputs = {"x": x, "xs": np.array(0.5, np.float32), "xz": np.array(3, dtype), "ys": np.array(0.25, np.float32),
                  "yz": np.array(1, dtype)}
        mean = ((x.astype(np.float32) - 3) * np.float32(0.5)).mean(tuple(axes), keepdims=bool(keep), dtype=np.float32)
        want = np.clip(np.rint(mean / np.float32(0.25)) + 1, low, high).astype(dtype)
        check(node_model("QLinearReduceMean", inputs, ONNX_TYPE(np.dtype(dtype)), axes=axes, keepdims=keep), inputs,
              steps=1, share=0.2, want=[want])
        wide = np.int32 if dtype == np.int8 else np.uint32
        check(node_model("ReduceSumInteger", {"x": x}, ONNX_TYPE(np.dtype(wide)), axes=axes, keepdims=keep), {"x": x},
              want=[np.asarray(x.sum(tuple(axes), keepdims=bool(keep), dtype=wide))])


@pytest.mark.parametrize("dtype", BYTES)
def test_mul_integer(dtype: type) -> None:
    rng = np.random.default_rng(19)
    inputs = {"a": whole(rng, (2, 3, 4), dtype), "az": whole(rng, (), dtype), "b": whole(rng, (3, 1), dtype), "bz": None}
    want = (inputs["a"].astype(np.int32) - int(inputs["az"])) * inputs["b"].astype(np.int32)
    check(node_model("MulInteger", inputs, TensorProto.INT32), inputs, want=[want])


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("pool", [p for p in POOLS if "count_include_pad" not in p])
def test_nhwc_max_pool(dtype: type, pool: dict[str, Any]) -> None:
    x = np.ascontiguousarray(np.moveaxis(whole(np.random.default_rng(21), pool["shape"], dtype), 1, -1))
    attributes = {k: v for k, v in pool.items() if k != "shape"}
    check(node_model("NhwcMaxPool", {"x": x}, ONNX_TYPE(np.dtype(dtype)), **attributes), {"x": x}, compiled="pads" in pool)


# --- products


@pytest.mark.parametrize("a_type,b_type", [(np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)])
@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("result", ["float", "quantised"])
def test_qgemm(a_type: type, b_type: type, per_column: bool, result: str) -> None:
    rng = np.random.default_rng(23)
    m, n, k = 5, 7, 33
    for trans_a, trans_b, c_shape in [(0, 0, (n,)), (1, 0, (m, n)), (0, 1, (m, 1)), (1, 1, None), (0, 0, (1,)), (0, 0, (1, n))]:
        columns = (n,) if per_column else ()
        inputs = {"a": whole(rng, (k, m) if trans_a else (m, k), a_type), "as": scale(rng), "az": whole(rng, (), a_type),
                  "b": right(rng, (n, k) if trans_b else (k, n), b_type), "bs": scale(rng, shape=columns),
                  "bz": whole(rng, columns, b_type), "c": None if c_shape is None else rng.integers(-9999, 9999, c_shape).astype(np.int32),
                  "ys": scale(rng, 1, 5) if result == "quantised" else None,
                  "yz": whole(rng, (), a_type) if result == "quantised" else None}
        kind = ONNX_TYPE(np.dtype(a_type)) if result == "quantised" else TensorProto.FLOAT
        for constants in ((), ("as", "az", "b", "bs", "bz", "c", "ys", "yz")):
            attributes = {"transA": trans_a, "transB": trans_b, "alpha": 0.7}
            check(node_model("QGemm", inputs, kind, constants, **attributes), inputs, compiled=bool(constants) and trans_a == 0)


@pytest.mark.parametrize("a_type,b_type", [(np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)])
@pytest.mark.parametrize("shapes", [((4, 9), (9, 6)), ((2, 3, 9), (9, 6)), ((2, 3, 9), (2, 9, 6)), ((2, 2, 3, 9), (1, 2, 9, 6))])
@pytest.mark.parametrize("per_column", [False, True])
def test_matmul_integer_to_float(a_type: type, b_type: type, shapes: tuple[tuple[int, ...], ...], per_column: bool) -> None:
    rng = np.random.default_rng(29)
    columns = (6,) if len(shapes[1]) == 2 else (*shapes[1][:-2], 1, 6)
    columns = columns if per_column else ()
    for zeros, bias in [(True, True), (False, True), (True, False)]:
        inputs = {"a": whole(rng, shapes[0], a_type), "b": right(rng, shapes[1], b_type), "as": scale(rng),
                  "bs": scale(rng, shape=columns), "az": whole(rng, (), a_type) if zeros else None,
                  "bz": whole(rng, columns, b_type) if zeros else None,
                  "bias": rng.standard_normal(6).astype(np.float32) if bias else None}
        for constants in ((), ("b", "as", "bs", "az", "bz", "bias")):
            check(node_model("MatMulIntegerToFloat", inputs, TensorProto.FLOAT, constants), inputs, rtol=3e-7,
                  compiled=bool(constants) and zeros and bias)


@pytest.mark.parametrize("b_type", BYTES)
@pytest.mark.parametrize("shape", [(4, 9), (2, 3, 9), (1, 9)])
@pytest.mark.parametrize("per_column", [False, True])
def test_dynamic_quantize_matmul(b_type: type, shape: tuple[int, ...], per_column: bool) -> None:
    rng = np.random.default_rng(31)
    columns = (6,) if per_column else ()
    for a in (rng.standard_normal(shape), rng.uniform(1, 2, shape), -rng.uniform(1, 2, shape), np.zeros(shape)):
        inputs = {"a": a.astype(np.float32), "b": right(rng, (9, 6), b_type), "bs": scale(rng, shape=columns),
                  "bz": whole(rng, columns, b_type), "bias": rng.standard_normal(6).astype(np.float32)}
        for constants in ((), ("b", "bs", "bz", "bias")):
            check(node_model("DynamicQuantizeMatMul", inputs, TensorProto.FLOAT, constants), inputs, rtol=3e-7, atol=1e-6,
                  compiled=bool(constants) and bool(a.min() > 0))
    inputs["bz"] = inputs["bias"] = None
    check(node_model("DynamicQuantizeMatMul", inputs, TensorProto.FLOAT), inputs, rtol=3e-7)


def test_matmul_integer16() -> None:
    rng = np.random.default_rng(37)
    for shapes in [((4, 9), (9, 6)), ((2, 3, 9), (9, 6)), ((9,), (9, 2)), ((2, 3, 9), (2, 9, 1))]:
        inputs = {"a": rng.integers(-2000, 2000, shapes[0]).astype(np.int16), "b": rng.integers(-2000, 2000, shapes[1]).astype(np.int16)}
        check(node_model("MatMulInteger16", inputs, TensorProto.INT32), inputs, compiled=True)


@pytest.mark.parametrize("x_type,w_type", [(np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("case", [dict(x=(1, 6, 9, 8), w=(4, 6, 3, 3), pads=[1, 1, 1, 1]),
                                  dict(x=(2, 6, 9, 8), w=(6, 1, 3, 3), group=6, strides=[2, 2]),
                                  dict(x=(1, 4, 12), w=(6, 2, 5), group=2, dilations=[2]), dict(x=(1, 8, 5, 5), w=(3, 8, 1, 1))])
def test_qlinear_conv(x_type: type, w_type: type, last: int, case: dict[str, Any]) -> None:
    rng = np.random.default_rng(41)
    m = case["w"][0]
    x = whole(rng, case["x"], x_type)
    if last:
        x = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    inputs = {"x": x, "xs": scale(rng), "xz": whole(rng, (), x_type), "w": right(rng, case["w"], w_type), "ws": scale(rng, shape=(m,)),
              "wz": np.zeros(m, w_type), "ys": scale(rng, 0.5, 2), "yz": whole(rng, (), x_type),
              "b": rng.integers(-999, 999, m).astype(np.int32)}
    attributes = {k: v for k, v in case.items() if k not in "xw"}
    for constants in (("w", "wz", "ws"), ("w", "xs", "xz", "wz", "ws", "ys", "yz", "b")):
        check(node_model("QLinearConv", inputs, ONNX_TYPE(np.dtype(x_type)), constants, channels_last=last, **attributes), inputs,
              compiled="ys" in constants)


@pytest.mark.parametrize("w_type", BYTES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("per_column", [False, True])
def test_dynamic_quantize_lstm(w_type: type, direction: str, per_column: bool) -> None:
    """The reference rounds the hidden state to 8 bits in each step, so it is about one part in 255 away."""
    rng = np.random.default_rng(43)
    d, steps, batch, size, hidden = 2 if direction == "bidirectional" else 1, 5, 3, 10, 8
    parameters = (d, 4 * hidden) if per_column else (d,)
    zero = np.zeros(parameters, w_type) if w_type == np.int8 else np.full(parameters, 128, w_type)
    inputs = {"x": rng.standard_normal((steps, batch, size)).astype(np.float32), "w": right(rng, (d, size, 4 * hidden), w_type),
              "r": right(rng, (d, hidden, 4 * hidden), w_type), "b": rng.standard_normal((d, 8 * hidden)).astype(np.float32) * 0.1,
              "lens": np.array([5, 3, 4], np.int32), "h": rng.uniform(-1, 1, (d, batch, hidden)).astype(np.float32),
              "c": rng.uniform(-1, 1, (d, batch, hidden)).astype(np.float32),
              "p": rng.standard_normal((d, 3 * hidden)).astype(np.float32) * 0.1, "ws": scale(rng, 0.001, 0.004, parameters),
              "wz": zero, "rs": scale(rng, 0.001, 0.004, parameters), "rz": zero}
    attributes = {"hidden_size": hidden, "direction": direction}
    for constants in ((), ("w", "r", "b", "ws", "wz", "rs", "rz")):
        check(node_model("DynamicQuantizeLSTM", inputs, [1, 1, 1], constants, **attributes), inputs, atol=0.02, compiled=bool(constants))
    for name in ("b", "lens", "h", "c", "p"):
        inputs[name] = None
    check(node_model("DynamicQuantizeLSTM", inputs, [1, 1, 1], **attributes), inputs, atol=0.02)


# --- QuantizeLinear and DequantizeLinear of com.microsoft


@pytest.mark.parametrize("kind", ["UINT8", "INT8", "UINT16", "INT16", "UINT4", "INT4"])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_quantize_and_back(kind: str, axis: int | None) -> None:
    rng = np.random.default_rng(47)
    shape, to = (6, 8), TensorProto.DataType.Value(kind)
    columns = () if axis is None else (shape[axis],)
    low, high = {"UINT8": (0, 255), "INT8": (-128, 127), "UINT16": (0, 65535), "INT16": (-32768, 32767), "UINT4": (0, 15),
                 "INT4": (-8, 7)}[kind]
    x = (rng.standard_normal(shape) * (high - low) / 5).astype(np.float32)
    s = scale(rng, 0.5, 1, columns)
    zero = helper.make_tensor("z", to, columns, rng.integers(low, high + 1, columns or (1,)).tolist())
    attributes = {} if axis is None else {"axis": axis}
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], domain="com.microsoft", **attributes),
             helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], domain="com.microsoft", **attributes)]
    graph = helper.make_graph(nodes, kind, [helper.make_tensor_value_info("x", 1, shape), helper.make_tensor_value_info("s", 1, columns)],
                              [helper.make_tensor_value_info("y", 1, None)], [zero])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    check(helper.make_model(graph, opset_imports=imports, ir_version=10), {"x": x, "s": s}, compiled=True)


@pytest.mark.parametrize("message,op,inputs,attributes", [
    ("one", "QLinearSigmoid", dict(x=(2,), xs=(2,), xz=(), ys=(), yz=()), {}),
    ("int8 or uint8", "QLinearAveragePool", dict(x="f", xs=(), xz=None, ys=(), yz=None), dict(kernel_shape=[2])),
    ("axis", "QLinearConcat", dict(ys=(), yz=(), x=(2, 2), xs=(), xz=()), dict(axis=3)),
    ("y_scale", "QGemm", dict(x=(2, 2), xs=(), xz=(), b=(2, 2), bs=(), bz=(), c=None, ys=()), {}),
    ("opset", "QLinearSoftmax", dict(x=(2, 2), xs=(), xz=(), ys=(), yz=()), {})])
def test_refuses(message: str, op: str, inputs: dict[str, Any], attributes: dict[str, Any]) -> None:
    values = {name: None if shape is None else np.zeros((1, 2, 4), np.float32) if shape == "f"
              else np.ones(shape, np.float32 if name.endswith("s") else np.uint8) for name, shape in inputs.items()}
    result = TensorProto.FLOAT if inputs.get("x") == "f" else TensorProto.UINT8  # the type of x, as results have
    with pytest.raises(tensorbox.ModelError, match=f"(?s){op}.*{message}|{message}.*{op}"):
        tensorbox.Session(node_model(op, values, result, **attributes), compile=False)

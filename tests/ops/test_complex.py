"""Complex tensors and 6-bit floats, against onnx.reference and numpy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

tensorbox = pytest.importorskip("tensorbox")
TYPES = {"complex64": np.complex64, "complex128": np.complex128}


def model_of(nodes: list[onnx.NodeProto], feeds: dict[str, np.ndarray], constants: dict[str, np.ndarray] = {},
             dynamic: bool = False, outputs: tuple[str, ...] = ("y",)) -> onnx.ModelProto:
    def dims(name: str, array: np.ndarray) -> list[Any]:
        return [f"{name}{i}" for i in range(array.ndim)] if dynamic else list(array.shape)

    infos = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), dims(name, a))
             for name, a in feeds.items()]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_empty_tensor_value_info(o) for o in outputs],
                              [numpy_helper.from_array(a, name) for name, a in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)], ir_version=12)


def compare(model: onnx.ModelProto, feeds: dict[str, np.ndarray], want: list[np.ndarray] | None = None) -> None:
    if want is None:
        want = ReferenceEvaluator(model).run(None, feeds)
    for compile in (False, True):
        session = tensorbox.Session(model, compile=compile, threads=1)
        for got, expected in zip(session.run(feeds).values(), want):
            assert got.dtype == expected.dtype and got.shape == expected.shape
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def numbers(dtype: Any, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


I64 = np.int64
MOVERS = {
    "Concat": (["x", "x"], {}, {"axis": 1}),
    "DepthToSpace": (["d"], {}, {"blocksize": 2}),
    "Expand": (["x", "s"], {"s": np.array([2, 3, 4], I64)}, {}),
    "Flatten": (["d"], {}, {"axis": 2}),
    "Gather": (["x", "i"], {"i": np.array([2, 0, -1], I64)}, {"axis": 1}),
    "GatherElements": (["x", "i"], {"i": np.array([[1, 0, 2, -1]], I64)}, {"axis": 0}),
    "GatherND": (["x", "i"], {"i": np.array([[1, 2], [0, 3]], I64)}, {}),
    "Identity": (["x"], {}, {}),
    "Pad": (["x", "p"], {"p": np.array([0, 1, 2, 0], I64)}, {}),
    "Pad constant": (["x", "p", "v"], {"p": np.array([0, 1, 2, 0], I64), "v": np.array(2 - 3j)}, {}),
    "Reshape": (["x", "s"], {"s": np.array([2, -1], I64)}, {}),
    "ScatterElements": (["x", "i", "u"], {"i": np.array([[1, 0]], I64), "u": np.array([[5j, 6 + 1j]])}, {}),
    "ScatterND": (["x", "i", "u"], {"i": np.array([[1, 0]], I64), "u": np.array([5j])}, {}),
    "Slice": (["x", "a", "b", "c", "d2"], {"a": np.array([3], I64), "b": np.array([0], I64), "c": np.array([1], I64),
                                           "d2": np.array([-2], I64)}, {}),
    "SpaceToDepth": (["d"], {}, {"blocksize": 2}),
    "Squeeze": (["r", "a"], {"a": np.array([0], I64)}, {}),
    "Tile": (["x", "t"], {"t": np.array([2, 1], I64)}, {}),
    "Transpose": (["x"], {}, {"perm": [1, 0]}),
    "Trilu": (["x"], {}, {"upper": 0}),
    "Unsqueeze": (["x", "a"], {"a": np.array([1], I64)}, {}),
    "Where": (["w", "x", "z"], {"w": np.array([True, False, True, True])}, {}),
}


@pytest.mark.parametrize("type_name", TYPES)
@pytest.mark.parametrize("name", MOVERS)
def test_movers(name: str, type_name: str) -> None:
    dtype = TYPES[type_name]
    inputs, constants, attributes = MOVERS[name]
    constants = {k: v.astype(dtype) if np.iscomplexobj(v) else v for k, v in constants.items()}
    arrays = {"x": numbers(dtype, 3, 4), "d": numbers(dtype, 1, 4, 2, 4), "r": numbers(dtype, 1, 3, 2),
              "z": numbers(dtype, 1, 4)}
    feeds = {k: arrays[k] for k in dict.fromkeys(inputs) if k in arrays}
    node = helper.make_node(name.split()[0], inputs, ["y"], **attributes)
    for dynamic in (False, True):
        compare(model_of([node], feeds, constants, dynamic), feeds)


@pytest.mark.parametrize("type_name", TYPES)
def test_selection(type_name: str) -> None:
    x = numbers(TYPES[type_name], 3, 4)
    x[1, 1] = x[0, 2] = 0
    x[2, 3] = x[0, 0]
    real_zero, negative_zero = x.copy(), -np.zeros((1, 2), x.dtype)
    real_zero[0, 1] = 3j
    compare(model_of([helper.make_node("NonZero", ["x"], ["y"])], {"x": real_zero}), {"x": real_zero})
    compare(model_of([helper.make_node("NonZero", ["x"], ["y"])], {"x": negative_zero}), {"x": negative_zero})
    keep = np.array([True, False, True])
    for attributes, want in (({"axis": 0}, x[keep]), ({}, x.ravel()[:3][keep]), ({"axis": -2}, x[keep])):
        node = helper.make_node("Compress", ["x", "k"], ["y"], **attributes)
        compare(model_of([node], {"x": x, "k": keep}), {"x": x, "k": keep}, [want])
    node = helper.make_node("Unique", ["x"], ["y", "i", "v", "c"])
    compare(model_of([node], {"x": x}, outputs=("y", "i", "v", "c")), {"x": x},
            [np.asarray(a) for a in np.unique(x.ravel(), True, True, True)])


def test_split_shape_and_constants() -> None:
    x = numbers(np.complex64, 4, 6)
    nodes = [helper.make_node("Split", ["x"], ["a", "b"], axis=1, num_outputs=2),
             helper.make_node("Concat", ["b", "k"], ["y"], axis=0), helper.make_node("Shape", ["y"], ["s"])]
    compare(model_of(nodes, {"x": x}, {"k": numbers(np.complex64, 2, 3)}, outputs=("y", "a", "s")), {"x": x})
    constant = helper.make_node("Constant", [], ["y"], value=numpy_helper.from_array(x))
    compare(model_of([constant], {}), {})


def test_bit_cast() -> None:
    x = numbers(np.complex64, 5)
    for to, dtype in ((TensorProto.INT64, np.int64), (TensorProto.UINT64, np.uint64), (TensorProto.DOUBLE, np.float64)):
        compare(model_of([helper.make_node("BitCast", ["x"], ["y"], to=to)], {"x": x}), {"x": x}, [x.view(dtype)])
        bits = x.view(dtype)
        node = helper.make_node("BitCast", ["b"], ["y"], to=TensorProto.COMPLEX64)
        compare(model_of([node], {"b": bits}), {"b": bits}, [x])


def test_linear_interpolation_works_on_both_parts() -> None:
    x = numbers(np.complex64, 1, 1, 4, 4)
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="linear")
    scales = {"s": np.array([1, 1, 2, 2], np.float32)}
    parts = [ReferenceEvaluator(model_of([node], {"x": part}, scales)).run(None, {"x": part})[0]
             for part in (x.real.copy(), x.imag.copy())]
    compare(model_of([node], {"x": x}, scales), {"x": x}, [(parts[0] + 1j * parts[1]).astype(np.complex64)])


def test_bodies_and_sequences() -> None:
    """If decided in a run, a sequence, and a loop that is not unrolled."""
    model = onnx.parser.parse_model("""<ir_version: 12, opset_import: ["": 26]>
      g (complex64[n] x, bool c, int64 times) => (complex64[m] y, complex64[k] z) {
        y = If(c) <then_branch = t () => (complex64[m] a) { a = Concat<axis = 0>(x, x) },
                   else_branch = e () => (complex64[m] b) { b = Identity(x) }>
        s = SequenceConstruct(x, x) yes = Constant<value = bool {1}>()
        r = Loop(times, yes, s) <body = body (int64 i, bool go, seq(complex64[n]) v) => (bool on, seq(complex64[n]) w) {
          on = Identity(go) w = SequenceInsert(v, x) }>
        z = ConcatFromSequence<axis = 0>(r) }""")
    x = numbers(np.complex64, 3)
    for condition in (True, False):
        feeds = {"x": x, "c": np.array(condition), "times": np.array(2, I64)}
        compare(model, feeds, [np.concatenate([x, x]) if condition else x, np.tile(x, 4)])


def test_an_operator_of_real_numbers_is_refused() -> None:
    x = numbers(np.complex64, 3)
    with pytest.raises(tensorbox.ModelError, match="Add"):
        tensorbox.Session(model_of([helper.make_node("Add", ["x", "x"], ["y"])], {"x": x}))


SIX = {"FLOAT6E2M3": ml_dtypes.float6_e2m3fn, "FLOAT6E3M2": ml_dtypes.float6_e3m2fn}


def of_opset_28(node: onnx.NodeProto, inputs: list[tuple[str, int, list[int]]], to: int,
                initializers: tuple[onnx.TensorProto, ...] = ()) -> onnx.ModelProto:
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info(*i) for i in inputs],
                              [helper.make_tensor_value_info("y", to, None)], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 28)], ir_version=14)


@pytest.mark.parametrize("name", SIX)
@pytest.mark.parametrize("compile", [False, True])
def test_six_bit_floats(name: str, compile: bool) -> None:
    number, dtype = getattr(TensorProto, name), SIX[name]
    x = np.concatenate([np.linspace(-40, 40, 331), [np.inf, -np.inf, 0.03, -0.03]]).astype(np.float32)
    codes = np.arange(64, dtype=np.uint8).view(dtype)

    def run(model: onnx.ModelProto, **feeds: np.ndarray) -> np.ndarray:
        return tensorbox.Session(model, compile=compile).run(feeds)["y"]

    down = of_opset_28(helper.make_node("Cast", ["x"], ["y"], to=number), [("x", 1, [len(x)])], number)
    got = run(down, x=x)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got.astype(np.float32), x.astype(dtype).astype(np.float32))
    up = of_opset_28(helper.make_node("Cast", ["x"], ["y"], to=1), [("x", number, [64])], 1)
    np.testing.assert_array_equal(run(up, x=codes), codes.astype(np.float32))
    scale, zero = (helper.make_tensor("s", 1, [], [0.5]),
                   helper.make_tensor("z", number, [], np.zeros(1, dtype)))
    quantize = of_opset_28(helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"]), [("x", 1, [len(x)])], number,
                           (scale, zero))
    np.testing.assert_array_equal(run(quantize, x=x).astype(np.float32), (x / 0.5).astype(dtype).astype(np.float32))
    dequantize = of_opset_28(helper.make_node("DequantizeLinear", ["x", "s"], ["y"]), [("x", number, [64])], 1, (scale,))
    np.testing.assert_array_equal(run(dequantize, x=codes), codes.astype(np.float32) * np.float32(0.5))
    # Stored packed, four elements in three bytes, and with an entry each.
    for count in (1, 2, 3, 4, 5, 64):
        for raw in (True, False):
            stored = (numpy_helper.from_array(codes[:count], "x") if raw
                      else helper.make_tensor("x", number, [count], codes[:count]))
            model = of_opset_28(helper.make_node("Cast", ["x"], ["y"], to=1), [], 1, (stored,))
            np.testing.assert_array_equal(run(model), codes[:count].astype(np.float32))

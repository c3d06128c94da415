"""Models whose plans are kept, and what of sessions of them has to be equal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

tensorbox = pytest.importorskip("tensorbox")

F, F16, I, S, B = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.STRING, TensorProto.BOOL  # noqa: E741
node = helper.make_node
rng = np.random.default_rng(11)


def info(name: str, kind: int, dims: list[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, dims)


def model_of(nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, list]], outputs: dict[str, tuple[int, list]],
             opset: int = 17, **weights: np.ndarray) -> onnx.ModelProto:
    infos = [[info(name, kind, dims) for name, (kind, dims) in of.items()] for of in (inputs, outputs)]
    graph = helper.make_graph(nodes, "kept", *infos, [numpy_helper.from_array(w, name) for name, w in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8, producer_name="test")


def normal(*dims: int, kind: type = np.float32) -> np.ndarray:
    return rng.standard_normal(dims).astype(kind)


WEIGHTS, WIDE = normal(8, 5), normal(64, 96)
CONV = {"w": normal(8, 3, 3, 3), "s": normal(8), "b": normal(8), "m": normal(8), "v": np.abs(normal(8)) + 1}
BYTES = rng.integers(-9, 9, (24, 16, 1, 1)).astype(np.int8)


def product(scale: float = 1) -> onnx.ModelProto:
    """y = softmax(tanh(x) · w), x [n, 64]: kernels, a library's product, a weight that stays in the model."""
    return model_of([node("Tanh", ["x"], ["t"]), node("MatMul", ["t", "w"], ["p"]), node("Softmax", ["p"], ["y"])],
                    {"x": (F, ["n", 64])}, {"y": (F, ["n", 96])}, w=WIDE * np.float32(scale))


def convolution() -> onnx.ModelProto:
    """Batch normalisation is folded into the weights, which lie in the plan then."""
    return model_of([node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
                     node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"]), node("Relu", ["n"], ["y"])],
                    {"x": (F, [1, 3, 9, 7])}, {"y": (F, [1, 8, 9, 7])}, **CONV)


def branches() -> onnx.ModelProto:
    def branch(name: str, operator: str) -> onnx.GraphProto:
        return helper.make_graph([node("MatMul", ["x", "w"], [f"{name}_p"]), node(operator, [f"{name}_p"], [f"{name}_y"])], name, [],
                                 [info(f"{name}_y", F, ["n", 5])])
    return model_of([node("If", ["which"], ["t"], then_branch=branch("a", "Tanh"), else_branch=branch("b", "Relu")),
                     node("Exp", ["t"], ["y"])],
                    {"which": (B, []), "x": (F, ["n", 8])}, {"y": (F, ["n", 5])}, w=WEIGHTS)


def loop() -> onnx.ModelProto:
    body = helper.make_graph([node("Mul", ["v", "half"], ["next"]), node("ReduceSum", ["next"], ["sum"], keepdims=0),
                              node("Greater", ["sum", "bound"], ["again"])], "body",
                             [info("i", I, []), info("cond", B, []), info("v", F, [4])], [info("again", B, []), info("next", F, [4])])
    return model_of([node("Loop", ["", "go", "x"], ["y"], body=body)], {"x": (F, [4])}, {"y": (F, [4])}, go=np.array(True),
                    half=np.array(0.5, np.float32), bound=np.array(1, np.float32))


def strings() -> onnx.ModelProto:
    return model_of([node("StringNormalizer", ["text"], ["upper"], case_change_action="UPPER"), node("Abs", ["x"], ["y"])],
                    {"text": (S, [3]), "x": (F, ["n"])}, {"upper": (S, [3]), "y": (F, ["n"])})


def quantized() -> onnx.ModelProto:
    zero, scale = np.array(0, np.int8), np.array(0.03, np.float32)
    q = [node("QuantizeLinear", ["x", "s", "z"], ["xq"]), node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
         node("DequantizeLinear", ["w", "s", "z"], ["wd"]), node("Conv", ["xd", "wd"], ["c"]), node("Relu", ["c"], ["r"]),
         node("QuantizeLinear", ["r", "s", "z"], ["yq"]), node("DequantizeLinear", ["yq", "s", "z"], ["y"])]
    return model_of(q, {"x": (F, [1, 16, 8, 8])}, {"y": (F, [1, 24, 8, 8])}, 19, s=scale, z=zero, w=BYTES)


def halves() -> onnx.ModelProto:
    return model_of([node("MatMul", ["x", "w"], ["p"]), node("Sigmoid", ["p"], ["y"])], {"x": (F16, ["n", 8])}, {"y": (F16, ["n", 5])},
                    w=WEIGHTS.astype(np.float16))


def found_sizes() -> onnx.ModelProto:
    return model_of([node("NonZero", ["x"], ["p"]), node("Cast", ["p"], ["f"], to=F), node("Mul", ["f", "f"], ["y"])],
                    {"x": (F, ["n", "m"])}, {"y": (F, [2, "k"])})


def meeting() -> onnx.ModelProto:
    """Compiled for a and b that are equal, which [n] and [1] are not."""
    return model_of([node("Add", ["a", "b"], ["s"]), node("Exp", ["s"], ["y"])], {"a": (F, ["n"]), "b": (F, ["m"])}, {"y": (F, ["k"])})


def default() -> onnx.ModelProto:
    model = model_of([node("Mul", ["x", "scale"], ["y"])], {"x": (F, ["n"]), "scale": (F, [1])}, {"y": (F, ["n"])},
                     scale=np.array([3], np.float32))
    return model


def text(*words: str) -> np.ndarray:
    return np.array(words, object)


KINDS: dict[str, tuple[Callable[[], onnx.ModelProto], list[dict[str, Any]], dict[str, Any]]] = {
    "product": (product, [{"x": normal(n, 64)} for n in (1, 7, 0)], {}),
    "evaluated": (product, [{"x": normal(3, 64)}], {"compile": False}),
    "fixed": (product, [{"x": normal(4, 64)}], {"dims": {"n": 4}}),
    "strict_sse": (product, [{"x": normal(5, 64)}], {"isa": "sse"}),
    "unfused": (product, [{"x": normal(5, 64)}], {"fuse": False, "fuse_extern": False}),
    "convolution": (convolution, [{"x": normal(1, 3, 9, 7)}], {}),
    "branches": (branches, [{"which": np.array(w), "x": normal(3, 8)} for w in (True, False)], {}),
    "loop": (loop, [{"x": np.abs(normal(4)) * 50}], {}),
    "strings": (strings, [{"text": text("a", "bC", "d e"), "x": normal(3)}], {}),
    "quantized": (quantized, [{"x": normal(1, 16, 8, 8)}], {}),
    "halves": (halves, [{"x": normal(3, 8, kind=np.float16)}], {}),
    "found_sizes": (found_sizes, [{"x": np.array([[0, 1, 2], [3, 0, 0]], np.float32)}, {"x": np.zeros((2, 2), np.float32)}], {}),
    "meeting": (meeting, [{"a": normal(3), "b": normal(3)}, {"a": normal(3), "b": normal(1)}], {}),
    "default": (default, [{"x": normal(3)}, {"x": normal(3), "scale": normal(1)}], {"overridable": ["scale"]}),
}


def same(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype
        np.testing.assert_array_equal(a[name], b[name])


def report(session: tensorbox.Session) -> list[Any]:
    return [(k["kind"], k["name"], k["nodes"], k["decisions"], k["bytes"], k["flops"]) for k in session.explain()]


def facts(session: tensorbox.Session) -> list[Any]:
    return [[str(i) for i in session.inputs], [str(o) for o in session.outputs], [str(i) for i in session.overridable_initializers],
            session.metadata.producer_name, session.metadata.graph_name, session.stats.nodes, session.stats.generated_kernels,
            session.stats.extern_kernels, session.stats.evaluated_kernels]


def check_reference(kind: str, model: onnx.ModelProto, feed: dict[str, Any], found: dict[str, Any]) -> None:
    # A half of a half's last place before the sigmoid and behind it; a step of the results.
    tolerance, absolute = (4e-3, 1e-3) if kind == "halves" else (0, 0.031) if kind == "quantized" else (1e-5, 1e-6)
    for name, value in zip(found, ReferenceEvaluator(model).run(None, feed), strict=True):
        if value.dtype == object or value.dtype.kind in "US":
            assert found[name].tolist() == value.tolist()
        else:
            np.testing.assert_allclose(found[name], value, rtol=tolerance, atol=absolute)


def summing() -> onnx.ModelProto:
    """y = the sum of all tokens so far, which are a state."""
    return model_of([node("Concat", ["past", "x"], ["present"], axis=1), node("ReduceSum", ["present"], ["y"], keepdims=0)],
                    {"x": (F, [1, 1, 4]), "past": (F, [1, "p", 4])}, {"y": (F, []), "present": (F, [1, "q", 4])})


def check_sums(sessions: list[tensorbox.Session]) -> None:
    """Of sixteen tokens."""
    total = 0.0
    for _ in range(16):
        x = normal(1, 1, 4)
        total += float(x.astype(np.float64).sum())
        for session in sessions:
            np.testing.assert_allclose(session.run({"x": x})["y"], total, rtol=1e-4, atol=1e-4)

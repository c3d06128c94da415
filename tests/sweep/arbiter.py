"""Who is right where ONNX Runtime and the plain loops differ: others are asked, one after the other.

The plain loops share the lowering of operators with what they judge, so that a fault there would be theirs as well. ONNX
Runtime's optimizer, its narrow types and its kernels are what it may err by: each of the others is without one of them."""
from __future__ import annotations

import math
from typing import Any, Callable, Iterator

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_conv import _conv_implementation

try:
    import onnxruntime
except ImportError:
    onnxruntime = None

Values = dict[str, np.ndarray]
Differs = Callable[[Values, Values], str]  # empty where they agree
TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "stash_type")


def widened(model: onnx.ModelProto, to: int) -> onnx.ModelProto:
    """The model with floats of type `to` instead of all narrower ones."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    types = {t for t in (TensorProto.FLOAT16, TensorProto.FLOAT) if t != to}
    dtype = onnx.helper.tensor_dtype_to_np_dtype(to)

    def tensor(t: TensorProto) -> None:
        if t.data_type in types:
            t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype(dtype), t.name))

    graph = wide.graph
    for t in graph.initializer:
        tensor(t)
    for info in [*graph.input, *graph.output, *graph.value_info]:
        if info.type.tensor_type.elem_type in types:
            info.type.tensor_type.elem_type = to
    opsets = {o.domain: o.version for o in wide.opset_import}
    for node in graph.node:
        # What norms compute in, float32 where nothing else is said.
        known = onnx.defs.has(node.op_type, node.domain) and onnx.defs.get_schema(node.op_type, opsets[node.domain], node.domain)
        if known and "stash_type" in known.attributes and all(a.name != "stash_type" for a in node.attribute):
            node.attribute.append(onnx.helper.make_attribute("stash_type", to))
        for a in node.attribute:
            if a.HasField("t"):
                tensor(a.t)
            elif a.name in TYPE_ATTRIBUTES and a.i in types:
                a.i = to
    return wide


def _by_onnxruntime(model: onnx.ModelProto, feeds: Values, threads: int) -> Values:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds)))


def with_exact_constants(model: onnx.ModelProto) -> onnx.ModelProto:
    """Of a model in float64: nodes with the constants of the standard in it, instead of functions that have them in float32."""
    exact = onnx.ModelProto()
    exact.CopyFrom(model)
    graph = exact.graph
    nodes, values = list(graph.node), iter(range(10 ** 9))

    def value() -> str:
        return f"exact {next(values)}"

    def make(op: str, *operands: str | float, result: str = "") -> str:
        names = []
        for operand in operands:
            names.append(operand if isinstance(operand, str) else value())
            if not isinstance(operand, str):
                graph.initializer.append(numpy_helper.from_array(np.float64(operand), names[-1]))
        graph.node.append(onnx.helper.make_node(op, names, [result or value()]))
        return graph.node[-1].output[0]

    del graph.node[:]
    for node in nodes:
        if node.domain or node.op_type not in ("Gelu", "HardSwish"):
            graph.node.append(node)
            continue
        x = node.input[0]
        if node.op_type == "HardSwish":
            factor = make("Max", make("Min", make("Add", make("Div", x, 6.0), 0.5), 1.0), 0.0)
        elif any(a.name == "approximate" and a.s == b"tanh" for a in node.attribute):
            cubic = make("Add", x, make("Mul", make("Mul", x, make("Mul", x, x)), 0.044715))
            factor = make("Mul", make("Add", make("Tanh", make("Mul", cubic, math.sqrt(2 / math.pi))), 1.0), 0.5)
        else:
            factor = make("Mul", make("Add", make("Erf", make("Div", x, math.sqrt(2))), 1.0), 0.5)
        make("Mul", x, factor, result=node.output[0])
    return exact


class Gelu(OpRun):
    """By the formula of the standard. Its function, which ONNX Runtime runs in float64, has the constants in float32."""
    op_domain = ""

    def _run(self, x: np.ndarray, approximate: str = "none") -> tuple[np.ndarray]:
        if approximate == "tanh":
            return (0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3))),)
        erf = np.frompyfunc(math.erf, 1, 1)(x / np.sqrt(2)).astype(x.dtype)
        return (0.5 * x * (1 + erf),)


class HardSwish(OpRun):
    """Likewise: 1/6 is an attribute of the function, and so in float32."""
    op_domain = ""

    def _run(self, x: np.ndarray) -> tuple[np.ndarray]:
        return (x * np.clip(x / 6 + 0.5, 0, 1),)


class LayerNormalization(OpRun):
    """In the type of its data. That of onnx.reference refuses every stash_type but float32."""
    op_domain = ""

    def _run(self, x: np.ndarray, scale: np.ndarray, bias: np.ndarray | None = None, axis: int = -1, epsilon: float = 1e-5,
             stash_type: int = 1) -> tuple[np.ndarray, ...]:
        axes = tuple(range(axis % x.ndim, x.ndim))
        mean = x.mean(axes, keepdims=True)
        inverse = 1 / np.sqrt(np.square(x - mean).mean(axes, keepdims=True) + np.float32(epsilon).astype(x.dtype))
        y = (x - mean) * inverse * scale
        return (y if bias is None else y + bias).astype(x.dtype), mean, inverse


def _by_exact_onnxruntime(model: onnx.ModelProto, feeds: Values, threads: int) -> Values:
    return _by_onnxruntime(with_exact_constants(model), feeds, threads)


def _integer_sums(x: np.ndarray, x_zero: np.ndarray, w: np.ndarray, w_zero: np.ndarray, bias: np.ndarray | None,
                  attributes: dict[str, Any]) -> np.ndarray:
    """Of a convolution of any rank. Those of onnx.reference take zero points and scales of channels as if all had two."""
    zeros = w_zero.astype(np.int64).reshape(-1, *[1] * (w.ndim - 1))
    asked = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    return _conv_implementation(x.astype(np.int64) - x_zero.astype(np.int64), w.astype(np.int64) - zeros, bias,
                                *[attributes[name] for name in asked])


class ConvInteger(OpRun):
    op_domain = ""

    def _run(self, x: np.ndarray, w: np.ndarray, x_zero: np.ndarray = np.uint8(0), w_zero: np.ndarray = np.uint8(0),
             **attributes: Any) -> tuple[np.ndarray]:
        return (_integer_sums(x, x_zero, w, w_zero, None, attributes).astype(np.int32),)


class QLinearConv(OpRun):
    op_domain = ""

    def _run(self, x: np.ndarray, x_scale: np.ndarray, x_zero: np.ndarray, w: np.ndarray, w_scale: np.ndarray, w_zero: np.ndarray,
             y_scale: np.ndarray, y_zero: np.ndarray, bias: np.ndarray | None = None, **attributes: Any) -> tuple[np.ndarray]:
        scale = (x_scale * w_scale / y_scale).reshape(-1, *[1] * (x.ndim - 2))
        rounded = np.round(_integer_sums(x, x_zero, w, w_zero, bias, attributes) * scale) + y_zero.astype(np.int64)
        limits = np.iinfo(y_zero.dtype)
        return (np.clip(rounded, limits.min, limits.max).astype(y_zero.dtype),)


def _by_onnx(model: onnx.ModelProto, feeds: Values) -> Values:
    evaluator = ReferenceEvaluator(model, new_ops=[ConvInteger, Gelu, HardSwish, LayerNormalization, QLinearConv])
    return dict(zip([o.name for o in model.graph.output], evaluator.run(None, feeds)))


def opinions(model: onnx.ModelProto, feeds: Values, threads: int = 1) -> Iterator[tuple[str, Values]]:
    """Whose, and what they get. Who lacks an operator or a type of the model has none."""
    asked: list[tuple[str, int, Callable[..., Values], tuple[Any, ...]]] = []
    if onnxruntime is not None:
        asked.append(("ONNX Runtime without its optimizer", 0, _by_onnxruntime, (threads,)))
        asked.append(("ONNX Runtime in float32, without its optimizer", TensorProto.FLOAT, _by_onnxruntime, (threads,)))
        asked.append(("ONNX Runtime in float64, without its optimizer", TensorProto.DOUBLE, _by_onnxruntime, (threads,)))
        asked.append(("ONNX Runtime in float64, with exact constants", TensorProto.DOUBLE, _by_exact_onnxruntime, (threads,)))
    asked.append(("onnx.reference in float64", TensorProto.DOUBLE, _by_onnx, ()))
    for who, to, run, more in asked:
        given = widened(model, to) if to else model
        if to and given == model and run is _by_onnxruntime:
            continue
        types = {i.name: onnx.helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type) for i in given.graph.input}
        try:
            with np.errstate(all="ignore"):
                yield who, run(given, {k: v.astype(types[k]) for k, v in feeds.items()}, *more)
        except Exception:  # neither has a class for what it lacks
            continue


def settle(model: onnx.ModelProto, feeds: Values, want: Values, other: Values, differs: Differs, threads: int = 1) -> tuple[str, str]:
    """"disputed", who agrees with the plain loops (`want`); "wrong", who agrees with ONNX Runtime (`other`) against them;
    "open" where nobody agrees with either."""
    against = ""
    for who, values in opinions(model, feeds, threads):
        same = {name: values[name].astype(w.dtype) for name, w in want.items()}
        if any(same[name].shape != w.shape for name, w in want.items()):
            continue
        if not differs(same, want):
            return "disputed", who
        # Its own kernels prove nothing where they do what they did before.
        if who.startswith("onnx.") and not differs(same, other):
            against = who
    return ("wrong", against) if against else ("open", "")

"""A torch form of an ONNX file, so that torch.compile can be measured on the same weights and inputs.

The graph is walked once with real inputs while torch records what runs (make_fx). What depends on shapes and constants
alone stays in numpy and is computed then, so the recording is specialised to the shapes of these inputs, as torch.compile
does by default. An operator that is not listed here ends in an error: such a model has no torch form.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch.fx.experimental.proxy_tensor import make_fx

Attributes = dict[str, Any]
OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Pow": torch.pow, "MatMul": torch.matmul,
    "Sqrt": torch.sqrt, "Reciprocal": torch.reciprocal, "Erf": torch.erf, "Tanh": torch.tanh, "Relu": torch.relu,
    "Sigmoid": torch.sigmoid, "HardSwish": F.hardswish, "HardSigmoid": None, "Exp": torch.exp, "Log": torch.log,
    "Sin": torch.sin, "Cos": torch.cos, "Neg": torch.neg, "Abs": torch.abs, "IsNaN": torch.isnan, "Where": torch.where,
    "Greater": torch.gt, "GreaterOrEqual": torch.ge, "Less": torch.lt, "LessOrEqual": torch.le, "Equal": torch.eq,
    "And": torch.logical_and, "Or": torch.logical_or, "Not": torch.logical_not, "Max": torch.maximum, "Min": torch.minimum,
    "Identity": lambda x: x,
}  # fmt: skip
SHAPED: dict[str, Callable[[Attributes, list[Any]], Any]] = {}  # the others: attributes, inputs as they come


def _shaped(function: Callable[[Attributes, list[Any]], Any]) -> Callable[[Attributes, list[Any]], Any]:
    SHAPED[function.__name__.strip("_")] = function
    return function


def _tensor(value: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray | np.generic) else value


def _ints(value: Any) -> list[int]:
    if not isinstance(value, np.ndarray):
        raise NotImplementedError("sizes that depend on data")
    return [int(v) for v in value.reshape(-1)]


def _axes(a: Attributes, x: list[Any], place: int = 1) -> list[int]:
    return _ints(x[place]) if len(x) > place and x[place] is not None else list(a.get("axes", []))


@_shaped
def Div(a: Attributes, x: list[Any]) -> Any:
    left, right = map(_tensor, x)
    return left / right if left.is_floating_point() else torch.div(left, right, rounding_mode="trunc")


@_shaped
def HardSigmoid(a: Attributes, x: list[Any]) -> Any:
    return torch.clamp(x[0] * a.get("alpha", 0.2) + a.get("beta", 0.5), 0, 1)


@_shaped
def Shape(a: Attributes, x: list[Any]) -> Any:
    return np.array(x[0].shape[a.get("start", 0) : a.get("end")], np.int64)


@_shaped
def Reshape(a: Attributes, x: list[Any]) -> Any:
    shape = _ints(x[1])
    return x[0].reshape([x[0].shape[i] if size == 0 and not a.get("allowzero") else size for i, size in enumerate(shape)])


@_shaped
def Flatten(a: Attributes, x: list[Any]) -> Any:
    axis = a.get("axis", 1)
    return x[0].reshape(int(np.prod(x[0].shape[:axis])), -1)


@_shaped
def Transpose(a: Attributes, x: list[Any]) -> Any:
    return x[0].permute(a.get("perm", list(reversed(range(x[0].dim())))))


@_shaped
def Unsqueeze(a: Attributes, x: list[Any]) -> Any:
    axes, result = _axes(a, x), x[0]
    for axis in sorted(axis % (x[0].dim() + len(axes)) for axis in axes):
        result = result.unsqueeze(axis)
    return result


@_shaped
def Squeeze(a: Attributes, x: list[Any]) -> Any:
    axes = _axes(a, x) or [i for i, size in enumerate(x[0].shape) if size == 1]
    return x[0].squeeze(tuple(axes))


@_shaped
def Gather(a: Attributes, x: list[Any]) -> Any:
    data, indices, axis = _tensor(x[0]), _tensor(x[1]), a.get("axis", 0)
    axis %= data.dim()
    if indices.dim() == 0 and isinstance(x[1], np.ndarray):
        return data.select(axis, int(x[1]))
    indices = torch.where(indices < 0, indices + data.shape[axis], indices)
    if axis == 0 and data.dim() == 2:
        return F.embedding(indices, data)
    taken = data.index_select(axis, indices.reshape(-1))
    return taken.reshape(*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])


@_shaped
def Concat(a: Attributes, x: list[Any]) -> Any:
    return torch.cat([_tensor(value) for value in x], a["axis"])


@_shaped
def Slice(a: Attributes, x: list[Any]) -> Any:
    starts, ends = _ints(x[1]), _ints(x[2])
    axes = _ints(x[3]) if len(x) > 3 and x[3] is not None else list(range(len(starts)))
    steps = _ints(x[4]) if len(x) > 4 else [1] * len(starts)
    result = _tensor(x[0])
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step < 0:
            places = np.arange(result.shape[axis])[slice(start, None if end < -result.shape[axis] else end, step)]
            result = result.index_select(axis, torch.from_numpy(places.copy()))
        else:
            index = [slice(None)] * result.dim()
            index[axis] = slice(start, end, step)
            result = result[tuple(index)]
    return result


@_shaped
def Split(a: Attributes, x: list[Any]) -> Any:
    axis = a.get("axis", 0)
    if len(x) > 1:
        return torch.split(x[0], _ints(x[1]), axis)
    return torch.chunk(x[0], a["num_outputs"], axis)


@_shaped
def Expand(a: Attributes, x: list[Any]) -> Any:
    value = _tensor(x[0])
    return value.expand(torch.broadcast_shapes(value.shape, _ints(x[1])))


@_shaped
def Cast(a: Attributes, x: list[Any]) -> Any:
    return x[0].to(_tensor(np.zeros(1, helper.tensor_dtype_to_np_dtype(a["to"]))).dtype)


@_shaped
def Gemm(a: Attributes, x: list[Any]) -> Any:
    left, right = map(_tensor, x[:2])
    left = left.t() if a.get("transA") else left
    right = right.t() if a.get("transB") else right
    if len(x) > 2 and a.get("alpha", 1.0) == a.get("beta", 1.0) == 1.0:
        return torch.addmm(_tensor(x[2]), left, right)
    result = torch.mm(left, right) * a.get("alpha", 1.0)
    return result + _tensor(x[2]) * a.get("beta", 1.0) if len(x) > 2 else result


def _padded(value: Any, pads: list[int], fill: float = 0.0) -> tuple[Any, list[int]]:
    """The value and the symmetric pads left for torch, which knows no others."""
    half = len(pads) // 2
    if pads[:half] == pads[half:]:
        return value, pads[:half]
    both = [pad for i in reversed(range(half)) for pad in (pads[i], pads[half + i])]
    return F.pad(value, both, value=fill), [0] * half


@_shaped
def Conv(a: Attributes, x: list[Any]) -> Any:
    spatial = x[1].ndim - 2
    value, pads = _padded(x[0], list(a.get("pads", [0] * 2 * spatial)))
    call = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[spatial]
    bias = _tensor(x[2]) if len(x) > 2 else None
    ones = [1] * spatial
    strides, dilations = list(a.get("strides", ones)), list(a.get("dilations", ones))
    return call(value, _tensor(x[1]), bias, strides, pads, dilations, a.get("group", 1))


@_shaped
def MaxPool(a: Attributes, x: list[Any]) -> Any:
    spatial = x[0].dim() - 2
    value, pads = _padded(x[0], list(a.get("pads", [0] * 2 * spatial)), -float("inf"))
    return F.max_pool2d(value, a["kernel_shape"], a.get("strides"), pads, ceil_mode=bool(a.get("ceil_mode", 0)))


@_shaped
def GlobalAveragePool(a: Attributes, x: list[Any]) -> Any:
    return x[0].mean(list(range(2, x[0].dim())), keepdim=True)


@_shaped
def ReduceMean(a: Attributes, x: list[Any]) -> Any:
    return x[0].mean(_axes(a, x), keepdim=bool(a.get("keepdims", 1)))


@_shaped
def Softmax(a: Attributes, x: list[Any]) -> Any:
    return torch.softmax(x[0], a.get("axis", -1))


@_shaped
def Clip(a: Attributes, x: list[Any]) -> Any:
    bounds = [float(bound) if bound is not None else None for bound in x[1:]]
    return torch.clamp(x[0], *bounds)


@_shaped
def LayerNormalization(a: Attributes, x: list[Any]) -> Any:
    shape = x[0].shape[a.get("axis", -1) :]
    bias = _tensor(x[2]) if len(x) > 2 else None
    return F.layer_norm(x[0], shape, _tensor(x[1]), bias, a.get("epsilon", 1e-5))


@_shaped
def InstanceNormalization(a: Attributes, x: list[Any]) -> Any:
    return F.instance_norm(x[0], weight=_tensor(x[1]), bias=_tensor(x[2]), eps=a.get("epsilon", 1e-5))


@_shaped
def Resize(a: Attributes, x: list[Any]) -> Any:
    nearest = a.get("mode", "nearest") == "nearest" and a.get("coordinate_transformation_mode") == "asymmetric"
    if not nearest or a.get("nearest_mode") != "floor":
        raise NotImplementedError(f"Resize in mode {a.get('mode')}")
    if len(x) > 3 and x[3] is not None:
        return F.interpolate(x[0], size=_ints(x[3])[2:], mode="nearest")
    return F.interpolate(x[0], scale_factor=[float(s) for s in x[2][2:]], mode="nearest")


@_shaped
def Pad(a: Attributes, x: list[Any]) -> Any:
    pads, half = _ints(x[1]), x[1].size // 2
    if a.get("mode", "constant") != "constant" or len(x) > 3:
        raise NotImplementedError("Pad of this mode")
    both = [pad for i in reversed(range(half)) for pad in (pads[i], pads[half + i])]
    return F.pad(x[0], both, value=float(x[2]) if len(x) > 2 else 0.0)


@_shaped
def GatherND(a: Attributes, x: list[Any]) -> Any:
    if a.get("batch_dims", 0):
        raise NotImplementedError("GatherND with batch_dims")
    return _tensor(x[0])[tuple(_tensor(x[1]).unbind(-1))]


@_shaped
def ScatterND(a: Attributes, x: list[Any]) -> Any:
    if a.get("reduction", "none") != "none":
        raise NotImplementedError("ScatterND with a reduction")
    return _tensor(x[0]).index_put(tuple(_tensor(x[1]).unbind(-1)), _tensor(x[2]))


def _recurrent(a: Attributes, x: list[Any], kind: str, gates: list[int]) -> Any:
    """LSTM or GRU of one or two directions over [steps, batch, size]; torch has the gates in another order."""
    data, weights, recurrences, biases = x[0], *x[1:4]
    if a.get("layout", 0) or (kind == "GRU" and not a.get("linear_before_reset", 0)):
        raise NotImplementedError(f"{kind} of this form")
    size, directions = a["hidden_size"], weights.shape[0]

    def turned(array: np.ndarray) -> torch.Tensor:
        parts = np.split(array, len(gates))
        return _tensor(np.concatenate([parts[g] for g in gates]))

    parameters = []
    for d in range(directions):
        half = biases[d].size // 2
        parameters += [turned(weights[d]), turned(recurrences[d]), turned(biases[d][:half]), turned(biases[d][half:])]
    state = [torch.zeros(directions, data.shape[1], size) if v is None else _tensor(v) for v in (x[5:] + [None] * 3)[:2]]
    fixed = (parameters, True, 1, 0.0, False, directions == 2, False)
    if kind == "LSTM":
        y, h, c = torch.lstm(data, state, *fixed)
    else:
        y, h = torch.gru(data, state[0], *fixed)
        c = None
    y = y.reshape(y.shape[0], y.shape[1], directions, size).permute(0, 2, 1, 3)
    return (y, h, c) if kind == "LSTM" else (y, h)


@_shaped
def LSTM(a: Attributes, x: list[Any]) -> Any:
    return _recurrent(a, x, "LSTM", [0, 2, 3, 1])  # i o f c -> i f g o


@_shaped
def GRU(a: Attributes, x: list[Any]) -> Any:
    return _recurrent(a, x, "GRU", [1, 0, 2])  # z r h -> r z n


class _Walk:
    """The model as a function of its inputs."""

    def __init__(self, path: Path) -> None:
        self.model = onnx.load(str(path))
        graph = self.model.graph
        self.inputs = [value.name for value in graph.input]
        self.outputs = [value.name for value in graph.output]
        self.constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        self.tensors: dict[str, torch.Tensor] = {}
        for node in graph.node:
            known = (node.op_type in SHAPED or node.op_type in OPERATORS) and node.domain in ("", "ai.onnx")
            if not known and node.op_type not in ("Constant", "ConstantOfShape", "Range"):
                raise NotImplementedError(f"no torch form: operator {node.op_type}")

    def __call__(self, *arrays: torch.Tensor) -> list[torch.Tensor]:
        values: dict[str, Any] = dict(self.constants) | dict(zip(self.inputs, arrays, strict=True)) | {"": None}
        for node in self.model.graph.node:
            results = self._node(node, [values[name] for name in node.input])
            values.update(zip(node.output, results, strict=False))
        return [_tensor(values[name]) for name in self.outputs]

    def _node(self, node: onnx.NodeProto, x: list[Any]) -> list[Any]:
        if not any(isinstance(value, torch.Tensor) for value in x) and node.op_type != "Shape":
            return self._constant(node, x)
        if node.op_type in SHAPED:
            a = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
            a = {key: value.decode() if isinstance(value, bytes) else value for key, value in a.items()}
            places = ("Gather", "Concat", "Slice", "GatherND", "ScatterND", "Div", "Where")
            result = SHAPED[node.op_type](a, [self._parameter(node.input[0], x[0]), *x[1:]] if x and node.op_type not in places else x)
        else:
            result = OPERATORS[node.op_type](*(self._parameter(n, v) for n, v in zip(node.input, x, strict=True)))
        return list(result) if isinstance(result, tuple | list) else [result]

    def _parameter(self, name: str, value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        if name in self.constants:
            return self.tensors.setdefault(name, _tensor(value))
        return _tensor(value)

    def _constant(self, node: onnx.NodeProto, x: list[Any]) -> list[Any]:
        """A node of constants and sizes, by onnx.reference."""
        present = {name: value for name, value in zip(node.input, x, strict=True) if name}
        kinds = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in present.items()]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = helper.make_graph([node], "node", kinds, outputs)
        model = helper.make_model(graph, opset_imports=list(self.model.opset_import), ir_version=self.model.ir_version)
        return [np.asarray(value) for value in ReferenceEvaluator(model).run(None, present)]


def load(path: Path, feeds: dict[str, np.ndarray], threads: int) -> Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """torch.compile with freezing on the model, specialised to the shapes of `feeds`."""
    import torch._inductor.config as inductor

    torch.set_num_threads(threads)
    inductor.freezing = True
    walk = _Walk(path)
    examples = [torch.from_numpy(feeds[name]) for name in walk.inputs]
    with torch.no_grad():
        module = make_fx(walk)(*examples)
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor):
                delattr(module, name)
                module.register_buffer(name, value)
        compiled = torch.compile(module.eval())

        def run(feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            with torch.no_grad():
                results = compiled(*(torch.from_numpy(feeds[name]) for name in walk.inputs))
            return {name: value.numpy() for name, value in zip(walk.outputs, results, strict=True)}

        run(feeds)
    return run

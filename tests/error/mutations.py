"""Ways to spoil a good model: another rank, type, shape, index, attribute; missing and surplus parts.

`mutants` lists them without building any: a seeded part of them can be chosen at no cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import onnx
from base_models import BaseModel
from onnx import AttributeProto, helper, numpy_helper

Feeds = dict[str, Any]
Built = tuple[onnx.ModelProto, Feeds]


@dataclass(frozen=True)
class Mutant:
    """A spoilt model: `what` says how, `build` makes it. With `dynamic` its dimensions are known only in a run."""

    what: str
    build: Callable[[], Built]
    dynamic: bool = False


def mutants(base: BaseModel) -> Iterator[Mutant]:
    """All mutants of a model, in an order that does not change."""
    for i, value in enumerate(base.inputs):
        if isinstance(value, np.ndarray) and base.model.graph.input[i].type.tensor_type.elem_type:
            for what, make in _arrays(value):
                build = partial(_with_input, base, i, make)
                yield Mutant(f"input {i} {what}", partial(build, False))
                yield Mutant(f"input {i} {what}, dynamic", partial(build, False), dynamic=True)
                if value.dtype.kind in "fiub":
                    yield Mutant(f"input {i} {what}, constant", partial(build, True))
    arrays = [v for v in base.inputs if isinstance(v, np.ndarray)]
    if len(arrays) > 1:  # one wrong input may be made good by broadcasting to the others, or be refused for differing
        for what in {what: None for value in arrays for what, _ in _arrays(value) if "all" not in what and "last" not in what}:
            yield Mutant(f"all inputs {what}", partial(_with_all, base, what))
            yield Mutant(f"all inputs {what}, dynamic", partial(_with_all, base, what), dynamic=True)
    for i in range(len(base.node.input)):
        yield Mutant(f"input {i} left out", partial(_edited, base, lambda n, i=i: n.input.__setitem__(i, "")))
    for i in range(1, len(base.node.input)):
        yield Mutant(f"the first {i} inputs only", partial(_edited, base, lambda n, i=i: n.input.__delitem__(slice(i, None))))
    yield Mutant("all inputs left out", partial(
        _edited, base, lambda n: [n.input.__setitem__(i, "") for i in range(len(n.input))]))
    yield Mutant("no inputs", partial(_edited, base, lambda n: n.ClearField("input")))
    yield Mutant("an input too many", partial(_edited, base, lambda n: n.input.append(n.input[0] if n.input else "x")))
    yield Mutant("an unknown input", partial(_edited, base, lambda n: n.input.append("nowhere")))
    yield Mutant("an output too many", partial(_edited, base, lambda n: n.output.append("surplus")))
    yield Mutant("an output twice", partial(_edited, base, lambda n: n.output.append(n.output[0])))
    yield Mutant("unknown attribute", partial(_edited, base, lambda n: n.attribute.append(
        helper.make_attribute("no_such_attribute", 1))))
    for i, attribute in enumerate(base.node.attribute):
        yield Mutant(f"without {attribute.name}", partial(_edited, base, lambda n, i=i: n.attribute.pop(i)))
        for value in _attribute_values(attribute):
            yield Mutant(f"{attribute.name} = {value}", partial(_edited, base, partial(_set_attribute, i, value)))
    for name, kind in _left_out(base):
        for value in _attribute_values(AttributeProto(name=name, type=kind)):
            yield Mutant(f"with {name} = {value}", partial(_edited, base, partial(_add_attribute, name, kind, value)))
    yield Mutant("another operator set", partial(_older, base))


@cache
def _schemas() -> dict[tuple[str, str], Any]:
    """The newest of ONNX, and where ONNX Runtime is there its own."""
    found = {}
    try:
        from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

        found = {(s.domain, s.name): s for s in get_all_operator_schema() if s.domain == "com.microsoft"}
    except ImportError:
        pass
    return found | {(s.domain, s.name): s for s in onnx.defs.get_all_schemas()}


def _left_out(base: BaseModel) -> Iterator[tuple[str, int]]:
    """Attributes that the node does not have, and what they are."""
    schema = _schemas().get(base.operator)
    there = {attribute.name for attribute in base.node.attribute}
    for name, attribute in sorted(schema.attributes.items()) if schema else ():
        kind = int(getattr(attribute.type, "value", attribute.type))
        if name not in there and kind not in (AttributeProto.GRAPH, AttributeProto.TENSOR, AttributeProto.TYPE_PROTO):
            yield name, kind


def _arrays(a: np.ndarray) -> Iterator[tuple[str, Callable[[], np.ndarray]]]:
    """What may stand in for an input."""
    yield "of one more dimension", lambda: a[None]
    yield "of three more dimensions", lambda: a[None, None, None]
    yield "of twelve dimensions", lambda: a.reshape((1,) * (12 - a.ndim) + a.shape)
    if a.size:
        yield "of rank 0", lambda: a.reshape(-1)[:1].reshape(())
    if a.ndim:
        yield "empty", lambda: a[:0]
        yield "empty at the end", lambda: a[..., :0]
        yield "twice as long", lambda: np.concatenate([a, a], -1)
        yield "twice as many", lambda: np.concatenate([a, a], 0)
        yield "without its last", lambda: a[..., :-1]
    if a.ndim != 1:
        yield "flat", lambda: a.reshape(-1)
    for dtype in (np.float64, np.int32, np.uint8, np.bool_):
        if a.dtype.kind in "fiub" and a.dtype != dtype:
            yield f"as {np.dtype(dtype).name}", lambda dtype=dtype: a.astype(dtype)
    if a.dtype.kind in "iu" and a.size:
        low, high = np.iinfo(a.dtype).min, np.iinfo(a.dtype).max
        for value in (0, 1, -7, 99, 2**20, 2**40, low, high):
            if low <= value <= high:
                yield f"all {value}", lambda value=value: np.full_like(a, value)
                if a.size > 1:
                    yield f"last {value}", lambda value=value: _with_last(a, value)
    if a.dtype.kind == "f" and 0 < a.size <= 8:
        for value in (0.0, -1.0, 1e30, np.nan, np.inf):
            yield f"all {value}", lambda value=value: np.full_like(a, value)
    if a.dtype.kind in "OUS":
        yield "of empty texts", lambda: np.full(a.shape, "", dtype=object)
        yield "of long texts", lambda: np.full(a.shape, "ä😀" * 999, dtype=object)


def _with_last(a: np.ndarray, value: int) -> np.ndarray:
    b = a.copy()
    b.reshape(-1)[-1] = value
    return b


def _attribute_values(attribute: AttributeProto) -> list[Any]:
    """Values of the right type that are hardly right, and values of another type."""
    kind = AttributeProto
    right: dict[int, list[Any]] = {
        kind.INT: [99, -99, 0, -1, 2**31, 2**62, -2**63],
        kind.FLOAT: [float("nan"), float("inf"), -1e30],
        kind.STRING: ["nonsense", "", "\xff"],
        kind.INTS: [[], [99], [-1] * 3, [0] * 2, [2**31] * 2, [2**62] * 2, [1] * 40],
        kind.FLOATS: [[], [float("nan")] * 3],
        kind.STRINGS: [[], ["nonsense"]],
    }
    wrong: dict[int, list[Any]] = {  # one of a list that is as long as it was
        kind.INTS: [0, -1, 1, 99, 2**31, 2**62, -2**63],
        kind.FLOATS: [float("nan"), -1e30],
        kind.STRINGS: [b"nonsense", b""],
    }
    for value in wrong.get(attribute.type, []):
        values = list(attribute.ints or attribute.floats or attribute.strings)
        right[attribute.type] += [[value, *values[1:]], [*values[:-1], value]][:len(values)]
    other: list[Any] = [v for v in (7, "text", [1.5], 2.5) if not isinstance(v, _python_type(attribute.type))]
    return right.get(attribute.type, []) + other


def _python_type(kind: int) -> type:
    return {AttributeProto.INT: int, AttributeProto.FLOAT: float, AttributeProto.STRING: str,
            AttributeProto.FLOATS: list}.get(kind, bytes)


def _copy(base: BaseModel) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(base.model)
    for output in model.graph.output:  # what is declared would only be contradicted
        output.ClearField("type")
    return model


def _feeds(model: onnx.ModelProto, values: list[Any]) -> Feeds:
    return {info.name: value for info, value in zip(model.graph.input, values, strict=True)}


def _edited(base: BaseModel, edit: Callable[[onnx.NodeProto], Any]) -> Built:
    model = _copy(base)
    edit(model.graph.node[0])
    return model, _feeds(model, list(base.inputs))


def _set_attribute(i: int, value: Any, node: onnx.NodeProto) -> None:
    kinds = {list: AttributeProto.INTS}
    attribute = node.attribute[i]
    kind = attribute.type if value == [] else kinds.get(type(value)) if value and isinstance(value, list) and all(
        isinstance(v, int) for v in value) else None
    attribute.CopyFrom(helper.make_attribute(attribute.name, value, attr_type=kind))


def _add_attribute(name: str, kind: int, value: Any, node: onnx.NodeProto) -> None:
    node.attribute.add(name=name, type=kind)
    _set_attribute(len(node.attribute) - 1, value, node)


def _older(base: BaseModel) -> Built:
    """The operator set in which the operator first appeared is one too young."""
    model = _copy(base)
    history = [s.since_version for s in onnx.defs.get_all_schemas_with_history()
               if (s.domain, s.name) == base.operator]
    for opset in model.opset_import:
        if opset.domain == base.node.domain:
            opset.version = max(1, min(history, default=2) - 1)
    return model, _feeds(model, list(base.inputs))


def _with_all(base: BaseModel, what: str) -> Built:
    """Every input changed in the same way, if it can be."""
    model, values = _copy(base), list(base.inputs)
    for info, (i, value) in zip(model.graph.input, enumerate(base.inputs), strict=True):
        ways = dict(_arrays(value)) if isinstance(value, np.ndarray) and info.type.tensor_type.elem_type else {}
        if what in ways:
            values[i] = ways[what]()
            _declare(info, values[i], base.inputs[i])
    return model, _feeds(model, values)


def _declare(info: onnx.ValueInfoProto, value: np.ndarray, instead_of: np.ndarray) -> None:
    tensor = info.type.tensor_type
    if value.dtype != instead_of.dtype:
        tensor.elem_type = helper.np_dtype_to_tensor_dtype(value.dtype)
    tensor.ClearField("shape")
    tensor.shape.SetInParent()
    for size in value.shape:
        tensor.shape.dim.add().dim_value = size


def _with_input(base: BaseModel, i: int, make: Callable[[], np.ndarray], constant: bool) -> Built:
    model, value = _copy(base), make()
    values = list(base.inputs)
    name = model.graph.input[i].name
    if constant:
        model.graph.initializer.append(numpy_helper.from_array(value, name))
        model.ir_version = max(model.ir_version, 4)  # since when initializers need not be inputs
        del model.graph.input[i], values[i]
        return model, _feeds(model, values)
    _declare(model.graph.input[i], value, base.inputs[i])
    values[i] = value
    return model, _feeds(model, values)

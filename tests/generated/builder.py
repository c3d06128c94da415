"""Builds the model of one node from a schema, the types bound to its parameters, and what a recipe chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.defs import OpSchema

import kinds
from targets import Target, seed_of

OPSET_OF_OTHER_DOMAINS = 21  # of ai.onnx, in models whose operator is of another domain
Optional = OpSchema.FormalParameterOption.Optional
Variadic = OpSchema.FormalParameterOption.Variadic


# Operators that only move elements, whatever the type (those with a reduction: where it is left out).
MOVERS = {"Compress", "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity",
          "Pad", "Reshape", "ReverseSequence", "Scatter", "ScatterElements", "ScatterND", "Slice", "SpaceToDepth", "Split",
          "Squeeze", "TensorScatter", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where"}


class Skip(Exception):
    """The specification leaves nothing to test for this target; the text says why."""


@dataclass
class Case:
    """A model of one node and its inputs."""

    name: str
    model: onnx.ModelProto
    feeds: dict[str, Any]
    terms: int  # how many rounded results a result may sum up; the tolerance grows with it
    random: bool  # only type and shape of outputs are determined
    wide: bool  # may be repeated in double to arbitrate
    stand_in: tuple[onnx.ModelProto, dict[str, Any]] | None  # the same in a newer form, which the references know
    drop: tuple[str, ...]  # outputs whose values the specification leaves open
    expected: list[Any] | None  # the outputs, where the specification states them outright
    moves: bool  # elements are only moved, whatever their type
    roundoff: float  # of what the operator computes with by its specification, if coarser than the type


@dataclass
class Builder:
    """What recipes work with: `b.give(...)` for each input in the schema's order, `b.set(...)` for attributes."""

    target: Target
    sample: int
    inputs: list[str] = field(default_factory=list)
    feeds: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)  # those of initializers, too
    infos: list[onnx.ValueInfoProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: list[tuple[str, onnx.TypeProto]] = field(default_factory=list)
    terms: int = 8
    random: bool = False
    wide: bool = True
    stand_in: tuple[onnx.ModelProto, dict[str, Any]] | None = None
    drop: tuple[str, ...] = ()
    expected: list[Any] | None = None
    moves: bool = False
    roundoff: float = 0.0

    def __post_init__(self) -> None:
        self.schema = self.target.schema
        self.version = self.schema.since_version
        self.types = dict(self.target.types)
        self.rng = np.random.default_rng(seed_of(f"{self.target.name}#{self.sample}"))

    # Chance

    def chance(self, probability: float = 0.5) -> bool:
        return bool(self.rng.random() < probability)

    def pick(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def integer(self, low: int, high: int) -> int:
        """Between `low` and `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def real(self, low: float, high: float) -> float:
        """A number that float32 holds exactly, as attributes do."""
        return float(np.float32(self.rng.uniform(low, high)))

    def shape(self, low: int = 0, high: int = 4, largest: int = 5, empty: float = 0.08) -> tuple[int, ...]:
        """Of a rank in [low, high]; sometimes with an empty dimension."""
        dims = [self.integer(1, largest) for _ in range(self.integer(low, high))]
        if dims and self.chance(empty):
            dims[self.integer(0, len(dims) - 1)] = 0
        return tuple(dims)

    def axis(self, rank: int, inserted: int = 0) -> int:
        """An axis of a shape, sometimes counted from the end."""
        total = rank + inserted
        return self.integer(-total, total - 1) if self.version >= 11 else self.integer(0, total - 1)

    def axes(self, rank: int, low: int = 0, high: int | None = None) -> list[int]:
        """Different axes."""
        count = self.integer(low, rank if high is None else min(high, rank))
        chosen = [int(a) for a in self.rng.choice(rank, count, replace=False)] if count else []
        return [a - rank if self.version >= 11 and self.chance(0.3) else a for a in chosen]

    # Types

    def kind(self, param: str) -> str:
        """The bound type of a parameter, or the type itself."""
        return self.types.get(param, param)

    def dtype(self, param: str) -> np.dtype:
        return kinds.dtype_of(self.kind(param))

    def element(self, param: str) -> int:
        return kinds.element(self.kind(param))

    def has(self, attribute: str) -> bool:
        return attribute in self.schema.attributes

    # Inputs

    def array(self, shape: Sequence[int], low: float = -3, high: float = 3, param: str | None = None) -> np.ndarray:
        """Random values of the type of `param`, or of the next input."""
        kind = self.kind(param or self._formal().type_str)
        return kinds.random_array(self.rng, kinds.dtype_of(kind), shape, low, high)

    def give(self, value: Any, constant: bool | None = None, kind: str | None = None) -> str:
        """The next input. `constant`: an initializer; by default one in four of the smaller tensors is."""
        name = f"x{len(self.inputs)}"
        kind = kind or self.kind(self._formal().type_str)
        tensor = kind.startswith("tensor(")
        if constant is None:
            constant = tensor and self.version >= 7 and self.chance(0.25)
        if tensor:
            value = np.asarray(value, dtype=kinds.dtype_of(kind))
        if constant:
            self.initializers.append(make_tensor(value, name, kinds.element(kind)))
        else:
            proto = kinds.type_proto(kind)
            if tensor:
                proto.tensor_type.shape.CopyFrom(helper.make_tensor_type_proto(1, value.shape).tensor_type.shape)
            self.infos.append(helper.make_value_info(name, proto))
            self.feeds[name] = value
        self.values[name] = value
        self.inputs.append(name)
        return name

    def skip(self) -> None:
        """Leave the next input out."""
        self.inputs.append("")

    def set(self, **attributes: Any) -> None:
        """Attributes; those that this version does not have are left out."""
        self.attributes.update({key: value for key, value in attributes.items() if self.has(key) and value is not None})

    def maybe(self, **attributes: Any) -> None:
        """Attributes that are sometimes left to their defaults."""
        self.set(**{key: value for key, value in attributes.items() if self.chance(0.7)})

    def listing(self, name: str, values: Sequence[int], maybe: bool = False) -> None:
        """A list of int64 that is an attribute in old versions and the next input in newer ones."""
        if self.has(name):
            self.set(**{name: list(values)})
        elif maybe and not values:
            self.skip()
        else:
            self.give(np.array(values, np.int64), kind="tensor(int64)")

    def _formal(self) -> OpSchema.FormalParameter:
        place = min(len(self.inputs), len(self.schema.inputs) - 1)
        return self.schema.inputs[place]

    # Outputs

    def out(self, kind: str | None = None, name: str | None = None, present: bool = True) -> None:
        """The next output, of the type the schema gives it."""
        place = len(self.outputs)
        formal = self.schema.outputs[min(place, len(self.schema.outputs) - 1)]
        proto = kinds.type_proto(kind or self.kind(formal.type_str))
        self.outputs.append((name or f"y{place}" if present else "", proto))

    def _default_outputs(self) -> None:
        for formal in self.schema.outputs[len(self.outputs):]:
            if formal.option == Variadic and self.outputs:
                break
            optional = formal.option == Optional and (len(self.outputs) > 0 or len(self.schema.outputs) > 1)
            self.out(present=not optional or self.chance(0.6))
        while self.outputs and not self.outputs[-1][0] and len(self.outputs) > self.schema.min_output:
            self.outputs.pop()
        if not any(name for name, _ in self.outputs):
            self.outputs = []
            self.out()

    # Result

    def case(self) -> Case:
        """The case; all inputs must have been given."""
        if not self.outputs:
            self._default_outputs()
        self.moves |= self.schema.name in MOVERS and self.attributes.get("reduction", "none") == "none"
        while self.inputs and not self.inputs[-1]:
            self.inputs.pop()
        graph = (self.inputs, self.infos, self.initializers)
        model = self._model(self.schema.name, self.version, self.attributes, self.schema.domain, graph)
        name = self.target.name + (f"#{self.sample}" if self.sample else "")
        return Case(name, model, self.feeds, self.terms, self.random, self.wide, self.stand_in, self.drop,
                    self.expected, self.moves, self.roundoff)

    def refer_to(self, version: int, values: Sequence[np.ndarray | None], op: str = "", domain: str | None = None,
                 result: str | None = None, **attributes: Any) -> None:
        """The references compute this newer form of the node instead, which their authors did implement.

        `result`: the type of its outputs, if they are another than the node's.
        """
        if not self.outputs:
            self._default_outputs()
        names = [f"x{i}" if value is not None else "" for i, value in enumerate(values)]
        feeds = {name: np.asarray(value) for name, value in zip(names, values) if name}
        infos = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
                 for name, value in feeds.items()]
        where = self.schema.domain if domain is None else domain
        self.stand_in = self._model(op or self.schema.name, version, attributes, where, (names, infos, []), result), feeds

    def _model(self, op: str, version: int, attributes: dict[str, Any], domain: str, inputs: Any,
               result: str | None = None) -> onnx.ModelProto:
        names, infos, initializers = inputs
        node = helper.make_node(op, names, [name for name, _ in self.outputs], name="node", domain=domain)
        for key, value in attributes.items():
            formal = self.schema.attributes.get(key)
            kind = int(formal.type.value) if formal is not None and version == self.version else None
            node.attribute.append(helper.make_attribute(key, value, attr_type=kind))
        results = [helper.make_value_info(name, proto if result is None else kinds.type_proto(result))
                   for name, proto in self.outputs if name]
        graph = helper.make_graph([node], "generated", infos, results, initializers)
        main = version if not domain else OPSET_OF_OTHER_DOMAINS
        imports = [helper.make_opsetid("", main)] + ([helper.make_opsetid(domain, version)] if domain else [])
        ir_version = max(8, helper.find_min_ir_version_for(imports, ignore_unknown=True))
        return helper.make_model(graph, opset_imports=imports, ir_version=ir_version)


def make_tensor(value: np.ndarray, name: str, element: int) -> onnx.TensorProto:
    """An initializer; strings as ONNX has them."""
    if element == onnx.TensorProto.STRING:
        flat = [str(text).encode() for text in value.ravel()]
        return helper.make_tensor(name, element, value.shape, flat)
    return numpy_helper.from_array(np.asarray(value), name)

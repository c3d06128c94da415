"""A model of one node, made of the values that its inputs are to have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx import TensorProto, TypeProto, helper

OPSETS = {"": 20, "ai.onnx.ml": 3}  # of other domains: 1


def type_of(value: Any) -> TypeProto:
    if isinstance(value, list):
        return helper.make_sequence_type_proto(type_of(value[0]))
    if isinstance(value, dict):
        [key], [number] = {type(k) for k in value}, {type(v) for v in value.values()}
        types = {int: TensorProto.INT64, float: TensorProto.FLOAT, str: TensorProto.STRING}
        return helper.make_map_type_proto(types[key], helper.make_tensor_type_proto(types[number], []))
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def one_node(op: str, inputs: Sequence[Any], outputs: int, domain: str,
             **attributes: Any) -> tuple[onnx.ModelProto, tuple[Any, ...]]:
    """The model and its inputs; `None` among `inputs` is one that is left out, a list a sequence, a dict a map."""
    names = ["" if value is None else f"in{i}" for i, value in enumerate(inputs)]
    node = helper.make_node(op, names, [f"out{i}" for i in range(outputs)], domain=domain, **attributes)
    given = [(name, value) for name, value in zip(names, inputs, strict=True) if value is not None]
    infos = [helper.make_value_info(name, type_of(value)) for name, value in given]
    graph = helper.make_graph([node], op, infos, [onnx.ValueInfoProto(name=name) for name in node.output])
    opsets = [helper.make_opsetid(d, OPSETS.get(d, 1)) for d in {"": 0, domain: 0}]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), tuple(value for _, value in given)

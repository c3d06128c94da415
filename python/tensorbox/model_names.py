"""Names in an ONNX file that is known to be one, read without the package onnx and without its data."""

from __future__ import annotations

import mmap
import os
from typing import Any

from .wire import Field, parts, text

# Field numbers of onnx.proto.
_GRAPH, _NODE, _INITIALIZER, _TENSOR_NAME = 7, 1, 5, 8
_OUTPUT, _OPERATOR, _ATTRIBUTE, _SUBGRAPH, _SUBGRAPHS = 2, 4, 5, 6, 11


def constant_names(model: Any) -> list[str]:
    """Of the initializers and Constant nodes of a model (a path, bytes or ModelProto), subgraphs included."""
    if isinstance(model, (str, os.PathLike)):
        with open(model, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data, \
                memoryview(data) as view:
            return _of_model(view)
    return _of_model(memoryview(model.SerializeToString() if hasattr(model, "SerializeToString") else bytes(model)))


def _of_model(data: memoryview) -> list[str]:
    names: dict[str, None] = {}
    for graph in parts(data, 0, len(data)):
        if graph.number == _GRAPH:
            _of_graph(data, graph, names)
    return list(names)


def _of_graph(data: memoryview, graph: Field, names: dict[str, None]) -> None:
    for part in parts(data, graph.begin, graph.end):
        if part.number == _INITIALIZER:
            for field in parts(data, part.begin, part.end):
                if field.number == _TENSOR_NAME:
                    names[text(data, field)] = None
        elif part.number == _NODE:
            _of_node(data, part, names)
    names.pop("", None)


def _of_node(data: memoryview, node: Field, names: dict[str, None]) -> None:
    outputs, operator = [], ""
    for field in parts(data, node.begin, node.end):
        if field.number == _OUTPUT:
            outputs.append(text(data, field))
        elif field.number == _OPERATOR:
            operator = text(data, field)
        elif field.number == _ATTRIBUTE:
            for graph in parts(data, field.begin, field.end):
                if graph.number in (_SUBGRAPH, _SUBGRAPHS):
                    _of_graph(data, graph, names)
    if operator == "Constant":
        names.update(dict.fromkeys(outputs))

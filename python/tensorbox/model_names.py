"""Names in an ONNX file that is known to be one, read without the package onnx and without its data."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from typing import Any

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
    for field, begin, end in _fields(data, 0, len(data)):
        if field == _GRAPH:
            _of_graph(data, begin, end, names)
    return list(names)


def _of_graph(data: memoryview, begin: int, end: int, names: dict[str, None]) -> None:
    for field, first, last in _fields(data, begin, end):
        if field == _INITIALIZER:
            for f, a, b in _fields(data, first, last):
                if f == _TENSOR_NAME:
                    names[_text(data, a, b)] = None
        elif field == _NODE:
            outputs, operator = [], ""
            for f, a, b in _fields(data, first, last):
                if f == _OUTPUT:
                    outputs.append(_text(data, a, b))
                elif f == _OPERATOR:
                    operator = _text(data, a, b)
                elif f == _ATTRIBUTE:
                    for g, c, d in _fields(data, a, b):
                        if g in (_SUBGRAPH, _SUBGRAPHS):
                            _of_graph(data, c, d, names)
            if operator == "Constant":
                names.update(dict.fromkeys(outputs))
    names.pop("", None)


def _text(data: memoryview, begin: int, end: int) -> str:
    return bytes(data[begin:end]).decode("utf-8", "surrogateescape")


def _fields(data: memoryview, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Number, begin and end of each field with a length; the others (numbers) are stepped over."""
    while at < end:
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 2:
            length, at = _varint(data, at)
            yield key >> 3, at, at + length
            at += length
        elif kind == 0:
            _, at = _varint(data, at)
        else:
            at += 8 if kind == 1 else 4


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7

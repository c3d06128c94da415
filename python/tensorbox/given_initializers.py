"""Initializers that SessionOptions give to a session, written into its model: other values for some, and files of external
data that lie in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ._core import ModelError
from .arrays import as_bytes
from .dtypes import numpy_dtype, onnx_type
from .wire import Field, fields, head, integers, message, parts, text, written

# Field numbers of onnx.proto.
_GRAPH, _INITIALIZER = 7, 5
_DIMS, _TYPE, _STRINGS, _NAME, _RAW, _EXTERNAL, _LOCATION = 1, 2, 6, 8, 9, 13, 14  # of TensorProto
_STRING = 8
_BITS = {21: 4, 22: 4, 23: 4, 25: 2, 26: 2, 27: 6, 28: 6}  # types of which several elements share a byte


def add_given(to: dict[str, Any], names: Sequence[str], values: Sequence[Any]) -> None:
    """RuntimeError for a name that has another value already, or other numbers of names and values."""
    if len(names) != len(values):
        raise RuntimeError(f"{len(names)} names are given, and {len(values)} values for them")
    for name, value in zip(names, values, strict=True):
        if to.setdefault(name, value) is not value:
            raise RuntimeError(f"'{name}' is given already, with another value")


@dataclass
class GivenInitializers:
    """What `SessionOptions` were given: `values` replace initializers where the model has them, `external` those that it
    must have, and `files` stand for files of external data by their names."""

    values: dict[str, Any] = field(default_factory=dict)
    external: dict[str, Any] = field(default_factory=dict)
    files: dict[str, memoryview] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.values or self.external or self.files)

    def written_into(self, model: Any) -> bytes:
        """The bytes of the model (a path, bytes or ModelProto) with these initializers of its graph in the place of its
        own. Raises ModelError where one is of another type or shape, or the model lacks one of `external`. What is no
        model stays as it is, for the session to say so."""
        if isinstance(model, (str, os.PathLike)):
            with open(model, "rb") as file:
                model = file.read()
        data = memoryview(model.SerializeToString() if hasattr(model, "SerializeToString") else bytes(model))
        try:
            return self._model(data)
        except ValueError:
            return bytes(data)

    def _model(self, data: memoryview) -> bytes:
        left: dict[str, Any] = dict(self.external)
        out: list[bytes | memoryview] = []
        for part in fields(data, 0, len(data)):
            if part.number == _GRAPH and part.has_length:
                pieces = self._graph(data, part, left)
                out += [head(_GRAPH, sum(map(len, pieces))), *pieces]
            else:
                out.append(data[part.key:part.end])
        if left:
            raise ModelError(f"add_external_initializers: the model has no initializers {sorted(left)}")
        return b"".join(out)

    def _graph(self, data: memoryview, graph: Field, left: dict[str, Any]) -> list[bytes | memoryview]:
        out: list[bytes | memoryview] = []
        for part in fields(data, graph.begin, graph.end):
            tensor = self._replaced(data, part, left) if part.number == _INITIALIZER and part.has_length else None
            if tensor is None:
                out.append(data[part.key:part.end])
            else:
                out += [head(_INITIALIZER, sum(map(len, tensor))), *tensor]
        return out

    def _replaced(self, data: memoryview, tensor: Field, left: dict[str, Any]) -> list[bytes | memoryview] | None:
        """Another tensor in the place of this one, or None."""
        name, kind, dims = _header(data, tensor)
        value = left.pop(name, None)
        if value is None:
            value = self.values.get(name)
        if value is not None:
            return _tensor(name, kind, dims, _host_array(value))
        place = _external_place(data, tensor) if self.files else {}
        if place.get("location") not in self.files:
            return None
        return [message({_TYPE: kind, _NAME: name}), *(written(_DIMS, n) for n in dims),
                *_raw(_part_of(self.files[place["location"]], name, place))]


def _header(data: memoryview, tensor: Field) -> tuple[str, int, list[int]]:
    """Name, element type and shape."""
    name, kind, dims = "", 0, []
    for part in fields(data, tensor.begin, tensor.end):
        if part.number == _NAME:
            name = text(data, part)
        elif part.number == _TYPE:
            kind = part.value
        elif part.number == _DIMS:
            dims += integers(data, part)
    return name, kind, dims


def _external_place(data: memoryview, tensor: Field) -> dict[str, str]:
    """Where external data is: its location, offset and length."""
    if not any(part.number == _LOCATION and part.value == 1 for part in fields(data, tensor.begin, tensor.end)):
        return {}
    place = {}
    for part in parts(data, tensor.begin, tensor.end):
        if part.number == _EXTERNAL:
            entry = {f.number: text(data, f) for f in parts(data, part.begin, part.end)}
            place[entry.get(1, "")] = entry.get(2, "")
    return place


def _part_of(file: memoryview, name: str, place: Mapping[str, str]) -> memoryview:
    begin = int(place.get("offset") or 0)
    end = begin + int(place["length"]) if place.get("length") else len(file)
    if not 0 <= begin <= end <= len(file):
        raise ModelError(f"initializer '{name}' is bytes {begin} to {end} of '{place['location']}', of which {len(file)} are "
                         "given")
    return file[begin:end]


def _host_array(value: Any) -> np.ndarray:
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)


def _tensor(name: str, kind: int, dims: list[int], array: np.ndarray) -> list[bytes | memoryview]:
    """A TensorProto in pieces. ModelError where the array is not what the model has there."""
    given = onnx_type(array.dtype)
    if given != kind or list(array.shape) != dims:
        raise ModelError(f"initializer '{name}' is {_type_text(kind)}{dims} in the model, and {_type_text(given)}"
                         f"{list(array.shape)} is given for it")
    out: list[bytes | memoryview] = [message({_TYPE: kind, _NAME: name}), *(written(_DIMS, n) for n in dims)]
    if kind == _STRING:
        return out + [written(_STRINGS, v if isinstance(v, bytes) else str(v)) for v in array.reshape(-1)]
    if not array.size:
        return out
    elements = as_bytes(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False)))
    if bits := _BITS.get(kind):
        each = np.unpackbits(elements.reshape(-1, 1), axis=1, count=bits, bitorder="little")
        elements = np.packbits(each.reshape(-1), bitorder="little")
    return out + _raw(elements.data)


def _type_text(kind: int) -> str:
    try:
        return str(numpy_dtype(kind))
    except KeyError:
        return f"type {kind} "


def _raw(elements: memoryview) -> list[bytes | memoryview]:
    return [head(_RAW, len(elements)), elements]

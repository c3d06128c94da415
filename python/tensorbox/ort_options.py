"""What can be learnt from ONNX Runtime's own SessionOptions: they do not show the free dimensions that they fix."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ._core import UnsupportedError

# Those of the ONNX standard; others cannot be asked for.
DENOTATIONS = ("DATA_BATCH", "DATA_CHANNEL", "DATA_TIME", "DATA_FEATURE", "FILTER_IN_CHANNEL", "FILTER_OUT_CHANNEL",
               "FILTER_SPATIAL")


def is_foreign(options: Any) -> bool:
    """Of ONNX Runtime's own class."""
    return type(options).__module__.split(".")[0] == "onnxruntime"


def config_of(options: Any, keys: Sequence[str]) -> dict[str, str]:
    """Those of these configuration entries that the options have."""
    found: dict[str, str] = {}
    for key in keys:
        try:
            found[key] = options.get_session_config_entry(key)
        except RuntimeError:  # not set
            continue
    return found


def fixed_dimensions(options: Any, names: Sequence[str]) -> dict[str, int]:
    """The sizes that add_free_dimension_override_by_name gave to dimensions of these names: ONNX Runtime is asked, by a
    session of a model of one node whose input has them all. UnsupportedError where a denotation was given a size."""
    runtime = sys.modules["onnxruntime"]
    touched = {name: getattr(options, name) for name in ("optimized_model_filepath", "enable_profiling")}
    try:  # the session of the caller's model writes those files, or none does
        options.optimized_model_filepath, options.enable_profiling = "", False
        session = runtime.InferenceSession(_model(names), options, providers=["CPUExecutionProvider"])
    finally:
        for name, value in touched.items():
            setattr(options, name, value)
    shape = session.get_inputs()[0].shape
    for denotation, size in zip(DENOTATIONS, shape[len(names):], strict=True):
        if isinstance(size, int):
            raise UnsupportedError(f"UnsupportedError: dimensions cannot be fixed by denotation ('{denotation}'); use "
                                   "add_free_dimension_override_by_name")
    return {name: size for name, size in zip(names, shape, strict=False) if isinstance(size, int)}


def symbolic_names(shapes: Sequence[Sequence[Any]]) -> list[str]:
    return list(dict.fromkeys(dim for shape in shapes for dim in shape if isinstance(dim, str)))


def _model(names: Sequence[str]) -> bytes:
    """y = Identity(x), as a ModelProto, without the package onnx. Field numbers are those of onnx.proto."""
    dims = [_message({2: name}) for name in names]
    dims += [_message({2: f"tensorbox {denotation}", 3: denotation}) for denotation in DENOTATIONS]
    shape = b"".join(_field(1, dim) for dim in dims)
    x = _message({1: "x", 2: _message({1: _message({1: 1, 2: shape})})})
    y = _message({1: "y", 2: _message({1: _message({1: 1})})})
    graph = _message({1: _message({1: "x", 2: "y", 4: "Identity"}), 2: "dimensions", 11: x, 12: y})
    return _message({1: 8, 7: graph, 8: _message({2: 13})})


def _message(fields: Mapping[int, int | str | bytes]) -> bytes:
    return b"".join(_field(number, value) for number, value in fields.items())


def _field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])

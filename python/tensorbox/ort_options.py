"""What can be learnt from ONNX Runtime's own SessionOptions: they show neither the free dimensions that they fix nor the
initializers that they replace. ONNX Runtime is asked, by sessions of small models with the names of the caller's."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from ._core import UnsupportedError
from .wire import message, written

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
    """The sizes that add_free_dimension_override_by_name gave to dimensions of these names: those that the input of a
    model of one node has. UnsupportedError where a denotation was given a size, or initializers by
    add_external_initializers (which no session takes whose model lacks them)."""
    shape = _asked(options, _dimensions_model(names)).get_inputs()[0].shape
    for denotation, size in zip(DENOTATIONS, shape[len(names):], strict=True):
        if isinstance(size, int):
            raise UnsupportedError(f"dimensions cannot be fixed by denotation ('{denotation}'); use "
                                   "add_free_dimension_override_by_name")
    return {name: size for name, size in zip(names, shape, strict=False) if isinstance(size, int)}


def refuse_initializers(options: Any, names: Sequence[str]) -> None:
    """UnsupportedError where add_initializer gave a value to one of these: its shape is then not that of the model
    asked, which no tensor of a caller has."""
    for first in range(0, len(names), _PART):
        part = names[first:first + _PART]
        for name, dims in zip(part, _asked(options, _constants_model(part)).run(None, {}), strict=True):
            if list(dims) != [0] * _RANK:
                raise UnsupportedError(f"initializer '{name}' cannot be replaced when a session is "
                                       "made (add_initializer); write it into the model")


_RANK = 23  # more than any operator has
_PART = 400  # sessions of many outputs are made in time that grows faster than their number


def _asked(options: Any, model: bytes) -> Any:
    """A session of a model of ours, as little of which is optimized and said as can be."""
    runtime = sys.modules["onnxruntime"]
    mine = {"optimized_model_filepath": "", "enable_profiling": False, "log_severity_level": 4,
            "graph_optimization_level": runtime.GraphOptimizationLevel.ORT_DISABLE_ALL}
    touched = {name: getattr(options, name) for name in mine}
    try:  # the session of the caller's model writes those files, or none does
        for name, value in mine.items():
            setattr(options, name, value)
        return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as e:  # its exceptions have no common class
        if "ReplaceInitializedTensor" not in str(e):
            raise
        raise UnsupportedError("initializers cannot be given when a session is made "
                               "(add_external_initializers); write them into the model, or into a file beside it "
                               f"(external data). ONNX Runtime says: {e}") from None
    finally:
        for name, value in touched.items():
            setattr(options, name, value)


def symbolic_names(shapes: Sequence[Sequence[Any]]) -> list[str]:
    return list(dict.fromkeys(dim for shape in shapes for dim in shape if isinstance(dim, str)))


# Models as ModelProto, without the package onnx. Field numbers are those of onnx.proto.


def _dimensions_model(names: Sequence[str]) -> bytes:
    """y = Identity(x), whose x has these dimensions and one of each denotation."""
    dims = [message({2: name}) for name in names]
    dims += [message({2: f"tensorbox {denotation}", 3: denotation}) for denotation in DENOTATIONS]
    shape = b"".join(written(1, dim) for dim in dims)
    x = message({1: "x", 2: message({1: message({1: 1, 2: shape})})})
    y = message({1: "y", 2: message({1: message({1: 1})})})
    return _model(message({1: message({1: "x", 2: "y", 4: "Identity"}), 2: "dimensions", 11: x, 12: y}))


def _constants_model(names: Sequence[str]) -> bytes:
    """The shapes of constants of these names."""
    graph = b""
    for i, name in enumerate(names):
        graph += written(1, message({1: name, 2: f"tensorbox shape {i}", 4: "Shape"}))
    graph += written(2, "constants")
    for name in names:
        graph += written(5, b"".join(written(1, 0) for _ in range(_RANK)) + message({2: 1, 8: name}))
    for i in range(len(names)):
        graph += written(12, message({1: f"tensorbox shape {i}", 2: message({1: message({1: 7})})}))
    return _model(graph)


def _model(graph: bytes) -> bytes:
    return message({1: 8, 7: graph, 8: message({2: 13})})

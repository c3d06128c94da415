"""InferenceSession with ONNX Runtime's signatures, so that a user changes one import."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .session import Session, TensorInfo

_TYPE_NAMES = {"float32": "float", "float64": "double", "bool": "bool", "object": "string"}


class NodeArg:
    """Name, type ("tensor(float)") and shape of an input or output."""

    def __init__(self, info: TensorInfo):
        self.name = info.name
        self.shape = info.shape
        name = info.dtype.name
        self.type = f"tensor({_TYPE_NAMES.get(name, name)})"
        if not info.onnx_type:  # as ONNX Runtime spells it: seq(tensor(float))
            words = re.sub(r"\w+", lambda word: _TYPE_NAMES.get(word[0], word[0]), info.type_name)
            self.type = words.replace("sequence(", "seq(").replace(", ", ",")

    def __repr__(self) -> str:
        return f"NodeArg(name='{self.name}', type='{self.type}', shape={self.shape})"


class SessionOptions:
    """The options that have a meaning here. Unknown ones are errors (AttributeError), not silence."""

    __slots__ = ("intra_op_num_threads", "inter_op_num_threads", "log_severity_level", "_operator_libraries")

    def __init__(self) -> None:
        self.intra_op_num_threads = 0
        self.inter_op_num_threads = 0
        self.log_severity_level = 2
        self._operator_libraries: list[str] = []

    def register_custom_ops_library(self, path: str | os.PathLike[str]) -> None:
        """A shared library with operators, built for tensorbox/custom_op.h; it is loaded with the session."""
        self._operator_libraries.append(os.fspath(path))


class InferenceSession:
    """Drop-in for onnxruntime.InferenceSession on the CPU."""

    def __init__(self, path_or_bytes: Any, sess_options: SessionOptions | None = None,
                 providers: Sequence[Any] | None = None, provider_options: Sequence[Any] | None = None, **kwargs: Any):
        for provider in providers or []:
            name = provider[0] if isinstance(provider, tuple) else provider
            if name not in ("CPUExecutionProvider", "TensorboxExecutionProvider"):
                raise ValueError(f"provider '{name}' is not available; available: {self.get_providers()}")
        threads = sess_options.intra_op_num_threads if sess_options else 0
        libraries = sess_options._operator_libraries if sess_options else []
        self._session = Session(path_or_bytes, threads=threads,
                                operator_libraries=[*libraries, *kwargs.pop("operator_libraries", ())], **kwargs)

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any],
            run_options: Any = None) -> list[np.ndarray]:
        outputs = self._session.run(input_feed)
        names = list(output_names) if output_names else [o.name for o in self._session.outputs]
        unknown = [n for n in names if n not in outputs]
        if unknown:
            raise ValueError(f"unknown output names {unknown}; the model's outputs are {list(outputs)}")
        return [outputs[n] for n in names]

    def get_inputs(self) -> list[NodeArg]:
        return [NodeArg(i) for i in self._session.inputs]

    def get_outputs(self) -> list[NodeArg]:
        return [NodeArg(o) for o in self._session.outputs]

    def get_providers(self) -> list[str]:
        return ["CPUExecutionProvider"]

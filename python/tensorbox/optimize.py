"""optimize: a simplified ONNX file for any runtime."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from . import _core
from .arguments import integer, names, set_fields, set_integers, sizes


def optimize(model: str | os.PathLike[str], to: str | os.PathLike[str], *, dims: Mapping[str, int] | None = None,
             opset: int = 0, disable_passes: Sequence[str] = (), untrusted: bool = False, load_memory: int = 0,
             load_time_limit_ms: int = 0, max_model_bytes: int = 0, max_nodes: int = 0, max_nesting: int = 0,
             max_tensors: int = 0, max_tensor_bytes: int = 0, max_dense_bytes: int = 0,
             strict_links: bool = False) -> dict[str, Any]:
    """Writes the model of the file `model`, simplified by the graph passes, as an ONNX file that other runtimes read
    too. Inputs and outputs stay; large constants go into `<to>.data`.

    dims fixes dimension symbols ({"batch": 1}), after which shape computations disappear. opset converts to another
    version of ai.onnx first, whose operators the passes may then use. untrusted=True: the limits of docs/security.md hold; they, and each limit by
    its own name, are those of `Session`.
    Returns what was done: opset, nodes_before, nodes_after, operators_before, operators_after ({operator: nodes}),
    rewrites ([(pass, number)]) and left_out (passes that the opset has no operators for).
    Raises ModelError, UnsupportedError, BackendError (the file cannot be written).
    """
    limits = _core.CompileOptions()
    set_fields(limits, untrusted=untrusted, strict_links=strict_links)
    set_integers(limits, load_memory=load_memory, load_time_limit_ms=load_time_limit_ms, max_model_bytes=max_model_bytes,
                 max_nodes=max_nodes, max_nesting=max_nesting, max_tensors=max_tensors, max_tensor_bytes=max_tensor_bytes,
                 max_dense_bytes=max_dense_bytes)
    return _core.optimize(os.fspath(model), os.fspath(to), sizes("dims", dims), integer("opset", opset),
                          names("disable_passes", disable_passes), limits)

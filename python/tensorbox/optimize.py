"""optimize: a simplified ONNX file for any runtime."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from . import _core
from .arguments import integer, names, sizes


def optimize(model: str | os.PathLike[str], to: str | os.PathLike[str], *, dims: Mapping[str, int] | None = None,
             opset: int = 0, disable_passes: Sequence[str] = (), untrusted: bool = False) -> dict[str, Any]:
    """Writes the model of the file `model`, simplified by the graph passes, as an ONNX file that other runtimes read
    too. Inputs and outputs stay; large constants go into `<to>.data`.

    dims fixes dimension symbols ({"batch": 1}), after which shape computations disappear. opset converts to another
    version of ai.onnx first, whose operators the passes may then use. untrusted=True: the limits of docs/security.md hold.
    Returns what was done: opset, nodes_before, nodes_after, operators_before, operators_after ({operator: nodes}),
    rewrites ([(pass, number)]) and left_out (passes that the opset has no operators for).
    Raises ModelError, UnsupportedError, BackendError (the file cannot be written).
    """
    return _core.optimize(os.fspath(model), os.fspath(to), sizes("dims", dims), integer("opset", opset),
                          names("disable_passes", disable_passes), untrusted)

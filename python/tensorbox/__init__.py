"""tensorbox: compile an ONNX model once, run it many times.

    import tensorbox
    session = tensorbox.Session("model.onnx")
    outputs = session.run({"input": array})      # {name: numpy array}

`InferenceSession` has ONNX Runtime's signatures; `tensorbox.backend` implements onnx.backend.base.Backend.
"""

from ._core import BackendError, Error, InternalError, ModelError, UnsupportedError, __version__, operators, pass_names
from .differences import Difference, compare
from .compatible import InferenceSession, NodeArg, SessionOptions
from .optimize import optimize
from .session import Session

__all__ = [
    "BackendError",
    "Difference",
    "Error",
    "InferenceSession",
    "InternalError",
    "ModelError",
    "NodeArg",
    "Session",
    "SessionOptions",
    "UnsupportedError",
    "__version__",
    "compare",
    "operators",
    "optimize",
    "pass_names",
]

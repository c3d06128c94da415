"""tensorbox: compile an ONNX model once, run it many times.

    import tensorbox
    session = tensorbox.Session("model.onnx")
    outputs = session.run({"input": array})      # {name: numpy array}

`InferenceSession` and what belongs to it (SessionOptions, RunOptions, OrtValue, ...) have ONNX Runtime's signatures, so
that `import tensorbox as onnxruntime` does for most programs; `tensorbox.backend` implements onnx.backend.base.Backend.
"""

from ._core import (BackendError, Cancellation, Error, InternalError, ModelError, UnsupportedError, __version__, operators,
                    device_problem, pass_names, set_seed)
from .arrays import TensorInfo
from .bound_run import BoundRun
from .compatible import (InferenceSession, ModelMetadata, NodeArg, disable_telemetry_events, enable_telemetry_events,
                         get_all_providers, get_available_providers, get_build_info, get_device, get_version_string,
                         has_collective_ops, preload_dlls, set_default_logger_severity, set_default_logger_verbosity)
from .compatible_options import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, RunOptions, SessionOptions
from .device import DeviceTensor, to_device
from .differences import Difference, compare
from .optimize import optimize
from .ort_value import IOBinding, OrtValue
from .session import Session

__all__ = [
    "BackendError",
    "BoundRun",
    "Cancellation",
    "DeviceTensor",
    "Difference",
    "Error",
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "InternalError",
    "ModelError",
    "ModelMetadata",
    "NodeArg",
    "OrtValue",
    "RunOptions",
    "Session",
    "SessionOptions",
    "TensorInfo",
    "UnsupportedError",
    "__version__",
    "compare",
    "device_problem",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "has_collective_ops",
    "operators",
    "optimize",
    "pass_names",
    "preload_dlls",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
    "to_device",
]

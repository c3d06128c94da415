"""The engines that run zoo models, behind one small interface: tensorbox itself and its peers."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
RunFunction = Callable[[Arrays], Arrays]

PYTHON_BUILD_FOLDER = Path(__file__).resolve().parents[2] / "build" / "release" / "python"


@dataclass(frozen=True)
class LoadOptions:
    """How to load a model. `compile` and `isa` mean something to tensorbox only, `optimize` to ONNX Runtime only,
    `inputs` (shapes to specialise for) to torch only."""

    threads: int = 2
    compile: bool = True
    isa: str | None = None
    optimize: bool = True
    inputs: Arrays | None = None


def import_tensorbox(submodule: str = "") -> ModuleType:
    """The module `tensorbox`: from PYTHONPATH or an installation, else from this checkout's build."""
    name = "tensorbox" + submodule
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        folder = str(PYTHON_BUILD_FOLDER)
        if folder in sys.path:
            raise
        sys.path.insert(0, folder)
        return importlib.import_module(name)


def _load_tensorbox(path: Path, options: LoadOptions, **more: str) -> RunFunction:
    tensorbox = import_tensorbox()
    arguments: dict[str, Any] = {"threads": options.threads, "compile": options.compile} | more
    if options.isa is not None:
        arguments["isa"] = options.isa
    return tensorbox.Session(str(path), **arguments).run


def _load_tensorbox_bf16(path: Path, options: LoadOptions) -> RunFunction:
    return _load_tensorbox(path, options, precision="bf16")


def ort_session(path: Path, options: LoadOptions) -> tuple[ModuleType, Any]:
    """ONNX Runtime and a session of it."""
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.intra_op_num_threads = options.threads
    settings.log_severity_level = 3
    levels = ort.GraphOptimizationLevel
    settings.graph_optimization_level = levels.ORT_ENABLE_ALL if options.optimize else levels.ORT_DISABLE_ALL
    return ort, ort.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])


def _load_ort(path: Path, options: LoadOptions) -> RunFunction:
    _, session = ort_session(path, options)
    outputs = [value.name for value in session.get_outputs()]
    return lambda feeds: dict(zip(outputs, session.run(outputs, feeds), strict=True))


def _load_openvino(path: Path, options: LoadOptions) -> RunFunction:
    return _load_openvino_default(path, options, INFERENCE_PRECISION_HINT="f32")


def _load_openvino_default(path: Path, options: LoadOptions, **more: str) -> RunFunction:
    import openvino

    settings = {"INFERENCE_NUM_THREADS": options.threads, "PERFORMANCE_HINT": "LATENCY"} | more
    request = openvino.Core().compile_model(str(path), "CPU", settings).create_infer_request()

    def run(feeds: Arrays) -> Arrays:
        results = request.infer(feeds, share_inputs=True, share_outputs=True)
        return {name: array for port, array in results.items() for name in port.get_names()}  # it may have several

    return run


def _load_torch(path: Path, options: LoadOptions) -> RunFunction:
    import torch_form

    assert options.inputs is not None, "torch.compile specialises for the shapes of inputs"
    return torch_form.load(path, options.inputs, options.threads)


_LOADERS: dict[str, tuple[str, Callable[[Path, LoadOptions], RunFunction]]] = {
    "tensorbox": ("tensorbox", _load_tensorbox),
    "ort": ("onnxruntime", _load_ort),
    "openvino": ("openvino", _load_openvino),
    "openvino_default": ("openvino", _load_openvino_default),  # rounds to bfloat16 where the processor multiplies it
    "tensorbox_bf16": ("tensorbox", _load_tensorbox_bf16),
    "torch": ("torch", _load_torch),
}
ENGINES = tuple(_LOADERS)
NARROW = ("openvino_default", "tensorbox_bf16")  # engines that may round float32 models to bfloat16


def import_engine(engine: str) -> str:
    """Import the engine's module, so that loading a model does not pay for it; returns its version."""
    module_name = _LOADERS[engine][0]
    module = import_tensorbox() if module_name == "tensorbox" else importlib.import_module(module_name)
    return str(getattr(module, "__version__", "unknown"))


def load(engine: str, path: Path, options: LoadOptions = LoadOptions()) -> RunFunction:
    """Load the model file into the engine; the result maps input arrays to output arrays by name."""
    return _LOADERS[engine][1](path, options)

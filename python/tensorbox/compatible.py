"""InferenceSession with ONNX Runtime's signatures, so that a user changes one import."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ._core import UnsupportedError, __version__
from .arrays import TensorInfo
from .compatible_options import (SessionOptions, cancellation_of, check_run_options, leaves_running,
                                 session_arguments)
from .model_names import constant_names
from .optimize import optimize
from .ort_options import fixed_dimensions, is_foreign, refuse_initializers, symbolic_names
from .ort_value import IOBinding, OrtValue, type_text, unwrapped
from .profile_trace import ProfileTrace
from .providers import CPU, CUDA, available, chosen_provider, device_of, precision_of, stream_of
from .session import Session

_NO_VERSION = 2**63 - 1  # what ONNX Runtime gives for a model without one


class NodeArg:
    """Name, type ("tensor(float)") and shape of an input or output; [] also stands for a shape that is not known."""

    def __init__(self, info: TensorInfo):
        self.name = info.name
        self.shape = info.shape or []
        if info.onnx_type:
            self.type = type_text(info.onnx_type)
        else:  # as ONNX Runtime spells it: seq(tensor(float))
            names = {"float32": "float", "float64": "double"}
            words = re.sub(r"\w+", lambda word: names.get(word[0], word[0]), info.type_name)
            self.type = words.replace("sequence(", "seq(").replace(", ", ",")

    def __repr__(self) -> str:
        return f"NodeArg(name='{self.name}', type='{self.type}', shape={self.shape})"


@dataclass(frozen=True)
class ModelMetadata:
    """What the model file says of itself."""

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str] = field(default_factory=dict)


def get_available_providers() -> list[str]:
    """CUDAExecutionProvider first, where there is a GPU and what it needs."""
    return available()


def get_all_providers() -> list[str]:
    """The providers that there are, whether or not this machine has a GPU."""
    return [CUDA, CPU]


def get_version_string() -> str:
    """tensorbox's own, not that of an ONNX Runtime it stands for."""
    return __version__


def get_device() -> str:
    """What runs sessions that are given the available providers."""
    return "GPU" if CUDA in available() else "CPU"


def set_default_logger_severity(severity: int) -> None:
    """Without effect: a session says something where its SessionOptions ask for it."""


def set_default_logger_verbosity(verbosity: int) -> None:
    """Without effect."""


def get_build_info() -> str:
    """Name and version."""
    return f"tensorbox {__version__}"


def has_collective_ops() -> bool:
    """Never: a session has one device."""
    return False


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True,
                 directory: str | os.PathLike[str] | None = None) -> None:
    """Nothing has to be loaded ahead: NVIDIA's libraries are looked for when a session needs them (docs/gpu.md), in
    `directory` first where that is given, as $TBX_CUDA_PATH says it."""
    if directory:
        os.environ["TBX_CUDA_PATH"] = os.fspath(directory)


def enable_telemetry_events() -> None:
    """Without effect: nothing is sent to anybody."""


def disable_telemetry_events() -> None:
    """Without effect: nothing is sent to anybody."""


class InferenceSession:
    """Drop-in for onnxruntime.InferenceSession on the CPU and on NVIDIA GPUs.

    path_or_bytes may be an onnx.ModelProto, too, and sess_options one of either module. The first of the providers that
    is there runs the model; those that are not are left out with a warning where another is, and a ValueError where none
    is. Without providers it is the CPU. Of the options of CUDAExecutionProvider, device_id and user_compute_stream do
    what they do there. Other keywords are those of `tensorbox.Session`.
    """

    def __init__(self, path_or_bytes: Any, sess_options: SessionOptions | None = None,
                 providers: Sequence[Any] | None = None, provider_options: Sequence[Any] | None = None,
                 disabled_optimizers: Any = None, enable_fallback: int = 1, read_config_from_model: int = 0,
                 **kwargs: Any):
        if disabled_optimizers:
            warnings.warn("disabled_optimizers has no effect: passes have other names (disable_passes=)", UserWarning,
                          stacklevel=2)
        if not providers and getattr(sess_options, "_providers", ()):
            providers, provider_options = list(sess_options._providers), None
        self._provider, self._provider_options = chosen_provider(providers, provider_options)
        self._options = SessionOptions() if sess_options is None else sess_options
        # Read by programs that keep sessions, as Optimum does.
        self._model_path = os.fspath(path_or_bytes) if isinstance(path_or_bytes, (str, os.PathLike)) else None
        arguments = session_arguments(sess_options)
        libraries = [*arguments.get("operator_libraries", ()), *kwargs.pop("operator_libraries", ())]
        arguments["operator_libraries"] = libraries
        self._stream = None
        if self._provider == CUDA:
            arguments["device"] = device_of(self._provider_options)
            arguments["precision"] = precision_of(self._provider_options)
            self._stream = stream_of(self._provider_options)
        severity = self._options.log_severity_level
        if 0 <= severity <= 1:
            arguments["log"] = lambda message: print(f"tensorbox: {message}", file=sys.stderr)
        elif severity > 2:
            arguments["log"] = lambda message: None
        arguments.update(kwargs)
        if given := getattr(sess_options, "_given", None):
            if self._model_path is not None:
                arguments.setdefault("external_data_dir", os.path.dirname(self._model_path) or ".")
            path_or_bytes = given.written_into(path_or_bytes)
        self._session = Session(path_or_bytes, **arguments)
        if is_foreign(sess_options):
            free = symbolic_names([i.shape or [] for i in self._session.inputs])
            fixed = fixed_dimensions(sess_options, free)
            refuse_initializers(sess_options, constant_names(path_or_bytes))
            if fixed:
                arguments["dims"] = fixed | dict(arguments["dims"] or {})
                self._session = Session(path_or_bytes, **arguments)
        if self._options.optimized_model_filepath:
            _write_optimized(path_or_bytes, os.fspath(self._options.optimized_model_filepath), arguments)
        self._trace = ProfileTrace(self._options.profile_file_prefix) if self._options.enable_profiling else None
        self._scalars = frozenset(i.name for i in self._session.inputs if i.onnx_type and i.shape == [])

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any],
            run_options: Any = None) -> list[Any]:
        """The outputs of these names in this order; all of them for None or an empty list."""
        names = self._output_names(output_names)
        check_run_options(run_options)
        feed = input_feed
        if isinstance(feed, Mapping):
            feed = {name: unwrapped(value) for name, value in feed.items()}
            if self._scalars:
                feed |= {name: _scalar(feed[name]) for name in self._scalars.intersection(feed)}
        with cancellation_of(run_options):
            if self._trace is not None:
                outputs = self._trace.run(self._session, feed)
            else:
                outputs = self._session.run(feed, stream=self._stream)
        return [outputs[n] for n in names]

    def run_async(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any],
                  callback: Callable[[list[Any], Any, str], None], user_data: Any, run_options: Any = None) -> None:
        """Runs on a thread of its own, which calls callback(outputs, user_data, error): the outputs are empty, or the
        error is."""
        names = self._output_names(output_names)

        def work() -> None:
            results, error = [], ""
            try:
                results = self.run(names, input_feed, run_options)
            except Exception as e:  # the caller's thread is elsewhere: the callback gets it
                error = str(e) or type(e).__name__
            callback(results, user_data, error)

        threading.Thread(target=work).start()

    def run_with_ort_values(self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, OrtValue],
                            run_options: Any = None) -> list[OrtValue]:
        """`run` with an OrtValue for each input and output."""
        types = {o.name: o.type for o in self.get_outputs()}
        values = self.run(output_names, input_dict_ort_values, run_options)
        return [OrtValue(value, types[name]) for name, value in zip(self._output_names(output_names), values)]

    def io_binding(self) -> IOBinding:
        """An empty binding of this session's inputs and outputs."""
        return IOBinding(self._session.inputs, self._session.outputs, self._session)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Any = None) -> None:
        """Runs with the inputs and outputs of a binding."""
        check_run_options(run_options)
        with cancellation_of(run_options):
            self._run_bound(iobinding, leaves_running(run_options))

    def _run_bound(self, iobinding: IOBinding, asynchronous: bool) -> None:
        if not iobinding.outputs:
            raise ValueError(f"no output is bound; the model's outputs are {self._output_names(None)}")
        if asynchronous and self._stream is None:
            raise ValueError("a run that is not waited for is work of the caller's stream: give the provider the "
                             "option user_compute_stream")
        mine = iobinding._session is self._session
        if mine and (bound := iobinding._bound) is not None:
            if asynchronous:
                bound.run_async(self._stream)
            else:
                bound.run(self._stream)
            iobinding._results = [value for value in iobinding.outputs.values() if value is not None]
            return
        memory = {name: unwrapped(value) for name, value in iobinding.outputs.items() if value is not None}
        if asynchronous:
            outputs = self._session._run_partly_into(iobinding.inputs, memory, "device", self._stream, True)
        elif memory or iobinding.on_device:
            outputs = self._session._run_partly_into(iobinding.inputs, memory, iobinding.on_device, self._stream)
        else:
            outputs = dict(zip(self._output_names(None), self.run(None, iobinding.inputs)))
        iobinding._results = [bound or OrtValue(outputs[name]) for name, bound in iobinding.outputs.items()]
        if mine:
            iobinding._bind_for_good(self._session)

    def end_profiling(self) -> str:
        """Writes the trace of the runs so far (Chrome's trace events) and returns the name of the file: prefix, date
        and time. Without SessionOptions.enable_profiling nothing is written and the name is empty."""
        trace, self._trace = self._trace, None
        return "" if trace is None else trace.write()

    def get_profiling_start_time_ns(self) -> int:
        """When the trace began; 0 without enable_profiling."""
        return 0 if self._trace is None else self._trace.start_ns

    def get_inputs(self) -> list[NodeArg]:
        """The inputs that a run must be given, in the model's order."""
        return [NodeArg(i) for i in self._session.inputs if not i.has_default]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, in the model's order."""
        return [NodeArg(o) for o in self._session.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Initializers that are inputs as well. They are constants unless the session was made with their names in the
        keyword `overridable`; without it a run that is given one ends in a ModelError."""
        return [NodeArg(i) for i in self._session.overridable_initializers]

    def get_modelmeta(self) -> ModelMetadata:
        """What the model file says of itself."""
        m = self._session.metadata
        return ModelMetadata(m.producer_name, m.graph_name, m.domain, m.description, m.graph_description,
                             _NO_VERSION if m.version is None else m.version, dict(m.custom))

    def get_session_options(self) -> SessionOptions:
        """The options that the session was made with."""
        return self._options

    def get_providers(self) -> list[str]:
        """Where the model runs; on a GPU also the CPU, which does what has no kernel there."""
        return [CUDA, CPU] if self._provider == CUDA else [CPU]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options of each of get_providers()."""
        if self._provider != CUDA:
            return {CPU: {}}
        return {CUDA: {"device_id": "0"} | {k: str(v) for k, v in self._provider_options.items()}, CPU: {}}

    def set_providers(self, providers: Sequence[Any] | None = None,
                      provider_options: Sequence[Any] | None = None) -> None:
        """What the session runs on already; anything else needs a session of its own."""
        provider, options = chosen_provider(providers, provider_options)
        if (provider == CUDA) != (self._provider == CUDA) or device_of(options) != device_of(self._provider_options):
            raise UnsupportedError("the providers of a session cannot be changed; make another session")

    def disable_fallback(self) -> None:
        """Without effect: no session changes its provider."""

    def enable_fallback(self) -> None:
        """Without effect: no session changes its provider."""

    def _output_names(self, asked: Sequence[str] | None) -> list[str]:
        all_names = [o.name for o in self._session.outputs]
        if isinstance(asked, (str, bytes)):
            raise TypeError(f"output_names is a list of names, not one name: [{asked!r}]")
        names = list(asked) if asked else all_names
        unknown = [n for n in names if n not in all_names]
        if unknown:
            raise ValueError(f"unknown output names {unknown}; the model's outputs are {all_names}")
        return names


def _scalar(value: Any) -> Any:
    """One element of any rank, which is what programs give where ONNX Runtime takes a scalar."""
    if isinstance(value, list) and len(value) == 1:
        return value[0]
    return value.reshape(()) if isinstance(value, np.ndarray) and value.size == 1 else value


def _write_optimized(model: Any, to: str, arguments: Mapping[str, Any]) -> None:
    dims, passes = arguments.get("dims"), arguments.get("disable_passes", ())
    if isinstance(model, (str, os.PathLike)):
        optimize(model, to, dims=dims, disable_passes=passes)
        return
    with tempfile.TemporaryDirectory() as empty:
        # Beside the external data, where there is any; else where nothing lies that the model could name.
        with tempfile.NamedTemporaryFile(suffix=".onnx", dir=arguments.get("external_data_dir") or empty) as file:
            file.write(model.SerializeToString() if hasattr(model, "SerializeToString") else bytes(model))
            file.flush()
            optimize(file.name, to, dims=dims, disable_passes=passes)

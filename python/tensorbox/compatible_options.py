"""SessionOptions and RunOptions with the fields of ONNX Runtime's."""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from ._core import Cancellation, UnsupportedError, pass_names
from .config_entries import EXTERNAL_DATA, KNOWN, check_entry, warn_of_entries
from .given_initializers import GivenInitializers, add_given
from .ort_options import config_of, is_foreign
from .providers import checked_provider


class GraphOptimizationLevel(enum.IntEnum):
    """ORT_DISABLE_ALL runs every operator as a kernel of its own; all other levels are the same here."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Without effect: kernels run one after another, each on all threads."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    """Without effect: kernels run in the order that the memory plan was made for."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class SessionOptions:
    """The fields of onnxruntime.SessionOptions; unknown ones are errors (AttributeError), not silence.

    intra_op_num_threads (0: what the machine grants), graph_optimization_level (ORT_DISABLE_ALL: no passes, no fusion),
    optimized_model_filepath (the simplified model is written there, as by `tensorbox.optimize`), enable_profiling with
    profile_file_prefix (a trace, see InferenceSession.end_profiling) and log_severity_level (0 or 1: notes of the
    compiler go to stderr) do what they do there. The others are hints about threads and memory: they can be set and
    change nothing.
    """

    __slots__ = ("intra_op_num_threads", "graph_optimization_level", "optimized_model_filepath", "enable_profiling",
                 "profile_file_prefix", "log_severity_level", "inter_op_num_threads", "execution_mode", "execution_order",
                 "log_verbosity_level", "logid", "enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse",
                 "use_deterministic_compute", "use_per_session_threads", "_operator_libraries", "_dims", "_config",
                 "_providers", "_given")

    def __init__(self) -> None:
        self.intra_op_num_threads = 0
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.optimized_model_filepath: str | os.PathLike[str] = ""
        self.enable_profiling = False
        self.profile_file_prefix = "onnxruntime_profile_"
        self.log_severity_level = -1  # the usual one, which is 2
        # Hints, which change no result.
        self.inter_op_num_threads = 0
        self.execution_mode = ExecutionMode.ORT_SEQUENTIAL
        self.execution_order = ExecutionOrder.DEFAULT
        self.log_verbosity_level = 0
        self.logid = ""
        self.enable_cpu_mem_arena = True
        self.enable_mem_pattern = True
        self.enable_mem_reuse = True
        self.use_deterministic_compute = False
        self.use_per_session_threads = True
        self._operator_libraries: list[str] = []
        self._dims: dict[str, int] = {}
        self._config: dict[str, str] = {}
        self._providers: list[tuple[str, dict[str, Any]]] = []
        self._given = GivenInitializers()

    def register_custom_ops_library(self, path: str | os.PathLike[str]) -> None:
        """A shared library with operators, built for tensorbox/custom_op.h; it is loaded with the session. Libraries
        built for ONNX Runtime have another interface and are refused there."""
        self._operator_libraries.append(os.fspath(path))

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fixes a dimension symbol; an error of the session where the model has none of this name."""
        self._dims[name] = size

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Refused: dimensions are fixed by name."""
        raise UnsupportedError(f"dimensions cannot be fixed by denotation ('{denotation}'); use "
                               "add_free_dimension_override_by_name")

    def add_initializer(self, name: str, value: Any) -> None:
        """The OrtValue (or array) is what sessions have for the model's initializer of this name, as they are made; models
        without one do without it. Of another type or shape it is a ModelError of the session."""
        add_given(self._given.values, [name], [value])

    def add_external_initializers(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """As add_initializer, for initializers that the model must have (a ModelError of the session else), such as those
        whose external data is not there."""
        add_given(self._given.external, names, values)

    def add_external_initializers_from_files_in_memory(self, names: Sequence[str], buffers: Sequence[Any],
                                                       lengths: Sequence[int]) -> None:
        """What is in files of external data, by their names in the model (`location`)."""
        if len(buffers) != len(lengths):
            raise RuntimeError(f"{len(buffers)} buffers are given, and {len(lengths)} lengths of them")
        files = [memoryview(b).cast("B")[:n] for b, n in zip(buffers, lengths, strict=True)]
        add_given(self._given.files, names, files)

    def add_provider(self, name: str, options: Any = None) -> None:
        """As in the list `providers` of InferenceSession, for sessions that are given none."""
        self._providers.append(checked_provider(name, options))

    def has_providers(self) -> bool:
        """Whether add_provider was called."""
        return bool(self._providers)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Kept, and without effect but for the folder of external data. One that asks for another file format is an
        error; the session warns of those that change results in ONNX Runtime, and of those that nobody knows."""
        check_entry(key, value)
        self._config[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """The value of an entry; RuntimeError where there is none."""
        if key not in self._config:
            raise RuntimeError(f"SessionOptions does not have configuration with key: {key}")
        return self._config[key]


class RunOptions:
    """The fields of onnxruntime.RunOptions. All are without effect, but for training_mode, which is an error of the run,
    and terminate: a run that has begun ends with an error when another thread sets it, and others do not begin."""

    __slots__ = ("log_severity_level", "log_verbosity_level", "logid", "only_execute_path_to_fetches", "training_mode",
                 "_cancellation", "_config")

    def __init__(self) -> None:
        self.log_severity_level = -1  # the usual one, which is 2
        self.log_verbosity_level = 0
        self.logid = ""
        self.only_execute_path_to_fetches = False
        self.training_mode = False
        self._cancellation = Cancellation()
        self._config: dict[str, str] = {}

    @property
    def terminate(self) -> bool:
        """Runs with these options are to end."""
        return self._cancellation.cancelled

    @terminate.setter
    def terminate(self, value: bool) -> None:
        if value:
            self._cancellation.cancel()
        else:
            self._cancellation.reset()

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Kept, and without effect."""
        self._config[key] = value

    def get_run_config_entry(self, key: str) -> str:
        """The value of an entry; RuntimeError where there is none."""
        if key not in self._config:
            raise RuntimeError(f"RunOptions does not have configuration with key: {key}")
        return self._config[key]


def check_run_options(options: Any) -> None:
    """Of either module. Raises RuntimeError for a run that is to end, UnsupportedError for training, TypeError for what is
    no RunOptions."""
    if options is not None and not hasattr(options, "terminate"):
        raise TypeError(f"run_options are RunOptions, not {options!r}")
    if getattr(options, "terminate", False):
        raise RuntimeError("the run is not started: RunOptions.terminate is set")
    if getattr(options, "training_mode", False):
        raise UnsupportedError("RunOptions.training_mode: tensorbox runs models for inference only")


def cancellation_of(options: Any) -> Any:
    """What runs with these options are to be inside of. Options of ONNX Runtime's own class are looked at before a run
    alone."""
    return getattr(options, "_cancellation", None) or nullcontext()


def leaves_running(options: Any) -> bool:
    """The run is work of a stream that the caller waits for."""
    key = "disable_synchronize_execution_providers"
    try:
        return options is not None and options.get_run_config_entry(key) == "1"
    except RuntimeError:
        return False


def session_arguments(options: Any) -> dict[str, Any]:
    """Arguments of `tensorbox.Session`, of options of either module: onnxruntime's own object may be given, too."""
    if options is None:
        return {}
    arguments: dict[str, Any] = {
        "threads": options.intra_op_num_threads,
        "operator_libraries": list(getattr(options, "_operator_libraries", ())),
        "dims": dict(getattr(options, "_dims", {})),
    }
    config = getattr(options, "_config", {})
    if is_foreign(options):
        config = config_of(options, KNOWN)
    warn_of_entries(config)
    if EXTERNAL_DATA in config:
        arguments["external_data_dir"] = config[EXTERNAL_DATA]
    if int(options.graph_optimization_level) == GraphOptimizationLevel.ORT_DISABLE_ALL:
        arguments.update(fuse=False, fuse_extern=False, disable_passes=pass_names())
    return arguments

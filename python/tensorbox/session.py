"""Session: a compiled model."""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _core
from .dtypes import dtype_named, numpy_dtype, onnx_type


@dataclass(frozen=True)
class TensorInfo:
    """One input or output: `shape` holds ints and symbol names, `dtype` a numpy dtype. What is no tensor has the
    onnx_type 0, the dtype object, and a `type_name` such as "sequence(tensor(float32))"."""

    name: str
    shape: list[int | str]
    dtype: np.dtype
    onnx_type: int
    type_name: str = ""
    node: str = ""  # outputs: "name (OpType)" of the node that computes it

    @staticmethod
    def of(info: _core.TensorInfo) -> TensorInfo:
        shape = [int(d) if d.lstrip("-").isdigit() else d for d in info.dims]
        dtype = numpy_dtype(info.type) if info.type else np.dtype(object)
        return TensorInfo(info.name, shape, dtype, info.type, info.type_name, info.node)

    @property
    def is_value(self) -> bool:
        """Strings, or no tensor at all."""
        return self.onnx_type in (0, 8)


class Session:
    """Compiles `model` (a path, bytes, or an onnx.ModelProto) and runs it, from any thread.

    threads: 0 takes the least of CPU quota, affinity and OMP_NUM_THREADS. compile=False runs everything in the
    evaluator, without a compiler. isa: "avx512", "avx2" or "sse". dims fixes dimension symbols ({"batch": 1}).
    operator_libraries: shared libraries with operators of your own (docs/custom_operators.md), whose code runs in this
    process.
    max_memory (bytes) and time_limit_ms bound every run; the time is looked at between kernels and iterations,
    and inside of long kernels. 0: none.
    precision: "strict" multiplies float32 as it is; "bf16" rounds the operands of products and convolutions to bfloat16
    where the CPU multiplies those faster, "any" to what the library finds fastest (docs/precision.md).
    every_value=True makes what nodes compute for each other outputs too, in the order they are computed (slower, and
    all of it stays in memory; see `tensorbox.compare`).
    Raises ModelError, UnsupportedError, BackendError; all are tensorbox.Error.
    """

    def __init__(self, model: Any, *, threads: int = 0, compile: bool = True, isa: str | None = None,
                 cache_dir: str | None = None, fuse: bool = True, fuse_extern: bool = True,
                 disable_passes: Sequence[str] = (), dims: Mapping[str, int] | None = None,
                 operator_libraries: Sequence[str | os.PathLike[str]] = (), all_dims_dynamic: bool = False,
                 every_value: bool = False, max_memory: int = 0, time_limit_ms: int = 0, private_threads: bool = False,
                 precision: str = "strict", log: Callable[[str], None] | None = None):
        options = _core.CompileOptions()
        options.threads = threads
        options.compile = compile
        options.isa = isa or ""
        options.cache_dir = os.fspath(cache_dir) if cache_dir else ""
        options.precision = precision
        options.fuse = fuse
        options.fuse_extern = fuse_extern
        options.disabled_passes = list(disable_passes)
        options.dims = dict(dims or {})
        options.operator_libraries = [os.fspath(library) for library in operator_libraries]
        options.all_dims_dynamic = all_dims_dynamic
        options.every_value = every_value
        options.max_memory = max_memory
        options.time_limit_ms = time_limit_ms
        options.private_threads = private_threads
        if log is not None:
            # The compiled model keeps what it is given. A function of the caller's may hold this session: through a weak
            # reference that is no cycle, which Python's collector could not see inside the model.
            self._log, here = log, weakref.ref(self)
            options.set_log(lambda message: None if (session := here()) is None else session._log(message))
        if isinstance(model, (str, os.PathLike)):
            self._core = _core.Session.from_file(os.fspath(model), options)
        else:
            data = model if isinstance(model, (bytes, bytearray, memoryview)) else model.SerializeToString()
            self._core = _core.Session.from_bytes(bytes(data), options)
        self.inputs = [TensorInfo.of(i) for i in self._core.inputs]
        self.outputs = [TensorInfo.of(o) for o in self._core.outputs]
        self._by_name = {i.name: i for i in self.inputs}
        self._values = any(i.is_value for i in self.inputs + self.outputs)

    @property
    def stats(self) -> Any:
        """Counts and times of the compilation."""
        return self._core.stats

    @property
    def threads(self) -> int:
        return self._core.threads

    def run(self, inputs: Mapping[str, Any], out: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
        """Runs the model: {name: array} in, {name: array} out. Arrays may be anything with DLPack or the array
        protocol. `out` gives C-contiguous arrays for all outputs, which are written directly.

        Strings are arrays of objects or of str; sequences are lists, maps dicts, and an empty optional is None."""
        if self._values and out is None:
            values = [(name, _to_value(value, self._by_name.get(name))) for name, value in inputs.items()]
            return {name: _from_value(value) for name, value in self._core.run_values(values)}
        given = [self._given(name, value) for name, value in inputs.items()]
        if out is not None:
            missing = [o.name for o in self.outputs if o.name not in out]
            if missing:
                raise _core.ModelError(f"out lacks the outputs {', '.join(missing)}")
            self._core.run_into(given, [(onnx_type(out[o.name].dtype), list(out[o.name].shape), _as_bytes(out[o.name]))
                                        for o in self.outputs])
            return {o.name: out[o.name] for o in self.outputs}
        return {name: _to_numpy(*rest) for name, *rest in self._core.run(given)}

    def observe(self, inputs: Mapping[str, Any], observer: Callable[[str, np.ndarray], None]) -> dict[str, np.ndarray]:
        """Runs the model and calls `observer(name, array)` for every named value that is in memory."""
        given = [self._given(name, value) for name, value in inputs.items()]
        outputs = self._core.observe(given, lambda name, *rest: observer(name, _to_numpy(*rest).copy()))
        return {name: _to_numpy(*rest) for name, *rest in outputs}

    def profile(self, inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Runs once; one entry per kernel with its nodes, time, bytes and flops."""
        return self._core.profile([self._given(name, value) for name, value in inputs.items()])

    def explain(self) -> list[dict[str, Any]]:
        """One entry per kernel: its ONNX nodes and why it is what it is."""
        return self._core.explain()

    def dump(self, stage: str) -> str:
        """Text of the model at a stage: import, simplify, lower, schedule, source, cuda or plan."""
        return self._core.dump(stage)

    def _given(self, name: str, value: Any) -> tuple[str, int, list[int], Any]:
        info = self._by_name.get(name)
        array = _as_array(value, info)
        number = onnx_type(array.dtype)
        if number == 8:
            return name, 8, list(array.shape), array.ravel().tolist()
        return name, number, list(array.shape), _as_bytes(np.ascontiguousarray(_to_memory(array, number)).reshape(array.shape))


def _to_value(value: Any, info: TensorInfo | None) -> tuple[Any, ...] | None:
    """A Python value as the module takes it; `info` says what numbers without a dtype become."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        keys = list(value)
        key_type = object if keys and isinstance(keys[0], (str, bytes)) else np.int64
        return "map", _to_value(np.array(keys, key_type), None), _to_value(_plain_array(list(value.values()), info), None)
    if isinstance(value, (list, tuple)) and info is not None and "sequence(" in info.type_name:
        return "sequence", [_to_value(v, _element(info)) for v in value]
    array = _as_array(value, info) if hasattr(value, "__dlpack__") else _plain_array(value, info)
    number = onnx_type(array.dtype)
    if number == 8:
        return "tensor", 8, list(array.shape), array.ravel().tolist()
    return "tensor", number, list(array.shape), _as_bytes(
        np.ascontiguousarray(_to_memory(array, number)).reshape(array.shape))


def _plain_array(value: Any, info: TensorInfo | None) -> np.ndarray:
    if isinstance(value, (np.ndarray, np.generic)) or info is None:
        return np.asarray(value)
    if info.onnx_type:
        return np.asarray(value, dtype=info.dtype)
    element = re.search(r"tensor\((\w+)\)", info.type_name)
    return np.asarray(value, dtype=object if element is None or element[1] == "string" else dtype_named(element[1]))


def _element(info: TensorInfo) -> TensorInfo:
    """What the elements of a sequence are."""
    inner = info.type_name[info.type_name.index("sequence(") + len("sequence("):-1]
    return TensorInfo(info.name, [], np.dtype(object), 0, inner)


def _from_value(value: tuple[Any, ...] | dict[Any, Any] | None) -> Any:
    if value is None or isinstance(value, dict):
        return value
    kind, *rest = value
    if kind == "sequence":
        return [v if isinstance(v, dict) else _from_value(v) for v in rest[0]]
    if kind == "map":
        keys, values = (_from_value(v).tolist() for v in rest)
        return dict(zip(keys, values))
    return _to_numpy(*rest)


def _as_array(value: Any, info: TensorInfo | None) -> np.ndarray:
    if isinstance(value, np.ndarray) or np.isscalar(value):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    return np.asarray(value, dtype=info.dtype if info else None)


def _to_memory(array: np.ndarray, number: int) -> np.ndarray:
    """4- and 2-bit integers as the bytes tensorbox holds them in, sign-extended; numpy's keep the low bits only."""
    wide = {21: np.uint8, 22: np.int8, 25: np.uint8, 26: np.int8}.get(number)
    return array if wide is None else array.astype(wide)


def _as_bytes(array: np.ndarray) -> np.ndarray:
    """The same memory as bytes: the buffer protocol has no codes for bfloat16 and its kin."""
    return array.reshape(-1).view(np.uint8) if array.size else np.empty(1, np.uint8)


def _to_numpy(number: int, dims: list[int], payload: Any) -> np.ndarray:
    if number == 8:
        return np.fromiter(payload, dtype=object, count=len(payload)).reshape(dims)
    return np.frombuffer(payload, dtype=np.uint8).view(numpy_dtype(number)).reshape(dims)

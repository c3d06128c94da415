"""Session: a compiled model."""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NoReturn

import numpy as np

from . import _core
from .arguments import integer, mapping, names, set_fields, set_integers, sizes
from .arrays import TensorInfo, given_tensor, given_value, output_memory, to_numpy, to_value
from .bound_run import BoundRun
from .device import DeviceTensor, Streams, Taken, is_on_device, stream_handle


class Session:
    """Compiles `model` (a path, bytes, or an onnx.ModelProto) and runs it, from any thread.

    A path may be that of a package from `save` or `tbx compile`, too, which is loaded without a compiler; options that
    would change what was compiled are errors then. A package is native code: load none from a stranger.
    Raises ModelError, UnsupportedError, BackendError; all are tensorbox.Error.

    Where it runs, and how:
      threads: 0: the least of CPU quota, affinity and OMP_NUM_THREADS.
      private_threads: threads of its own, instead of those that the sessions of the process share.
      device: "cuda" or "cuda:1": an NVIDIA GPU runs what has kernels for it (docs/gpu.md). None or "cpu": the CPU.
      isa: of generated kernels: "avx512", "avx2" or "sse". None: the CPU's best.
      precision: of float32 models (docs/precision.md). "strict": as they are; "tf32" (device "cuda"): products on tensor
        cores, with operands of 11 significant bits; "bf16" or "f16": memory holds and products multiply that type where
        the CPU does, sums and sensitive operators are float32; "any": bf16 where the library finds that faster.
      compile: False: the evaluator runs everything, without a compiler.
      tiered: the evaluator answers first runs at once, while the C++ compiler builds what the cache of kernels lacks
        behind them; compiled kernels answer later ones. `stats.evaluated_kernels` and `explain` say what the last run
        had, `log` is told of a compiler that fails.
      reference: plain loops that add in double compute everything, without compiler, libraries, tuned kernels and
        fusion: slow, and what results are compared with.
      fuse, fuse_extern: False: a kernel for each operation; no post-operations inside of library kernels.
      disable_passes: names of graph passes and steps of the schedule to leave out (`tbx explain --passes`).
      cache_dir: of compiled kernels and plans. None: $TBX_CACHE_DIR or ~/.cache/tensorbox/kernels.
      keep_plans: what is compiled is kept there, and the next session of the same model, options and machine starts with
        it (docs/kernels.md). `stats.kept_plan` says that this one did, `stats.not_kept` why the next one does not.
      log: called with fallbacks and warnings. None: nothing is said, but for a RuntimeWarning where no C++ compiler
        works, or a package has no kernels for this CPU, so that the evaluator runs them, slower
        (`stats.not_compiled`).

    What it takes and gives:
      dims: fixes symbols of dimensions ({"batch": 1}). all_dims_dynamic: forgets fixed ones of inputs (for tests).
      overridable: names of initializers that the model declares as inputs, too (`overridable_initializers`), and that
        are to be inputs which `run` may leave out, with the initializer as default. All others are constants, which is
        faster.
      every_value: what nodes compute for each other is an output, too, in the order it is computed (slower, and all of
        it stays in memory; see `tensorbox.compare`).
      state: inputs that are what an output of the run before was, as the caches of a decoder
        ({"past_key_values.*": "present.*"}, where the * stands for the same text). The session keeps them, in memory
        with room for `state_capacity` along the dimension that grows: a run writes behind what is there, and neither
        takes nor gives them (docs/decoding.md). With `state_limit` the room grows as runs need it, up to that, and
        without either as far as memory and max_memory go.
      seed: of random operators to which the model gives none. With equal seeds the n-th run of a session gives what the
        n-th run of another gives. None: that of `tensorbox.set_seed`, else one from the operating system
        (docs/random.md).
      external_data_dir: the folder of the external data of a model that is given as bytes or ModelProto.
      operator_libraries: shared libraries with operators of your own (docs/custom_operators.md), whose code runs in this
        process.

    Limits (docs/security.md). 0: the usual one, which for time and memory is none:
      untrusted: the model comes from a stranger: all limits hold; no operator_libraries, and external data must not be a
        link (strict_links).
      max_memory (bytes), time_limit_ms: of every run. The time is looked at between kernels and iterations, and inside
        of long kernels.
      load_memory, load_time_limit_ms: of what loading makes of the model, without the C++ compiler. Where they are not
        given, max_memory (of at least 64 MiB) and time_limit_ms.
      max_model_bytes (without external data), max_nodes (functions inlined), max_nesting (to 64), max_tensors,
        max_tensor_bytes (of one), max_dense_bytes (of sparse tensors): of what a model may be.
      compile_time_limit_ms, compile_memory (bytes of address space): of the C++ compiler, for all kernels of a model and
        of one process. 0: 5 minutes and 4 GiB. Ctrl-C stops it.
    """

    def __init__(self, model: Any, *, threads: int = 0, compile: bool = True, tiered: bool = False, device: str | None = None,
                 isa: str | None = None, seed: int | None = None, cache_dir: str | None = None, keep_plans: bool = True, fuse: bool = True, fuse_extern: bool = True,
                 disable_passes: Sequence[str] = (), dims: Mapping[str, int] | None = None,
                 operator_libraries: Sequence[str | os.PathLike[str]] = (), all_dims_dynamic: bool = False,
                 overridable: Sequence[str] = (), external_data_dir: str | os.PathLike[str] | None = None,
                 every_value: bool = False, max_memory: int = 0, time_limit_ms: int = 0, load_memory: int = 0,
                 load_time_limit_ms: int = 0, max_model_bytes: int = 0, max_nodes: int = 0, max_nesting: int = 0,
                 max_tensors: int = 0, max_tensor_bytes: int = 0, max_dense_bytes: int = 0,
                 compile_time_limit_ms: int = 0, compile_memory: int = 0, strict_links: bool = False,
                 untrusted: bool = False, state: Mapping[str, str] | None = None, state_capacity: int = 0,
                 state_limit: int = 0,
                 private_threads: bool = False, precision: str = "strict",
                 reference: bool = False, log: Callable[[str], None] | None = None):
        options = _core.CompileOptions()
        set_fields(options, compile=compile, tiered=tiered, reference=reference, keep_plans=keep_plans, fuse=fuse,
                   fuse_extern=fuse_extern, all_dims_dynamic=all_dims_dynamic, every_value=every_value,
                   strict_links=strict_links, untrusted=untrusted, private_threads=private_threads, precision=precision,
                   device="" if device is None else device, isa="" if isa is None else isa,
                   cache_dir=os.fsdecode(cache_dir) if cache_dir else "",
                   external_data_dir=os.fsdecode(external_data_dir) if external_data_dir else "",
                   disabled_passes=names("disable_passes", disable_passes), overridable=names("overridable", overridable),
                   operator_libraries=names("operator_libraries", operator_libraries), dims=sizes("dims", dims),
                   state=dict(mapping("state", state)), seed=None if seed is None else integer("seed", seed))
        set_integers(options, threads=threads, state_capacity=state_capacity, state_limit=state_limit,
                     max_memory=max_memory, time_limit_ms=time_limit_ms, load_memory=load_memory,
                     load_time_limit_ms=load_time_limit_ms, max_model_bytes=max_model_bytes, max_nodes=max_nodes,
                     max_nesting=max_nesting, max_tensors=max_tensors, max_tensor_bytes=max_tensor_bytes,
                     max_dense_bytes=max_dense_bytes, compile_time_limit_ms=compile_time_limit_ms,
                     compile_memory=compile_memory)
        if log is not None and not callable(log):
            raise TypeError(f"log is called with every message: {log!r} is no function")
        if log is not None:
            # The compiled model keeps what it is given. A function of the caller's may hold this session: through a weak
            # reference that is no cycle, which Python's collector could not see inside the model.
            self._log, here = log, weakref.ref(self)
            options.set_log(lambda message: None if (session := here()) is None else session._log(message))
        if isinstance(model, (str, os.PathLike)):
            self._core = _core.Session.from_file(os.fsencode(model), options)
        elif isinstance(model, (bytes, bytearray, memoryview)):
            self._core = _core.Session.from_bytes(bytes(model), options)
        elif hasattr(model, "SerializeToString"):
            self._core = _core.Session.from_bytes(model.SerializeToString(), options)
        else:
            raise TypeError(f"a model is a path, bytes or an onnx.ModelProto, not a {type(model).__name__}")
        if log is None and self.stats.not_compiled:
            warnings.warn(f"tensorbox: {self.stats.not_compiled}", RuntimeWarning, stacklevel=2)
        self.inputs = [TensorInfo.of(i) for i in self._core.inputs]
        self.outputs = [TensorInfo.of(o) for o in self._core.outputs]
        self.overridable_initializers = [TensorInfo.of(i) for i in self._core.overridable_initializers]
        self._by_name = {i.name: i for i in self.inputs}
        self._values = any(i.is_value for i in self.inputs + self.outputs)
        self._streams = None if self._core.device is None else Streams(self._core.device)

    def __repr__(self) -> str:
        return f"<tensorbox.Session {', '.join(map(str, self.inputs))} -> {', '.join(map(str, self.outputs))}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a tensorbox session holds compiled code and cannot be pickled or copied; give the other "
                        "process the model and let it make a session of its own (the kernels come out of the cache)")

    @property
    def metadata(self) -> _core.ModelMetadata:
        """What the file says of itself: producer_name, producer_version, graph_name, domain, description,
        graph_description, version (None: not given) and custom ({key: value} of its metadata_props)."""
        return self._core.metadata

    @property
    def made_for(self) -> list[str]:
        """Of a package that was saved with `for_inputs_seen` and needed it: what its parts are made for, a line each.
        Empty: it serves all inputs that the model takes."""
        return self._core.made_for

    @property
    def stats(self) -> _core.CompileStats:
        """Counts and times of the compilation."""
        return self._core.stats

    @property
    def threads(self) -> int:
        """How many threads a run uses."""
        return self._core.threads

    def run(self, inputs: Mapping[str, Any], out: Mapping[str, Any] | None = None, *, outputs: str = "host",
            stream: Any = None) -> dict[str, Any]:
        """Runs the model: {name: array} in, {name: array} out. Arrays may be anything with DLPack or the array
        protocol. `out` gives C-contiguous arrays for all outputs, which are written directly. One may lie where an input
        does, which is copied first; two outputs may not share memory.

        Strings are arrays of objects or of str; sequences are lists, maps dicts, and an empty optional is None.

        With device="cuda" inputs and `out` may be tensors on that GPU, of torch, CuPy or anything else with DLPack or
        __cuda_array_interface__, which are used where they are. outputs="device" gives all other outputs as
        `DeviceTensor`s, which those libraries take. `stream` (of torch or CuPy, or its handle) makes the run work of
        that stream; else it waits for what fills its inputs. The outputs are there when `run` returns."""
        _items(inputs)
        if out is not None:
            self._check_out(out)
        return self._run_partly_into(inputs, out or {}, outputs, stream)

    def run_async(self, inputs: Mapping[str, Any], stream: Any, out: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """As `run` with outputs="device", as work of the stream that is not waited for: outputs are there when the stream
        is, and libraries that take them by DLPack wait for that. Inputs on the GPU must not be changed before. For
        models whose work in a run is the device's alone (UnsupportedError). An index outside of its axis is an error of a
        later run, or of `synchronize`."""
        if out is not None:
            self._check_out(out)
        return self._run_partly_into(inputs, out or {}, "device", stream, asynchronous=True)

    def bind(self, inputs: Mapping[str, Any], out: Mapping[str, Any]) -> BoundRun:
        """Runs that read `inputs` and write `out` in the same memory every time: what is given is looked at once, and
        `BoundRun.run` or `run_async` do nothing but run, which costs the least time of the host. With all of it on the
        GPU a run is one start of a graph. `out` has memory for all outputs; on the host both are C-contiguous arrays of
        numbers, of the model's types. Shapes are those of what is bound, for good."""
        self._check_out(out)
        return BoundRun(self, dict(_items(inputs)), out)

    def synchronize(self) -> None:
        """Waits for all runs of run_async, and raises the error of one that failed."""
        self._core.synchronize()
        if self._streams is not None:
            self._streams.clear()

    @property
    def state_length(self) -> int:
        """With the option state: how long what the session keeps is along the dimension that grows."""
        return self._core.state_length

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Another state: {name: array} of all inputs that the session keeps, of equal length, or {}, which is an empty
        one. Tensors on the session's GPU are copied there."""
        given = []
        for name, value in _items(state):
            if self._streams is not None and is_on_device(value):
                on, number = self._streams.own(), self._core.device
                tensor = Taken(on, number).tensor(f"state '{name}'", value)
                _core.wait_for_stream(f"cuda:{number}", on)
                given.append((name, tensor.type, tensor.dims, tensor))
            else:
                given.append(given_tensor(name, value, None))
        self._core.set_state(given)

    def _check_out(self, out: Mapping[str, Any]) -> None:
        missing = [o.name for o in self.outputs if o.name not in out]
        if missing:
            raise _core.ModelError(f"out lacks the outputs {', '.join(missing)}")
        names = [o.name for o in self.outputs]
        unknown = [name for name in out if name not in names]
        if unknown:
            raise _core.ModelError(f"out has {unknown}; the model's outputs are {names}")

    def _run_partly_into(self, inputs: Mapping[str, Any], out: Mapping[str, Any],
                         outputs: str | AbstractSet[str] = "host", stream: Any = None,
                         asynchronous: bool = False) -> dict[str, Any]:
        """The outputs that `out` has are written there, the others get memory of their own: all of them on the host, on
        the "device", or those of a set on the device."""
        if isinstance(outputs, str) and outputs not in ("host", "device"):
            raise ValueError(f'outputs is "host" or "device", not {outputs!r}')
        there: AbstractSet[str] = frozenset()
        if outputs != "host":
            there = {o.name for o in self.outputs if outputs == "device" or o.name in outputs}
        given = _items(inputs)
        if (stream is not None or there or any(map(is_on_device, inputs.values()))
                or any(map(is_on_device, out.values()))):
            return self._run_on_device(given, out, there, stream, asynchronous)
        if self._values and not out:
            values = [given_value(name, value, self._by_name.get(name)) for name, value in given]
            return {name: to_value(value) for name, value in self._core.run_values(values)}
        if not out:
            return {name: to_numpy(*rest) for name, *rest in self._core.run(self._given(inputs))}
        memory = [output_memory(o.name, out[o.name]) if o.name in out else None for o in self.outputs]
        made = self._core.run_into(self._given(inputs), memory)
        return {name: out[name] if name in out else to_numpy(*rest) for name, *rest in made}

    def _run_on_device(self, given: Any, out: Mapping[str, Any], outputs_there: AbstractSet[str], stream: Any,
                       asynchronous: bool) -> dict[str, Any]:
        if self._streams is None:
            there = [f"input '{name}'" for name, value in given if is_on_device(value)]
            there += [f"out['{name}']" for name, value in out.items() if is_on_device(value)]
            what = f"{there[0]} is in memory of a GPU" if there else "a stream or outputs on a GPU are asked for"
            raise _core.ModelError(f"{what}, and the session runs on the CPU; give it the option "
                                   'device="cuda"')
        number = self._core.device
        on = self._streams.own() if stream is None else stream_handle(stream)
        taken = Taken(on, number)
        tensors = []
        for name, value in given:
            if is_on_device(value):
                tensor = taken.tensor(f"input '{name}'", value)
                tensors.append((name, tensor.type, tensor.dims, tensor))
            else:
                tensors.append(given_tensor(name, value, self._by_name.get(name)))
        memory: list[Any] = []
        for o in self.outputs:
            if o.name not in out:
                memory.append(number if o.name in outputs_there else None)
            elif is_on_device(out[o.name]):
                memory.append(taken.tensor(f"out['{o.name}']", out[o.name], writable=True))
            else:
                memory.append(output_memory(o.name, out[o.name]))
        made = self._core.run_into(tensors, memory, on, asynchronous)
        if asynchronous:
            self._streams.keep(on, (tensors, memory))
        return {name: out[name] if name in out else
                DeviceTensor(rest[2], on if asynchronous else None) if isinstance(rest[2], _core.DeviceTensor)
                else to_numpy(*rest) for name, *rest in made}

    def _run_profiled(self, inputs: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
        reports, outputs = self._core.profile(self._given(inputs), True)
        return reports, {name: to_numpy(*rest) for name, *rest in outputs}

    def observe(self, inputs: Mapping[str, Any], observer: Callable[[str, np.ndarray], None]) -> dict[str, np.ndarray]:
        """Runs the model and calls `observer(name, array)` for every named value that is in memory."""
        outputs = self._core.observe(self._given(inputs), lambda name, *rest: observer(name, to_numpy(*rest).copy()))
        return {name: to_numpy(*rest) for name, *rest in outputs}

    def profile(self, inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Runs once; one entry per kernel with its nodes, time, bytes and flops."""
        return self._core.profile(self._given(inputs), False)[0]

    def explain(self) -> list[dict[str, Any]]:
        """One entry per kernel: its ONNX nodes, why it is what it is, and the entries (by their places) whose results it reads."""
        return self._core.explain()

    def save(self, file: str | os.PathLike[str], isas: Sequence[str] = (),
             architectures: Sequence[str] = (), for_inputs_seen: bool = False) -> _core.PackageReport:
        """Writes a package: one file that `Session(file)` loads without a compiler (docs/packages.md), with native
        kernels for the instruction sets `isas` ("avx512", "avx2", "sse"; none: this session's own). UnsupportedError for
        what no package can hold, and where the code depends on values or shapes of inputs that only a run brings and
        are not few; with `for_inputs_seen` the package holds what was compiled for the runs so far, and serves such
        inputs alone (`made_for`). That of a session on a GPU has machine code for `architectures` ("sm_90"; none: that of
        its GPU), and is loaded with the option `device`."""
        return self._core.save(os.fsencode(file), names("isas", isas), names("architectures", architectures),
                               bool(for_inputs_seen))

    def dump(self, stage: str) -> str:
        """Text of the model at a stage: import, simplify, lower, schedule, source, cuda or plan."""
        return self._core.dump(stage)

    def _given(self, inputs: Mapping[str, Any]) -> list[tuple[str, int, list[int], Any]]:
        return [given_tensor(name, value, self._by_name.get(name)) for name, value in _items(inputs)]


def _items(inputs: Mapping[str, Any]) -> Any:
    if not isinstance(inputs, Mapping):
        raise TypeError(f"inputs are a mapping {{name: array}}, not a {type(inputs).__name__} (the names of outputs come "
                        "before them in InferenceSession.run alone)")
    return inputs.items()


"""One model at many sizes: static dimensions become symbols, and every run of the compiled model is held against the
evaluator, which looks at each address, and against ONNX Runtime where it is asked for.

A run ends well when both give the same values, or both an error of the model. Everything else is a failure: an
InternalError, an exception of another kind, a crash, a run that does not end, a result that only one of them has or in
which they differ (`differ`), and one that differs from ONNX Runtime's (`peer`). Every third run's sizes are given to a
session that compiles for them, too: what it gives is the same. It may refuse more, since it asks before there is a run.
"""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import numpy as np
import onnx
from base_models import BaseModel


TIME_LIMIT_MS = 5_000
MEMORY_LIMIT = 1 << 30
RANDOM = {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"}


class ShapeJob(NamedTuple):
    base: BaseModel
    seed: int
    runs: int
    peer: bool = False

    def __str__(self) -> str:
        return f"{'.'.join(filter(None, self.base.operator))} {self.base.name} (seed {self.seed})"


def with_symbols(model: onnx.ModelProto, rng: np.random.Generator) -> tuple[onnx.ModelProto, dict[str, list[str | int]]]:
    """The model with most of its input dimensions as symbols, and the dimensions of each input.

    Equal sizes share a symbol as often as not: models declare it both ways."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    del graph.value_info[:]
    for info in graph.output:
        if info.type.HasField("tensor_type"):
            info.type.tensor_type.ClearField("shape")
    share = rng.random() < 0.6
    dims: dict[str, list[str | int]] = {}
    initializers = {t.name for t in graph.initializer}
    for info in graph.input:
        if info.name in initializers or not info.type.HasField("tensor_type") or not info.type.tensor_type.HasField("shape"):
            continue
        of_input: list[str | int] = []
        for k, dim in enumerate(info.type.tensor_type.shape.dim):
            if dim.HasField("dim_value") and rng.random() < 0.85:
                dim.dim_param = f"n{dim.dim_value}" if share and rng.random() < 0.9 else f"{info.name}_{k}"
            of_input.append(dim.dim_param if dim.HasField("dim_param") else dim.dim_value)
        dims[info.name] = of_input
    return made, dims


def sizes_of(dims: dict[str, list[str | int]], feeds: dict[str, Any], rng: np.random.Generator, run: int) -> dict[str, int]:
    """A size for every symbol: at first the model's own, then other ones for one of them, then for all."""
    own: dict[str, int] = {}
    for name, of_input in dims.items():
        for symbol, n in zip(of_input, np.shape(feeds[name]), strict=False):
            if isinstance(symbol, str) and symbol:
                own.setdefault(symbol, n)
    if run == 0 or not own:
        return own

    def other(n: int) -> int:
        return int(max(0, rng.choice([0, 0, 1, 1, 2, n - 1, n, n + 1, n // 2, 2 * n, 2 * n + 1, 17, 33])))

    changed = list(own) if run % 2 == 0 else [str(rng.choice(sorted(own)))]
    return {symbol: other(n) if symbol in changed else n for symbol, n in own.items()}


def resized(value: np.ndarray, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if value.shape == shape:
        return value
    if value.size == 0:
        return np.zeros(shape, value.dtype)
    made = np.resize(value, shape)
    return rng.permuted(made) if made.dtype.kind == "f" and made.ndim else made


def feeds_of(feeds: dict[str, Any], dims: dict[str, list[str | int]], sizes: dict[str, int],
             rng: np.random.Generator) -> dict[str, Any]:
    made = dict(feeds)
    for name, of_input in dims.items():
        value = feeds[name]
        if isinstance(value, np.ndarray) and len(of_input) == value.ndim:
            shape = tuple(sizes.get(d, n) if isinstance(d, str) else d for d, n in zip(of_input, value.shape, strict=True))
            if np.prod(shape, dtype=np.float64) < 1 << 22:
                made[name] = resized(value, shape, rng)
    if rng.random() < 0.15:  # data that no index may be
        names = [n for n, v in made.items() if isinstance(v, np.ndarray) and v.dtype in (np.int64, np.int32) and v.size]
        if names:
            name = str(rng.choice(names))
            bad = made[name] = made[name].copy()
            bad.flat[rng.integers(bad.size)] = rng.choice([-1, bad.size, 1000, -1000, 2**31 - 1])
    return made


def close(a: Any, b: Any, tolerance: float) -> bool:
    """Of equal type and shape, and equal but for rounding."""
    if type(a) is not type(b) and not (np.isscalar(a) and np.isscalar(b)):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(close(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if not isinstance(a, np.ndarray):
        return bool(a == b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind not in "fcV" and a.dtype.name not in ("bfloat16",) and not a.dtype.name.startswith("float"):
        if a.dtype.kind in "iu" and a.dtype.itemsize <= 2:  # quantised: half a step either way
            return bool(np.all(np.abs(a.astype(np.int64) - b.astype(np.int64)) <= 1))
        return bool(np.array_equal(a, b))
    x, y = (v if v.dtype.kind == "c" else v.astype(np.float64) for v in (a, b))
    finite = np.isfinite(y)
    scale = float(np.max(np.abs(y[finite]), initial=0))
    with np.errstate(all="ignore"):
        return bool(np.all((x == y) | (np.isnan(x) & np.isnan(y)) | (np.abs(x - y) <= tolerance * (np.abs(y) + scale) + 1e-6)))


def attempt(session: Any, feeds: dict[str, Any]) -> tuple[str, Any]:
    import tensorbox

    try:
        return "ran", session.run({i.name: feeds[i.name] for i in session.inputs if i.name in feeds})
    except tensorbox.InternalError as e:
        return "internal", str(e)
    except tensorbox.Error as e:
        return "refused", str(e)
    except Exception as e:
        return "python", f"{type(e).__name__}: {e}"


def with_sizes(model: onnx.ModelProto, sizes: dict[str, int], feeds: dict[str, Any], **options: Any) -> tuple[str, Any]:
    """The same run of the evaluator where the sizes are known while compiling."""
    import tensorbox

    try:
        return attempt(tensorbox.Session(model, compile=False, dims=sizes, **options), feeds)
    except tensorbox.InternalError as e:
        return "internal", str(e)
    except tensorbox.Error as e:
        return "refused", str(e)


def tolerance_of(model: onnx.ModelProto) -> float:
    narrow = any(i.type.tensor_type.elem_type not in (1, 2, 3, 4, 5, 6, 7, 9, 11, 12, 13) for i in model.graph.input)
    return 2e-2 if narrow else 2e-4


def judge(job: ShapeJob) -> tuple[str, str]:
    """All runs of one job in this process: the first failure, or `ran` with the number of executions."""
    import tensorbox

    rng = np.random.default_rng(zlib.crc32(str(job).encode()))
    model, dims = with_symbols(job.base.model, rng)
    initializers = {t.name for t in model.graph.initializer}
    names = [i.name for i in model.graph.input if i.name not in initializers]
    own = dict(zip(names, job.base.inputs, strict=False))
    options = {"threads": 1, "time_limit_ms": TIME_LIMIT_MS, "max_memory": MEMORY_LIMIT}
    try:
        sessions = [tensorbox.Session(model, compile=compiled, **options) for compiled in (False, True)]
    except tensorbox.InternalError as e:
        return "internal", str(e)
    except tensorbox.Error as e:
        return "refused", str(e)
    peer = peer_of(model) if job.peer else None
    dims = {n: d for n, d in dims.items() if n in own}
    random = any(node.op_type in RANDOM for node in model.graph.node)
    count = good = 0
    for run in range(job.runs):
        sizes = sizes_of(dims, own, rng, run)
        feeds = feeds_of(own, dims, sizes, rng)
        (status, wanted), (how, got) = (attempt(s, feeds) for s in sessions)
        count += 2
        shapes = ", ".join(f"{n}{list(v.shape)}" for n, v in feeds.items() if isinstance(v, np.ndarray))
        known, given = with_sizes(model, sizes, feeds, **options) if run % 3 == 2 else (status, wanted)
        for outcome, text, who in ((status, wanted, "evaluator"), (how, got, "compiled"), (known, given, "of known sizes")):
            if outcome in ("internal", "python"):
                return outcome, f"{who}, run {run}, {shapes}: {text}"
        late = any(s == "refused" and "longer than the limit" in t for s, t in ((status, wanted), (how, got)))
        if late:
            continue
        if status != how:
            text = wanted if status == "refused" else got
            return "differ", f"run {run}, {shapes}: evaluator {status}, compiled {how}: {text}"
        if known == "ran" and status == "refused" and "longer than the limit" not in wanted:
            return "differ", f"run {run}, {shapes}: with known sizes there are results: {wanted}"
        if status != "ran" or random:
            continue
        good += 1
        for name, value in wanted.items():
            if not close(got[name], value, tolerance_of(model)):
                return "differ", f"run {run}, {shapes}: output {name}: {summary(value)} and compiled {summary(got[name])}"
            if known == "ran" and not close(given[name], value, tolerance_of(model)):
                return "differ", f"run {run}, {shapes}: output {name}: {summary(value)} and of known sizes {summary(given[name])}"
        if peer and (outputs := peer(feeds)) is not None:
            count += 1
            for name, value in outputs.items():
                if isinstance(value, np.ndarray) and not close(wanted[name], value, 1e-2):
                    return "peer", f"run {run}, {shapes}: output {name}: {summary(wanted[name])}, ONNX Runtime {summary(value)}"
    return "ran", f"{count} {good}"


def summary(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return repr(value)[:100]
    return f"{value.dtype}{list(value.shape)} {value.ravel()[:6].tolist()}"


def peer_of(model: onnx.ModelProto) -> Any:
    """ONNX Runtime as a function of the feeds, which gives None where it refuses; None where it has no session."""
    try:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:
        return None
    wanted = {i.name for i in session.get_inputs()}
    outputs = [o.name for o in session.get_outputs()]

    def run(feeds: dict[str, Any]) -> dict[str, Any] | None:
        try:
            return dict(zip(outputs, session.run(None, {n: v for n, v in feeds.items() if n in wanted}), strict=True))
        except Exception:
            return None

    return run




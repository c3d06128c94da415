"""Runs one case: in tensorbox as its mode says, by plain loops, and in ONNX Runtime where that has the operators."""
from __future__ import annotations

import collections
import functools
import os
import re
import tempfile
import time
from typing import Any

import numpy as np
import onnx
import onnx.parser
import tensorbox

from . import arbiter
from .cases import Case
from .scale import may_multiply_one_row, multiplies_floats, scales
from .tolerance import Bound, difference

try:
    import onnxruntime
    onnxruntime.set_default_logger_severity(4)
except ImportError:
    onnxruntime = None

SLOW_FACTOR, SLOW_MS = 5.0, 1.0


class LibraryLog:
    """What oneDNN writes to standard output with DNNL_VERBOSE=1, as "primitive implementation" with counts."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()
        self._real = os.dup(1)
        os.dup2(self._file.fileno(), 1)

    def print(self, text: str) -> None:
        """To the real standard output."""
        os.write(self._real, (text + "\n").encode())

    def take(self) -> tuple[dict[str, int], list[str]]:
        """Implementations since the last call, and their lines, each once."""
        import ctypes
        ctypes.CDLL(None).fflush(None)
        self._file.seek(0)
        text = self._file.read().decode(errors="replace")
        self._file.seek(0)
        self._file.truncate()
        found: collections.Counter[str] = collections.Counter()
        lines: dict[str, str] = {}
        for line in text.splitlines():
            fields = line.split(",")
            if "exec" not in fields[:4]:
                continue
            at = fields.index("exec")
            key = f"{fields[at + 2]} {fields[at + 3]}"
            found[key] += 1
            lines.setdefault(key, re.sub(r",[0-9.e+-]+$", "", line))
        return dict(found), list(lines.values())


def _peer(case: Case, model: bytes) -> Any:
    """A session of ONNX Runtime, or the reason why there is none."""
    if onnxruntime is None:
        return "not installed"
    if case.dtype == "bf16":
        return "no bfloat16 there"
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = case.mode.threads
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")  # else it rounds activations to bytes
    # One pass keeps a float64 factor as float32, another ends the process where a float16 product is transposed.
    broken = {"f64": ["MatMulScaleFusion"], "f16": ["MatmulTransposeFusion"]}
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"],
                                            disabled_optimizers=broken.get(case.dtype))
    except Exception as e:  # its exceptions have no common class
        return f"{type(e).__name__}: {e}"[:200]


def _least_ms(run: Any, times: int) -> float:
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best * 1e3


def _behind_one(values: np.ndarray) -> np.ndarray:
    """The same, one element behind where memory is aligned: callers hand in parts of their arrays."""
    memory = np.empty(values.size + 1, values.dtype)
    memory[1:] = values.reshape(-1)
    return memory[1:].reshape(values.shape)


#: What kinds of modes that are not strict ask for, and the coarsest type that it allows.
PRECISIONS = {"bf16": "bf16", "f16": "f16", "any": "any", "tiles": "any"}
ROUNDED = {"bf16": "bf16", "f16": "f16", "any": "bf16"}


@functools.cache
def _multiplies(dtype: str) -> bool:
    """Whether the processor, as far as this process may use it, multiplies the type faster than float32."""
    notes: list[str] = []
    empty = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g (float[1] x) => (float[1] y) { y = Identity (x) }')
    tensorbox.Session(empty, compile=False, precision=dtype, log=notes.append)
    return not any("and nothing else" in note for note in notes)


def bound_of(case: Case, device: str = "") -> Bound:
    """What is allowed of the case's arithmetic. precision="bf16" and "f16" round floats of 32 and 16 bits next to products
    of floats, where the processor multiplies the type faster, and elsewhere the weights that one row is multiplied by, or an
    unknown number: of other products, and of integers, they must give what "strict" gives."""
    b, mode = case.builder, case.mode
    rounded = ROUNDED.get(mode.kind, "")
    if rounded:
        model = b.model()
        everywhere = multiplies_floats(model.graph) and (bool(device) or _multiplies(rounded))
        if case.dtype == "f64" or not (everywhere or may_multiply_one_row(model, mode.dynamic)):
            rounded = ""
    return Bound("f32" if case.dtype in ("u8", "i8") else case.dtype, b.terms, len(b.nodes), b.gain, rounded, b.off_by_one,
                 mode.kind == "tiles")


def run_case(case: Case, log: LibraryLog | None = None, device: str = "") -> dict[str, Any]:
    """verdict: pass, wrong, error, slow, invalid (ONNX Runtime and tensorbox refuse it both), disputed (ONNX Runtime
    differs, and `settled` does not), open (nobody agrees with either)."""
    b, mode = case.builder, case.mode
    proto = b.model()
    model = proto.SerializeToString()
    result: dict[str, Any] = {
        "number": case.number, "family": case.family, "dtype": case.dtype, "isa": mode.isa, "library": mode.library,
        "kind": mode.kind, "threads": mode.threads, "dynamic": mode.dynamic, "verdict": "pass", "detail": "",
        "nodes": " ".join(n.op_type for n in proto.graph.node),
        "shapes": "; ".join(f"{i.name}{list(i.shapes[0])}" for i in b.inputs)}
    feeds = [b.feeds(r) for r in range(b.runs)]
    if case.number % 2:
        feeds = [{k: _behind_one(v) for k, v in f.items()} for f in feeds]
    bound = bound_of(case, device)
    peer = _peer(case, model)
    has_peer = not isinstance(peer, str)

    def settle(verdict: str, detail: str) -> dict[str, Any]:
        result.update(verdict=verdict, detail=detail)
        if log:
            result["implementations"], lines = log.take()
            if verdict in ("wrong", "slow"):
                result["library_lines"] = lines
        return result

    try:
        session = tensorbox.Session(model, threads=mode.threads, isa=mode.isa, device=device or None,
                                    compile=bool(device) or mode.kind != "evaluator",
                                    precision=PRECISIONS.get(mode.kind, "strict"),
                                    disable_passes=["narrow_storage", "narrow_row_weights"] if mode.kind == "tiles" else [])
        got = [session.run(f) for f in feeds]
    except tensorbox.Error as e:
        why = f"{type(e).__name__}: {e}"[:400]
        if not has_peer:
            return settle("invalid" if isinstance(e, tensorbox.ModelError) else "error", f"{why} (ONNX Runtime: {peer})")
        try:
            for f in feeds:
                if all(v.size for v in f.values()):
                    peer.run(None, f)
        except Exception as other:
            return settle("invalid", f"{why}; ONNX Runtime: {other}"[:600])
        return settle("error", why)
    if log:
        implementations, lines = log.take()
        result["implementations"] = implementations
    reference = tensorbox.Session(model, reference=True, threads=mode.threads, every_value=True,
                                  disable_passes=tensorbox.pass_names())
    names = [o.name for o in b.outputs]
    empty = False
    for r, f in enumerate(feeds):
        want = reference.run(f)
        # Empty batches end ONNX Runtime's process in some operators (a division by 0 in GroupQueryAttention).
        empty = any(want[name].size == 0 for name in names)
        size = scales(proto.graph, {**want, **f})
        for name in names:
            if wrong := difference(got[r][name], want[name], bound, size[name]):
                detail = f"run {r}, {name}: {wrong}"
                if has_peer and not empty:
                    other = dict(zip(names, peer.run(names, f)))[name]
                    ours = difference(got[r][name], other, bound, size[name])
                    theirs = difference(want[name], other, bound, size[name])
                    detail += f"; ONNX Runtime agrees with {'both' if not ours and not theirs else 'us' if not ours else 'the plain loops' if not theirs else 'neither'}"
                result.update(verdict="wrong", detail=detail, run=r)
                if log:
                    result["library_lines"] = lines
                return result
        if has_peer and not empty and r == len(feeds) - 1:
            try:
                others = dict(zip(names, peer.run(names, f)))
            except Exception as e:
                result["peer"] = f"{type(e).__name__}: {e}"[:200]
                has_peer = False
                continue
            def differs(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> str:
                return next((f"{name}: {d}" for name in names if (d := difference(a[name], b[name], bound, size[name]))), "")

            if wrong := differs(want, others):
                verdict, who = arbiter.settle(proto, f, {name: want[name] for name in names}, others, differs, mode.threads)
                result.update(verdict=verdict, settled=who, detail=f"ONNX Runtime, {wrong}")
    f = feeds[-1]
    if has_peer and mode.kind != "evaluator" and not device and not empty:
        result["ms"] = round(_least_ms(lambda: session.run(f), 3), 4)
        if result["ms"] > SLOW_MS:
            result["peer_ms"] = round(_least_ms(lambda: peer.run(None, f), 3), 4)
            if result["ms"] > SLOW_FACTOR * result["peer_ms"]:
                result["ms"] = min(result["ms"], round(_least_ms(lambda: session.run(f), 7), 4))
            if result["ms"] > max(SLOW_MS, SLOW_FACTOR * result["peer_ms"]) and result["verdict"] == "pass":
                result.update(verdict="slow", detail=f"{result['ms']} ms, ONNX Runtime {result['peer_ms']} ms")
                if log:
                    result["library_lines"] = lines
    if log:
        log.take()  # of the timed runs
    return result


def save(case: Case, stem: str, run: int) -> None:
    """A reproducer: the model, and the inputs of one run. The case is a fresh one."""
    feeds = [case.builder.feeds(r) for r in range(run + 1)]
    onnx.save(case.builder.model(), stem + ".onnx")
    np.savez(stem + ".npz", **{k: v if case.dtype != "bf16" or v.dtype.kind != "V" else v.view(np.uint16)
                               for k, v in feeds[run].items()})

"""The trace that SessionOptions.enable_profiling asks for."""

from __future__ import annotations

import datetime
import itertools
import json
import os
import re
import threading
import time
from collections.abc import Mapping
from typing import Any

from .providers import CPU, CUDA
from .session import Session

_NODE = re.compile(r"(.*?) ?\((\w+)\)", re.S)  # "name (OpType)"


class ProfileTrace:
    """Chrome's trace events, as ONNX Runtime writes them: one per run and one per kernel of a run, whose op_name has the
    types of all nodes in it ("MatMul+Relu")."""

    def __init__(self, prefix: str):
        self._prefix = os.fspath(prefix)
        self._events: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self.start_ns = time.perf_counter_ns()

    def run(self, session: Session, feed: Mapping[str, Any]) -> dict[str, Any]:
        """Outputs of a run, whose times are noted. Kernels are seen in models of numeric tensors only."""
        kernels: list[dict[str, Any]] = []
        begin = time.perf_counter_ns()
        if any(info.is_value for info in session.inputs + session.outputs):
            outputs = session.run(feed)
        else:
            kernels, outputs = session._run_profiled(feed)
        end = time.perf_counter_ns()
        events = [self._event("Session", "model_run", begin, end - begin, {})]
        for k in kernels:
            nodes = [m.groups() for m in map(_NODE.fullmatch, k["nodes"]) if m]
            name = nodes[0][0] or nodes[0][1] if nodes else k["name"]
            types = "+".join(op_type for _, op_type in nodes) or k["kind"]
            arguments = {"op_name": types, "provider": CUDA if k["device"] == "cuda" else CPU, "kernel": k["name"],
                         "kind": k["kind"], "nodes": k["nodes"], "bytes": k["bytes"], "threads": k["threads"]}
            events.append(self._event("Node", f"{name}_kernel_time", begin + k["start_ns"], k["time_ns"], arguments))
        with self._lock:
            self._events += events
        return outputs

    def write(self) -> str:
        """The name of the file, which is a new one: sessions may write in the same millisecond."""
        name = f"{self._prefix}_{datetime.datetime.now():%Y-%m-%d_%H-%M-%S_%f}"[:-3]
        for number in itertools.count(1):
            path = f"{name}.json" if number == 1 else f"{name}_{number}.json"
            try:
                with open(path, "x", encoding="utf-8") as file:
                    json.dump(self._events, file, indent=1)
                return path
            except FileExistsError:
                continue
        raise AssertionError("there is always another number")

    def _event(self, category: str, name: str, start_ns: int, duration_ns: int,
               arguments: dict[str, Any]) -> dict[str, Any]:
        return {"cat": category, "pid": os.getpid(), "tid": threading.get_native_id(), "ph": "X", "name": name,
                "ts": (start_ns - self.start_ns) // 1000, "dur": duration_ns // 1000, "args": arguments}

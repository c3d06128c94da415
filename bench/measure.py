#!/usr/bin/env python3
"""One engine and one zoo model in a process of its own; compare.py starts these and tells them when to measure.

    measure.py ENGINE MODEL THREADS        commands on standard input, one JSON line each on standard output

The engine's libraries are imported and the inputs made before the first command. `start` loads the model and runs
it once; `round SECONDS` runs it for that long, at least three times; `memory` tells the process's memory.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "zoo"))

import cases  # noqa: E402
import engines  # noqa: E402
import zoo  # noqa: E402


def status_mib(key: str) -> float:
    """A size of this process: VmRSS is what it has in memory now, VmHWM the most it ever had."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) / 1024
    raise KeyError(key)


class Measurement:
    """The engine with its model; each public method answers one command."""

    def __init__(self, engine: str, model: str, threads: int) -> None:
        self.version = engines.import_engine(engine)
        self.engine, self.options = engine, engines.LoadOptions(threads)
        self.path = zoo.folder(model) / "model.onnx"
        self.feeds = cases.cases(model)[0].inputs()
        self.before_mib = status_mib("VmRSS")
        self._run: Callable[[engines.Arrays], engines.Arrays] | None = None

    def start(self) -> dict[str, Any]:
        begin = time.perf_counter()
        self._run = engines.load(self.engine, self.path, self.options)
        loaded = time.perf_counter()
        self._run(self.feeds)
        end = time.perf_counter()
        return {"version": self.version, "load_s": loaded - begin, "first_run_s": end - loaded}

    def round(self, seconds: str) -> dict[str, Any]:
        assert self._run is not None, "start comes first"
        times: list[float] = []
        gc.disable()
        self._run(self.feeds)  # warms caches that another engine's round has filled
        begin = now = time.perf_counter()
        while len(times) < 3 or now - begin < float(seconds):
            outputs = self._run(self.feeds)
            after = time.perf_counter()
            times.append(after - now)
            del outputs
            now = time.perf_counter()
        gc.enable()
        return {"median_s": statistics.median(times), "min_s": min(times), "runs": len(times)}

    def memory(self) -> dict[str, Any]:
        return {"before_mib": self.before_mib, "peak_mib": status_mib("VmHWM")}


def main() -> None:
    """Answer commands until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an engine prints does not mix with the answers
    engine, model, threads = sys.argv[1:]
    measurement = Measurement(engine, model, int(threads))
    commands = {"start": measurement.start, "round": measurement.round, "memory": measurement.memory}
    for line in sys.stdin:
        name, *arguments = line.split()
        print(json.dumps(commands[name](*arguments)), file=answers, flush=True)


if __name__ == "__main__":
    main()

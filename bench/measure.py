#!/usr/bin/env python3
"""One engine and one workload in a process of its own; compare.py starts these and tells them when to measure.

    measure.py ENGINE WORKLOAD THREADS     commands on standard input, one JSON line each on standard output

The engine's libraries are imported and the inputs made before the first command. `start` loads the model and runs
it once, `decode` does it for steps that keep their caches (decoding.py); `round SECONDS` runs it for that long, at least three times; `memory` tells the process's memory; `check` holds the
outputs against the references of the zoo, or those in a file; `save FILE` writes them to one.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "zoo"))

import decoding  # noqa: E402
import engines  # noqa: E402
import reference  # noqa: E402
import tolerance  # noqa: E402
import workloads  # noqa: E402


def status_mib(key: str) -> float:
    """A size of this process: VmRSS is what it has in memory now, VmHWM the most it ever had."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) / 1024
    raise KeyError(key)


class Measurement:
    """The engine with its model; each public method answers one command."""

    def __init__(self, engine: str, name: str, threads: int) -> None:
        plain = engine == "ort_plain"  # without its optimisations: the reference of what the zoo has no outputs of
        self.engine = "ort" if plain else engine
        self.version = engines.import_engine(self.engine)
        self.workload = workloads.parse(name)
        self.path, self.feeds = self.workload.path(), self.workload.inputs()
        self.options = engines.LoadOptions(threads, optimize=not plain, inputs=self.feeds)
        self.before_mib = status_mib("VmRSS")
        self._run: Callable[[engines.Arrays], engines.Arrays] | None = None
        self._prepare: Callable[[], None] = lambda: None  # before a run, and no part of it
        self._outputs: Callable[[], engines.Arrays] | None = None  # those that are checked

    def start(self) -> dict[str, Any]:
        begin = time.perf_counter()
        self._run = engines.load(self.engine, self.path, self.options)
        loaded = time.perf_counter()
        self._run(self.feeds)
        end = time.perf_counter()
        run, feeds = self._run, self.feeds
        self._outputs = lambda: run(feeds)
        return {"version": self.version, "load_s": loaded - begin, "first_run_s": end - loaded}

    def decode(self) -> dict[str, Any]:
        """Instead of `start`: a run is a step of a decoder that keeps its caches."""
        decoder = decoding.Decoding(self.engine, self.workload, self.options)
        self._prepare, self._outputs = decoder.prepare, decoder.outputs
        self._run = lambda _: decoder.step()
        return {"version": self.version}

    def round(self, seconds: str) -> dict[str, Any]:
        assert self._run is not None, "start comes first"
        times: list[float] = []
        gc.disable()
        self._prepare()
        self._run(self.feeds)  # warms caches that another engine's round has filled
        begin = now = time.perf_counter()
        while len(times) < 3 or now - begin < float(seconds):
            self._prepare()
            now = time.perf_counter()
            outputs = self._run(self.feeds)
            times.append(time.perf_counter() - now)
            del outputs
        gc.enable()
        return {"median_s": statistics.median(times), "min_s": min(times), "runs": len(times)}

    def callers(self, count: str, seconds: str) -> dict[str, Any]:
        """Several threads use the session at once, until the time is over. Time of CPUs says what a run takes where
        others keep the machine busy."""
        run = self._run
        assert run is not None, "start comes first"
        done = [0] * int(count)
        end = time.perf_counter() + max(float(seconds), 0.05)

        def caller(number: int) -> None:
            run(self.feeds)
            while time.perf_counter() < end:
                run(self.feeds)
                done[number] += 1

        threads = [threading.Thread(target=caller, args=(i,)) for i in range(int(count))]
        begin, begin_cpu = time.perf_counter(), time.process_time()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        runs = sum(done) + len(done)
        cpu_s = (time.process_time() - begin_cpu) / runs
        return {"runs_per_s": runs / (time.perf_counter() - begin), "cpu_s": cpu_s}

    def save(self, file: str) -> dict[str, Any]:
        assert self._outputs is not None, "start comes first"
        np.savez(file, **self._outputs())
        return {}

    def check(self, file: str = "") -> dict[str, Any]:
        """The part of the tolerance that the outputs use: over 1 is too far off; and which output that is."""
        assert self._outputs is not None, "start comes first"
        outputs = self._outputs()
        references = self.workload.references()
        if file:
            with np.load(file) as saved:
                references = {name: [reference.whole(saved[name])] for name in saved.files}
        precision = self.workload.precision
        if precision == "f32" and self.engine in engines.NARROW:
            precision = "bf16"
        verdicts = tolerance.compare_all(outputs, references, precision)
        name, worst = max(verdicts.items(), key=lambda item: item[1].used)
        used = min(worst.used, 1e9)  # JSON has no infinity
        return {"used": used, "precision": precision, "message": "" if worst.ok else f"{name}: {worst.message}"}

    def memory(self) -> dict[str, Any]:
        return {"before_mib": self.before_mib, "peak_mib": status_mib("VmHWM")}


def main() -> None:
    """Answer commands until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an engine prints does not mix with the answers
    engine, name, threads = sys.argv[1:]
    measurement = Measurement(engine, name, int(threads))
    commands = {name: getattr(measurement, name) for name in ("start", "decode", "round", "memory", "check", "save", "callers")}
    for line in sys.stdin:
        name, *arguments = line.split()
        print(json.dumps(commands[name](*arguments)), file=answers, flush=True)


if __name__ == "__main__":
    main()

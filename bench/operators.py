#!/usr/bin/env python3
"""Compare operators that are no products with ONNX Runtime, each in a model of its own, on sizes that models have.

    ./dev python bench/operators.py                        all cases (operator_cases.py), the worst ratio first
    ./dev python bench/operators.py --filter 'TopK|Pad'    those whose names match
    ./dev python bench/operators.py --json figures.json --rounds 15

Both engines run in one process with the same number of threads, in turn, round by round, so that a machine that
drifts drifts for both; between rounds the threads of the one go to sleep. Results are compared, too. The ratio is the
median over the rounds of our time to theirs.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
BUILT_MODULE = BENCH.parent / "build" / "release" / "python"

try:
    import onnxruntime
except ImportError:  # not the Python that has the peers: change to it
    from engine_process import peers_python

    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(BUILT_MODULE), os.getenv("PYTHONPATH")]))
    os.execv(peers_python("ort"), [peers_python("ort"), *sys.argv])

import machine  # noqa: E402
import numpy as np  # noqa: E402
import tensorbox  # noqa: E402
from operator_cases import CASES, Case  # noqa: E402

Run = Callable[[], list[Any]]


def load_ours(case: Case, threads: int) -> Run:
    session = tensorbox.Session(case.model, threads=threads)
    return lambda: list(session.run(case.feeds).values())


def load_theirs(case: Case, threads: int) -> Run:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(case.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, case.feeds)


def difference(ours: list[Any], theirs: list[Any]) -> str:
    """What differs between two engines' outputs, "" where nothing does."""
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if isinstance(b, list):
            if found := difference(list(a), b):
                return found
            continue
        if a.shape != b.shape:
            return f"output {i}: shapes {a.shape} and {b.shape}"
        if b.dtype.kind not in "fc":
            close = np.mean(a == b) > 0.999  # one unit of a quantised value at a tie
        else:
            close = np.allclose(a.astype(np.float64), b.astype(np.float64), 1e-3, 1e-3, equal_nan=True)
        if not close:
            return f"output {i}: values"
    return ""


def settle() -> None:
    """Waits until no thread of the process works: after a run ONNX Runtime's look for more for some 40 ms, each on a core
    that the other engine would use."""
    asleep = 0
    for _ in range(50):
        before = time.process_time()
        time.sleep(0.01)
        asleep = asleep + 1 if time.process_time() - before < 1e-3 else 0
        if asleep == 3:
            return


def one_round(run: Run, seconds: float) -> float:
    """The median time of a run, of at least three after one that warms the caches."""
    settle()
    run()
    times: list[float] = []
    begin = now = time.perf_counter()
    while len(times) < 3 or now - begin < seconds:
        run()
        after = time.perf_counter()
        times.append(after - now)
        now = after
    return statistics.median(times)


def measure(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of both and their ratio, or the error."""
    try:
        ours = load_ours(case, options.threads)
        found: dict[str, Any] = {}
        result = ours()
    except Exception as error:  # noqa: BLE001 one case does not stop the others
        return {"error": f"tensorbox: {str(error).splitlines()[0]}"}
    try:
        theirs = load_theirs(case, options.threads)
        if not case.random and (differs := difference(result, theirs())):
            found["differs"] = differs
    except Exception as error:  # noqa: BLE001
        return {"error": f"ONNX Runtime: {str(error).splitlines()[0]}"}
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    gc.disable()
    for number in range(options.rounds):
        turn = [("ours", ours), ("theirs", theirs)]
        for name, run in turn if number % 2 == 0 else reversed(turn):
            times[name].append(one_round(run, options.round_seconds) * 1e3)
    gc.enable()
    ratios = sorted(a / b for a, b in zip(times["ours"], times["theirs"], strict=True))
    return found | {
        "ours_ms": statistics.median(times["ours"]),
        "theirs_ms": statistics.median(times["theirs"]),
        "ratio": statistics.median(ratios),
        "ratio_min": ratios[0],
        "ratio_max": ratios[-1],
    }


def line(name: str, found: Mapping[str, Any]) -> str:
    if "error" in found:
        return f"{name:44} {found['error'][:110]}"
    text = f"{name:44} {found['ours_ms']:9.3f} {found['theirs_ms']:9.3f} ms  {found['ratio']:6.2f}"
    return text + (f"  differs: {found['differs']}" if "differs" in found else "")


def main() -> int:
    """Command line."""
    options = _parser().parse_args()
    result: dict[str, Any] = {"machine": machine.describe(), "threads": options.threads, "cases": {}}
    names = [name for name in CASES if re.search(options.filter, name)]
    for name in names:
        result["cases"][name] = measure(CASES[name](), options)
        print(line(name, result["cases"][name]), file=sys.stderr, flush=True)
    ranked = sorted(result["cases"].items(), key=lambda entry: -entry[1].get("ratio", float("inf")))
    print(f"{'case':44} {'tensorbox':>9} {'ORT':>9}      ratio")
    for name, found in ranked:
        print(line(name, found))
    ratios = [found["ratio"] for found in result["cases"].values() if "ratio" in found]
    if ratios:
        slow = sum(ratio > options.limit for ratio in ratios)
        result["geometric_mean"] = statistics.geometric_mean(ratios)
        print(f"{len(ratios)} cases, geometric mean {result['geometric_mean']:.2f}, {slow} above {options.limit}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if len(ratios) == len(names) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", default="", metavar="RE", help="cases whose names match")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--round-seconds", type=float, default=0.02, help="length of a round, at least 3 runs")
    parser.add_argument("--limit", type=float, default=1.3, help="ratios above are counted")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    return parser


if __name__ == "__main__":
    sys.exit(main())

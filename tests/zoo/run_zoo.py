#!/usr/bin/env python3
"""Run the zoo's models and hold their outputs against ONNX Runtime's.

    python3 tests/zoo/run_zoo.py                                the models of group fp32, through tensorbox
    python3 tests/zoo/run_zoo.py --models resnet50 dlrm --no-compile
    python3 tests/zoo/run_zoo.py --models all --engine ort      the harness's own check

Each model runs in a process of its own: a crash or a hang is that model's failure. Dynamic models run at five
further shapes with the same session; that no kernel is compiled for them is checked on a kernel cache of their own.
Exit code: 0 when every model agrees, 1 when one does not.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import cases
import engines
import zoo
from check_model import Task

CHECK_MODEL = Path(__file__).with_name("check_model.py")
DEFAULT_TIMEOUT = 900.0


def run_model(task: Task, timeout: float = DEFAULT_TIMEOUT) -> dict[str, Any]:
    """Run one model in a process of its own. The result's "status" is pass, fail, error, crash or timeout."""
    zoo.folder(task.model)  # made outside the time limit
    with tempfile.TemporaryDirectory(prefix="tbx-zoo-") as scratch:
        environment = dict(os.environ)
        if task.engine == "tensorbox" and cases.is_dynamic(task.model):
            environment["TBX_CACHE_DIR"] = str(Path(scratch) / "cache")
        result_path, log_path = Path(scratch) / "result.json", Path(scratch) / "log"
        command = [sys.executable, str(CHECK_MODEL), json.dumps(asdict(task)), str(result_path)]
        with open(log_path, "wb") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
            try:
                code: int | None = process.wait(timeout)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                code = None
        result: dict[str, Any] = asdict(task)
        if code == 0:
            result |= json.loads(result_path.read_text())
            result["status"] = "pass" if result["ok"] else "fail"
        elif code is None:
            result |= {"status": "timeout", "message": f"no result within {timeout:g} s"}
        else:
            last = log_path.read_text(errors="replace").strip().splitlines()[-1:] or ["no message"]
            if code < 0:
                result |= {"status": "crash", "message": f"{signal.Signals(-code).name}: {last[0]}"}
            else:
                result |= {"status": "error", "message": last[0]}
    return result


def summary(result: dict[str, Any]) -> str:
    """One line about a model: what it took, or what is wrong first."""
    if result["status"] not in ("pass", "fail"):
        return result["message"]
    bad = [(c["case"], o) for c in result["cases"] for o in c["outputs"] if not o["ok"]]
    if bad:
        case, output = bad[0]
        return f"{len(bad)} outputs off; {case}: {output['output']}: {output['message']}"
    used = max(o["used"] for c in result["cases"] for o in c["outputs"])
    count = len(result["cases"])
    return f"load {result['load_s']:.2f} s, {count} case{'s' * (count > 1)}, {used:.1%} of the tolerance used"


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=["fp32"], help="names, fp32 (default), further or all")
    parser.add_argument("--engine", choices=engines.ENGINES, default="tensorbox")
    parser.add_argument("--no-compile", action="store_true", help="tensorbox: the evaluator alone")
    parser.add_argument("--isa", choices=["avx512", "avx2", "sse"], help="tensorbox: hold generated code to this")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--live", action="store_true", help="compare every value with ONNX Runtime, run now")
    parser.add_argument("--timeout", type=float, default=DEFAULT_TIMEOUT, metavar="S", help="seconds per model")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results here")
    options = parser.parse_args(arguments)
    results = []
    for name in _expand(options.models, parser):
        task = Task(
            name, options.engine, not options.no_compile, options.isa, options.threads, options.live
        )
        results.append(run_model(task, options.timeout))
        print(f"{name:26} {results[-1]['status']:8} {summary(results[-1])}", flush=True)
    passed = sum(result["status"] == "pass" for result in results)
    print(f"{passed} of {len(results)} models pass")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if passed == len(results) else 1


def _expand(wanted: list[str], parser: argparse.ArgumentParser) -> list[str]:
    groups = {"all": zoo.names(), "fp32": zoo.names("fp32"), "further": zoo.names("further")}
    found = [name for word in wanted for name in groups.get(word, [word])]
    for name in found:
        if name not in zoo.index():
            parser.error(f"no zoo model {name!r}; there are: {' '.join(zoo.names())}")
    return found


if __name__ == "__main__":
    sys.exit(main())

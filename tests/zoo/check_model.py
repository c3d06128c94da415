#!/usr/bin/env python3
"""Run one zoo model in this process and write what was found as JSON; run_zoo.py starts one for each model."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cases
import engines
import reference
import zoo
from tolerance import Verdict, compare


@dataclass(frozen=True)
class Task:
    """What to run. `live` compares every value with ONNX Runtime, run in the same process."""

    model: str
    engine: str = "tensorbox"
    compile: bool = True
    isa: str | None = None
    threads: int = 2
    live: bool = False


def check(task: Task) -> dict[str, Any]:
    """Load the model once, run all its cases, compare all outputs."""
    version = engines.import_engine(task.engine)
    live = reference.live(task.model, task.threads) if task.live else {}
    cache = Path(os.environ["TBX_CACHE_DIR"]) if "TBX_CACHE_DIR" in os.environ else None
    begin = time.perf_counter()
    run = engines.load(
        task.engine,
        zoo.folder(task.model) / "model.onnx",
        engines.LoadOptions(task.threads, task.compile, task.isa),
    )
    report: dict[str, Any] = {"version": version, "load_s": time.perf_counter() - begin, "cases": []}
    modules: set[str] | None = None  # the kernel cache after the first case
    for case in cases.cases(task.model):
        feeds = case.inputs()
        begin = time.perf_counter()
        outputs = run(feeds)
        seconds = time.perf_counter() - begin
        wanted = reference.stored(case)
        for output, references in live.get(case.label, {}).items():
            wanted[output] = wanted[output] + references
        findings = [_check_output(name, outputs, wanted[name], task.model) for name in wanted]
        if sorted(outputs) != sorted(wanted):
            findings.append({"output": "", "ok": False, "message": f"outputs are {sorted(outputs)}"})
        found = _cached_files(cache)
        if modules is None:
            modules = found
            watched = cache and task.compile and task.engine == "tensorbox"
            if watched and not modules and run.__self__.stats.generated_kernels > 0:
                message = f"no kernel was written to {cache}: compiling again could not be seen"
                findings.append({"output": "", "ok": False, "message": message})
        elif found != modules:
            message = f"{len(found - modules)} files were added to the kernel cache for this shape"
            findings.append({"output": "", "ok": False, "message": message})
        report["cases"].append(
            {"case": case.label, "run_s": seconds, "ok": all(f["ok"] for f in findings), "outputs": findings}
        )
    report["ok"] = bool(report["cases"]) and all(c["ok"] for c in report["cases"])
    return report


def _check_output(
    name: str, outputs: engines.Arrays, references: list[reference.Reference], model: str
) -> dict[str, Any]:
    if name not in outputs:
        return {"output": name, "ok": False, "message": "the engine does not return this output"}
    precision = zoo.index()[model]["precision"]
    verdicts = [compare(outputs[name], wanted, precision) for wanted in references]
    worst: Verdict = max(verdicts, key=lambda verdict: verdict.used)
    return {"output": name, **asdict(worst)}


def _cached_files(cache: Path | None) -> set[str]:
    """Files of the kernel cache, if the task has one of its own."""
    return {str(path) for path in cache.rglob("*") if path.is_file()} if cache else set()


if __name__ == "__main__":
    task_text, result_path = sys.argv[1:]
    result = check(Task(**json.loads(task_text)))
    Path(result_path).write_text(json.dumps(result))

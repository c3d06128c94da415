#!/usr/bin/env python3
"""Compare tensorbox with its peers on zoo models or any others: latency, start-up and peak memory.

    ./dev python bench/compare.py                                 the models that have speed targets
    ./dev python bench/compare.py --models fp32 --engines tensorbox ort
    ./dev python bench/compare.py --measure latency --models resnet50 --rounds 30
    ./dev python bench/compare.py --models gpt2_decode+w8@past_len=512,total_len=513     (workloads.py: forms and shapes)
    ./dev python bench/compare.py --models mine.onnx@batch=8 --engines tensorbox ort     any file, with random inputs
    ./dev python bench/compare.py --isa avx2 --models resnet50_int8_qdq                   as on a CPU without AVX-512 and VNNI

Every engine has a process of its own for each model. Latency: all engines of a model are loaded, then measured in
turn, round by round, so that a machine that drifts drifts for all of them. Start-up: file to first output, libraries
imported, files in the page cache; tensorbox with an empty kernel cache (cold) and with the one that run left (warm).
The peers are installed on first use (bench/setup-peers). With --json figures are written after every model, and --resume
goes on where a run was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

BENCH = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH.parent / "tests" / "zoo"))

import engines  # noqa: E402
import hide_isa  # noqa: E402
import machine  # noqa: E402
import workloads  # noqa: E402
import zoo  # noqa: E402
from engine_process import EngineError, EngineProcess  # noqa: E402

OURS, YARDSTICK = "tensorbox", "ort"
PEERS = {OURS: ("ort", "openvino", "torch"), "tensorbox_bf16": ("openvino_default",)}  # at the same precision
STARTED = (OURS, "ort", "openvino")  # engines whose start-up is measured: torch compiles for half a minute
CALLERS = 4
TBX = BENCH.parent / "build" / "release" / "bin" / "tbx"
BUSY = 0.2  # share of the machine that others may use before figures deserve a warning
Figures = dict[str, dict[str, Any]]  # engine -> what was measured


def measure_latency(model: str, options: argparse.Namespace, how: str = "start") -> Figures:
    """Rounds in turn; per engine the minimum and the median of the rounds' medians, in ms. `how`: what measure.py is told
    first."""
    medians: dict[str, list[float]] = {}
    checks: Figures = {}
    versions: dict[str, str] = {}
    found: Figures = {}
    with ExitStack() as stack:
        processes: dict[str, EngineProcess] = {}
        try:
            reference = stack.enter_context(_references(model, options, how))
        except EngineError as error:
            return {engine: {"error": str(error)} for engine in options.engines}
        for engine in options.engines:
            process = stack.enter_context(EngineProcess(engine, model, options.threads))
            try:
                versions[engine] = process.ask(how)["version"]
                process.ask("round", "0")
                checks[engine] = process.ask("check", *reference)
                processes[engine] = process
                medians[engine] = []
            except EngineError as error:
                found[engine] = {"error": str(error)}
        for number in range(options.rounds):
            order = list(processes) if number % 2 == 0 else list(reversed(processes))
            for engine in order:
                answer = processes[engine].ask("round", str(options.round_seconds))
                medians[engine].append(answer["median_s"] * 1e3)
    for engine, values in medians.items():
        found[engine] = {
            "min_ms": min(values),
            "median_ms": statistics.median(values),
            "max_ms": max(values),
            "rounds": len(values),
            "check": checks[engine],
            "version": versions[engine],
        }
    _add_ratio(found, "median_ms", "latency_ratio")
    _add_peer_ratios(found)
    if "latency_ratio" in found.get(OURS, {}):
        pairs = zip(medians[OURS], medians[YARDSTICK], strict=True)
        found[OURS]["ratio_by_round"] = statistics.median(ours / theirs for ours, theirs in pairs)
    return found


@contextmanager
def _references(model: str, options: argparse.Namespace, how: str) -> Iterator[list[str]]:
    """Nothing where the zoo has references; else the file with what ONNX Runtime gives without its optimisations."""
    if how == "start" and workloads.parse(model).references():
        yield []
        return
    with tempfile.TemporaryDirectory(prefix="tbx-bench-") as folder:
        file = str(Path(folder) / "reference.npz")
        with EngineProcess("ort_plain", model, options.threads) as process:
            process.ask(how)
            process.ask("save", file)
        yield [file]


def measure_decode(model: str, options: argparse.Namespace) -> Figures:
    """The same of steps that keep the caches, each engine in its best form (decoding.py)."""
    return measure_latency(model, options, "decode")


def _add_peer_ratios(found: Figures) -> None:
    """Ours to the best peer of the same precision whose outputs are right, by minima and by medians. Where nobody's are,
    ours among them, the model amplifies what engines may round as they like: then to the best of all, and marked."""
    for ours, peers in PEERS.items():
        measured = [engine for engine in (ours, *peers) if "min_ms" in found.get(engine, {})]
        nobody = bool(measured) and all(found[engine]["check"]["used"] > 1 for engine in measured)
        for key in ("min_ms", "median_ms"):
            right = {p: found[p][key] for p in peers if p in measured and (nobody or found[p]["check"]["used"] <= 1)}
            if right and key in found.get(ours, {}):
                best = min(right, key=lambda peer: right[peer])
                found[ours] |= {f"best_{key}": best, f"peer_ratio_{key}": found[ours][key] / right[best]}
                found[ours] |= {"all_wrong": True} if nobody else {}


def measure_work(model: str, options: argparse.Namespace) -> Figures:
    """What a run of our program has to do: operations of products, and bytes that products, convolutions and attention read
    and write (not the tables of which gathers read a row); `kept_bytes`: the same where attention does not copy the caches
    that it reads. Of the engine `tensorbox` only."""
    told = _explained(model, options)
    if "error" in told:
        return {OURS: told}
    products = [kernel for kernel in told["kernels"] if kernel["kind"] == "extern"]
    moved = kept = sum(kernel["bytes"] for kernel in products)
    if any("carries caches" in kernel["name"] for kernel in products):
        told_kept = _explained(model, options, "--disable-pass", "carry_caches")
        kept = sum(kernel["bytes"] for kernel in told_kept["kernels"] if kernel["kind"] == "extern")
    return {
        OURS: {
            "product_flops": sum(kernel["flops"] for kernel in products),
            "product_bytes": moved,
            "kept_bytes": kept,
            "kernels": len(told["kernels"]),
            "library_kernels": len(products),
        }
    }


def _explained(model: str, options: argparse.Namespace, *more: str) -> dict[str, Any]:
    """What `tbx explain --profile` tells of a run; `error`: why it does not."""
    workload = workloads.parse(model)
    command = [str(TBX), "explain", "--json", "--quiet", "--profile", "--threads", str(options.threads), str(workload.path()), *more]
    with tempfile.TemporaryDirectory(prefix="tbx-bench-") as folder:
        file = str(Path(folder) / "inputs.npz")
        inputs = workload.inputs()
        np.savez(file, **{f"a{i}": array for i, array in enumerate(inputs.values())})
        for i, name in enumerate(inputs):
            command += ["--input", f"{name}={file}:a{i}"]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["tbx explain failed"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure_callers(model: str, options: argparse.Namespace) -> Figures:
    """Runs per second of one session of one thread that four callers use at once, and the least CPU time of a run."""
    rates: dict[str, list[float]] = {}
    times: dict[str, list[float]] = {}
    found: Figures = {}
    with ExitStack() as stack:
        processes = {}
        for engine in (name for name in options.engines if name in (OURS, YARDSTICK)):
            processes[engine] = stack.enter_context(EngineProcess(engine, model, 1))
            try:
                processes[engine].ask("start")
            except EngineError as error:
                found[engine] = {"error": str(error)}
                del processes[engine]
        for _ in range(options.rounds):
            for engine, process in processes.items():
                answer = process.ask("callers", str(CALLERS), str(options.round_seconds))
                rates.setdefault(engine, []).append(answer["runs_per_s"])
                times.setdefault(engine, []).append(answer["cpu_s"] * 1e3)
    for engine, values in rates.items():
        found[engine] = {"runs_per_s": statistics.median(values), "max_runs_per_s": max(values), "cpu_ms": min(times[engine])}
    _add_ratio(found, "runs_per_s", "throughput_ratio")
    _add_ratio(found, "cpu_ms", "cpu_ratio")
    return found


def measure_start(model: str, options: argparse.Namespace) -> Figures:
    """Seconds from file to first output and peak memory, each engine in fresh processes, in turn."""
    trials: dict[str, list[dict[str, Any]]] = {}
    found: Figures = {}
    _read_into_page_cache(model)
    for _ in range(options.repeat):
        with tempfile.TemporaryDirectory(prefix="tbx-bench-") as scratch:
            for engine in (name for name in options.engines if name in STARTED):
                for label in ("cold", "warm") if engine == OURS else ("",):
                    name = f"{engine} {label}".strip()
                    if name in found:
                        continue
                    try:
                        trials.setdefault(name, []).append(_start_once(engine, model, options, Path(scratch)))
                    except EngineError as error:
                        found[name] = {"error": str(error)}
                        trials.pop(name, None)
    for name, results in trials.items():
        found[name] = {
            "version": results[0]["version"],
            "start_s": statistics.median(r["load_s"] + r["first_run_s"] for r in results),
            "min_start_s": min(r["load_s"] + r["first_run_s"] for r in results),
            "load_s": statistics.median(r["load_s"] for r in results),
            "before_mib": statistics.median(r["before_mib"] for r in results),
            "peak_mib": statistics.median(r["peak_mib"] for r in results),
        }
    ours = f"{OURS} warm"
    _add_ratio(found, "start_s", "start_ratio", ours)
    _add_ratio(found, "peak_mib", "memory_ratio", ours)
    return found


def _start_once(engine: str, model: str, options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    with EngineProcess(engine, model, options.threads, scratch / "cache") as process:
        answer = process.ask("start")
        process.ask("round", "0")
        return answer | process.ask("memory")


def _add_ratio(found: Figures, key: str, name: str, ours: str = OURS) -> None:
    """Ours to the yardstick's, where both were measured."""
    if key in found.get(ours, {}) and key in found.get(YARDSTICK, {}):
        found[ours][name] = found[ours][key] / found[YARDSTICK][key]


def _read_into_page_cache(model: str) -> None:
    for path in workloads.parse(model).files():
        with open(path, "rb") as file:
            while file.read(1 << 24):
                pass


def show(kind: str, model: str, found: Figures) -> None:
    """One line per engine."""
    for engine, figures in found.items():
        if "error" in figures:
            text = figures["error"]
        elif kind in ("latency", "decode"):
            text = f"min {figures['min_ms']:9.3f}  median {figures['median_ms']:9.3f} ms"
            if "latency_ratio" in figures:
                text += f"  {figures['latency_ratio']:.2f} of {YARDSTICK} ({figures['ratio_by_round']:.2f} by round)"
            if "peer_ratio_median_ms" in figures:
                ratios = f"{figures['peer_ratio_min_ms']:.2f} / {figures['peer_ratio_median_ms']:.2f}"
                text += f"  {ratios} of {figures['best_median_ms']}"
            if figures["check"]["message"]:
                text += f"  WRONG: {figures['check']['message']}"
        elif kind == "callers":
            text = f"{figures['runs_per_s']:.2f} runs/s  {figures['cpu_ms']:.2f} ms of CPUs"
        elif kind == "work":
            text = f"{figures['product_flops'] / 1e9:.3f} GFLOP"
            text += f"  {figures['product_bytes'] / 2**20:.1f} MiB"
        else:
            text = f"start {figures['start_s']:7.3f} s  peak {figures['peak_mib']:7.0f} MiB"
            if "start_ratio" in figures:
                text += f"  {figures['start_ratio']:.2f} and {figures['memory_ratio']:.2f} of {YARDSTICK}"
        print(f"{model:24} {kind:8} {engine:15} {text}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = _parser()
    options = parser.parse_args(arguments)
    targets = list(json.loads((BENCH / "targets.json").read_text())["latency_ratio"])
    groups = {"targets": targets, "fp32": zoo.names("fp32"), "all": zoo.names()}
    models = [name for word in options.models for name in groups.get(word, [word])]
    try:
        for model in models:
            workloads.parse(model)
    except ValueError as error:
        parser.error(str(error))
    result: dict[str, Any] = {
        "command": "bench/compare.py " + " ".join(sys.argv[1:] if arguments is None else arguments),
        "machine": machine.describe(),
        "threads": options.threads,
        "models": {},
    }
    if options.isa:
        try:
            os.environ.update(hide_isa.environment(options.isa))  # of all that is started from here on
        except hide_isa.CannotHide as reason:
            parser.error(str(reason))
        result["machine"] |= {"isa": hide_isa.left(result["machine"]["isa"], options.isa), "kept_isa": options.isa}
    if options.resume and options.json and options.json.is_file():
        before = json.loads(options.json.read_text())
        result["models"] = before["models"]
    measures = {
        "latency": measure_latency,
        "decode": measure_decode,
        "start": measure_start,
        "work": measure_work,
        "callers": measure_callers,
    }
    if result["machine"]["busy_before"] > BUSY:
        print(f"warning: others keep the machine {result['machine']['busy_before']:.0%} busy", file=sys.stderr)
    failed = False
    for number, model in enumerate(models, 1):
        entry = result["models"].setdefault(model, {})
        for kind in options.measure:
            if kind not in entry:
                entry[kind] = measures[kind](model, options)
                print(f"[{number}/{len(models)}] ", end="")
                show(kind, model, entry[kind])
            failed |= any(_is_wrong(figures) for engine, figures in entry[kind].items() if engine.startswith(OURS))
        _write(options.json, result)
    result["machine"]["busy_after"] = round(machine.busy_share(1.0), 2)
    _write(options.json, result)
    return 1 if failed else 0


def _is_wrong(figures: dict[str, Any]) -> bool:
    return "error" in figures or figures.get("check", {}).get("used", 0) > 1


def _write(path: Path | None, result: dict[str, Any]) -> None:
    """At once or not at all, so that a stopped run leaves what it had."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(result, indent=1) + "\n")
    unfinished.replace(path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=["targets"], help="workloads, files, targets (default), fp32 or all")
    parser.add_argument("--engines", nargs="+", choices=engines.ENGINES, default=["tensorbox", "ort", "openvino"])
    parser.add_argument("--measure", nargs="+", choices=["latency", "decode", "start", "work", "callers"], default=["latency", "start"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--isa", choices=hide_isa.HIDDEN, help="hide what else the CPU has from all engines")
    parser.add_argument("--rounds", type=int, default=12, help="rounds of latency per engine")
    parser.add_argument("--round-seconds", type=float, default=0.35, help="length of a round, at least 3 runs")
    parser.add_argument("--repeat", type=int, default=3, help="fresh processes per engine for start-up and memory")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    parser.add_argument("--resume", action="store_true", help="keep what the file of --json has, measure the rest")
    return parser


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Compare tensorbox with its peers on zoo models: latency, start-up and peak memory.

    ./dev python bench/compare.py                                 the models that have speed targets
    ./dev python bench/compare.py --models fp32 --engines tensorbox ort
    ./dev python bench/compare.py --measure latency --models resnet50 --rounds 30

Every engine has a process of its own for each model. Latency: all engines of a model are loaded, then measured in
turn, round by round, so that a machine that drifts drifts for all of them. Start-up: file to first output, libraries
imported, files in the page cache; tensorbox with an empty kernel cache (cold) and with the one that run left (warm).
The peers are installed on first use (bench/setup-peers).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH.parent / "tests" / "zoo"))

import engines  # noqa: E402
import machine  # noqa: E402
import zoo  # noqa: E402
from engine_process import EngineError, EngineProcess  # noqa: E402

OURS, YARDSTICK = "tensorbox", "ort"
BUSY = 0.2  # share of the machine that others may use before figures deserve a warning
Figures = dict[str, dict[str, Any]]  # engine -> what was measured


def measure_latency(model: str, options: argparse.Namespace) -> Figures:
    """Rounds in turn; per engine the minimum and the median of the rounds' medians, in ms."""
    medians: dict[str, list[float]] = {}
    found: Figures = {}
    with ExitStack() as stack:
        processes: dict[str, EngineProcess] = {}
        for engine in options.engines:
            process = stack.enter_context(EngineProcess(engine, model, options.threads))
            try:
                process.ask("start")
                process.ask("round", "0")
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
        }
    _add_ratio(found, "median_ms", "latency_ratio")
    if "latency_ratio" in found.get(OURS, {}):
        pairs = zip(medians[OURS], medians[YARDSTICK], strict=True)
        found[OURS]["ratio_by_round"] = statistics.median(ours / theirs for ours, theirs in pairs)
    return found


def measure_start(model: str, options: argparse.Namespace) -> Figures:
    """Seconds from file to first output and peak memory, each engine in fresh processes, in turn."""
    trials: dict[str, list[dict[str, Any]]] = {}
    found: Figures = {}
    _read_into_page_cache(model)
    for _ in range(options.repeat):
        with tempfile.TemporaryDirectory(prefix="tbx-bench-") as scratch:
            for engine in options.engines:
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
    for path in zoo.folder(model).iterdir():
        with open(path, "rb") as file:
            while file.read(1 << 24):
                pass


def show(kind: str, model: str, found: Figures) -> None:
    """One line per engine."""
    for engine, figures in found.items():
        if "error" in figures:
            text = figures["error"]
        elif kind == "latency":
            text = f"min {figures['min_ms']:9.3f}  median {figures['median_ms']:9.3f} ms"
            if "latency_ratio" in figures:
                text += f"  {figures['latency_ratio']:.2f} of {YARDSTICK} ({figures['ratio_by_round']:.2f} by round)"
        else:
            text = f"start {figures['start_s']:7.3f} s  peak {figures['peak_mib']:7.0f} MiB"
            if "start_ratio" in figures:
                text += f"  {figures['start_ratio']:.2f} and {figures['memory_ratio']:.2f} of {YARDSTICK}"
        print(f"{model:24} {kind:8} {engine:15} {text}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    options = _parser().parse_args(arguments)
    targets = list(json.loads((BENCH / "targets.json").read_text())["latency_ratio"])
    groups = {"targets": targets, "fp32": zoo.names("fp32"), "all": zoo.names()}
    models = [name for word in options.models for name in groups.get(word, [word])]
    result: dict[str, Any] = {
        "command": "bench/compare.py " + " ".join(sys.argv[1:] if arguments is None else arguments),
        "machine": machine.describe(),
        "threads": options.threads,
        "models": {},
    }
    measures = {"latency": measure_latency, "start": measure_start}
    if result["machine"]["busy_before"] > BUSY:
        print(f"warning: others keep the machine {result['machine']['busy_before']:.0%} busy", file=sys.stderr)
    failed = False
    for model in models:
        entry = result["models"][model] = {}
        for kind in options.measure:
            entry[kind] = measures[kind](model, options)
            show(kind, model, entry[kind])
            failed |= any("error" in figures for engine, figures in entry[kind].items() if OURS in engine)
    result["machine"]["busy_after"] = round(machine.busy_share(1.0), 2)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=["targets"], help="names, targets (default), fp32 or all")
    parser.add_argument("--engines", nargs="+", choices=engines.ENGINES, default=list(engines.ENGINES))
    parser.add_argument("--measure", nargs="+", choices=["latency", "start"], default=["latency", "start"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=12, help="rounds of latency per engine")
    parser.add_argument("--round-seconds", type=float, default=0.35, help="length of a round, at least 3 runs")
    parser.add_argument("--repeat", type=int, default=3, help="fresh processes per engine for start-up and memory")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    return parser


if __name__ == "__main__":
    sys.exit(main())

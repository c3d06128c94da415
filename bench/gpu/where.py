#!/usr/bin/env python3
"""Where the time of a run goes on an NVIDIA GPU: every kernel of one run, as the driver times them.

    python bench/gpu/where.py NAME...     # of bench/gpu/models.py, MODEL:PRECISION of the zoo, or
                                          # MODEL:PRECISION:PAST of one of its decoders;
                                          # NAME:torch has those of torch.compile, as a graph

Prints the kernels of the run by their share, the waits before them included: how often, their time, the gaps before them,
the longest gap, and what a generated kernel does. Times of single kernels are those under the profiler, which makes gaps
longer. Needs torch, onnx and onnxscript, and tensorbox on the path.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

BENCH = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCH / "gpu"), str(BENCH), str(BENCH.parent / "tests" / "zoo")]

RUNS, MOST = 4, 24


def of_network(name: str) -> tuple[Callable[[], object], list[dict[str, Any]]]:
    import run
    from models import CASES, ZOO

    name, _, engine = name.partition(":")
    case = (CASES | ZOO)[name]
    run.allow_tf32(case)
    module = case.module().eval().cuda().to(case.type)
    x = case.inputs().cuda()
    x = x.to(case.type) if x.is_floating_point() else x
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        if engine == "torch":
            if case.channels_last:
                module, x = run.channels_last(module, x)
            return run.peer_runs("graph", module, x)[0], []
        path = Path(folder) / "model.onnx"
        run.export(module, x, path, case.traced)
        plain, bound, _ = run.tensorbox_runs(path, x, module(x), "tf32" if case.tf32 else "strict")
    return bound, []


def of_zoo(name: str) -> tuple[Callable[[], object], list[dict[str, Any]]]:
    import numpy as np
    import tensorbox
    import zoo

    model, precision = name.split(":")
    folder = zoo.folder(model)
    with np.load(folder / "inputs.npz") as arrays:
        inputs = {n: torch.from_numpy(a).cuda() for n, a in arrays.items()}
    session = tensorbox.Session(str(folder / "model.onnx"), device="cuda", precision=precision)
    kept = {n: torch.from_dlpack(y) for n, y in session.run_async(inputs, torch.cuda.current_stream()).items()}
    torch.cuda.synchronize()
    bound = session.bind(inputs, out=kept)
    return lambda: bound.run_async(torch.cuda.current_stream()), session.explain()


def of_decoder(name: str) -> tuple[Callable[[], object], list[dict[str, Any]]]:
    import decode

    model, precision, past = name.split(":")
    session, caches, feeds, _ = decode.session_of(model, precision, int(past))
    session.set_state(caches)
    steps = iter(feeds)
    session.run(next(steps))
    return lambda: session.run(next(steps)), session.explain()


def kernels_of(run: Callable[[], object]) -> list[list[dict[str, Any]]]:
    """Those of each run, in order."""
    for _ in range(4):
        run()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(RUNS):
            run()
            torch.cuda.synchronize()
            torch.cuda._sleep(400_000)  # parts the runs
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    runs: list[list[dict[str, Any]]] = [[]]
    for event in sorted((e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")), key=lambda e: float(e["ts"])):
        if "spin_kernel" in event["name"]:
            runs.append([])
        else:
            runs[-1].append(event)
    return [r for r in runs if r]


def show(name: str) -> None:
    colons = 0 if name.endswith(":torch") else name.count(":")
    run, report = (of_network, of_zoo, of_decoder)[colons](name)
    does = {k["name"]: ", ".join(n.split("/")[-1] for n in k["nodes"][:3]) for k in report}
    runs = kernels_of(run)
    kernels = min(runs, key=lambda r: r[-1]["ts"] + r[-1]["dur"] - r[0]["ts"])
    span = kernels[-1]["ts"] + kernels[-1]["dur"] - kernels[0]["ts"]
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    end = kernels[0]["ts"]
    for k in kernels:
        grid = "x".join(str(g) for g in k.get("args", {}).get("grid", []) if g != 1) or "1"
        block = "x".join(str(g) for g in k.get("args", {}).get("block", []) if g != 1) or "1"
        groups[f"{k['name'][:44]} {grid} of {block}"].append((k["dur"], k["ts"] - end))
        end = max(end, k["ts"] + k["dur"])
    print(f"== {name}: {len(kernels)} kernels and copies, {span:.0f} us, {sum(k['dur'] for k in kernels):.0f} us in them")
    for text, times in sorted(groups.items(), key=lambda g: -sum(t + gap for t, gap in g[1]))[:MOST]:
        total, gaps = sum(t for t, _ in times), [g for _, g in times]
        print(f"{total:8.1f} us {len(times):4} x {total / len(times):7.2f}  gap {sum(gaps) / len(gaps):6.2f} to {max(gaps):6.2f}  "
              f"{text}  {does.get(text.split()[0], '')[:60]}")
    sys.stdout.flush()


def main() -> None:
    for name in sys.argv[1:]:
        try:
            show(name)
        except Exception as error:
            print(f"== {name}: {type(error).__name__}: {str(error)[:300]}", flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""tensorbox against PyTorch on an NVIDIA GPU: models exported from the very modules that the peers run, all of them
measured in turns in one process, errors in the same run.

    python bench/gpu/run.py [--models NAME,...] [--peers NAME,...] [--seconds S] [--json FILE] [--table FILE] [--warm]

Peers: eager, reduce-overhead and max-autotune (torch.compile), graph (a CUDA graph of the module compiled by default,
replayed as it is). Needs torch, onnx and onnxscript, and tensorbox on the path. Times are medians in milliseconds:
"device" from events, with the device kept busy before, so that no time of the host is in it; "wall" from the call until
the device is done, "call" until it returns. "bound" is tensorbox with Session.bind. Inputs and outputs are on the device. The error is the L2 norm of the difference to the same module in
float64, over its norm.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from models import CASES, ZOO, Case  # noqa: E402

Run = Callable[[], torch.Tensor]
PEERS = ("eager", "reduce-overhead", "max-autotune", "graph")


def export(module: torch.nn.Module, x: torch.Tensor, to: Path, traced: bool = False) -> None:
    torch.onnx.export(module, (x,), str(to), opset_version=17 if traced else 20, dynamo=not traced, input_names=["x"],
                      output_names=["y"], verbose=False)


def cases_of(names: str) -> dict[str, Case]:
    """`zoo`: all of those that have no row of their own."""
    known = CASES | ZOO
    return {n: known[n] for given in names.split(",") for n in (ZOO if given == "zoo" else [given])}


def allow_tf32(case: Case) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = case.tf32


def channels_last(module: torch.nn.Module, x: torch.Tensor) -> tuple[torch.nn.Module, torch.Tensor]:
    return module.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last) if x.dim() == 4 else x


def tensorbox_runs(path: Path, x: torch.Tensor, like: torch.Tensor, precision: str) -> tuple[Run, Run, dict[str, Any]]:
    """A plain run, one whose memory is bound once, and what is to be said of them."""
    import tensorbox

    begin = time.perf_counter()
    session = tensorbox.Session(str(path), device=f"cuda:{x.device.index}", precision=precision)
    loaded = time.perf_counter()
    y = torch.empty_like(like, memory_format=torch.contiguous_format)

    def run() -> torch.Tensor:
        session.run_async({"x": x}, torch.cuda.current_stream(), out={"y": y})
        return y

    run()
    torch.cuda.synchronize()
    bound = session.bind({"x": x}, out={"y": y})
    stream = torch.cuda.current_stream()

    def run_bound() -> torch.Tensor:
        bound.run_async(stream)
        return y

    report = session.explain()
    return run, run_bound, {"load_s": loaded - begin, "first_run_s": time.perf_counter() - loaded,
                 "launches": sum(k["device"] == "cuda" and k["kind"] != "copy" for k in report),
                 "on_host": sum(k["device"] == "cpu" for k in report)}


def captured(run: Run) -> Run:
    """A CUDA graph of it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = run()

    def replay() -> torch.Tensor:
        graph.replay()
        return y

    return replay


def peer_runs(name: str, module: torch.nn.Module, x: torch.Tensor) -> tuple[Run, dict[str, Any]]:
    begin = time.perf_counter()
    torch._dynamo.reset()
    if name == "eager":
        run: Run = lambda: module(x)  # noqa: E731
    elif name == "graph":
        compiled = torch.compile(module)
        run = captured(lambda: compiled(x))
    else:
        compiled = torch.compile(module, mode=name)
        run = lambda: compiled(x)  # noqa: E731
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    return run, {"load_s": time.perf_counter() - begin}


def device_ms(run: Run, busy_ms: float) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(int(busy_ms * 1.9e6))  # cycles: the host gets ahead meanwhile
    begin.record()
    run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def wall_and_call_ms(run: Run) -> tuple[float, float]:
    begin = time.perf_counter()
    run()
    called = time.perf_counter()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e3, (called - begin) * 1e3


def error(y: torch.Tensor, expected: torch.Tensor) -> float:
    return float((y.double() - expected).norm() / expected.norm())


def measure(case: Case, peers: list[str], seconds: float, folder: Path) -> dict[str, Any]:
    allow_tf32(case)
    torch.manual_seed(0)
    original = case.module().eval().cuda()
    x = case.inputs().cuda()
    if x.is_floating_point():
        x = x.to(case.type)
    module = case.module().eval().cuda()
    module.load_state_dict(original.state_dict())
    module = module.to(case.type)
    results: dict[str, Any] = {}
    runs: dict[str, Run] = {}
    with torch.no_grad():
        expected = original.double()(x.double() if x.is_floating_point() else x)
        like = module(x)
        path = folder / "model.onnx"
        export(module, x, path, case.traced)
        runs["tensorbox"], runs["bound"], results["tensorbox"] = tensorbox_runs(path, x, like,
                                                                                "tf32" if case.tf32 else "strict")
        results["bound"] = {}
        theirs, their_x = module, x
        if case.channels_last:  # what their convolutions like
            theirs, their_x = channels_last(module, x)
        for peer in peers:
            try:
                runs[peer], results[peer] = peer_runs(peer, theirs, their_x)
            except Exception as e:
                results[peer] = {"failed": str(e)[:300]}
        for name, run in runs.items():
            results[name]["error"] = error(run(), expected)
        del original, expected
        times: dict[str, tuple[list[float], list[tuple[float, float]]]] = {name: ([], []) for name in runs}
        end, rounds = time.perf_counter() + seconds, 0
        while time.perf_counter() < end or rounds < 3:
            rounds += 1
            for name, run in runs.items():
                busy = 30 if name == "eager" else 10
                for _ in range(2):
                    run()
                times[name][0].extend(device_ms(run, busy) for _ in range(3))
                torch.cuda.synchronize()
                times[name][1].extend(wall_and_call_ms(run) for _ in range(3))
    for name, (device, host) in times.items():
        wall, call = zip(*host)
        results[name] |= {"device_ms": statistics.median(device), "device_least_ms": min(device),
                          "wall_ms": statistics.median(wall), "wall_least_ms": min(wall),
                          "call_ms": statistics.median(call), "call_least_ms": min(call), "rounds": rounds}
    torch._dynamo.reset()
    return results


def warm(case: Case, peers: list[str]) -> None:
    """Fills torch's compilation cache; several processes may do so at once before a measurement."""
    allow_tf32(case)
    torch.manual_seed(0)
    module, x = case.module().eval().cuda().to(case.type), case.inputs().cuda()
    x = x.to(case.type) if x.is_floating_point() else x
    if case.channels_last:
        module, x = channels_last(module, x)
    with torch.no_grad():
        for peer in peers:
            if peer != "eager":
                peer_runs(peer, module, x)


def beside_device(r: dict[str, Any]) -> str:
    """What a run takes besides its work on the device, in milliseconds: of medians, and of least times."""
    if "wall_ms" not in r:
        return "-"
    return f"{r['wall_ms'] - r['device_ms']:.3f} ({r['wall_least_ms'] - r['device_least_ms']:.3f})"


def table(results: dict[str, Any], peers: list[str]) -> str:
    head = ["model", "launches", "over the best peer", *(f"over {p}" for p in peers), "wall - device, ms (least)",
            "of the bound run", "error", "error of eager"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, r in results["models"].items():
        if "tensorbox" not in r or "device_ms" not in r["tensorbox"]:
            continue
        ours = r["tensorbox"]
        theirs = {p: r[p]["device_ms"] for p in peers if "device_ms" in r.get(p, {})}
        ratio = [f"{ours['device_ms'] / theirs[p]:.2f}" if p in theirs else "-" for p in peers]
        best = f"{ours['device_ms'] / min(theirs.values()):.2f}" if theirs else "-"
        eager = f"{r['eager']['error']:.1e}" if "error" in r.get("eager", {}) else "-"
        lines.append("| " + " | ".join([name, str(ours["launches"]), best, *ratio, beside_device(ours),
                                        beside_device(r.get("bound", {})), f"{ours['error']:.1e}", eager]) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(CASES), help="of: %(default)s; zoo: all others of models.py")
    parser.add_argument("--peers", default=",".join(PEERS), help="of: %(default)s; none: tensorbox alone")
    parser.add_argument("--seconds", type=float, default=5, help="of measuring, for each model")
    parser.add_argument("--limit", type=float, default=0, help="seconds after which no other model is begun; 0: none")
    parser.add_argument("--warm", action="store_true", help="only compile the peers' models, which torch keeps on disk")
    parser.add_argument("--json", type=Path, help="all numbers")
    parser.add_argument("--table", type=Path, help="ratios, as docs/gpu_performance.md has them")
    args = parser.parse_args()
    peers = [p for p in args.peers.split(",") if p and p != "none"]
    if args.warm:
        for case in cases_of(args.models).values():
            warm(case, peers)
        return
    begin = time.perf_counter()
    results: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__,
                               "cuda": torch.version.cuda, "date": datetime.date.today().isoformat(), "models": {}}
    for name, case in cases_of(args.models).items():
        if args.limit and time.perf_counter() - begin > args.limit:
            print(f"{name}: not begun, the limit is reached", flush=True)
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                results["models"][name] = measure(case, peers, args.seconds, Path(folder))
            except Exception as e:
                results["models"][name] = {"failed": str(e)[:500]}
        print(name, json.dumps(results["models"][name]), flush=True)
        torch.cuda.empty_cache()
        if args.json:
            args.json.write_text(json.dumps(results, indent=1) + "\n")
    text = table(results, peers)
    print(text)
    if args.table:
        args.table.write_text(text)


if __name__ == "__main__":
    main()

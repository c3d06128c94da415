"""Random models at the sizes that users have, in every mode, held against plain loops and ONNX Runtime.

Cases are numbered; seed and number make a case, so that `--seed 7 --first 4711 --count 1` is that one again. Results
go to FOLDER/results.jsonl, a line each; what is there already is not run again. A failure leaves FOLDER/failures/
NUMBER.onnx and NUMBER.npz (the inputs). Exit code: 0 when no case is wrong, crashes, hangs, or is refused though ONNX
Runtime runs it."""
from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Iterator

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sweep import cases, table  # noqa: E402

BAD = ("wrong", "open", "crash", "hang", "error", "broken")
HANG_S = 120
CASES_PER_PROCESS = 150


def guarded_memory(folder: Path) -> Path:
    """A library to preload: what reads or writes behind its memory ends the process (guarded_memory.cpp)."""
    library = (folder / "guarded_memory.so").resolve()
    source = Path(__file__).with_name("guarded_memory.cpp")
    subprocess.run(["c++", "-std=c++20", "-O1", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    return library


class Worker:
    """A process for the cases of one lane."""

    preloaded = ""  # library

    def __init__(self, series: cases.Series, lane: tuple[str, str], device: str):
        env = dict(os.environ, DNNL_MAX_CPU_ISA=lane[1], DNNL_VERBOSE="1", PYTHONPATH=os.pathsep.join(
            [str(Path(__file__).resolve().parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]))
        if self.preloaded:
            env["LD_PRELOAD"] = self.preloaded
        self._process = subprocess.Popen([sys.executable, "-m", "sweep.worker", json.dumps(asdict(series)), device], env=env, stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE)
        self.left = CASES_PER_PROCESS
        self._text = b""

    def run(self, number: int) -> dict[str, Any]:
        self.left -= 1
        assert self._process.stdin and self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{number}\n".encode())
            self._process.stdin.flush()
        until = time.monotonic() + HANG_S
        while True:
            while b"\n" in self._text:
                line, self._text = self._text.split(b"\n", 1)
                result = json.loads(line)
                if "begin" not in result:
                    return result
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return self._lost(number, "hang", f"no answer in {HANG_S} s")
            part = os.read(self._process.stdout.fileno(), 1 << 16)
            if not part:
                return self._lost(number, "crash", f"the process ended with {self._process.wait()}")
            self._text += part

    def _lost(self, number: int, verdict: str, detail: str) -> dict[str, Any]:
        self.end()
        self.left = 0
        return {"number": number, "verdict": verdict, "detail": detail}

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def describe(series: cases.Series, number: int) -> dict[str, Any]:
    """What is known of a case that did not come back."""
    family, dtype, mode = cases.plan(series, number)
    known = {"family": family, "dtype": dtype, "isa": mode.isa, "library": mode.library, "kind": mode.kind,
             "threads": mode.threads, "dynamic": mode.dynamic}
    with contextlib.suppress(Exception):
        b = cases.make(series, number).builder
        known["nodes"] = " ".join(n.op_type for n in b.nodes)
        known["shapes"] = "; ".join(f"{i.name}{list(i.shapes[0])}" for i in b.inputs)
    return known


def sweep(series: cases.Series, numbers: list[int], deadline: float, processes: int = 1, device: str = "",
          part_size: int = CASES_PER_PROCESS) -> Iterator[dict[str, Any]]:
    """Results as they come. Each process has some cases of one lane, in turns."""
    lanes: dict[tuple[str, str], list[int]] = {}
    for n in numbers:
        lanes.setdefault(cases.lane(n), []).append(n)
    parts = [(lane, lanes[lane][at:at + part_size]) for at in range(0, len(numbers), part_size)
             for lane in lanes if at < len(lanes[lane])]
    results: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

    def run(lane: tuple[str, str], part: list[int]) -> None:
        while part and time.time() < deadline:
            worker = Worker(series, lane, device)
            try:
                while part and worker.left and time.time() < deadline:
                    number = part.pop(0)
                    start = time.monotonic()
                    result = worker.run(number)
                    if "family" not in result:
                        result = {**describe(series, number), **result}
                    result["seconds"] = round(time.monotonic() - start, 3)
                    results.put(result)
            finally:
                worker.end()

    def run_parts() -> None:
        try:
            with contextlib.suppress(IndexError):
                while True:
                    run(*parts.pop(0))
        finally:
            results.put(None)

    for _ in range(processes):
        threading.Thread(target=run_parts, daemon=True).start()
    left = processes
    while left:
        result = results.get()
        if result is None:
            left -= 1
        else:
            yield result


def keep_reproducer(series: cases.Series, result: dict[str, Any], folder: Path) -> None:
    from sweep.judge import save

    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(Exception):
        save(cases.make(series, result["number"]), str(folder / str(result["number"])), result.get("run", 0))
    (folder / f"{result['number']}.json").write_text(json.dumps(result, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--count", type=int, default=200, help="numbers to look at (before --filter)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--filter", default="", metavar="REGEX", help='of "FAMILY TYPE ISA/LIBRARY KIND threads=N static", as '
                        "'^conv_transpose f32 .*dynamic'; families: " + ", ".join(cases.FAMILIES))
    parser.add_argument("--family", default="", choices=list(cases.FAMILIES), metavar="NAME", help="all cases are of this one; some are "
                        "drawn only so: " + ", ".join(name for name, (often, _) in cases.FAMILIES.items() if not often))
    parser.add_argument("--kind", default="", choices=("compiled", "bf16", "f16", "any", "tiles", "evaluator"), help="all cases are run so")
    parser.add_argument("--out", type=Path, default=Path("build/sweep"), metavar="FOLDER")
    parser.add_argument("--fresh", action="store_true", help="forget results that are there")
    parser.add_argument("--device", default="", help='"cuda": what has kernels for it runs on the GPU, compiled ("evaluator" too); '
                        "nothing is timed then")
    parser.add_argument("--guarded", action="store_true", help="what reads or writes behind memory of 2 KiB or more ends the process, "
                        "in kernels that libraries make as well; slow")
    parser.add_argument("--part", type=int, default=CASES_PER_PROCESS, metavar="N", help="cases of a lane in one process, before the "
                        "next lane has its turn")
    parser.add_argument("--processes", type=int, default=1, help="that many cases at once")
    parser.add_argument("--verbose", action="store_true", help="a line for every case")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TBX_CACHE_DIR", str((options.out / "cache").resolve()))
    os.environ.setdefault("TBX_CACHE_PLANS", "0")  # each case is compiled
    if options.guarded:
        Worker.preloaded = str(guarded_memory(options.out))
    series = cases.Series(options.seed, options.family, options.kind)
    path = options.out / f"results-{'-'.join(filter(None, [str(options.seed), options.family, options.kind]))}.jsonl"
    if options.fresh:
        path.unlink(missing_ok=True)
    results = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {r["number"] for r in results}
    numbers = [n for n in range(options.first, options.first + options.count)
               if n not in done and (not options.filter or cases.matches(options.filter, series, n))]
    print(f"seed {options.seed}: {len(numbers)} cases to run, {len(done)} done before", flush=True)
    start = time.time()
    with path.open("a") as out:
        for result in sweep(series, numbers, start + options.seconds, options.processes, options.device,
                            options.part):
            results.append(result)
            out.write(json.dumps(result) + "\n")
            out.flush()
            if result["verdict"] in BAD:
                keep_reproducer(series, result, options.out / "failures")
            if options.verbose or result["verdict"] in BAD:
                print(f"{result['verdict']:8} {result['number']:6} {result['family']} {result['dtype']} {result['isa']}/"
                      f"{result['library']} {result['kind']} {result.get('nodes', '')} {result['detail'][:300]}", flush=True)
    print(table.summary([r for r in results if options.first <= r["number"] < options.first + options.count
                         and (not options.filter or cases.matches(options.filter, series, r["number"]))]))
    print(f"{time.time() - start:.0f} s")
    return int(any(r["verdict"] in BAD for r in results))


if __name__ == "__main__":
    sys.exit(main())

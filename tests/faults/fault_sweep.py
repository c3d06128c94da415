"""Fault sweep: in `tbx run` of a small model, the n-th call of a kind fails, for all n. Each run ends with the right
result or a clear error, never by a signal or as an InternalError, and a run after it, with the cache as it was left, is
right. Counting begins with main: what the loader sets up before it cannot report an error. `--help` has the options;
without any, all faults are tried, which takes a while. Calls of `malloc` with a filled cache, of which there are most, are
tried by children of one run (shim.c) until that makes its first thread."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("malloc", "mmap", "open", "write", "rename", "thread", "spawn", "wait")
OF_THE_COMPILER = ("spawn", "wait")  # which nothing is left for with a filled cache
CLEAR = {2: "usage", 3: "ModelError", 4: "UnsupportedError", 5: "BackendError"}


def small_model() -> bytes:
    """A library product, a row kernel and pointwise work."""
    rng = np.random.default_rng(1)
    constants = [numpy_helper.from_array(rng.normal(size=(48, 48)).astype(np.float32), "w"),
                 numpy_helper.from_array(rng.normal(size=48).astype(np.float32), "s")]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "x"], ["a"]),
             helper.make_node("LayerNormalization", ["a", "s"], ["n"]), helper.make_node("Softmax", ["n"], ["y"])]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "small", [info("x", TensorProto.FLOAT, ["batch", 48])],
                              [info("y", TensorProto.FLOAT, ["batch", 48])], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


class Bench:
    """The command, its model, a filled cache, and what is right."""

    def __init__(self, tbx: Path, folder: Path):
        self.tbx, self.folder = tbx, folder
        self.shim = folder / "shim.so"
        subprocess.run(["cc", "-O1", "-w", "-shared", "-fPIC", "-o", self.shim, ROOT / "tests/faults/shim.c", "-ldl"], check=True)
        (folder / "model.onnx").write_bytes(small_model())
        self.full = folder / "full"
        code, text = self.run(self.full)
        assert code == 0, text
        self.expected = self.output()

    def run(self, cache: Path, fault: str = "", before: str = "", timeout: float = 120, files: dict[str, str] | None = None) -> tuple[int, str]:
        """Exit code (negative: signal) and what was printed."""
        (self.folder / "out.npz").unlink(missing_ok=True)
        (self.folder / "report").unlink(missing_ok=True)
        environment = dict(os.environ, TBX_CACHE_DIR=str(cache), TMPDIR=str(self.folder), OMP_NUM_THREADS="2")
        command = [self.tbx, "run", self.folder / "model.onnx", "--dim", "batch=64", "--threads", "2",
                   "--save", self.folder / "out.npz"]
        if fault:
            environment |= {"LD_PRELOAD": str(self.shim), "FAULT": fault, "FAULT_REPORT": str(self.folder / "report")} | (files or {})
        if before:
            command = ["sh", "-c", f'{before}; exec "$@"', "sh", *command]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
            try:
                out = child.communicate(timeout=timeout)[0]
            except subprocess.TimeoutExpired as e:
                child.send_signal(signal.SIGBUS)  # the shim says where it is
                try:
                    e.stdout = child.communicate(timeout=5)[0]
                except subprocess.TimeoutExpired as still:
                    e.stdout = still.stdout
                child.kill()
                raise
        return child.returncode, out.decode(errors="replace")

    def output(self) -> np.ndarray:
        return np.load(self.folder / "out.npz")["y"]

    def report(self) -> str:
        path = self.folder / "report"
        return path.read_text() if path.exists() else ""

    def judge(self, code: int, text: str, kind: str = "") -> str:
        """What a run was: "right", the kind of its error, or, in capitals, what it must not be."""
        if code == 0:
            # Fewer threads may change last bits (docs/precision.md).
            same = partial(np.allclose, rtol=1e-5, atol=1e-7) if kind == "thread" else np.array_equal
            return "right" if same(self.output(), self.expected) else "WRONG RESULT"
        if code < 0:
            # oneDNN writes into what malloc gave it without a look; oneTBB takes back what it had not made (docs/kernels.md).
            for library, name in (("libdnnl", "oneDNN"), ("libtbb", "oneTBB")):
                if f"crash in {library}" in text:
                    return f"crash in {name}"
            return f"SIGNAL {signal.Signals(-code).name}"
        if not text.strip():
            return "SILENT ERROR"
        return CLEAR.get(code, f"EXIT {code}")

    def cache(self, warm: bool) -> Path:
        cache = self.folder / "cache"
        shutil.rmtree(cache, ignore_errors=True)
        if warm:
            shutil.copytree(self.full, cache)
        return cache

    def judge_child(self, outcome: int) -> str:
        """The same of a child, by the number that the shim gives it."""
        if 256 <= outcome < 600:
            return f"SIGNAL {signal.Signals(outcome - 256).name}"
        return {0: "right", 600: "WRONG RESULT", 601: "SILENT ERROR", 602: "NO CHILD"}.get(outcome) or CLEAR.get(outcome, f"EXIT {outcome}")

    def calls(self, kind: str, warm: bool) -> int:
        self.run(self.cache(warm), f"{kind}:0")
        return int(self.report() or 0)

    def one(self, kind: str, n: int, warm: bool) -> tuple[str, str]:
        """The outcome with the n-th call failing and of the run after it, and the messages of those that are bad."""
        cache = self.cache(warm)
        try:
            code, text = self.run(cache, f"{kind}:{n}")
        except subprocess.TimeoutExpired as e:
            text = (e.stdout or b"").decode(errors="replace")
            # oneTBB throws while it holds a lock that throwing takes (docs/kernels.md).
            return ("wait in oneTBB" if "crash in libtbb" in text else "HANG"), text
        outcome = self.judge(code, text, kind) if self.report().startswith("hit") or code != 0 else "not reached"
        after, more = self.run(cache)
        if self.judge(after, more) != "right":
            return f"NEXT RUN: {self.judge(after, more)}", more
        left = [p.name for p in cache.iterdir() if p.name.startswith(".tmp-")] if code >= 0 else []
        return (f"LEFT {left}", text) if left else (outcome, text if outcome.isupper() else "")


def sweep(bench: Bench, kind: str, warm: bool, numbers: list[int]) -> tuple[Counter[str], list[str]]:
    counts: Counter[str] = Counter()
    bad = []
    for n in numbers:
        outcome, text = bench.one(kind, n, warm)
        counts[outcome] += 1
        if outcome[:4].isupper():
            bad.append(f"{kind}:{n} ({'warm' if warm else 'cold'} cache): {outcome}: {text.strip()[:300]}")
    return counts, bad


def by_children(bench: Bench, first: int, last: int, step: int = 1) -> tuple[Counter[str], list[str]]:
    """Every `step`-th malloc from `first` to `last` fails, with a filled cache: in a child of one run, or once that has made
    threads in a run of its own."""
    counts: Counter[str] = Counter()
    bad = []
    cache = bench.cache(True)
    bench.run(cache)
    (bench.folder / "expected").write_bytes((bench.folder / "out.npz").read_bytes())
    files = {"FAULT_OUTPUT": str(bench.folder / "out.npz"), "FAULT_EXPECTED": str(bench.folder / "expected")}
    code, text = bench.run(cache, f"malloc:{first}-{last}/{step}", timeout=100_000, files=files)
    if bench.judge(code, text) != "right":
        bad.append(f"malloc: the run around the children: {bench.judge(code, text)}: {text[:300]}")
    alone = []  # a child may fare badly because it is one: a run of its own decides
    for line in bench.report().splitlines():
        n, outcome = map(int, line.split())
        if outcome < 0 or bench.judge_child(outcome)[:4].isupper():
            alone.append(n)
        else:
            counts[bench.judge_child(outcome)] += 1
    if (after := bench.judge(*bench.run(cache))) != "right" or any(p.name.startswith(".tmp-") for p in cache.iterdir()):
        bad.append(f"malloc: after the children: {after}")
    more, more_bad = sweep(bench, "malloc", True, alone)
    return counts + more, bad + more_bad


def killed(bench: Bench, rounds: int, rng: random.Random) -> tuple[Counter[str], list[str]]:
    """SIGKILL at a random time of a run with an empty cache."""
    counts: Counter[str] = Counter()
    bad = []
    start = time.monotonic()
    bench.run(bench.cache(False))
    whole = time.monotonic() - start
    for _ in range(rounds):
        cache = bench.cache(False)
        environment = dict(os.environ, TBX_CACHE_DIR=str(cache), TMPDIR=str(bench.folder))
        child = subprocess.Popen([bench.tbx, "run", bench.folder / "model.onnx"], env=environment,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(0, whole))
        child.kill()
        child.wait()
        outcome = bench.judge(*bench.run(cache))
        counts["next run " + outcome] += 1
        if outcome != "right":
            bad.append(f"killed: next run {outcome}")
        if any(p.name.startswith(".tmp-") and p.is_dir() for p in cache.iterdir()) and len(list(cache.glob("*.so"))) == 0:
            bad.append("killed: its folder is still there")
    return counts, bad


def unwritable(bench: Bench) -> list[Path]:
    """Folders for the cache: one without the permission, and two that nobody may write to, root neither."""
    closed = bench.folder / "closed"
    if not closed.exists():
        closed.mkdir(mode=0o555)
    return [closed, closed / "below", Path("/proc/tensorbox"), Path("/sys/tensorbox")]


def disk(bench: Bench, sizes: Sequence[int] = (0, 1, 8, 16, 32, 64, 128)) -> tuple[Counter[str], list[str]]:
    """Files that cannot grow beyond so many blocks, with an empty cache; cache folders that cannot be written to, alone and
    with such a folder for temporary files."""
    counts: Counter[str] = Counter()
    bad = []

    def note(outcome: str, what: str) -> None:
        counts[outcome] += 1
        if outcome[:4].isupper():
            bad.append(f"{what}: {outcome}")

    for blocks in sizes:
        cache = bench.cache(False)
        note(bench.judge(*bench.run(cache, before=f"trap '' XFSZ; ulimit -f {blocks}")), f"files of {blocks} blocks")
        if (after := bench.judge(*bench.run(cache))) != "right":
            bad.append(f"after files of {blocks} blocks: {after}")
    for cache in unwritable(bench):
        outcome = bench.judge(*bench.run(cache))
        note(outcome, f"cache in {cache}")
        if outcome != "right":  # another folder is taken
            bad.append(f"cache in {cache}: {outcome}")
    note(bench.judge(*bench.run(Path("/sys/tensorbox"), before="export TMPDIR=/sys HOME=/sys; unset XDG_CACHE_HOME")),
         "no folder that can be written to")
    return counts, bad


def little_memory(bench: Bench, tries: int) -> tuple[Counter[str], list[str]]:
    """Address space between what the command needs to get to its main and what a run needs: no more is to be had from some
    call on."""
    def starts(kilobytes: int) -> bool:
        command = ["sh", "-c", f'ulimit -v {kilobytes}; exec "$@"', "sh", bench.tbx, "--version"]
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode in (0, 3)

    def runs(kilobytes: int) -> bool:
        return bench.judge(*bench.run(bench.full, before=f"ulimit -v {kilobytes}")) == "right"

    def least(enough: Callable[[int], bool], below: int) -> int:
        while not enough(below):
            below *= 2
        above = below // 2
        while below - above > 64:
            middle = (above + below) // 2
            above, below = (above, middle) if enough(middle) else (middle, below)
        return below

    first = least(starts, 1 << 16) + 128  # it differs from run to run
    last = first + (8 << 10)
    while not runs(last):
        last += 8 << 10
    counts: Counter[str] = Counter()
    bad = []
    for kilobytes in np.linspace(first, last, tries, dtype=int):
        try:
            outcome = bench.judge(*bench.run(bench.full, before=f"ulimit -v {kilobytes}", timeout=8))
        except subprocess.TimeoutExpired:
            outcome = "HANG"
        counts[outcome] += 1
        if outcome[:4].isupper() or outcome.startswith("crash"):
            bad.append(f"{kilobytes} KB of address space: {outcome}")
    return counts, bad


def racing(bench: Bench, processes: int) -> tuple[Counter[str], list[str]]:
    """Processes that fill one cache at the same time, one of them killed."""
    cache = bench.cache(False)
    environment = dict(os.environ, TBX_CACHE_DIR=str(cache), TMPDIR=str(bench.folder))
    running = [subprocess.Popen([bench.tbx, "run", bench.folder / "model.onnx"], env=environment, stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE) for _ in range(processes)]
    time.sleep(0.1)
    running[0].kill()
    codes = [p.wait() for p in running]
    for p in running:
        p.stderr.close()
    outcome = bench.judge(*bench.run(cache))
    good = not any(codes[1:]) and outcome == "right"
    return Counter({"right": codes.count(0)}), [] if good else [f"racing: {codes}, then {outcome}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tbx", type=Path, default=ROOT / "build/release/bin/tbx")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=KINDS)
    parser.add_argument("--most", type=int, default=0, help="calls tried of a kind and cache, at random; 0: all")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--no-others", action="store_true", help="failing calls only: no kills, full disks, races")
    given = parser.parse_args()
    print(f"seed {given.seed}")
    rng = random.Random(given.seed)
    bad: list[str] = []
    with tempfile.TemporaryDirectory(prefix="tbx-faults-") as folder:
        bench = Bench(given.tbx, Path(folder))
        print("| fault | cache | calls | tried | outcomes |\n|---|---|---|---|---|")

        def row(fault: str, cache: str, calls: int | str, result: tuple[Counter[str], list[str]]) -> None:
            bad.extend(result[1])
            outcomes = ", ".join(f"{name} {count}" for name, count in result[0].most_common())
            print(f"| {fault} | {cache} | {calls} | {result[0].total()} | {outcomes} |", flush=True)

        for kind in given.kinds:
            for warm in (True, False):
                calls = bench.calls(kind, warm)
                numbers = list(range(1, calls + 1))
                if given.most and calls > given.most:
                    numbers = sorted(rng.sample(numbers, given.most))
                if numbers and kind == "malloc" and warm:
                    step = max(1, calls // given.most) if given.most else 1
                    row("malloc", "warm", calls, by_children(bench, 1 + rng.randrange(step), calls, step))
                elif numbers:
                    row(kind, "warm" if warm else "empty", calls, sweep(bench, kind, warm, numbers))
        if not given.no_others:
            row("kill -9", "empty", "", killed(bench, min(given.most or 100, 100), rng))
            row("files limited (full disk), folders read-only", "empty", "", disk(bench))
            row("address space from what a start needs to what a run needs", "filled", "", little_memory(bench, given.most or 300))
            row("4 processes at once, one killed", "empty", "", racing(bench, 4))
    print("\n".join(bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

"""Threads that run new sessions with many shapes at once, held against numpy in double precision.

usage: ./dev python tests/stress/many_shapes.py [--runs 1000] [--threads 8] [--shapes 24] [--seed 1] [--compile]
       ./dev python tests/stress/many_shapes.py --models FOLDER    writes the models of the first four runs, for tbx_package_shapes

A run is a new session and as many threads, each with shapes of its own and some that others have as well; every second run
has sessions of one thread, every third a session for each two threads, and two of four have as many channels as Winograd's
convolutions take, by tiles of 2 x 2 and 4 x 4 results. Fifty runs share a process, so that caches of library primitives and of
shape plans overflow. A process that dies counts as a crash of the run that it was in.
"""
from __future__ import annotations

import argparse
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

RUNS_PER_PROCESS = 50
# With precision="any" both operands of products are rounded to bfloat16 where the CPU has tiles for it: each by up to 2^-9 of
# itself, evenly distributed at most. This is the variance of a term's error over the square of the term.
ROUNDED = 2 * 2.0 ** -18 / 3 if "amx_bf16" in Path("/proc/cpuinfo").read_text() else 0.0
DEVIATIONS = 8  # of the error of a result: 6 and more were seen among a billion
FEW, MANY, WIDTH = 12, 40, 20  # channels


def model(weights: np.ndarray, filters: np.ndarray) -> bytes:
    """y = relu(conv(x)) w + its rows: a convolution, a product with a residual that is read twice, a generated row kernel."""
    shape = helper.make_tensor("shape", TensorProto.INT64, [2], [-1, WIDTH])
    nodes = [helper.make_node("Conv", ["x", "filters"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
             helper.make_node("Relu", ["c"], ["r"]), helper.make_node("Reshape", ["r", "shape"], ["f"]),
             helper.make_node("MatMul", ["f", "weights"], ["p"]), helper.make_node("Add", ["p", "f"], ["y"]),
             helper.make_node("ReduceMean", ["y"], ["m"], axes=[1], keepdims=0)]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", len(filters), "h", WIDTH])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", WIDTH]),
               helper.make_tensor_value_info("m", TensorProto.FLOAT, ["rows"])]
    graph = helper.make_graph(nodes, "stress", inputs, outputs,
                              [shape, numpy_helper.from_array(weights, "weights"), numpy_helper.from_array(filters, "filters")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def convolved(x: np.ndarray, filters: np.ndarray) -> np.ndarray:
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)])
    n, _, h, w = x.shape
    c = np.zeros((n, len(filters), h, w))
    for i in range(3):
        for j in range(3):
            c += np.einsum("oc,nchw->nohw", filters[:, :, i, j].astype(np.float64), padded[:, :, i:i + h, j:j + w])
    return c


def expected(x: np.ndarray, weights: np.ndarray, filters: np.ndarray, rounded: float) -> tuple[np.ndarray, np.ndarray]:
    """The result y, and how far it may be off where the error of a term has the variance `rounded`."""
    f = np.maximum(convolved(x, filters), 0).reshape(-1, WIDTH)
    w = weights.astype(np.float64)
    y = f @ w + f
    variance = rounded * (convolved(x ** 2, filters ** 2).reshape(-1, WIDTH) @ (w + np.eye(WIDTH)) ** 2 + f ** 2 @ w ** 2)
    return y, 1e-4 * (1 + np.abs(y)) + DEVIATIONS * np.sqrt(variance)


def parameters(number: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Weights and filters of a run."""
    weights = (rng.standard_normal((WIDTH, WIDTH)) / WIDTH ** 0.5).astype(np.float32)
    channels = MANY if number // 2 % 2 else FEW
    return weights, (rng.standard_normal((channels, channels, 3, 3)) / (9 * channels) ** 0.5).astype(np.float32)


def one_run(number: int, options: argparse.Namespace) -> int:
    """How many results are wrong."""
    import tensorbox

    rng = np.random.default_rng([options.seed, number])
    weights, filters = parameters(number, rng)
    channels = len(filters)
    made = model(weights, filters)
    rounded = ROUNDED if number // 4 % 2 else 0.0
    feeds, want = {}, {}
    for batch in range(1, 1 + options.shapes):
        height = int(rng.integers(1, 24))
        feeds[batch] = rng.standard_normal((1 + batch % 5, channels, height, WIDTH)).astype(np.float32)
        want[batch] = expected(feeds[batch], weights, filters, rounded)
    count = 1 + number % 2
    larger = {"precision": "any", "disable_passes": ["narrow_storage", "narrow_row_weights"]} if number // 4 % 2 else {}
    sessions = [tensorbox.Session(made, threads=count, compile=options.compile, **larger)
                for _ in range(options.threads // 2 if number % 3 == 0 else 1)]
    steps = [line for step in sessions[0].explain() for line in [step["name"], *step["decisions"]]]
    assert any("kernel: winograd_conv" in line for line in steps) == (channels == MANY), steps
    wrong: list[int] = []
    gate = threading.Barrier(options.threads)

    def work(k: int) -> None:
        order = np.random.default_rng([options.seed, number, k]).permutation(list(feeds))
        gate.wait()
        try:
            for key in order:
                got = sessions[k % len(sessions)].run({"x": feeds[key]})
                y, off = want[key]
                # Negated, so that NaN is wrong.
                if not (np.abs(got["y"] - y) <= off).all() or not (np.abs(got["m"] - y.mean(1)) <= off.mean(1)).all():
                    wrong.append(int(key))
        except Exception as e:
            print(f"run {number}: {type(e).__name__}: {e}", file=sys.stderr)
            wrong.append(-1)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(options.threads)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return len(wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--shapes", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--models", type=Path)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.models:
        for number in range(4):
            made = model(*parameters(number, np.random.default_rng([options.seed, number])))
            (options.models / f"stress{number}.onnx").write_bytes(made)
        return 0
    if options.inside:
        for number in range(options.first, options.first + options.runs):
            print(number, one_run(number, options), flush=True)
        return 0
    ends: Counter[str] = Counter()
    number, last = options.first, options.first + options.runs
    while number < last:
        count = min(RUNS_PER_PROCESS, last - number)
        command = [sys.executable, __file__, "--inside", "--first", str(number), "--runs", str(count), "--threads",
                   str(options.threads), "--shapes", str(options.shapes), "--seed", str(options.seed)]
        done = subprocess.run(command + ["--compile"] * options.compile, stdout=subprocess.PIPE, text=True)
        lines = [line.split() for line in done.stdout.splitlines()]
        for run, wrong in lines:
            ends["right" if wrong == "0" else "wrong"] += 1
            if wrong != "0":
                print(f"run {run}: {wrong} results are wrong", flush=True)
        number += len(lines)
        if done.returncode != 0:
            print(f"run {number}: the process ended with {done.returncode}", flush=True)
            ends["crash"] += 1
            number += 1
    print(f"{options.runs} runs of {options.threads} threads and {options.shapes} shapes, seed {options.seed}: {dict(ends)}")
    return int(ends["right"] != options.runs)


if __name__ == "__main__":
    sys.exit(main())

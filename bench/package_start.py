#!/usr/bin/env python3
"""Time from a file to the first outputs: packages against ONNX Runtime's own optimised format, interleaved, each time in
a new process. On a busy machine the CPU time says more.

    PYTHONPATH=build/release/python python bench/package_start.py model.onnx [--rounds 9] [--threads 2]

Both formats are made first and read once, so that they lie in the page cache. Prints medians and their ratio; imports of
Python modules are not counted. Needs onnxruntime.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np

OURS = """
import sys, time, numpy, tensorbox
file, inputs, threads = sys.argv[1], dict(numpy.load(sys.argv[2])), int(sys.argv[3])
start, used = time.perf_counter(), time.process_time()
session = tensorbox.Session(file, threads=threads)
loaded = time.perf_counter()
session.run(inputs)
print(loaded - start, time.perf_counter() - start, time.process_time() - used)
"""

THEIRS = """
import sys, time, numpy, onnxruntime
file, inputs, threads = sys.argv[1], dict(numpy.load(sys.argv[2])), int(sys.argv[3])
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = threads
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # done already
start, used = time.perf_counter(), time.process_time()
session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
loaded = time.perf_counter()
session.run(None, inputs)
print(loaded - start, time.perf_counter() - start, time.process_time() - used)
"""


def inputs_for(session):
    random = np.random.default_rng(1)
    made = {}
    for i in session.get_inputs():
        shape = [d if isinstance(d, int) else 1 for d in i.shape]
        made[i.name] = np.ones(shape, np.int64) if "int64" in i.type else random.random(shape, np.float32)
    return made


def timed(code, *arguments):
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=True)
    return [float(x) * 1e3 for x in done.stdout.split()]


def main():
    import onnxruntime
    import tensorbox

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--format", choices=["ort", "onnx"], default="ort", help="of ONNX Runtime's optimised file")
    o = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="package-start-") as work:
        work = pathlib.Path(work)
        options = onnxruntime.SessionOptions()
        theirs = work / f"model.{o.format}"
        options.optimized_model_filepath = str(theirs)
        if o.format == "ort":
            options.add_session_config_entry("session.save_model_format", "ORT")
        np.savez(work / "inputs.npz", **inputs_for(onnxruntime.InferenceSession(str(o.model), options)))
        tensorbox.Session(o.model, threads=o.threads).save(work / "model.tbx")
        ours_ms, theirs_ms = [], []
        for n in range(o.rounds + 1):  # the first fills the page cache
            a = timed(OURS, work / "model.tbx", work / "inputs.npz", o.threads)
            b = timed(THEIRS, theirs, work / "inputs.npz", o.threads)
            if n:
                ours_ms.append(a)
                theirs_ms.append(b)
        median = lambda runs, k: statistics.median(r[k] for r in runs)  # noqa: E731
        for name, runs in (("package", ours_ms), ("onnxruntime", theirs_ms)):
            print(f"{name}: loaded after {median(runs, 0):.1f} ms, first outputs after {median(runs, 1):.1f} ms, "
                  f"{median(runs, 2):.1f} ms of CPU time")
        print(f"ratio of first outputs: {median(ours_ms, 1) / median(theirs_ms, 1):.2f}, "
              f"of CPU time {median(ours_ms, 2) / median(theirs_ms, 2):.2f}, "
              f"by round {[round(a[1] / b[1], 2) for a, b in zip(ours_ms, theirs_ms)]}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Time per iteration of bodies that run: tiny kernels, so what is measured is the cost of an iteration itself.

    loop_overhead.py [ITERATIONS]          needs the built module on the path (./dev python bench/loop_overhead.py)

Prints microseconds per iteration, the best of seven runs after one that warms up, beside ONNX Runtime's where it is
installed. A loop over pure tensor code should cost no more than a few.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorbox
from onnx import parser

HEADER = '<ir_version: 8, opset_import: ["": 17]>\n'
TRUE = "c = Constant<value = bool {1}>() z = Constant<value_ints=[0]>() two = Constant<value_int=2>()"
BODIES = {
    "one kernel": ("g(int64 n, float[k] x) => (float[k] y) {" + TRUE + """
        y = Loop(n, c, x) <body = b(int64 i, bool ci, float[k] s) => (bool co, float[k] so) {
            co = Identity(ci) f = Cast<to=1>(i) so = Add(s, f) }> }"""),
    "while, two outputs": ("g(int64 n, float[k] x) => (float[k] y, float[t,k] ys) {" + TRUE + """
        y, ys = Loop("", c, x) <body = b(int64 i, bool ci, float[k] s) => (bool co, float[k] so, float[k] o) {
            one = Constant<value_int=1>() j = Add(i, one) co = Less(j, n) f = Cast<to=1>(i) so = Add(s, f) o = Neg(s) }> }"""),
    "moving slice": ("g(int64 n, float[k] x) => (float[k] y) {" + TRUE + """
        y = Loop(n, c, x) <body = b(int64 i, bool ci, float[a] s) => (bool co, float[d] so) {
            co = Identity(ci) one = Constant<value_ints=[1]>() r = Mod(i, two) ii = Unsqueeze(r, z) e = Add(ii, one)
            t = Slice(x, ii, e) so = Add(s, t) }> }"""),
    "if": ("g(int64 n, float[k] x) => (float[k] y) {" + TRUE + """
        zero = Constant<value_int=0>()
        y = Loop(n, c, x) <body = b(int64 i, bool ci, float[k] s) => (bool co, float[k] so) {
            co = Identity(ci) r = Mod(i, two) e = Equal(r, zero)
            so = If(e) <then_branch = t() => (float[k] v) { v = Add(s, x) },
                        else_branch = f() => (float[k] w) { w = Sub(s, x) }> }> }"""),
    "growing sequence": ("g(int64 n, float[k] x) => (int64 y) {" + TRUE + """
        e = SequenceEmpty<dtype=1>()
        q = Loop(n, c, e) <body = b(int64 i, bool ci, seq(float[k]) s) => (bool co, seq(float[k]) so) {
            co = Identity(ci) f = Cast<to=1>(i) p = Add(x, f) so = SequenceInsert(s, p) }>
        y = SequenceLength(q) }"""),
}


def best(run: Callable[[], Any], repeats: int = 7) -> float:
    run()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return min(times)


def main() -> None:
    iterations = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    feeds = {"n": np.array(iterations, np.int64), "x": np.ones(16, np.float32)}
    try:
        import onnxruntime
    except ImportError:
        onnxruntime = None
    print(f"{'body':22} tensorbox  ONNX Runtime   (us per iteration, {iterations} iterations)")
    for name, text in BODIES.items():
        model = parser.parse_model(HEADER + text)
        session = tensorbox.Session(model)
        ours = best(lambda: session.run(feeds)) / iterations * 1e6
        theirs = "-"
        if onnxruntime:
            other = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
            theirs = f"{best(lambda: other.run(None, feeds)) / iterations * 1e6:.2f}"
        print(f"{name:22} {ours:9.2f}  {theirs:>12}")


if __name__ == "__main__":
    main()

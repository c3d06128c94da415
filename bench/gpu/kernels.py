#!/usr/bin/env python3
"""Generated kernels on an NVIDIA GPU beside its own copy: models of one operator over 256 MiB, checked against torch.

    python bench/gpu/kernels.py [WORD...]      # only cases whose name has one of the words

Prints the device time of a run, that over the time of a copy of as many bytes as the operator has to move, and the L2
norm of the difference to torch over its norm. Needs torch and onnx, and tensorbox on the path.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from onnx import TensorProto, helper, numpy_helper

import tensorbox

BYTES = 256 << 20
TYPES = {TensorProto.FLOAT: (torch.float32, "f32"), TensorProto.FLOAT16: (torch.float16, "f16")}
Reference = Callable[[torch.Tensor], torch.Tensor]


def summed(dim: int) -> Reference:
    return lambda x: x.float().sum(dim).to(x.dtype)


def running(dim: int) -> Reference:
    return lambda x: x.float().cumsum(dim).to(x.dtype)


# name: operator, attributes, integer inputs, what torch computes, sizes from the number of elements
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], Reference, Callable[[int], tuple[int, ...]]]] = {
    "tanh": ("Tanh", {}, {}, torch.tanh, lambda n: (n,)),
    "gelu": ("Gelu", {}, {}, torch.nn.functional.gelu, lambda n: (n,)),
    "softmax 1024": ("Softmax", {}, {}, lambda x: torch.softmax(x, -1), lambda n: (n // 1024, 1024)),
    "softmax 16384": ("Softmax", {}, {}, lambda x: torch.softmax(x, -1), lambda n: (n // 16384, 16384)),
    "softmax 50257": ("Softmax", {}, {}, lambda x: torch.softmax(x, -1), lambda n: (n // 50257, 50257)),
    "transpose": ("Transpose", {"perm": [1, 0]}, {}, lambda x: x.t().contiguous(), lambda n: (8192, n // 8192)),
    "transpose, odd": ("Transpose", {"perm": [1, 0]}, {}, lambda x: x.t().contiguous(), lambda n: (8191, n // 8192 + 1)),
    "sum of rows": ("ReduceSum", {"keepdims": 0}, {"axes": [1]}, summed(1), lambda n: (n // 1024, 1024)),
    "sum of 4096 columns": ("ReduceSum", {"keepdims": 0}, {"axes": [0]}, summed(0), lambda n: (n // 4096, 4096)),
    "sum of 64 columns": ("ReduceSum", {"keepdims": 0}, {"axes": [0]}, summed(0), lambda n: (n // 64, 64)),
    "largest of 1024 columns": ("ReduceMax", {"keepdims": 0}, {"axes": [0]}, lambda x: x.amax(0), lambda n: (n // 1024, 1024)),
    "running sums of 1024": ("CumSum", {}, {"axis": 1}, running(1), lambda n: (n // 1024, 1024)),
    "running sums of 65536": ("CumSum", {}, {"axis": 1}, running(1), lambda n: (n // 65536, 65536)),
    "running sums of 4 rows": ("CumSum", {}, {"axis": 1}, running(1), lambda n: (4, n // 4)),
    "running sums of an odd row": ("CumSum", {}, {"axis": 1}, running(1), lambda n: (1, n - 5)),
    "running sums of columns": ("CumSum", {}, {"axis": 0}, running(0), lambda n: (n // 8192, 8192)),
    "running sums of 64 columns": ("CumSum", {}, {"axis": 0}, running(0), lambda n: (n // 64, 64)),
    "running sums of 4 columns": ("CumSum", {}, {"axis": 0}, running(0), lambda n: (n // 4, 4)),
}


def model_of(operator: str, attributes: dict[str, Any], integers: dict[str, Any], kind: int, sizes: tuple[int, ...]) -> bytes:
    node = helper.make_node(operator, ["x", *integers], ["y"], **attributes)
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", kind, sizes)],
                              [helper.make_tensor_value_info("y", kind, None)],
                              [numpy_helper.from_array(np.array(v, np.int64), k) for k, v in integers.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()


def device_ms(run: Callable[[], Any], times: int = 12) -> float:
    """Of one run among several, with the device kept busy until the host is ahead."""
    results = []
    for _ in range(3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        run()
        torch.cuda._sleep(4_000_000)
        begin.record()
        for _ in range(times):
            run()
        end.record()
        end.synchronize()
        results.append(begin.elapsed_time(end) / times)
    return statistics.median(results)


def measure(name: str, kind: int, copy_ms: float) -> None:
    operator, attributes, integers, reference, sizes_of = CASES[name]
    dtype, tag = TYPES[kind]
    x = torch.randn(sizes_of(BYTES // dtype.itemsize), device="cuda", dtype=dtype)
    session = tensorbox.Session(model_of(operator, attributes, integers, kind, tuple(x.shape)), device="cuda")
    expected = reference(x)
    y = torch.full_like(expected, float("nan"), memory_format=torch.contiguous_format)
    stream = torch.cuda.current_stream()

    def run() -> None:
        session.run_async({"x": x}, stream, out={"y": y})

    run()
    torch.cuda.synchronize()
    error = float((y.float() - expected.float()).norm() / expected.float().norm())
    ms = device_ms(run)
    share = (x.numel() + y.numel()) * x.element_size() / (2 * BYTES)
    print(f"{name:26} {tag}  {ms:8.4f} ms  over copy {ms / (copy_ms * share):6.2f}  error {error:.1e}", flush=True)


def main() -> None:
    torch.manual_seed(0)
    a = torch.randn(BYTES // 4, device="cuda")
    b = torch.empty_like(a)
    copy_ms = device_ms(lambda: b.copy_(a))
    print(f"{torch.cuda.get_device_name()}, copy of 256 MiB: {copy_ms:.4f} ms")
    del a, b
    for kind in TYPES:
        for name in CASES:
            if len(sys.argv) == 1 or any(word in name for word in sys.argv[1:]):
                measure(name, kind, copy_ms)
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()

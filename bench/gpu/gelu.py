#!/usr/bin/env python3
"""Products with exact GELU behind them on an NVIDIA GPU, of few and of many rows, against torch in float64.

    python bench/gpu/gelu.py

Prints for each size what computed it, which says how its time is to that of the library and a pass behind it where both
were tried, the device time of several such products with weights of their own over that of torch's kernels in a CUDA
graph, and the L2 norm of the difference to float64 over its norm beside that of torch. The exit status is 1 where the error
is more than twice torch's. Needs torch and onnx, and tensorbox on the path.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from onnx import TensorProto, helper, numpy_helper

import tensorbox

sys.path.insert(0, str(Path(__file__).resolve().parent))

from run import captured, device_ms, error  # noqa: E402

LAYERS = 12
SIZES = ((768, 3072), (3072, 768), (768, 768), (1000, 1024), (767, 3071))
ROWS = (1, 16, 64, 128, 197, 512, 4096)


def products(rows: int, sizes: tuple[int, int], kind: int, path: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """Products x -> GELU(x W + b), LAYERS of them, so that each has weights that are not in the cache. Of one x they would
    be one product."""
    terms, columns = sizes
    rng = np.random.default_rng(1)
    weights, nodes, tensors = [], [], []
    for i in range(LAYERS):
        w = (rng.standard_normal((terms, columns)) * 2 / np.sqrt(terms)).astype(np.float32)
        b = rng.standard_normal(columns).astype(np.float32)
        tensors += [helper.make_tensor(f"w{i}", kind, w.shape, w.ravel()), helper.make_tensor(f"b{i}", kind, b.shape, b)]
        nodes += [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"p{i}"]), helper.make_node("Add", [f"p{i}", f"b{i}"], [f"s{i}"]),
                  helper.make_node("Gelu", [f"s{i}"], [f"y{i}"])]
        weights.append((w, b))
    graph = helper.make_graph(nodes, "products", [helper.make_tensor_value_info(f"x{i}", kind, [1, rows, terms]) for i in range(LAYERS)],
                              [helper.make_tensor_value_info(f"y{i}", kind, [1, rows, columns]) for i in range(LAYERS)], tensors)
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString())
    return weights


def measure(rows: int, sizes: tuple[int, int], kind: int, folder: Path) -> bool:
    path, half = folder / "products.onnx", torch.float16 if kind == TensorProto.FLOAT16 else torch.bfloat16
    weights = [(torch.from_numpy(w).cuda().to(half), torch.from_numpy(b).cuda().to(half))
               for w, b in products(rows, sizes, kind, path)]
    x = torch.randn(1, rows, sizes[0], device="cuda").to(half)
    session = tensorbox.Session(str(path), device="cuda")
    outputs = {f"y{i}": torch.empty(1, rows, sizes[1], device="cuda", dtype=half) for i in range(LAYERS)}

    def ours() -> torch.Tensor:
        session.run_async({f"x{i}": x for i in range(LAYERS)}, torch.cuda.current_stream(), out=outputs)
        return outputs["y0"]

    def theirs() -> torch.Tensor:
        for w, b in weights:
            y = torch.nn.functional.gelu(torch.addmm(b, x[0], w))
        return y

    for _ in range(4):
        ours()
    torch.cuda.synchronize()
    errors = [0.0, 0.0]
    for (w, b), y in zip(weights, outputs.values(), strict=True):
        exact = torch.nn.functional.gelu(x[0].double() @ w.double() + b.double())
        errors[0] = max(errors[0], error(y[0], exact))
        errors[1] = max(errors[1], error(torch.nn.functional.gelu(torch.addmm(b, x[0], w)), exact))
    peer = captured(theirs)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(15):
        for run, into in zip((ours, peer), times, strict=True):
            run()
            into.append(device_ms(run, 2))
    ratio = statistics.median(times[0]) / statistics.median(times[1])
    notes = sorted({n for k in session.explain() for n in k["decisions"] if "pass behind" in n or "our own" in n})
    right = errors[0] <= 2 * errors[1]
    print(f"{str(half)[6:]:8} {rows:4} x {sizes[0]} x {sizes[1]}: ratio {ratio:.2f}, error {errors[0]:.1e} (torch "
          f"{errors[1]:.1e}){'' if right else ' NOT RIGHT'}; {'; '.join(notes) or 'no note'}", flush=True)
    return right


def main() -> None:
    right = True
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for kind in (TensorProto.FLOAT16, TensorProto.BFLOAT16):
            for sizes in SIZES if kind == TensorProto.FLOAT16 else SIZES[:1]:
                for rows in ROWS:
                    right &= measure(rows, sizes, kind, Path(folder))
    sys.exit(not right)


if __name__ == "__main__":
    main()

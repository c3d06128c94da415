#!/usr/bin/env python3
"""Graphs whose independent steps run side by side (TBX_CUDA_FORKS=1) over graphs of one step after the other.

    python bench/gpu/forks.py [NAME...]      # of: branches and the models of models.py

Both sessions of a model run in turns. Prints device times in milliseconds, the ratio (below 1: side by side is faster) and
whether the results are equal to the bit. Needs torch and onnx (onnxscript for models of models.py), and tensorbox on the path.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from onnx import TensorProto, helper, numpy_helper

import tensorbox

sys.path.insert(0, str(Path(__file__).resolve().parent))

from models import CASES  # noqa: E402
from run import Run, device_ms, export  # noqa: E402

DEFAULT = ("branches", "resnet50_b1_f16", "bert_b1_f16")


def branches(path: Path) -> torch.Tensor:
    """Blocks of four branches, as Inception has them, on a small image."""
    rng = np.random.default_rng(3)
    nodes, weights, x = [], [], "x"
    for block in range(10):
        ends = []
        for k, sizes in enumerate(([1], [1, 3], [1, 3, 3], [1, 5])):
            y, channels = x, 256
            for size in sizes:
                name = f"{block}_{k}_{len(weights)}"
                w = (rng.standard_normal((64, channels, size, size)) / np.sqrt(channels * size * size)).astype(np.float16)
                weights.append(numpy_helper.from_array(w, "w" + name))
                nodes += [helper.make_node("Conv", [y, "w" + name], ["c" + name], pads=[size // 2] * 4),
                          helper.make_node("Relu", ["c" + name], ["r" + name])]
                y, channels = "r" + name, 64
            ends.append(y)
        nodes.append(helper.make_node("Concat", ends, [x := f"x{block}"], axis=1))
    nodes[-1].output[0] = "y"
    kind, sizes = TensorProto.FLOAT16, [1, 256, 14, 14]
    graph = helper.make_graph(nodes, "branches", [helper.make_tensor_value_info("x", kind, sizes)],
                              [helper.make_tensor_value_info("y", kind, sizes)], weights)
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString())
    return torch.randn(sizes, device="cuda", dtype=torch.float16)


def network(name: str, path: Path) -> torch.Tensor:
    case = CASES[name]
    module, x = case.module().eval().cuda().to(case.type), case.inputs().cuda()
    x = x.to(case.type) if x.is_floating_point() else x
    export(module, x, path)
    return x


def recorded(path: Path, x: torch.Tensor, forks: bool) -> tuple[Run, torch.Tensor]:
    """A session whose graph is recorded so."""
    session = tensorbox.Session(str(path), device="cuda")
    y = session.run({"x": x}, outputs="device")["y"]
    out = torch.empty_like(torch.from_dlpack(y))

    def run() -> torch.Tensor:
        session.run_async({"x": x}, torch.cuda.current_stream(), out={"y": out})
        return out

    os.environ["TBX_CUDA_FORKS"] = "1" if forks else "0"
    for _ in range(4):
        run()
    torch.cuda.synchronize()
    return run, out


def measure(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = Path(folder) / "model.onnx"
        torch.manual_seed(0)
        x = branches(path) if name == "branches" else network(name, path)
        runs = {forks: recorded(path, x, forks) for forks in (False, True)}
        times: dict[bool, list[float]] = {forks: [] for forks in runs}
        for _ in range(40):
            for forks, (run, _) in runs.items():
                run()
                times[forks].append(device_ms(run, 5))
        line, side = (statistics.median(times[forks]) for forks in (False, True))
        equal = torch.equal(runs[False][1], runs[True][1])
        print(f"{name:20} in line {line:7.4f}  side by side {side:7.4f}  ratio {side / line:.3f}  {'equal' if equal else 'NOT EQUAL'}",
              flush=True)


def main() -> None:
    for name in sys.argv[1:] or DEFAULT:
        measure(name)


if __name__ == "__main__":
    main()

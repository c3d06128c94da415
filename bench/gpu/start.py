#!/usr/bin/env python3
"""Starts on an NVIDIA GPU: from the file to the first output, in processes of their own.

    python bench/gpu/start.py [MODEL[:PRECISION]...]      # of the zoo

cold: with an empty kernel cache; warm: with what the cold start left there, the least of three; "no plan": warm, and compiled
anew (TBX_CACHE_PLANS=0). Libraries are loaded before, by a session of one convolution and one product, whose time is printed as
well ("libraries"); the file is in the page cache, and a minute old, since no plan is kept of a large one that is younger.
Needs tensorbox and onnx on the path.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

TESTS = Path(__file__).resolve().parents[2] / "tests"
sys.path.insert(0, str(TESTS / "zoo"))
MODELS = ("resnet50:f16", "bert_base_s128:f16", "swin_t:f16", "bert_base_int8_dynamic:strict", "efficientnet_b0:f16")
WARM = 3
SETTLED_S = 61


def small_model() -> bytes:
    """One convolution and one product, in float16: what loads the libraries."""
    from onnx import TensorProto, helper, numpy_helper

    half = TensorProto.FLOAT16
    weights = {"w": np.ones((8, 8, 3, 3), np.float16), "m": np.ones((8, 8), np.float16)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("MatMul", ["c", "m"], ["y"])]
    graph = helper.make_graph(nodes, "small", [helper.make_tensor_value_info("x", half, [1, 8, 10, 10])],
                              [helper.make_tensor_value_info("y", half, [1, 8, 8, 8])],
                              [numpy_helper.from_array(value, name) for name, value in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def child(path: str, precision: str) -> None:
    import tensorbox

    with np.load(Path(path).parent / "inputs.npz") as file:
        inputs = dict(file)
    first = small_model()
    begin = time.perf_counter()
    tensorbox.Session(first, device="cuda").run({"x": np.ones((1, 8, 10, 10), np.float16)})
    loaded = time.perf_counter()
    session = tensorbox.Session(path, device="cuda", precision=precision)
    compiled = time.perf_counter()
    outputs = session.run(inputs)
    done = time.perf_counter()
    assert all(np.isfinite(y).all() for y in outputs.values() if np.asarray(y).dtype.kind == "f")
    print(json.dumps({"libraries": loaded - begin, "session": compiled - loaded, "run": done - compiled}))


def start(path: Path, precision: str, cache: str, **environment: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, __file__, "--child", str(path), precision], check=True, capture_output=True, text=True,
                          env={**os.environ, "TBX_CACHE_DIR": cache, **environment})
    return json.loads(done.stdout.splitlines()[-1])


def least(starts: Iterable[dict[str, float]]) -> dict[str, float]:
    return min(starts, key=lambda s: s["session"] + s["run"])


def wait_until_settled(folders: list[Path]) -> None:
    youngest = max(file.stat().st_ctime for folder in folders for file in folder.iterdir())
    time.sleep(max(0.0, SETTLED_S - (time.time() - youngest)))


def main() -> None:
    import zoo

    names = sys.argv[1:] or MODELS
    folders = {name: zoo.folder(name.partition(":")[0]) for name in names}
    wait_until_settled(list(folders.values()))
    print("| model | libraries s | cold s (session + first run) | warm s | no plan s |\n|---|---|---|---|---|")
    for name, folder in folders.items():
        how = folder / "model.onnx", name.partition(":")[2] or "strict"
        with tempfile.TemporaryDirectory() as cache:
            cold = start(*how, cache)
            warm = least(start(*how, cache) for _ in range(WARM))
            compiled = least(start(*how, cache, TBX_CACHE_PLANS="0") for _ in range(WARM))
        shown = [f"{s['session'] + s['run']:.2f} ({s['session']:.2f} + {s['run']:.2f})" for s in (cold, warm, compiled)]
        print(f"| {name} | {warm['libraries']:.2f} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3])
    else:
        main()

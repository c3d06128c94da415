"""The command line as a user calls it: `tbx(...)` runs the built command on small models."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
TBX = Path(os.environ.get("TBX_BIN", ROOT / "build" / "release" / "bin" / "tbx"))


@dataclass(frozen=True)
class Result:
    """What a call left: exit code and both streams."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout, which must be one JSON value and nothing else."""
        return json.loads(self.out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


@pytest.fixture(scope="session")
def tbx(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Result]:
    """tbx("run", model, ...) -> Result, with `environment` on top of the usual; kernels go to a cache shared by the tests of a session."""
    if not TBX.exists():
        pytest.skip(f"{TBX} is not built")
    common = dict(os.environ, TBX_CACHE_DIR=str(tmp_path_factory.mktemp("kernels")))

    def call(*arguments: object, environment: dict[str, str] | None = None) -> Result:
        done = subprocess.run([TBX, *map(str, arguments)], capture_output=True, env=common | (environment or {}), timeout=60)
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call


def save(path: Path, nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto],
         outputs: list[onnx.ValueInfoProto], weights: dict[str, np.ndarray] | None = None, opset: int = 17) -> Path:
    """Writes a model of this opset."""
    initializers = [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()]
    graph = helper.make_graph(nodes, "test", inputs, outputs, initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8 if opset == 17 else 11), path)
    return path


def three_steps(path: Path, scale: float = 3.0) -> Path:
    """y = relu(x + 2) * scale, with x [batch, 3]."""
    info = helper.make_tensor_value_info
    return save(path,
                [helper.make_node("Add", ["x", "two"], ["sum"], "add"),
                 helper.make_node("Relu", ["sum"], ["positive"], "relu"),
                 helper.make_node("Mul", ["positive", "scale"], ["y"], "mul")],
                [info("x", TensorProto.FLOAT, ["batch", 3])], [info("y", TensorProto.FLOAT, ["batch", 3])],
                {"two": np.array(2, np.float32), "scale": np.array(scale, np.float32)})


def products(path: Path, scale: float = 1.0) -> Path:
    """y = tanh(tanh(x) w0) w1, with x [batch, 3]: the values "a", "b" (the tanhs) and "y" are in memory. `scale`
    changes one weight of w0."""
    info = helper.make_tensor_value_info
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((3, 3)).astype(np.float32) for name in ("w0", "w1")}
    weights["w0"][1, 2] *= scale
    return save(path,
                [helper.make_node("Tanh", ["x"], ["a"], "first"), helper.make_node("MatMul", ["a", "w0"], ["p"], "one"),
                 helper.make_node("Tanh", ["p"], ["b"], "second"), helper.make_node("MatMul", ["b", "w1"], ["y"], "two")],
                [info("x", TensorProto.FLOAT, ["batch", 3])], [info("y", TensorProto.FLOAT, ["batch", 3])], weights)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`three_steps` with its own scale."""
    return three_steps(tmp_path_factory.mktemp("model") / "steps.onnx")


@pytest.fixture(scope="session")
def digits() -> Path:
    """The trained network of examples/digits."""
    return ROOT / "examples" / "digits"

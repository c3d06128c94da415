"""Equal input and options give byte-equal text at every stage, from process to process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import onnx.parser
import pytest
import replay

MODELS = {
    "rows": """
agraph (float[batch, 48] x, float[48, 48] w, float[48] s) => (float[batch, 48] y) {
  p = MatMul(x, w)
  q = Add(p, x)
  n = LayerNormalization(q, s)
  y = Softmax <axis = -1> (n)
}""",
    "image": """
agraph (float[batch, 3, h, w] x, float[8, 3, 3, 3] k, float[8] b) => (float[batch, 8] y) {
  c = Conv <pads = [1, 1, 1, 1]> (x, k, b)
  r = Relu(c)
  m = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)
  g = GlobalAveragePool(m)
  y = Flatten(g)
}""",
    "branches": """
agraph (float[n, 16] x, int64[k] i) => (float[k, 16] y, float[n] z, int64[d, r] at) {
  a = Sigmoid(x)
  b = Mul(a, x)
  t = Transpose <perm = [1, 0]> (b)
  u = Transpose(t)
  y = Gather(u, i)
  one = Constant <value_ints = [1]> ()
  z = ReduceSum <keepdims = 0> (b, one)
  at = NonZero(z)
}""",
    "loop": """
agraph (float[4] x, int64 n) => (float[4] y) {
  yes = Constant <value = bool[1] {1}> ()
  y = Loop (n, yes, x) <body = step (int64 i, bool more, float[4] a) => (bool again, float[4] b) {
    again = Identity(more)
    b = Tanh(a)
  }>
}""",
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A model's file."""
    text = '<ir_version: 10, opset_import: ["": 20]>' + MODELS[request.param]
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.mark.parametrize("stage", ["simplify", "lower", "schedule", "source", "cuda", "plan"])
def test_text_of_a_stage_is_the_same_in_every_process(model: Path, stage: str) -> None:
    first = replay.text_of(model, stage)
    assert first and not first.startswith("exit code"), first
    assert all(replay.text_of(model, stage) == first for _ in range(2))


def test_kernels_of_the_zoo_are_the_kept_ones() -> None:
    """A change of them that is meant: tests/replay/replay.py --renew."""
    head = replay.hash_all(replay.models_of(replay.zoo.names(), None, 1), 2)
    assert not replay.compared(json.loads(replay.KEPT.read_text()), head)


def test_a_difference_is_named(tmp_path: Path) -> None:
    same = {"schedule": "1", "source": "2"}
    assert not replay.compared({"a": same}, {"a": same})
    assert replay.compared({"a": same}, {"a": same | {"source": "3"}}) == ["a: source differs"]
    assert replay.compared({"a": same}, {"b": same}) == ["a: only in the other build", "b: only in this build"]


def test_the_command_compares_with_a_file(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 20]>' + MODELS["rows"]), _case(tmp_path))
    base = tmp_path / "base.json"
    command = [sys.executable, replay.__file__, "--models", "--suite", tmp_path / "suite"]
    assert subprocess.run([*command, "--write", base], check=False).returncode == 0
    assert subprocess.run([*command, "--compare", base], check=False).returncode == 0
    base.write_text(base.read_text().replace('"source": "', '"source": "0'))
    spoilt = subprocess.run([*command, "--compare", base], check=False, capture_output=True, text=True)
    assert spoilt.returncode == 1 and "node/rows: source differs" in spoilt.stdout


def _case(folder: Path) -> Path:
    path = folder / "suite" / "node" / "rows" / "model.onnx"
    path.parent.mkdir(parents=True)
    return path

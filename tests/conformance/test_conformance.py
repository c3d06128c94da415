"""tensorbox passes every test of the ONNX backend suite that manifest.txt lists."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import manifest
import run_suite

RUN_SUITE = Path(__file__).with_name("run_suite.py")
# Every kind of step of a plan: pointwise, reductions, gathers, products, convolutions, normalisations, host kernels,
# sizes found in data, bodies.
DEVICE_PART = ("/test_(add|and|argmax|attention_4d_(causal|gqa)|batchnorm|cast_FLOAT|concat|conv|cumsum|einsum|gather|gelu|gemm|gru|"
               "layer_normalization_4d|loop|lstm|matmul|nonzero|pad|reduce_(sum|max)|resize_down|scatter|slice|softmax|top_k|"
               "transpose|unique|where|ReflectionPad|operator_pad)")
SUITE_SIZE = 2033  # CPU tests of onnx 1.23.2


@pytest.mark.timeout(3100)
def test_no_test_of_the_manifest_fails(tmp_path: Path) -> None:  # tests/suite has the other configurations
    results = tmp_path / "results.json"
    command = [sys.executable, str(RUN_SUITE), "--json", str(results)]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=3000)
    assert run.returncode == 0, run.stdout[-5000:]
    statuses = {entry["test"]: entry["status"] for entry in json.loads(results.read_text())}
    assert len(statuses) == SUITE_SIZE
    passed = {test for test, status in statuses.items() if status == "pass"}
    differ = manifest.read(run_suite.DIFFERENCES) if run_suite.multiplies_float16("CPU") else set()
    assert passed and passed >= manifest.read(manifest.PATH) - differ


@pytest.mark.timeout(900)
def test_a_part_runs_on_a_device() -> None:
    """On the fake device; TBX_FAKE_CUDA=1 run_suite.py --device CUDA runs all of it."""
    command = [sys.executable, str(RUN_SUITE), "--device", "CUDA", "--timeout", "200", "--filter", DEVICE_PART]
    environment = {**os.environ, "TBX_FAKE_CUDA": "1"}
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=800, env=environment)
    assert run.returncode == 0, run.stdout[-5000:]
    assert " 0 crash, 0 timeout" in run.stdout

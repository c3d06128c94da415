"""tensorbox passes every test of the ONNX backend suite that manifest.txt lists."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import manifest

RUN_SUITE = Path(__file__).with_name("run_suite.py")
SUITE_SIZE = 2033  # CPU tests of onnx 1.23.2


CONFIGURATIONS = {
    "default": {},
    "no fusion, no extern kernels": {"fuse": False, "fuse_extern": False},
    "evaluator": {"compile": False},
    "all dimensions dynamic": {"all_dims_dynamic": True, "compile": False},
    "inputs as constants": {"inputs_as_constants": True, "compile": False},
}


@pytest.mark.timeout(3100)
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_no_test_of_the_manifest_fails(configuration: str, tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    options = json.dumps(CONFIGURATIONS[configuration])
    command = [sys.executable, str(RUN_SUITE), "--json", str(results), "--options", options]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=3000)
    assert run.returncode == 0, run.stdout[-5000:]
    statuses = {entry["test"]: entry["status"] for entry in json.loads(results.read_text())}
    assert len(statuses) == SUITE_SIZE
    passed = {test for test, status in statuses.items() if status == "pass"}
    assert passed and passed >= manifest.read(manifest.PATH)

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


@pytest.mark.timeout(3100)
def test_no_test_of_the_manifest_fails(tmp_path: Path) -> None:  # tests/suite has the other configurations
    results = tmp_path / "results.json"
    command = [sys.executable, str(RUN_SUITE), "--json", str(results)]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=3000)
    assert run.returncode == 0, run.stdout[-5000:]
    statuses = {entry["test"]: entry["status"] for entry in json.loads(results.read_text())}
    assert len(statuses) == SUITE_SIZE
    passed = {test for test, status in statuses.items() if status == "pass"}
    assert passed and passed >= manifest.read(manifest.PATH)

"""docs/refused.md names exactly those operators of com.microsoft that ONNX Runtime declares and that are not here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from peers import tensorbox

PAGE = Path(__file__).resolve().parents[2] / "docs" / "refused.md"


def test_page_of_refused_operators() -> None:
    runtime = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
    theirs = {schema.name for schema in runtime.get_all_operator_schema() if schema.domain == "com.microsoft"}
    ours = {name for domain, name, _ in tensorbox.operators() if domain == "com.microsoft"}
    text = PAGE.read_text().split("## Of com.microsoft")[1]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert listed == theirs - ours
    numbers = [int(n) for n in re.findall(r"\b\d+\b", re.sub(r"\d+\.\d+\.\d+", "", text.split("\n\n")[1]))]
    assert numbers == [len(theirs), len(theirs & ours), len(theirs - ours)]
    on_cpu = {kernel.op_name for kernel in runtime.get_all_opkernel_def()
              if kernel.domain == "com.microsoft" and kernel.provider == "CPUExecutionProvider"}
    assert on_cpu and not on_cpu - ours

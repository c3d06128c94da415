"""docs/refused.md names exactly those operators of com.microsoft that ONNX Runtime declares and that are not here, and forms
of operators that are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from peers import model_of, tensorbox

PAGE = Path(__file__).resolve().parents[2] / "docs" / "refused.md"


def test_page_of_refused_operators() -> None:
    runtime = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
    theirs = {schema.name for schema in runtime.get_all_operator_schema() if schema.domain == "com.microsoft"}
    ours = {name for domain, name, _ in tensorbox.operators() if domain == "com.microsoft"}
    text = PAGE.read_text().split("## Of com.microsoft")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert listed == theirs - ours
    numbers = [int(n) for n in re.findall(r"\b\d+\b", re.sub(r"\d+\.\d+\.\d+", "", text.split("\n\n")[1]))]
    assert numbers == [len(theirs), len(theirs & ours), len(theirs - ours)]
    on_cpu = {kernel.op_name for kernel in runtime.get_all_opkernel_def()
              if kernel.domain == "com.microsoft" and kernel.provider == "CPUExecutionProvider"}
    assert on_cpu and not on_cpu - ours


def test_operators_of_refused_forms() -> None:
    ours = {name for _, name, _ in tensorbox.operators()}
    text = PAGE.read_text().split("## Forms of operators")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert len(rows) > 10 and not listed - ours


X = np.zeros((2, 4), np.float32)


@pytest.mark.parametrize("op, inputs, attributes, text", [
    ("CDist", {"a": X, "b": X}, {"metric": "cosine"}, "metric 'cosine'"),
    ("CausalConvWithState", {"x": np.zeros((1, 4, 8, 8), np.float32), "w": np.zeros((4, 1, 3, 3), np.float32)}, {"ndim": 2}, "ndim 2"),
    ("QMoE", {"x": np.zeros((2, 32), np.float32), "r": X}, {"k": 1, "quant_type": "fp8"}, "quant_type 'fp8'"),
    ("QMoE", {"x": np.zeros((2, 32), np.float32), "r": X}, {"k": 1, "weights_prepacked": 1}, "weights_prepacked 1"),
    ("Attention", {"x": np.zeros((1, 2, 4), np.float32), "w": np.zeros((4, 12), np.float32), "b": np.zeros(12, np.float32)},
     {"num_heads": 1, "do_rotary": 1}, "do_rotary"),
    ("FusedGemm", {"a": X, "b": np.zeros((4, 3), np.float32)}, {"activation": "NoSuch"}, "activation 'NoSuch'")])
def test_forms_are_refused(op: str, inputs: dict[str, np.ndarray], attributes: dict[str, Any], text: str) -> None:
    outputs = ["y", "state"] if op == "CausalConvWithState" else ["y"]
    model = model_of(op, inputs, outputs, 21, domain="com.microsoft", **attributes)
    with pytest.raises(tensorbox.UnsupportedError, match=text):
        tensorbox.Session(model, compile=False)

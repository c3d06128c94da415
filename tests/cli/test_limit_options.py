"""Limits as options of the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Result, three_steps

LIMITS = ["max-memory", "time-limit", "load-memory", "load-time-limit", "max-model-bytes", "max-nodes", "max-nesting",
          "max-tensors", "max-tensor-bytes", "max-dense-bytes"]


@pytest.mark.parametrize("command", ["run", "explain", "compare", "dump"])
def test_help_lists_them(tbx: Callable[..., Result], command: str) -> None:
    text = tbx(command, "--help").out
    for limit in [*LIMITS, "untrusted", "strict-links"]:
        assert f"--{limit}" in text


def test_the_error_names_the_option(tbx: Callable[..., Result], tmp_path: Path) -> None:
    model = three_steps(tmp_path / "m.onnx")
    for option, value in [("max-nodes", "1"), ("max-model-bytes", "60"), ("max-tensors", "1"), ("max-tensor-bytes", "3")]:
        done = tbx("run", model, "--no-compile", "--untrusted", f"--{option}", value)
        assert done.code == 3 and f"--{option}" in done.err
    assert tbx("run", model, "--no-compile", "--untrusted").code == 0


def test_optimize_takes_those_of_loading(tbx: Callable[..., Result], tmp_path: Path) -> None:
    model, to = three_steps(tmp_path / "m.onnx"), tmp_path / "small.onnx"
    for option, value in [("max-nodes", "1"), ("max-model-bytes", "60"), ("max-tensors", "1"), ("max-tensor-bytes", "3")]:
        done = tbx("optimize", model, to, "--untrusted", f"--{option}", value)
        assert done.code == 3 and f"--{option}" in done.err and not to.exists()
    text = tbx("optimize", "--help").out
    for limit in ["untrusted", "strict-links", *LIMITS]:
        assert (f"--{limit} " in text) == (limit not in ("max-memory", "time-limit")), limit
    assert tbx("optimize", model, to, "--untrusted", "--max-nodes", "100").code == 0


def test_untrusted_models_use_no_libraries(tbx: Callable[..., Result], tmp_path: Path) -> None:
    done = tbx("run", three_steps(tmp_path / "m.onnx"), "--untrusted", "--operators", "mine.so")
    assert done.code == 3 and "operator_libraries" in done.err

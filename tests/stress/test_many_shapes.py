"""A few runs of many_shapes.py, others every day."""

from __future__ import annotations

import datetime
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorbox")


@pytest.mark.parametrize("compile", [[], ["--compile"]], ids=["evaluated", "compiled"])
def test_threads_with_many_shapes(compile: list[str]) -> None:
    command = [sys.executable, str(Path(__file__).with_name("many_shapes.py")), "--runs", "6", "--seed",
               str(datetime.date.today().toordinal()), *compile]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"

"""What the machine can do at best (peak.cpp): products per second by type, bytes per second."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("peak.cpp")


def measure(threads: int, seconds: float = 0.5) -> dict[str, float]:
    """Per second: f32_flops, bf16_flops and int8_flops as far as the processor multiplies them, and bytes; with two threads
    or more own_bytes and neighbour_bytes, as one reads what it or another one has just written."""
    with tempfile.TemporaryDirectory(prefix="tbx-peak-") as folder:
        program = Path(folder) / "peak"
        compiler = os.environ.get("TBX_CXX", "c++")
        options = ["-std=c++17", "-O3", "-march=native", "-pthread"]
        subprocess.run([compiler, *options, str(SOURCE), "-o", str(program)], check=True)
        printed = subprocess.run([program, str(threads), str(seconds)], check=True, capture_output=True, text=True)
    return json.loads(printed.stdout)


def best(*measured: list[dict[str, float]]) -> list[dict[str, float]]:
    """Of measurements at different times, each with the same numbers of threads: others on the machine, and neighbours of a
    virtual one, only ever make it slower."""
    return [{key: max(each[key] for each in same) for key in same[0]} for same in zip(*measured, strict=True)]

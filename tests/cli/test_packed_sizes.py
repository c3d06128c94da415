"""tbx explain --profile says how large the weights are that kernels keep in an order of their own."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from conftest import Result

Tbx = Callable[..., Result]
DIGITS = Path(__file__).parents[2] / "examples/digits/digits.onnx"


def test_profile_tells_how_large_packed_weights_are(tbx: Tbx) -> None:
    done = tbx("explain", DIGITS, "--no-compile", "--profile")
    sizes = [float(text) for text in re.findall(r"weights packed: (\d+\.\d{3}) MB", done.out)]
    assert done.code == 0 and sizes and all(0 < size < 1 for size in sizes)  # the file has 93 kB

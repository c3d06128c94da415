"""Reductions of long columns, of which few lie side by side: done in parts, right at any length."""

from __future__ import annotations

import numpy as np
import pytest
from peers import model_of, tensorbox

KINDS = {"ReduceSum": np.sum, "ReduceMean": np.mean, "ReduceMax": np.max, "ReduceProd": np.prod, "ReduceL2": lambda x, a: np.sqrt((x * x).sum(a))}


@pytest.mark.parametrize("op", KINDS)
@pytest.mark.parametrize("shape", [(0, 3), (1, 1), (5, 7), (20011, 1), (20011, 16), (65536, 4), (8192, 100), (9000, 128), (2, 20000, 14)])
def test_columns(op: str, shape: tuple[int, ...]) -> None:
    if op in ("ReduceMax", "ReduceMean") and 0 in shape:
        pytest.skip("no greatest and no mean of nothing")
    rng = np.random.default_rng(11)
    x = rng.standard_normal(shape).astype(np.float32)
    if op == "ReduceProd":
        x = (1 + x * 1e-4).astype(np.float32)
    axis = len(shape) - 2
    model = model_of(op, {"x": x, "axes": np.array([axis])}, ["y"], 18, constants=["axes"], keepdims=0)
    got = tensorbox.Session(model, compile=False).run({"x": x})["y"]
    with np.errstate(invalid="ignore"):
        want = KINDS[op](x.astype(np.float64), axis)
    assert got.shape == want.shape
    scale = np.abs(x.astype(np.float64)).sum(axis) if op == "ReduceSum" else np.abs(want)
    roundoff = shape[axis] * 2**-24 if op == "ReduceProd" else 2e-6  # of a product: one for each of its factors
    assert np.all((np.abs(got - want) <= roundoff * scale + 1e-7) | (np.isnan(got) & np.isnan(want)))


def test_long_columns_are_parts() -> None:
    x = np.zeros((1 << 16, 16), np.float32)
    model = model_of("ReduceSum", {"x": x, "axes": np.array([0])}, ["y"], 18, constants=["axes"], keepdims=0)
    kernels = tensorbox.Session(model, compile=False).explain()
    assert len(kernels) == 2 and any("parts of a long reduction" in line for line in kernels[0]["decisions"])

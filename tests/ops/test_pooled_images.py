"""Reductions of whole images: one image is shared among threads by its rows, right at any size and number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from peers import model_of, tensorbox

KINDS = {"ReduceSum": np.sum, "ReduceMean": np.mean, "ReduceMax": np.max, "ReduceMin": np.min, "ReduceL1": lambda x, a: np.abs(x).sum(a)}


def reduced(op: str, shape: tuple[int, ...], threads: int, compile: bool) -> tuple[np.ndarray, np.ndarray, list]:
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    axes = tuple(range(2, len(shape)))
    model = model_of(op, {"x": x, "axes": np.array(axes)}, ["y"], 18, constants=["axes"], keepdims=0)
    session = tensorbox.Session(model, compile=compile, threads=threads)
    return session.run({"x": x})["y"], KINDS[op](x.astype(np.float64), axes), session.explain()


@pytest.mark.parametrize("op", KINDS)
@pytest.mark.parametrize(
    "shape",
    [(1, 0, 8, 8), (1, 1, 1, 1), (1, 144, 56, 56), (1, 672, 7, 7), (1, 40, 13, 40), (1, 24, 113, 9), (1, 17000, 1, 1), (3, 48, 20, 20), (1, 5, 6, 20, 33)],
)
def test_images(op: str, shape: tuple[int, ...]) -> None:
    for threads in (1, 2, 3):
        got, want, _ = reduced(op, shape, threads, compile=False)
        scale = np.prod(shape[2:]) if op in ("ReduceSum", "ReduceL1") else 1
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6 * scale)


def test_one_image_is_reduced_by_rows() -> None:
    for threads, kernels in ((1, 1), (2, 2)):
        got, want, steps = reduced("ReduceMean", (1, 144, 28, 28), threads, compile=True)
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6)
        assert len(steps) == kernels

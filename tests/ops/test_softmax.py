"""Softmax over scores of which some are far below the greatest, as masks of attention make them."""

from __future__ import annotations

import numpy as np
import pytest
from peers import model_of, tensorbox


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.longdouble) - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("mask", [-50.0, -86.5, -87.2, -88.0, -100.0, -707.5, -710.0, -1e30, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_masked_scores(dtype: type, mask: float, compiled: bool) -> None:
    """Exact down to the smallest normal numbers; what lies below is 0 and never subnormal."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((6, 49)).astype(dtype)
    x[rng.random(x.shape) < 0.4] = max(mask, np.finfo(dtype).min) if np.isfinite(mask) else mask
    for scores in (x, x[:, :5], np.sort(x)):
        scores = np.ascontiguousarray(scores)
        y = tensorbox.Session(model_of("Softmax", {"x": scores}, ["y"], 13), compile=compiled).run({"x": scores})["y"]
        expected = softmax(scores)
        width = np.float64 if dtype == np.float64 else np.float32
        floor = 1e-306 if width is np.float64 else 2.4e-38 * 49
        np.testing.assert_allclose(y, expected, rtol=2e-3 if dtype == np.float16 else 1e-5, atol=max(floor, 6e-8) if dtype == np.float16 else floor)
        if dtype is not np.float16:
            assert not np.any((y != 0) & (np.abs(y) < np.finfo(width).tiny))
        if mask == -np.inf:
            assert np.all(y[np.isneginf(scores)] == 0)


def test_rows_without_a_number() -> None:
    x = np.array([[-np.inf, -np.inf], [np.nan, 1], [np.inf, 1], [0, -np.inf]], np.float32)
    y = tensorbox.Session(model_of("Softmax", {"x": x}, ["y"], 13)).run({"x": x})["y"]
    assert np.isnan(y[:2]).all() and np.isnan(y[2, 0])
    assert y[3].tolist() == [1, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log_softmax_far_below(dtype: type) -> None:
    x = np.array([[0, -1, -100, -1000, -np.inf], [3, 3, 3, 3, 3]], dtype)
    y = tensorbox.Session(model_of("LogSoftmax", {"x": x}, ["y"], 13)).run({"x": x})["y"]
    wide = x.astype(np.longdouble) - x.max(-1, keepdims=True)
    np.testing.assert_allclose(y, wide - np.log(np.exp(wide).sum(-1, keepdims=True)), rtol=1e-6)

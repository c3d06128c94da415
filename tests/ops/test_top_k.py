"""TopK against a stable sort of numpy: types, axes, ties, NaN, short and long rows, every way of selecting."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from peers import compare, model_of

TYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32,
         np.int64, np.uint64]


def sorted_first(x: np.ndarray, k: int, axis: int, largest: bool) -> list[np.ndarray]:
    """Ties go to the lower index; NaN is the largest value, zeros are equal."""
    wide = x.astype(np.float64) if x.dtype.kind not in "iu" else x
    rows = np.moveaxis(wide, axis, -1)
    order = np.argsort(rows, -1, kind="stable")
    if largest:  # the stable order of the reversed row, so that ties keep the lower index first
        order = rows.shape[-1] - 1 - np.argsort(rows[..., ::-1], -1, kind="stable")[..., ::-1]
    indices = np.moveaxis(order[..., :k], -1, axis).astype(np.int64)
    return [np.take_along_axis(x, indices, axis), indices]


def check(x: np.ndarray, k: int, axis: int = -1, largest: bool = True) -> None:
    inputs = {"x": x, "k": np.array([k], np.int64)}
    model = model_of("TopK", inputs, ["values", "indices"], 24, constants=["k"], axis=axis, largest=int(largest))
    compare(model, inputs, rtol=0, atol=0, want=sorted_first(x, k, axis, largest))


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: np.dtype(t).name)
def test_types_and_axes(dtype: type, largest: bool) -> None:
    rng = np.random.default_rng(0)
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        x = rng.integers(info.min, info.max, (5, 40, 6), dtype, endpoint=True)
        x[0, 3] = info.min
        x[1, 4:9] = info.max
    else:
        x = np.round(rng.standard_normal((5, 40, 6)) * 4).astype(dtype)  # many ties
        x[0, 3], x[1, 4], x[2, 5:8], x[3, 6] = np.inf, -np.inf, np.nan, -np.float64(0)
        x[3, 7] = 0
    for axis in (0, 1, 2, -2):
        for k in {0, 1, 2, 4, x.shape[axis] - 1, x.shape[axis]}:
            check(x, k, axis, largest)


@pytest.mark.parametrize("order", ["random", "ascending", "descending", "equal"])
def test_long_rows(order: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((3, 5000)).astype(np.float32)
    x = {"random": x, "ascending": np.sort(x), "descending": -np.sort(-x), "equal": np.ones_like(x)}[order]
    for k in (1, 5, 200, 700, 5000):
        for largest in (False, True):
            check(x, k, -1, largest)


def test_one_very_long_row() -> None:
    x = np.random.default_rng(2).integers(0, 50_000, 200_000)
    check(x, 100_000)
    check(x.astype(np.float32), 200_000, largest=False)


def test_empty() -> None:
    check(np.zeros((0, 4), np.float32), 2)
    check(np.zeros((3, 0), np.float32), 0)


@pytest.mark.parametrize("n", [1, 2, 3, 17, 127, 128])
def test_the_best_of_short_rows(n: int) -> None:
    rng = np.random.default_rng(4)
    for dtype in (np.float32, np.float16, np.uint8, np.int64):
        x = rng.integers(0, 5, (9, 41, n)).astype(dtype)
        if np.dtype(dtype).kind == "f":
            x = -x
            x[rng.random(x.shape) < 0.05] = np.nan
        for largest in (False, True):
            check(x, 1, -1, largest)


@pytest.mark.parametrize("shape", [(12, 1, 3, 50), (2, 1, 130), (3, 7, 65), (1, 300, 64), (2, 21, 3)])
def test_the_best_of_columns(shape: tuple[int, ...]) -> None:
    """Which lie side by side; an axis of one element is one of them."""
    rng = np.random.default_rng(3)
    for dtype in (np.float32, np.float16, np.int64):
        x = rng.integers(-3, 4, shape).astype(dtype)
        for largest in (False, True):
            check(x, 1, 1, largest)

"""Convolutions whose strides pass over pixels of the image: what is copied for them has none of those."""

from __future__ import annotations

import numpy as np
import pytest
from peers import compare, model_of, tensorbox

RNG = np.random.default_rng(5)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def by_taps(x: np.ndarray, w: np.ndarray, strides: list[int], pads: list[int]) -> np.ndarray:
    """In float64, tap by tap."""
    rank = x.ndim - 2
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    out = [(n - k) // s + 1 for n, k, s in zip(x.shape[2:], w.shape[2:], strides, strict=True)]
    y = np.zeros((x.shape[0], w.shape[0], *out))
    for tap in np.ndindex(*w.shape[2:]):
        seen = x[(slice(None), slice(None), *(slice(t, t + (n - 1) * s + 1, s) for t, n, s in zip(tap, out, strides, strict=True)))]
        y += np.einsum("nc...,mc->nm...", seen, w[(slice(None), slice(None), *tap)].astype(np.float64))
    return y


@pytest.mark.parametrize(("image", "kernel", "strides", "pads"), [
    ((2, 40, 14, 12, 15), (1, 1, 1), [3, 3, 3], [0] * 6),
    ((1, 64, 23, 30), (1, 1), [2, 2], [0] * 4),
    ((1, 32, 23, 30), (1, 3), [4, 2], [0, 1, 0, 1]),
    ((1, 32, 23, 30), (3, 1), [1, 5], [1, 0, 1, 0]),
    ((1, 32, 23, 30), (1, 1), [3, 2], [1, 0, 1, 2]),
    ((3, 16, 100), (1,), [7], [0, 0]),
    ((1, 16, 1, 9), (1, 1), [2, 9], [0] * 4),
])
def test_strides_above_a_kernel_of_one(image: tuple[int, ...], kernel: tuple[int, ...], strides: list[int], pads: list[int]) -> None:
    x, w = normal(*image), normal(10, image[1], *kernel)
    inputs = {"x": x, "w": w}
    m = model_of("Conv", inputs, ["y"], 22, constants=["w"], strides=strides, pads=pads)
    compare(m, inputs, rtol=1e-4, atol=1e-4, want=[by_taps(x, w, strides, pads).astype(np.float32)])


def test_what_is_copied_has_no_pixel_between_two_steps() -> None:
    x, w = normal(1, 64, 40, 40), normal(32, 64, 1, 1)
    m = model_of("Conv", {"x": x, "w": w}, ["y"], 22, constants=["w"], strides=[4, 4])
    (conv,) = (s["name"] for s in tensorbox.Session(m).explain() if "Conv" in s["name"])
    assert "strides [1, 1]" in conv

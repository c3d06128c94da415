"""Indices of MaxPool count the elements of the input in its own order, in whatever order memory holds it and kernels read it."""

from __future__ import annotations

import itertools

import numpy as np
import onnx.parser
import pytest
from peers import tensorbox

MODES = [{}, {"compile": False}, {"reference": True}]


def places(x: np.ndarray, kernel: tuple[int, ...], strides: tuple[int, ...], column_major: bool = False) -> np.ndarray:
    """The flat index of the first greatest element of each window."""
    spatial = x.shape[2:]
    counts = [(n - k) // s + 1 for n, k, s in zip(spatial, kernel, strides, strict=True)]
    result = np.zeros((*x.shape[:2], *counts), np.int64)
    order = spatial[::-1] if column_major else spatial
    for at in np.ndindex(result.shape):
        start = [i * s for i, s in zip(at[2:], strides, strict=True)]
        window = x[at[:2]][tuple(slice(b, b + k) for b, k in zip(start, kernel, strict=True))]
        best = [b + int(i) for b, i in zip(start, np.unravel_index(np.argmax(window), kernel), strict=True)]
        flat = np.ravel_multi_index(best[::-1] if column_major else best, order)
        result[at] = (at[0] * x.shape[1] + at[1]) * np.prod(spatial) + flat
    return result


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", [[0, 1, 3, 2], [3, 2, 1, 0], [0, 2, 3, 1], [1, 0, 2, 3]])
def test_windows_of_a_transposed_image(order: list[int], mode: dict) -> None:
    x = np.random.default_rng(1).integers(0, 9, (3, 9, 7, 8)).astype(np.float32)  # with equal ones
    turned = x.transpose(order)
    for kernel, strides, storage in itertools.product([(2, 2), (3, 2), (1, 3), turned.shape[2:]], [(1, 1), (2, 3)], [0, 1]):
        model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
          g (float[a, b, c, d] x) => (float[e, f, g, h] y, int64[e, f, g, h] at) {{
            t = Transpose <perm = {order}> (x)
            y, at = MaxPool <kernel_shape = {list(kernel)}, strides = {list(strides)}, storage_order = {storage}> (t)
          }}""")
        got = tensorbox.Session(model, **mode).run({"x": x})
        want = places(turned, kernel, strides, storage == 1)
        assert np.array_equal(got["at"], want), (kernel, strides, storage)
        row_major = places(turned, kernel, strides)
        assert np.array_equal(got["y"], turned.reshape(-1)[row_major])


@pytest.mark.parametrize("mode", MODES)
def test_an_image_and_its_transpose_in_one_kernel(mode: dict) -> None:
    """Both read the same elements, and count them in different orders."""
    x = np.random.default_rng(2).integers(0, 4, (2, 3, 5, 5)).astype(np.float32)
    session = tensorbox.Session(onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
      g (float[2, 3, 5, 5] x) => (float[2, 3, 1, 1] y, int64[2, 3, 1, 1] at, float[2, 3, 1, 1] z, int64[2, 3, 1, 1] there) {
        t = Transpose <perm = [0, 1, 3, 2]> (x)
        y, at = MaxPool <kernel_shape = [5, 5]> (x)
        z, there = MaxPool <kernel_shape = [5, 5]> (t)
      }"""), **mode)
    got = session.run({"x": x})
    assert np.array_equal(got["at"], places(x, (5, 5), (1, 1)))
    assert np.array_equal(got["there"], places(x.transpose(0, 1, 3, 2), (5, 5), (1, 1)))
    assert np.array_equal(got["y"], x.max((2, 3), keepdims=True)) and np.array_equal(got["z"], got["y"])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", [[0, 1, 4, 2, 3], [2, 0, 4, 3, 1]])
def test_windows_of_three_dimensions(order: list[int], mode: dict) -> None:
    x = np.random.default_rng(3).integers(0, 99, (3, 4, 5, 6, 7)).astype(np.float32)
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
      g (float[3, 4, 5, 6, 7] x) => (float[a, b, c, d, e] y, int64[a, b, c, d, e] at) {{
        t = Transpose <perm = {order}> (x)
        y, at = MaxPool <kernel_shape = [2, 3, 2], strides = [2, 1, 2]> (t)
      }}""")
    got = tensorbox.Session(model, **mode).run({"x": x})
    assert np.array_equal(got["at"], places(x.transpose(order), (2, 3, 2), (2, 1, 2)))

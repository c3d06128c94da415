"""Convolutions whose windows have padding alone, or whose strides pass whole planes, in float32 and in halves: kernels of
the library that multiply in tiles (AMX) left their memory there. A process for each case, which a fault would end. On other
CPUs the same cases run by other kernels."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from ml_dtypes import bfloat16
from peers import model_of, tensorbox
from test_transposed_convolution import by_taps as transposed_by_taps

RNG = np.random.default_rng(6)

# image, results, kernel, strides, dilations, pads
CASES = [
    ((4, 16, 1, 17), 3, (3, 2), [1, 3], [2, 2], [3, 2, 1, 1]),
    ((4, 64, 1, 17), 24, (3, 3), [1, 1], [2, 2], [3, 2, 1, 1]),
    ((4, 16, 1, 17), 40, (4, 3), [3, 2], [3, 2], [2, 2, 7, 0]),
    ((4, 3, 1, 1, 2), 16, (1, 2, 3), [1, 1, 1], [1, 3, 3], [0, 1, 6, 1, 2, 3]),
    ((2, 5, 1), 7, (2,), [1], [3], [4, 4]),
    ((3, 129, 7, 24, 17), 2, (1, 1, 1), [2, 2, 2], [3, 3, 1], [0, 0, 0, 0, 1, 0]),
    ((2, 97, 7, 24, 17), 24, (1, 1, 1), [2, 2, 2], [1, 1, 1], [0, 0, 0, 0, 1, 0]),
    ((1, 129, 10, 12, 11), 64, (1, 1, 1), [2, 2, 2], [1, 1, 1], [0, 0, 0, 1, 1, 1]),
    ((1, 64, 30, 14), 16, (1, 3), [4, 1], [1, 1], [0, 1, 0, 1]),
]

# Two results in a line, the first of padding alone: in halves without tiles, too.
HALVES = [
    ((1, 3, 3, 8, 7), 257, (3, 3, 3), [4, 4, 4], [1, 1, 1], [2, 1, 3, 0, 0, 0]),
    ((1, 32, 8, 7), 257, (3, 3), [4, 4], [1, 1], [1, 3, 0, 0]),
    ((1, 3, 3, 3, 7), 257, (1, 1, 3), [1, 1, 4], [1, 1, 1], [0, 0, 3, 0, 0, 0]),
]

# image, results, kernel, dilations, pads, whether there is a bias; strides are 1: the library has tiles for those alone.
# Dilations above the image leave results between the taps.
TRANSPOSED = [
    ((4, 16, 1, 17), 3, (3, 2), [2, 2], [1, 1, 1, 0], True),
    ((4, 64, 1, 17), 24, (3, 3), [2, 2], [0, 2, 0, 2], False),
    ((1, 33, 1, 1), 64, (4, 4), [3, 3], [0, 0, 0, 0], True),
    ((2, 16, 2, 9), 40, (4, 3), [3, 1], [2, 1, 4, 1], True),
    ((4, 3, 1, 1, 2), 16, (2, 2, 3), [2, 3, 3], [0, 1, 2, 0, 0, 1], False),
    ((2, 24, 1), 7, (2,), [3], [0, 1], True),
    ((1, 129, 1, 5, 17), 24, (2, 2, 2), [2, 1, 1], [0, 0, 0, 0, 0, 0], True),
    ((1, 64, 3, 1), 1, (1, 3), [1, 2], [0, 1, 0, 0], True),
]


def by_taps(x: np.ndarray, w: np.ndarray, strides: list[int], dilations: list[int], pads: list[int]) -> np.ndarray:
    """In float64, tap by tap."""
    rank = x.ndim - 2
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    out = [(n - (k - 1) * d - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], w.shape[2:], strides, dilations, strict=True)]
    y = np.zeros((x.shape[0], w.shape[0], *out))
    for tap in np.ndindex(*w.shape[2:]):
        seen = tuple(slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, n, s in zip(tap, dilations, out, strides, strict=True))
        y += np.einsum("nc...,mc->nm...", x[(slice(None), slice(None), *seen)], w[(slice(None), slice(None), *tap)].astype(np.float64))
    return y


def check(number: int) -> None:
    image, results, kernel, strides, dilations, pads = CASES[number]
    x = RNG.standard_normal(image).astype(np.float32)
    w = RNG.standard_normal((results, image[1], *kernel)).astype(np.float32)
    want = by_taps(x, w, strides, dilations, pads)
    sizes = by_taps(np.abs(x), np.abs(w), strides, dilations, pads)  # what errors of terms are relative to
    hold(model_of("Conv", {"x": x, "w": w}, ["y"], 22, constants=["w"], strides=strides, dilations=dilations, pads=pads), x, want, sizes)


def check_halves(number: int, half: str) -> None:
    image, results, kernel, strides, dilations, pads = HALVES[number]
    dtype, step = {"bfloat16": (bfloat16, 2.0**-7), "float16": (np.float16, 2.0**-10)}[half]
    x = RNG.standard_normal(image).astype(dtype)
    w = RNG.standard_normal((results, image[1], *kernel)).astype(dtype)
    b = RNG.standard_normal(results).astype(dtype)

    def plain(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
        return by_taps(x, w, strides, dilations, pads) + b.astype(np.float64).reshape(-1, *[1] * len(kernel))

    m = model_of("Conv", {"x": x, "w": w, "b": b}, ["y"], 22, constants=["w", "b"], strides=strides, dilations=dilations, pads=pads)
    hold(m, x, plain(x, w, b), plain(np.abs(x), np.abs(w), np.abs(b)), step)


def check_transposed(number: int) -> None:
    image, results, kernel, dilations, pads, has_bias = TRANSPOSED[number]
    x = RNG.standard_normal(image).astype(np.float32)
    w = RNG.standard_normal((image[1], results, *kernel)).astype(np.float32)
    bias = RNG.standard_normal(results).astype(np.float32) if has_bias else np.zeros(results, np.float32)
    ones = [1] * len(kernel)

    def plain(x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> np.ndarray:
        return transposed_by_taps(x, w, 1, ones, dilations, pads, [0] * len(kernel)) + bias.reshape(-1, *ones)

    inputs = {"x": x, "w": w} | ({"b": bias} if has_bias else {})
    m = model_of("ConvTranspose", inputs, ["y"], 22, constants=[n for n in inputs if n != "x"], strides=ones, dilations=dilations, pads=pads)
    hold(m, x, plain(x, w, bias), plain(np.abs(x), np.abs(w), np.abs(bias)))


def hold(m: onnx.ModelProto, x: np.ndarray, want: np.ndarray, sizes: np.ndarray, strict: float = 2.0**-18) -> None:
    for precision, step in (("strict", strict), ("bf16", 2.0**-7), ("f16", max(strict, 2.0**-9))):
        for dynamic in (False, True):
            session = tensorbox.Session(m, compile=False, precision=precision, threads=2, all_dims_dynamic=dynamic)
            for _ in range(3):
                got = session.run({"x": x})["y"].astype(np.float64)
                assert got.shape == want.shape and (np.abs(got - want) <= step * sizes + 1e-30).all(), (precision, dynamic)


def in_a_process(call: str) -> None:
    code = f"import test_padded_windows; test_padded_windows.{call}"
    here = os.pathsep.join([os.path.dirname(os.path.abspath(__file__)), *sys.path])
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": here}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{c[0]} {c[2]}" for c in CASES])
def test_padded_windows(number: int) -> None:
    in_a_process(f"check({number})")


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
@pytest.mark.parametrize("number", range(len(HALVES)), ids=[f"{c[0]} {c[2]}" for c in HALVES])
def test_padded_windows_of_halves(number: int, half: str) -> None:
    in_a_process(f"check_halves({number}, {half!r})")


@pytest.mark.parametrize("number", range(len(TRANSPOSED)), ids=[f"{c[0]} {c[2]}" for c in TRANSPOSED])
def test_padded_windows_of_transposed_convolutions(number: int) -> None:
    *_, kernel, dilations, pads, _ = TRANSPOSED[number]
    rank = len(kernel)
    reached = transposed_by_taps(np.ones((1, 1, *TRANSPOSED[number][0][2:])), np.ones((1, 1, *kernel)), 1, [1] * rank, dilations, pads, [0] * rank)
    assert reached.size > 0 and (reached == 0).any(), "the case has no such window"
    in_a_process(f"check_transposed({number})")

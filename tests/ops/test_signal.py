"""Transforms, filters and determinants on random shapes and attributes."""

from __future__ import annotations

import numpy as np
import pytest
from peers import compare, model_of

# Powers of two, small and large prime factors.
LENGTHS = [1, 2, 8, 12, 13, 35, 64, 97, 202]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("inverse,onesided", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("opset", [17, 20])
def test_dft(opset: int, inverse: int, onesided: int, length: int) -> None:
    rng = np.random.default_rng(length)
    parts = 1 if onesided and not inverse else int(rng.integers(1, 3))
    shape = [2, 3, 4]
    axis = int(rng.integers(0, 3))
    # As long as the transform, shorter or longer; the default where it is left out.
    shape[axis] = (length // 2 + 1 if inverse and onesided else length) + int(rng.integers(-1, 2)) * (length > 2)
    given = np.array(length, np.int64)
    inputs = {"X": rng.standard_normal([*shape, 2 if inverse and onesided else parts]).astype(np.float32), "n": given}
    attributes = {"inverse": inverse, "onesided": onesided}
    if opset == 17:
        attributes["axis"] = axis
    else:
        inputs["axis"] = np.array(axis, np.int64)
    model = model_of("DFT", inputs, ["Y"], opset, [name for name in inputs if name != "X"], **attributes)
    compare(model, inputs, rtol=1e-3, atol=2e-4, engine="reference")


@pytest.mark.parametrize("seed", range(12))
def test_stft(seed: int) -> None:
    rng = np.random.default_rng(seed)
    length, frame, step = int(rng.integers(40, 90)), int(rng.integers(4, 33)), int(rng.integers(1, 9))
    inputs = {"X": rng.standard_normal((2, length, 1)).astype(np.float32), "step": np.array(step, np.int64),
              "window": rng.random(frame).astype(np.float32) if seed % 2 else None,
              "length": np.array(frame, np.int64)}
    model = model_of("STFT", inputs, ["Y"], 17, ["step", "length"], onesided=int(seed % 3 > 0))
    compare(model, inputs, rtol=1e-3, atol=1e-4, engine="reference")


@pytest.mark.parametrize("seed", range(8))
def test_mel_weight_matrix(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rate = int(rng.choice([8000, 16000, 44100]))
    inputs = {"bins": np.array(rng.integers(1, 60), np.int64), "length": np.array(rng.integers(16, 600), np.int64),
              "rate": np.array(rate, np.int64), "low": np.array(rng.uniform(0, 100), np.float32),
              "high": np.array(rate * rng.uniform(0.3, 0.5), np.float32)}
    model = model_of("MelWeightMatrix", inputs, ["Y"], 17, [] if seed % 2 else list(inputs))
    compare(model, inputs)


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 5, 5), (2, 2, 7, 7), (0, 3, 3), (2, 0, 0)])
def test_det(shape: tuple[int, ...]) -> None:
    inputs = {"X": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    compare(model_of("Det", inputs, ["Y"], 22), inputs, engine="reference")

"""Transforms, filters and determinants on random shapes and attributes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
from peers import compare, model_of, tensorbox

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


def spectrum(x: np.ndarray, length: int, inverse: int = 0, onesided: int = 0) -> np.ndarray:
    """DFT of x [..., n, 1 or 2] along the last but one axis, by numpy in float64."""
    signal = x[..., 0].astype(np.float64) + (1j * x[..., 1] if x.shape[-1] == 2 else 0)
    if inverse and onesided:
        return np.fft.irfft(signal, length)[..., None]
    y = np.fft.ifft(signal, length) if inverse else np.fft.fft(signal, length)
    y = y[..., :length // 2 + 1] if onesided else y
    return np.stack([y.real, y.imag], -1)


# Beyond radices (a prime), what several lines at once and one line alone make of it, and beyond a cache.
@pytest.mark.parametrize("lines,length", [(9, 1000), (9, 1009), (1, 1000), (1, 1009), (4, 1024), (2, 40_000), (33, 30)])
@pytest.mark.parametrize("inverse,onesided,parts", [(0, 0, 1), (0, 0, 2), (0, 1, 1), (1, 0, 1), (1, 0, 2), (1, 1, 2)])
def test_dft_is_exact(lines: int, length: int, inverse: int, onesided: int, parts: int) -> None:
    """ONNX Runtime is off by 3e-2 of values around 100 at lengths 1000 and 1009; numpy in float64 is not."""
    given = length // 2 + 1 if inverse and onesided else length
    x = np.random.default_rng(length).standard_normal((lines, given, parts))
    for dtype, tolerance in (np.float32, 1e-6), (np.float64, 1e-14):
        inputs = {"X": x.astype(dtype), "n": np.array(length, np.int64)}
        want = spectrum(inputs["X"], length, inverse, onesided)
        model = model_of("DFT", inputs, ["Y"], 20, ["n"], inverse=inverse, onesided=onesided)
        compare(model, inputs, rtol=0, atol=tolerance * np.abs(want).max(), want=[want.astype(dtype)],
                plain=length < 2000)  # its time grows with the square


def test_dft_of_a_long_line() -> None:
    """In pieces, from 2^24 numbers on."""
    length = 16_800_000
    x = np.random.default_rng(0).standard_normal((1, length - 5, 1)).astype(np.float32)
    want = spectrum(x, length, onesided=1)
    inputs = {"X": x, "n": np.array(length, np.int64)}
    session = tensorbox.Session(model_of("DFT", inputs, ["Y"], 20, ["n"], onesided=1), compile=False)
    np.testing.assert_allclose(session.run({"X": x})["Y"], want, rtol=0, atol=1e-6 * np.abs(want).max())


@pytest.mark.parametrize("dtype,tolerance", [(np.float16, 1e-3), (ml_dtypes.bfloat16, 8e-3)])
@pytest.mark.parametrize("inverse,onesided,parts", [(0, 0, 2), (0, 1, 1), (1, 1, 2)])
def test_dft_of_halves(dtype: type, tolerance: float, inverse: int, onesided: int, parts: int) -> None:
    x = np.random.default_rng(0).standard_normal((3, 5, 26, parts)).astype(dtype)
    length = 50 if inverse and onesided else 26
    want = spectrum(x, length, inverse, onesided)
    inputs = {"X": x, "n": np.array(length, np.int64)}
    model = model_of("DFT", inputs, ["Y"], 20, ["n"], inverse=inverse, onesided=onesided)
    compare(model, inputs, rtol=0, atol=tolerance * np.abs(want).max(), want=[want.astype(dtype)])


def test_dft_of_many_lengths_at_once() -> None:
    """One session, whose kernel keeps tables for one length, in several threads."""
    x = np.random.default_rng(0).standard_normal((2, 40, 2)).astype(np.float32)
    session = tensorbox.Session(model_of("DFT", {"X": x}, ["Y"], 20), compile=False, all_dims_dynamic=True)

    def error(length: int) -> float:
        part = np.ascontiguousarray(x[:, :length])
        return float(np.abs(session.run({"X": part})["Y"] - spectrum(part, length)).max())

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(error, [*range(1, 41)] * 5)) < 1e-5


@pytest.mark.parametrize("seed", range(12))
def test_stft(seed: int) -> None:
    rng = np.random.default_rng(seed)
    length, frame, step = int(rng.integers(40, 90)), int(rng.integers(4, 33)), int(rng.integers(1, 9))
    inputs = {"X": rng.standard_normal((2, length, 1)).astype(np.float32), "step": np.array(step, np.int64),
              "window": rng.random(frame).astype(np.float32) if seed % 2 else None,
              "length": np.array(frame, np.int64)}
    model = model_of("STFT", inputs, ["Y"], 17, ["step", "length"], onesided=int(seed % 3 > 0))
    compare(model, inputs, rtol=1e-3, atol=1e-4, engine="reference")


@pytest.mark.parametrize("dtype,tolerance", [(np.float32, 1e-6), (np.float64, 1e-14)])
@pytest.mark.parametrize("onesided", [0, 1])
def test_stft_is_exact(dtype: type, tolerance: float, onesided: int) -> None:
    """Frames of a length that is no power of two, against numpy in float64."""
    rng = np.random.default_rng(0)
    inputs = {"X": rng.standard_normal((2, 1600, 1)).astype(dtype), "step": np.array(160, np.int64),
              "window": rng.random(400).astype(dtype)}
    frames = np.lib.stride_tricks.sliding_window_view(inputs["X"][..., 0], 400, 1)[:, ::160] * inputs["window"]
    want = spectrum(frames[..., None], 400, onesided=onesided)
    compare(model_of("STFT", inputs, ["Y"], 17, ["step"], onesided=onesided), inputs, rtol=0,
            atol=tolerance * np.abs(want).max(), want=[want.astype(dtype)])


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("length", [400, 401, 1601, 5000])
def test_stft_of_real_numbers_without_a_last_dimension(length: int, onesided: int) -> None:
    """[batch, length], which ONNX Runtime takes for real numbers, as trained models bring it."""
    rng = np.random.default_rng(length)
    inputs = {"X": rng.standard_normal((2, length)).astype(np.float32), "step": np.array(160, np.int64),
              "window": rng.random(400).astype(np.float32)}
    frames = np.lib.stride_tricks.sliding_window_view(inputs["X"].astype(np.float64), 400, 1)[:, ::160] * inputs["window"]
    want = spectrum(frames[..., None], 400, onesided=onesided)
    compare(model_of("STFT", inputs, ["Y"], 20, ["step", "window"], onesided=onesided), inputs, rtol=0,
            atol=1e-6 * np.abs(want).max(), want=[want.astype(np.float32)])


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

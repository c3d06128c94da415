"""TopK, Compress and pooling over large windows beside ONNX Runtime: sizes at which other ways are taken."""

from __future__ import annotations

import numpy as np
import pytest
from peers import compare, model_of


def numbers(kind: str, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(len(shape) + shape[-1])
    if kind == "float":
        return rng.standard_normal(shape).astype(np.float32)
    if kind == "ties":
        return np.round(rng.standard_normal(shape) * 2).astype(np.float32) * np.float32(0.5)
    if kind == "equal":
        return np.zeros(shape, np.float32) * rng.choice([-1, 1], shape).astype(np.float32)
    if kind == "double":
        return rng.standard_normal(shape)
    if kind == "int32":
        return rng.integers(-(1 << 31), 1 << 31, shape).astype(np.int32)
    return rng.integers(-(1 << 60), 1 << 60, shape)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("kind", ["float", "ties", "equal", "double", "int32", "int64"])
@pytest.mark.parametrize("shape,axis,k", [((3, 1000), 1, 5), ((2, 700), 1, 32), ((2, 3000), 1, 33), ((2, 9000), 1, 300),
                                          ((3, 257), 1, 257), ((2, 400, 3), 1, 7), ((5, 64), 1, 64), ((130,), 0, 1),
                                          ((40, 100), 1, 5), ((40, 127), 1, 16), ((9, 20), 1, 16), ((9, 17), 1, 17), ((40, 100), 1, 1), ((7, 1), 1, 1)])
def test_top_k(shape: tuple[int, ...], axis: int, k: int, kind: str, largest: int) -> None:
    inputs = {"X": numbers(kind, shape), "K": np.array([k], np.int64)}
    model = model_of("TopK", inputs, ["V", "I"], 11, constants=["K"], axis=axis, largest=largest)
    model.graph.output[1].type.tensor_type.elem_type = 7
    x = np.moveaxis(inputs["X"], axis, -1)
    order = np.argsort(x if not largest else _negated(x), -1, kind="stable")[..., :k]
    want = [np.moveaxis(np.take_along_axis(x, order, -1), -1, axis), np.moveaxis(order, -1, axis)]
    compare(model, inputs, rtol=0, atol=0, want=want)


def _negated(x: np.ndarray) -> np.ndarray:
    return -x if x.dtype.kind == "f" else ~x


def test_top_k_takes_nan_for_the_largest() -> None:
    x = numbers("float", (2, 500))
    x[0, [7, 300]] = np.nan
    inputs = {"X": x, "K": np.array([3], np.int64)}
    model = model_of("TopK", inputs, ["V", "I"], 11, constants=["K"])
    model.graph.output[1].type.tensor_type.elem_type = 7
    best = np.argsort(-np.where(np.isnan(x), np.inf, x), -1, kind="stable")[:, :3]
    compare(model, inputs, want=[np.take_along_axis(x, best, -1), best])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.uint8])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_compress(axis: int | None, dtype: type) -> None:
    x = np.arange(60 * 40).reshape(60, 40).astype(dtype)
    length = x.size if axis is None else x.shape[axis]
    keep = np.random.default_rng(1).random(length - 3) > 0.5
    options = {} if axis is None else {"axis": axis}
    model = model_of("Compress", {"X": x, "C": keep}, ["Y"], 11, **options)
    compare(model, {"X": x, "C": keep}, want=[np.compress(keep, x, axis)])


@pytest.mark.parametrize("kernel,strides,pads,ceil", [
    ((13, 13), (1, 1), (6, 6, 6, 6), 0), ((9, 5), (1, 2), (4, 2, 3, 1), 0), ((7, 7), (2, 2), (0, 0, 0, 0), 1),
    ((5, 5), (1, 1), (2, 2, 2, 2), 1), ((3, 6, 6), (1, 1, 1), (1, 2, 2, 1, 3, 3), 0)])
def test_max_pool_of_large_windows(kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...], ceil: int) -> None:
    x = numbers("float", (2, 3, 9, 21, 23) if len(kernel) == 3 else (2, 3, 21, 23))
    model = model_of("MaxPool", {"X": x}, ["Y"], 12, kernel_shape=kernel, strides=strides, pads=pads, ceil_mode=ceil)
    compare(model, {"X": x}, rtol=0, atol=0, want=[_max_pool(x, kernel, strides, pads, ceil)])


def _max_pool(x: np.ndarray, kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...], ceil: int) -> np.ndarray:
    """MaxPool of [N, C, spatial...] by the specification; a window that would start in the padding at the end is none."""
    rank = len(kernel)
    sizes, ends = [], []
    for size, window, stride, begin, end in zip(x.shape[2:], kernel, strides, pads[:rank], pads[rank:], strict=True):
        free = size + begin + end - window
        count = (-(-free // stride) if ceil else free // stride) + 1
        if ceil and (count - 1) * stride >= size + begin:
            count -= 1
        sizes.append(count)
        ends.append(max(0, (count - 1) * stride + window - size - begin))
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], ends, strict=True)], constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel, tuple(range(2, 2 + rank)))
    steps = tuple(slice(0, (count - 1) * stride + 1, stride) for count, stride in zip(sizes, strides, strict=True))
    return windows[(slice(None), slice(None), *steps)].max(axis=tuple(range(-rank, 0)))


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
@pytest.mark.parametrize("pads", [(0, 1, 2, 0, 3, 1), (2, 0, 0, 1, 0, 0), (0, 0, 4, 0, 0, 3)])
def test_pad(mode: str, pads: tuple[int, ...]) -> None:
    inputs = {"X": numbers("float", (3, 5, 7)), "P": np.array(pads, np.int64)}
    model = model_of("Pad", inputs, ["Y"], 19, constants=["P"], mode=mode)
    compare(model, inputs, rtol=0, atol=0)

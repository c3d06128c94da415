"""Convolutions that kernels of the library compute wrongly, or store behind their results: ours are those of numpy.

What is refused is in extern_kernels/onednn/refusals.cpp. Most is of tiles (AMX): other CPUs have these computed by other kernels."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from peers import tensorbox


def plain(x: np.ndarray, w: np.ndarray, strides: tuple[int, ...], pads: tuple[int, ...]) -> np.ndarray:
    rank = x.ndim - 2
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *((pads[d], pads[rank + d]) for d in range(rank))])
    sizes = [(x.shape[2 + d] - w.shape[2 + d]) // strides[d] + 1 for d in range(rank)]
    y = np.zeros((x.shape[0], w.shape[0], *sizes))
    for k in product(*map(range, w.shape[2:])):
        places = tuple(slice(k[d], k[d] + (sizes[d] - 1) * strides[d] + 1, strides[d]) for d in range(rank))
        y += np.einsum("nc...,mc->nm...", x[(slice(None), slice(None), *places)], w[(slice(None), slice(None), *k)].astype(np.float64))
    return y


def convolution(x: np.ndarray, w: np.ndarray, strides: tuple[int, ...], pads: tuple[int, ...], zero: np.ndarray | None = None,
                precision: str = "strict", threads: int = 1) -> np.ndarray:
    inputs, values = ["x", "w"], {"w": w}
    if zero is not None:
        inputs, values = ["x", "w", "z"], {"w": w, "z": zero}
    is_float = x.dtype == np.float32
    node = helper.make_node("Conv" if is_float else "ConvInteger", inputs, ["y"], strides=strides, pads=pads)
    graph = helper.make_graph([node], "tiles", [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT if is_float else TensorProto.INT32, None)],
                              [onnx.numpy_helper.from_array(v, n) for n, v in values.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return tensorbox.Session(model, compile=False, precision=precision, threads=threads).run({"x": x})["y"]


@pytest.mark.parametrize("kernel,stride", [(4, 4), (8, 8), (16, 16), (12, 6), (8, 4), (2, 2), (7, 7)])
@pytest.mark.parametrize("channels", [8, 16, 24, 32, 48, 64, 96, 100])
def test_pieces_of_a_line(channels: int, kernel: int, stride: int) -> None:
    """Whole numbers small enough for bfloat16: all products and sums are exact."""
    rng = np.random.default_rng(7)
    w = rng.integers(-4, 5, (48, channels, kernel))
    for dtype in (np.float32, np.uint8, np.int8):
        for images, length in ((1, 12 * kernel + 5), (3, 6 * kernel)):
            x = rng.integers(0, 9, (images, channels, length)).astype(dtype)
            is_float = dtype == np.float32
            got = convolution(x, w.astype(np.float32 if is_float else np.int8), (stride,), (0, 0), precision="bf16" if is_float else "strict")
            np.testing.assert_array_equal(got, plain(x, w, (stride,), (0, 0)))


@pytest.mark.parametrize("pads", [(1, 0, 1, 0), (0, 0, 3, 0), (4, 1, 4, 1), (1, 1, 1, 1), (0, 1, 0, 1), (5, 2, 1, 0)])
@pytest.mark.parametrize("kernel,strides,size", [((4, 1), (1, 1), (9, 53)), ((6, 4), (1, 2), (19, 24)), ((7, 7), (1, 1), (10, 39)),
                                                 ((6, 3), (1, 3), (20, 34))])
def test_zero_points_of_padded_lines(kernel: tuple[int, int], strides: tuple[int, int], size: tuple[int, int],
                                     pads: tuple[int, ...]) -> None:
    if any(p >= kernel[i % 2] for i, p in enumerate(pads)):
        pytest.skip("a window would have padding alone")
    rng = np.random.default_rng(8)
    x, w, zero = rng.integers(0, 256, (1, 64, *size)).astype(np.uint8), rng.integers(-128, 128, (33, 64, *kernel)).astype(np.int8), 117
    got = convolution(x, w, strides, pads, np.asarray(zero, np.uint8))
    np.testing.assert_array_equal(got, plain(x.astype(np.int64) - zero, w, strides, pads))


@pytest.mark.parametrize("kernel,stride,pad,size", [(3, 3, 2, 9), (7, 4, 3, 11), (5, 5, 3, 15), (16, 14, 8, 58), (8, 7, 4, 22), (8, 7, 3, 15)])
@pytest.mark.parametrize("channels,outputs", [(48, 33), (96, 64), (33, 17)])
def test_padding_as_wide_as_what_is_left_over(channels: int, outputs: int, kernel: int, stride: int, pad: int, size: int) -> None:
    """As many elements stand before the first window's as stay unread behind the last one's. Other sizes follow."""
    rng = np.random.default_rng(10)
    for extra in (0, 1):
        x, w = rng.integers(0, 9, (2, channels, size + extra)), rng.integers(-3, 4, (outputs, channels, kernel))
        want = plain(x, w, (stride,), (pad, 0))
        residual = rng.integers(-9, 9, want.shape).astype(np.float32)
        nodes = [helper.make_node("Conv", ["x", "w"], ["t"], strides=[stride], pads=[pad, 0]), helper.make_node("Add", ["t", "r"], ["s"]),
                 helper.make_node("Relu", ["t"], ["u"]), helper.make_node("Conv", ["u", "v"], ["y"])]
        v = rng.integers(-1, 2, (outputs, outputs, 1))
        constants = {"w": w.astype(np.float32), "v": v.astype(np.float32)}
        graph = helper.make_graph(nodes, "left", [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in (("x", x), ("r", residual))],
                                  [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "sy"],
                                  [onnx.numpy_helper.from_array(a, n) for n, a in constants.items()])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        for outputs_of in ("s", "y"):
            del model.graph.output[:]
            model.graph.output.append(helper.make_tensor_value_info(outputs_of, TensorProto.FLOAT, None))
            for precision in ("strict", "bf16"):
                got = tensorbox.Session(model, compile=False, precision=precision).run({"x": x.astype(np.float32), "r": residual})[outputs_of]
                exact = want + residual if outputs_of == "s" else plain(np.maximum(want, 0), v, (1,), (0, 0))
                bound = 0 if precision == "strict" else np.abs(want).max() * 2.0 ** -7 * (1 if outputs_of == "s" else np.abs(v).sum(1).max())
                np.testing.assert_allclose(got, exact, rtol=0, atol=bound)
        got = convolution(x.astype(np.uint8), w.astype(np.int8), (stride,), (pad, 0))
        np.testing.assert_array_equal(got, want)

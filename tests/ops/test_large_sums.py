"""Quantised products whose sums pass 2^24 on the way, where float32 no longer has every integer.

References are sums of int64. What follows a sum (scales, rounding) is float32, as ONNX has it, so a sum may be rounded once, when
it becomes float32, and never before zero points are taken off: that would leave nothing right of a small difference of large sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from peers import CPU_FLAGS, tensorbox

# Dequantised products that nothing quantises again are made of bytes where the CPU is fast with them, else of float32.
HAS_BYTE_PRODUCTS = not CPU_FLAGS.isdisjoint({"avx512_vnni", "avx2"})


def kind(value: np.ndarray) -> int:
    return helper.np_dtype_to_tensor_dtype(value.dtype)


def products(x: np.ndarray, w: np.ndarray, window: tuple[int, int, int] | None) -> np.ndarray:
    """Of int64: a matrix product, or a convolution with this kernel, stride and padding."""
    if window is None:
        return x @ w
    kernel, stride, pad = window
    padded = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    rows, columns = ((padded.shape[2 + a] - kernel) // stride + 1 for a in range(2))
    return sum(np.einsum("nchw,oc->nohw", padded[:, :, i:i + (rows - 1) * stride + 1:stride, j:j + (columns - 1) * stride + 1:stride], w[:, :, i, j])
               for i in range(kernel) for j in range(kernel))


def model(form: str, x: np.ndarray, constants: dict[str, np.ndarray], window: tuple[int, int, int] | None) -> onnx.ModelProto:
    op = "Conv" if window else "MatMul"
    attributes: dict[str, Any] = {"strides": [window[1]] * 2, "pads": [window[2]] * 4} if window else {}
    if form == "QLinear":
        nodes = [helper.make_node(f"QLinear{op}", ["x", "sa", "za", "w", "sb", "zb", "sy", "zy"], ["y"], **attributes)]
    else:
        nodes = [helper.make_node("DequantizeLinear", ["x", "sa", "za"], ["xf"]), helper.make_node("DequantizeLinear", ["w", "sb", "zb"], ["wf"]),
                 helper.make_node(op, ["xf", "wf"], ["yf"], **attributes), helper.make_node("QuantizeLinear", ["yf", "sy", "zy"], ["y"])]
        if form == "DQ":
            nodes = nodes[:-1] + [helper.make_node("Identity", ["yf"], ["y"])]
    info = helper.make_tensor_value_info("x", kind(x), x.shape)
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT if form == "DQ" else kind(x), None)
    values = [helper.make_tensor(n, kind(v), v.shape, v.tobytes(), raw=True) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "large sums", [info], [result], values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


# Dequantised convolutions of other zero points stay products of float32.
WEIGHTS = [("QLinear", np.int8, -7), ("QLinear", np.uint8, 250),
           *((form, right, zero) for form in ("QLinear", "QDQ", "DQ") for right, zero in ((np.int8, 0), (np.uint8, 128)))]


@pytest.mark.parametrize("form,right,right_zero", WEIGHTS)
@pytest.mark.parametrize("left", [np.uint8, np.int8])
@pytest.mark.parametrize("window", [None, (1, 1, 0), (3, 1, 1), (3, 2, 0)])
@pytest.mark.parametrize("near", [True, False])
def test_sums_above_what_float32_counts(form: str, left: type, right: type, right_zero: int, window: tuple[int, int, int] | None, near: bool) -> None:
    rng = np.random.default_rng([len(form), right_zero + 128, 0 if window is None else sum(window)])
    least = np.iinfo(left).min
    zero = least + (230 if near else 17)
    terms = 4099 if window is None else 4099 // window[0] ** 2
    sizes = (3, terms) if window is None else (1, terms, 5, 6)
    # Near its zero point the image gives small differences of large sums; far from it sums that are large to the end.
    x = (zero + rng.integers(-2, 3, sizes) if near else rng.integers(least + 200, least + 256, sizes)).astype(left)
    w = rng.integers(np.iinfo(right).max - 30, np.iinfo(right).max + 1, (terms, 17) if window is None else (17, terms, window[0], window[0])).astype(right)
    sums = products(x.astype(np.int64) - zero, w.astype(np.int64) - right_zero, window)
    largest = np.abs(products(x.astype(np.int64) - (least if left is np.uint8 else -128), w.astype(np.int64) - (0 if right is np.int8 else 128), window)).max()
    assert largest > 2**24
    scale_a, scale_b, zero_y = np.float32(0.5), np.float32(0.25), np.array(least + 100, left)
    scale_y = np.float32(2.0 ** np.ceil(np.log2(max(1, np.abs(sums).max()) / 8 / 100)))
    constants = {"sa": np.array(scale_a), "za": np.array(zero, left), "w": w, "sb": np.array(scale_b), "zb": np.array(right_zero, right),
                 "sy": np.array(scale_y), "zy": zero_y}
    want = sums.astype(np.float32) * (scale_a * scale_b)
    if form != "DQ":
        limits = np.iinfo(left)
        want = np.clip(np.rint(want / scale_y) + zero_y.astype(np.float32), limits.min, limits.max).astype(left)
    left_over = 0.0
    if form == "DQ" and not HAS_BYTE_PRODUCTS:  # of a sum of float32 in any order: Higham, Accuracy and Stability, 4.2
        sizes_of_terms = products(np.abs(x.astype(np.int64) - zero), np.abs(w.astype(np.int64) - right_zero), window)
        left_over = terms * (window[0] ** 2 if window else 1) * 2.0**-24 * sizes_of_terms * float(scale_a * scale_b)
    m = model(form, x, constants, window)
    for dynamic in (False, True):
        got = tensorbox.Session(m, compile=False, all_dims_dynamic=dynamic).run({"x": x})["y"]
        assert got.dtype == want.dtype and got.shape == want.shape
        assert (np.abs(got.astype(np.float64) - want) <= left_over).all()

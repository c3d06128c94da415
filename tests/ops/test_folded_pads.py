"""Convolutions behind a Pad: zeros become padding of the convolution (pass `fold_pads`), everything else stays a Pad."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from peers import expected, tensorbox

KINDS = {np.dtype(np.float32): onnx.TensorProto.FLOAT, np.dtype(np.float16): onnx.TensorProto.FLOAT16}


def padded(x: np.ndarray, w: np.ndarray, around: list[int], opset: int = 18, value: float | None = None,
           axes: list[int] | None = None, mode: str = "constant", **conv: Any) -> onnx.ModelProto:
    """Conv(Pad(x), w), with symbolic sizes of images."""
    constants = {"w": w, "pads": np.array(around, np.int64)}
    inputs = ["x", "pads"]
    attributes: dict[str, Any] = {"mode": mode}
    if opset < 11:
        inputs = ["x"]
        attributes |= {"pads": around, "value": value or 0.0}
    elif value is not None or axes is not None:
        inputs.append("value" if value is not None else "")
        if value is not None:
            constants["value"] = np.array(value, x.dtype)
        if axes is not None:
            constants["axes"] = np.array(axes, np.int64)
            inputs.append("axes")
    nodes = [helper.make_node("Pad", inputs, ["p"], **attributes), helper.make_node("Conv", ["p", "w"], ["y"], **conv)]
    kind = KINDS[x.dtype]
    info = helper.make_tensor_value_info("x", kind, ["N", x.shape[1], *(f"d{k}" for k in range(x.ndim - 2))])
    given = [onnx.numpy_helper.from_array(v, k) for k, v in constants.items() if opset >= 11 or k == "w"]
    graph = helper.make_graph(nodes, "padded", [info], [helper.make_tensor_value_info("y", kind, None)], given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def check(model: onnx.ModelProto, x: np.ndarray, tolerance: float = 2e-5) -> None:
    want = expected(model, {"x": x})[0]
    for options in ({}, {"compile": False}, {"disable_passes": ["fold_pads"]}):
        got = tensorbox.Session(model, **options).run({"x": x})["y"]
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance)
        assert got.shape == want.shape and got.dtype == want.dtype


def arrays(*shapes: tuple[int, ...], dtype: type = np.float32) -> list[np.ndarray]:
    rng = np.random.default_rng(len(shapes[0]) + shapes[0][-1])
    return [(rng.standard_normal(s) / 4).astype(dtype) for s in shapes]


@pytest.mark.parametrize("opset", [2, 10, 11, 13, 18, 21])
@pytest.mark.parametrize("size", [1, 2, 7, 56])
def test_keras_strides(opset: int, size: int) -> None:
    x, w = arrays((2, 33, size, size + 1), (33, 1, 3, 3))
    pads = [0, 0, 0, 0, 0, 0, 1 + (size < 2), 1 + (size < 2)]
    check(padded(x, w, pads, opset, group=33, strides=[2, 2]), x)


@pytest.mark.parametrize("rank", [3, 4, 5])
@pytest.mark.parametrize("own", [0, 1])
def test_ranks_and_padding_of_its_own(rank: int, own: int) -> None:
    spatial = rank - 2
    x, w = arrays((1, 5, *(9, 8, 7)[:spatial]), (6, 5, *(3, 5, 4)[:spatial]))
    outer = [0, 0, *(1, 2, 0)[:spatial], 0, 0, *(0, 1, 3)[:spatial]]
    check(padded(x, w, outer, pads=[own] * 2 * spatial), x)


@pytest.mark.parametrize("axes", [[2, 3], [-1, -2], [3], []])
def test_axes(axes: list[int]) -> None:
    x, w = arrays((2, 3, 8, 9), (4, 3, 3, 3))
    check(padded(x, w, [1, 2, 0, 1] if len(axes) == 2 else [2, 1][: 2 * len(axes)], axes=axes), x)


@pytest.mark.parametrize("conv", [{"auto_pad": "VALID"}, {"auto_pad": "SAME_LOWER"}, {"dilations": [2, 3]}, {"strides": [3, 1]}])
def test_attributes(conv: dict[str, Any]) -> None:
    x, w = arrays((2, 3, 17, 19), (4, 3, 3, 3))
    check(padded(x, w, [0, 0, 2, 1, 0, 0, 1, 2], **conv), x)


@pytest.mark.parametrize("change", [{"value": 0.5}, {"value": -0.0}, {"mode": "reflect"}, {"mode": "edge"},
                                    {"around": [0, 0, -1, 0, 0, 0, 1, 0]}, {"around": [1, 0, 1, 0, 0, 0, 0, 0]},
                                    {"around": [0, 0, 5, 5, 0, 0, 5, 5]}])
def test_other_pads(change: dict[str, Any]) -> None:
    x, w = arrays((2, 3, 8, 9), (4, 3, 3, 3))
    check(padded(x, w, **({"around": [0, 0, 1, 1, 0, 0, 1, 1]} | change)), x)


def test_halves() -> None:
    x, w = arrays((1, 16, 15, 15), (8, 16, 3, 3), dtype=np.float16)
    check(padded(x, w, [0, 0, 1, 1, 0, 0, 0, 0], strides=[2, 2]), x, 4e-3)


def test_the_pad_is_gone() -> None:
    x, w = arrays((1, 16, 15, 15), (8, 16, 3, 3))
    told = tensorbox.Session(padded(x, w, [0, 0, 0, 0, 0, 0, 1, 1], strides=[2, 2])).explain()
    assert not [node for kernel in told for node in kernel["nodes"] if "(Pad)" in node], told

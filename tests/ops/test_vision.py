"""Operators of vision models on random shapes and attributes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from peers import compare, model_of, tensorbox

SEEDS = range(12)


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_grid_sample(mode: str, padding: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    spatial = 2 if mode == "cubic" or seed % 3 else 3
    batch, channels = int(rng.integers(1, 3)), int(rng.integers(1, 4))
    x = floats(rng, batch, channels, *rng.integers(2, 6, spatial))
    grid = rng.uniform(-1.6, 1.6, (batch, *rng.integers(1, 6, spatial), spatial)).astype(np.float32)
    inputs = {"X": x, "grid": grid}
    model = model_of("GridSample", inputs, ["Y"], 20, mode=mode, padding_mode=padding, align_corners=seed % 2)
    # onnx.reference clamps positions before the cubic weights, PyTorch and ONNX Runtime after.
    compare(model, inputs, rtol=1e-3, atol=1e-4, engine="ort" if (mode, padding) == ("cubic", "border") else "any")


@pytest.mark.parametrize("channels", [8, 24, 33])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_grid_sample_of_many_channels(mode: str, channels: int) -> None:
    """Vectors have the channels of a position."""
    rng = np.random.default_rng(channels)
    for size, places in (((1, 1), (1, 1)), ((9, 7), (1, 17)), ((12, 16), (40, 33)), ((20, 20), (0, 4))):
        inputs = {"X": floats(rng, 2, channels, *size),
                  "grid": rng.uniform(-1.3, 1.3, (2, *places, 2)).astype(np.float32)}
        model = model_of("GridSample", inputs, ["Y"], 20, mode=mode, padding_mode="zeros")
        compare(model, inputs, rtol=1e-3, atol=1e-4, engine="ort")


@pytest.mark.parametrize("seed", SEEDS)
def test_col2im(seed: int) -> None:
    rng = np.random.default_rng(seed)
    spatial = int(rng.integers(1, 4))
    block, strides, dilations = (rng.integers(1, 4, spatial) for _ in range(3))
    pads = rng.integers(0, 3, 2 * spatial)
    image = (block - 1) * dilations + 1 + rng.integers(0, 5, spatial)
    counts = (image + pads[:spatial] + pads[spatial:] - dilations * (block - 1) - 1) // strides + 1
    x = floats(rng, int(rng.integers(0, 3)) if seed == 3 else 2, 3 * int(block.prod()), int(counts.prod()))
    inputs = {"X": x, "image": image.astype(np.int64), "block": block.astype(np.int64)}
    model = model_of("Col2Im", inputs, ["Y"], 18, ["image", "block"], strides=strides.tolist(), pads=pads.tolist(),
                     dilations=dilations.tolist())
    # ONNX Runtime differs where pads begin and end differently; onnx.reference fails on an empty batch.
    compare(model, inputs, engine="reference" if x.size else "ort")


@pytest.mark.parametrize("seed", SEEDS)
def test_max_unpool(seed: int) -> None:
    rng = np.random.default_rng(seed)
    spatial = int(rng.integers(1, 4))
    x = floats(rng, 2, 3, *rng.integers(1, 5, spatial))
    kernel, strides = rng.integers(1, 4, spatial), rng.integers(1, 4, spatial)
    total = 6 * int(((np.array(x.shape[2:]) - 1) * strides + kernel).prod())
    places = rng.permutation(total)[: x.size]
    if places.size < x.size:  # strides below the kernel can make the result smaller than X
        places = rng.integers(0, total, x.size)
    inputs = {"X": x, "I": places.reshape(x.shape).astype(np.int64)}
    model = model_of("MaxUnpool", inputs, ["Y"], 11, kernel_shape=kernel.tolist(), strides=strides.tolist())
    compare(model, inputs)


def regions(rng: np.random.Generator, count: int) -> np.ndarray:
    """Corners of `count` boxes, some beyond a 10 x 8 image."""
    start = rng.uniform(-2, 7, (count, 2))
    return np.concatenate([start, start + rng.uniform(0.1, 9, (count, 2))], 1).astype(np.float32)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align(mode: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = 0 if seed == 5 else int(rng.integers(1, 6))
    inputs = {"X": floats(rng, 2, 3, 8, 10), "rois": regions(rng, count), "batch": rng.integers(0, 2, count)}
    opset, attributes = (10, {}) if seed % 3 == 0 else (16, {
        "coordinate_transformation_mode": ["half_pixel", "output_half_pixel"][seed % 2]})
    model = model_of("RoiAlign", inputs, ["Y"], opset, mode=mode, output_height=int(rng.integers(1, 4)),
                     output_width=int(rng.integers(1, 5)), sampling_ratio=int(rng.integers(0, 3)),
                     spatial_scale=float(rng.choice([0.5, 1.0])), **attributes)
    # onnx.reference moves the boxes of opset 10 by half a pixel, as only opset 16 has it.
    compare(model, inputs, engine="ort" if opset == 10 else "any")


@pytest.mark.parametrize("channels", [8, 33, 64])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align_of_many_channels(mode: str, channels: int) -> None:
    """Vectors have the channels of a bin."""
    rng = np.random.default_rng(channels)
    for count, bins in ((0, 7), (1, 1), (5, 7), (9, 14), (400, 3)):
        inputs = {"X": floats(rng, 2, channels, 8, 10), "rois": regions(rng, count), "batch": rng.integers(0, 2, count)}
        model = model_of("RoiAlign", inputs, ["Y"], 16, mode=mode, output_height=bins, output_width=bins,
                         sampling_ratio=2, spatial_scale=0.5)
        compare(model, inputs, engine="ort")


@pytest.mark.parametrize("seed", SEEDS)
def test_max_roi_pool(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 6))
    rois = np.concatenate([rng.integers(0, 2, (count, 1)), np.round(regions(rng, count))], 1).astype(np.float32)
    inputs = {"X": floats(rng, 2, 3, 8, 10), "rois": rois}
    model = model_of("MaxRoiPool", inputs, ["Y"], 1, pooled_shape=rng.integers(1, 5, 2).tolist(),
                     spatial_scale=float(rng.choice([0.5, 1.0])))
    compare(model, inputs, engine="ort")


@pytest.mark.parametrize("seed", SEEDS)
def test_deform_conv(seed: int) -> None:
    rng = np.random.default_rng(seed)
    group, sets = int(rng.choice([1, 2])), int(rng.choice([1, 2, 4]))
    kernel, strides, dilations, pads = rng.integers(1, 4, 2), rng.integers(1, 3, 2), rng.integers(1, 3, 2), rng.integers(0, 3, 4)
    size = np.maximum((kernel - 1) * dilations + 1 - pads[:2] - pads[2:], 2) + rng.integers(0, 4, 2)
    out = (size + pads[:2] + pads[2:] - (kernel - 1) * dilations - 1) // strides + 1
    taps = int(kernel.prod())
    inputs = {"X": floats(rng, 2, 4, *size), "W": floats(rng, 6, 4 // group, *kernel),
              "offset": floats(rng, 2, 2 * sets * taps, *out), "B": floats(rng, 6) if seed % 2 else None,
              "mask": floats(rng, 2, sets * taps, *out) if seed % 3 else None}
    model = model_of("DeformConv", inputs, ["Y"], 19, group=group, offset_group=sets, kernel_shape=kernel.tolist(),
                     strides=strides.tolist(), dilations=dilations.tolist(), pads=pads.tolist())
    compare(model, inputs, rtol=1e-3, atol=1e-4, engine="reference")


@pytest.mark.parametrize("seed", SEEDS)
def test_non_max_suppression(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batches, classes, count = int(rng.integers(1, 3)), int(rng.integers(1, 4)), int(rng.integers(1, 400))
    start = rng.uniform(0, 10 if seed % 2 else 300, (batches, count, 2))
    boxes = np.concatenate([start, start + rng.uniform(0.5, 6, (batches, count, 2))], 2).astype(np.float32)
    scores = np.round(rng.random((batches, classes, count)), 2).astype(np.float32)  # with ties
    inputs = {"boxes": boxes, "scores": scores, "count": np.array([rng.integers(0, 60)]),
              "iou": np.array([rng.uniform(0, 0.8)], np.float32),
              "score": np.array([0.3], np.float32) if seed % 3 else None}
    model = model_of("NonMaxSuppression", inputs, ["Y"], 11, center_point_box=int(seed % 4 == 0))
    compare(model, inputs, engine="ort")


@pytest.mark.parametrize("activation", ["", "Sigmoid", "Relu"])
@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_conv_of_a_single_pixel(spatial: int, batch: int, activation: str) -> None:
    """It is computed as a matrix product, one row for each image."""
    rng = np.random.default_rng(batch)
    x, w, bias = floats(rng, batch, 70, *[1] * spatial), floats(rng, 33, 70, *[1] * spatial), floats(rng, 33)
    y = np.einsum("nc...,mc...->nm...", x.astype(np.float64), w) + bias.reshape(-1, *[1] * spatial)
    expected = {"": y, "Sigmoid": 1 / (1 + np.exp(-y)), "Relu": np.maximum(y, 0)}[activation]
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], strides=[2] * spatial)]
    nodes.append(helper.make_node(activation or "Identity", ["c"], ["y"]))
    for dynamic in (False, True):
        shape = ["n" if dynamic else batch, *x.shape[1:]]
        graph = helper.make_graph(
            nodes,
            "pixel",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(w, "w"), numpy_helper.from_array(bias, "b")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        result = tensorbox.Session(model).run({"x": x})["y"]
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)

"""Pooling."""

from __future__ import annotations

import math

import numpy as np

from builder import Builder
from recipes import recipe
from recipes.products import windows


@recipe("MaxPool", "AveragePool", "LpPool")
def pool(b: Builder) -> None:
    name = b.schema.name
    spatial = tuple(b.integer(3, 7) for _ in range(b.integer(1, 3)))
    kernel = windows(b, spatial)
    b.set(kernel_shape=kernel)
    shape = (b.integer(1, 2), b.integer(1, 3), *spatial)
    size = math.prod(shape)
    value = b.array(shape, 0 if b.dtype("T").kind == "u" else -50, 50)
    if name == "MaxPool" and b.dtype("T").name != "bfloat16" and b.dtype("T").itemsize > 1:
        value = (b.rng.permutation(size) - size // 2).reshape(shape)  # no two maxima
    b.give(value)
    if b.attributes.get("auto_pad", "NOTSET") == "NOTSET":
        b.maybe(ceil_mode=b.integer(0, 1))
    b.maybe(count_include_pad=b.integer(0, 1), storage_order=b.integer(0, 1))
    if name == "LpPool":
        b.maybe(p=float(b.integer(1, 3)) if b.version == 1 else b.integer(1, 3))
    b.terms = 8 + 2 * math.prod(kernel)
    if name == "LpPool" and b.version == 1:
        attributes = {**b.attributes, "p": int(b.attributes.get("p", 2))}
        b.refer_to(11, [b.values["x0"]], **attributes)


@recipe("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(b: Builder) -> None:
    shape = b.shape(3, 5, empty=0)
    b.give(b.array(shape))
    b.terms = 8 + 2 * math.prod(shape[2:])
    if b.schema.name == "GlobalLpPool":
        power = b.integer(1, 3)
        b.set(p=float(power) if b.version == 1 else power)
        if b.version != 2:  # the one that ONNX Runtime has
            b.refer_to(2, [b.values["x0"]], p=power)


@recipe("MaxUnpool")
def max_unpool(b: Builder) -> None:
    batch, channels, height, width = b.integer(1, 2), b.integer(1, 2), b.integer(1, 3), b.integer(1, 3)
    b.give(b.array((batch, channels, height, width)))
    plane = 4 * height * width
    places = [b.rng.permutation(plane)[: height * width] + plane * i for i in range(batch * channels)]
    b.give(np.stack(places).reshape(batch, channels, height, width))
    b.set(kernel_shape=[2, 2], strides=[2, 2])


@recipe("MaxRoiPool")
def max_roi_pool(b: Builder) -> None:
    shape = (b.integer(1, 2), b.integer(1, 2), b.integer(4, 8), b.integer(4, 8))
    b.give(b.array(shape))
    rois = [[b.integer(0, shape[0] - 1), 0, 0, b.integer(1, shape[3] - 1), b.integer(1, shape[2] - 1)] for _ in range(b.integer(1, 3))]
    b.give(np.array(rois))
    b.set(pooled_shape=[b.integer(1, 3), b.integer(1, 3)])
    b.refer_to(1, [b.values[name] for name in b.inputs], **b.attributes)


@recipe("RoiAlign")
def roi_align(b: Builder) -> None:
    shape = (b.integer(1, 2), b.integer(1, 2), b.integer(4, 8), b.integer(4, 8))
    b.give(b.array(shape))
    count = b.integer(1, 3)
    corner = b.array((count, 2), 0, 3).astype(np.float32)
    b.give(np.concatenate([corner, corner + b.array((count, 2), 1, 4, "tensor(float)")], axis=-1))
    b.give(b.rng.integers(0, shape[0], count))
    b.set(output_height=b.integer(1, 3), output_width=b.integer(1, 3), sampling_ratio=b.integer(0, 2))
    b.maybe(mode=b.pick("avg", "max"), spatial_scale=b.pick(0.5, 1.0), coordinate_transformation_mode=b.pick("half_pixel", "output_half_pixel"))
    b.terms = 32

"""Resizing and sampling of images."""

from __future__ import annotations

import io

import numpy as np

import kinds
from builder import Builder, Skip
from recipes import recipe


@recipe("Resize", "Upsample")
def resize(b: Builder) -> None:
    if b.schema.name == "Upsample" or b.version == 10:
        return _upsample(b)
    plain = can_only_move(b)
    mode = "nearest" if plain else b.pick("nearest", "linear", "cubic")
    shape = (1, b.integer(1, 2), b.integer(2, 5), b.integer(2, 5))
    value = b.array(shape, -20, 20)
    b.give(value)
    coordinates = b.pick("half_pixel", "asymmetric", "pytorch_half_pixel", "align_corners",
                         *(["half_pixel_symmetric"] if b.version >= 19 else []))
    b.give(np.zeros(0)) if b.version < 13 or b.chance(0.3) else b.skip()
    if b.chance():
        b.give(np.array([1, 1, b.pick(0.5, 1.5, 2.0), b.pick(0.6, 1.0, 3.0)]))
    else:
        b.give(np.zeros(0)) if b.version < 13 else b.skip()
        b.give(np.array([1, shape[1], b.integer(1, 8), b.integer(1, 8)]))
    b.set(mode=mode, coordinate_transformation_mode=coordinates)
    if mode == "nearest":
        b.maybe(nearest_mode=b.pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    elif b.has("antialias"):
        b.maybe(antialias=b.integer(0, 1))
    if mode == "cubic":
        b.maybe(cubic_coeff_a=b.pick(-0.5, -0.75), exclude_outside=b.integer(0, 1))
    b.terms = 64
    stand_in_float(b)
    return None


def can_only_move(b: Builder) -> bool:
    """Whether the type is one that the references do not interpolate."""
    b.moves = b.dtype(b.schema.inputs[0].type_str).kind in "OcSUT"
    return b.moves


def stand_in_float(b: Builder) -> None:
    """Between whole numbers ONNX Runtime cuts results as a conversion of C does, which the formal text leaves open:
    the references compute in float, and their results are cut."""
    if b.dtype(b.schema.inputs[0].type_str).kind in "iub":
        values = [b.values[name] if name else None for name in b.inputs]
        values[0] = values[0].astype(np.float32)
        b.refer_to(b.version, values, result="tensor(float)", **b.attributes)


def _upsample(b: Builder) -> None:
    shape = (1, b.integer(1, 2), b.integer(2, 4), b.integer(2, 4))
    value = b.array(shape, -20, 20)
    scales = [1.0, 1.0, float(b.integer(1, 3)), float(b.integer(1, 3))]
    mode = "nearest" if can_only_move(b) else b.pick("nearest", "bilinear" if b.version < 7 else "linear")
    b.give(value)
    if b.has("scales"):
        b.set(scales=scales)
    elif b.has("height_scale"):
        b.set(height_scale=scales[2], width_scale=scales[3])
    else:
        b.give(np.array(scales))
    b.set(mode=mode)
    b.terms = 64
    whole = value.dtype.kind in "iub"
    b.refer_to(13, [value.astype(np.float32) if whole else value, None, np.array(scales, np.float32)], "Resize",
               result="tensor(float)" if whole else None, mode=mode.removeprefix("bi"),
               coordinate_transformation_mode="asymmetric", nearest_mode="floor")


@recipe("GridSample")
def grid_sample(b: Builder) -> None:
    rank = b.integer(2, 3) if b.version >= 20 else 2
    batch = b.integer(1, 2)
    b.give(b.array((batch, b.integer(1, 2), *(b.integer(2, 4) for _ in range(rank)))))
    kind = "tensor(float)" if b.kind("T2") == "tensor(float)" else "T2"
    b.give(b.array((batch, *(b.integer(1, 3) for _ in range(rank)), rank), -1.2, 1.2, kind))
    modes = ("bilinear", "nearest", "bicubic") if b.version < 20 else ("linear", "nearest", *(("cubic",) if rank == 2 else ()))
    mode = "nearest" if can_only_move(b) else b.pick(*modes)
    b.set(mode=mode)
    b.maybe(padding_mode=b.pick("zeros", "border", "reflection"), align_corners=b.integer(0, 1))
    b.terms = 128
    grid = b.values["x1"]
    if kinds.is_float(grid.dtype) and not b.moves and b.version < 20 or b.values["x0"].dtype.kind in "iub":
        value, mode = b.values["x0"], {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
        whole = value.dtype.kind in "iub"
        b.refer_to(20, [value.astype(np.float32) if whole else value, grid], **{**b.attributes, "mode": mode},
                   result="tensor(float)" if whole else None)


@recipe("AffineGrid")
def affine_grid(b: Builder) -> None:
    rank, batch = b.integer(2, 3), b.integer(1, 2)
    b.give(b.array((batch, rank, rank + 1)))
    b.give(np.array([batch, b.integer(1, 2), *(b.integer(1, 4) for _ in range(rank))]))
    b.maybe(align_corners=b.integer(0, 1))
    b.terms = 32


@recipe("ImageDecoder")
def image_decoder(b: Builder) -> None:
    try:
        from PIL import Image
    except ImportError:
        raise Skip("pillow is not installed") from None
    pixels = b.rng.integers(0, 256, (b.integer(1, 9), b.integer(1, 9), 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, b.pick("PNG", "BMP"))
    b.give(np.frombuffer(stream.getvalue(), np.uint8), constant=False)
    b.maybe(pixel_format=b.pick("RGB", "BGR", "Grayscale"))

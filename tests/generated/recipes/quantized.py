"""Quantisation and products of quantised numbers."""

from __future__ import annotations

import numpy as np

from builder import Builder
from recipes import recipe
from recipes.products import product_shapes, windows


def granularity(b: Builder, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the scales: one, one per element of an axis, or one per block."""
    how = b.integer(0, 2 if b.has("block_size") and shape else (1 if b.has("axis") and shape else 0))
    if how == 0:
        return ()
    axis = b.axis(len(shape)) % len(shape)
    b.set(axis=axis)
    if how == 1:
        return (shape[axis],)
    block = b.integer(1, 3)
    b.set(block_size=block)
    return tuple(-(-d // block) if i == axis else d for i, d in enumerate(shape))


def zero(b: Builder, shape: tuple[int, ...], param: str) -> np.ndarray:
    """Zero points; 0 for the types that have none."""
    dtype = b.dtype(param)
    plain = dtype.name.startswith("float") or dtype.name == "int32"
    return np.zeros(shape, dtype) if plain else b.array(shape, -1, 1, param)


@recipe("QuantizeLinear")
def quantize(b: Builder) -> None:
    params = {c.type_param_str for c in b.schema.type_constraints}
    target = "T3" if "T3" in params else "T2"
    shape = b.shape(0 if b.chance(0.2) else 1, 3, empty=0)
    scales = granularity(b, shape)
    b.give(b.array(shape, -6, 6))
    b.give(b.array(scales, 1 if b.dtype(b.schema.inputs[1].type_str).kind == "i" else 0.25, 2))
    b.give(zero(b, scales, target))
    if b.dtype(target).name.startswith("float8"):
        b.maybe(saturate=b.integer(0, 1))
    b.wide = False


@recipe("DequantizeLinear")
def dequantize(b: Builder) -> None:
    shape = b.shape(0 if b.chance(0.2) else 1, 3, empty=0)
    scales = granularity(b, shape)
    b.give(b.array(shape, -100, 100))
    b.give(b.array(scales, 0.25, 2))
    b.give(zero(b, scales, b.schema.inputs[0].type_str)) if b.chance(0.7) else b.skip()
    if "T3" in b.types:
        b.set(output_dtype=b.element("T3"))
    b.wide = False


@recipe("DynamicQuantizeLinear")
def dynamic_quantize(b: Builder) -> None:
    b.give(b.array(b.shape(1, 3, empty=0)))
    b.wide = False


@recipe("MatMulInteger")
def matmul_integer(b: Builder) -> None:
    left, right = product_shapes(b)
    b.give(b.array(left, -100, 100))
    b.give(b.array(right, -100, 100))
    b.give(b.array((), 0, 5)) if b.chance() else b.skip()
    b.give(b.array((), 0, 5)) if b.chance() else b.skip()


@recipe("QLinearMatMul")
def qlinear_matmul(b: Builder) -> None:
    left, right = product_shapes(b)
    quarter = b.schema.inputs[1].type_str
    for shape, kind in ((left, "T1"), (right, "T2")):
        b.give(b.array(shape, -20, 20, kind))
        b.give(b.array((), 0.25, 1, quarter))
        b.give(zero(b, (), kind))
    b.give(b.array((), 4, 16, quarter))
    b.give(zero(b, (), "T3"))
    b.wide = False


@recipe("QLinearConv")
def qlinear_conv(b: Builder) -> None:
    group, each, out = b.integer(1, 2), b.integer(1, 3), b.integer(1, 3)
    spatial = tuple(b.integer(3, 6) for _ in range(b.integer(1, 2)))
    kernel = windows(b, spatial)
    per_channel = (group * out,) if b.chance() else ()
    b.give(b.array((1, group * each, *spatial), -20, 20))
    b.give(b.array((), 0.25, 1))
    b.give(zero(b, (), "T1"))
    b.give(b.array((group * out, each, *kernel), -20, 20))
    b.give(b.array(per_channel, 0.25, 1))
    b.give(np.zeros(per_channel) if per_channel else zero(b, (), "T2"))
    b.give(b.array((), 4, 16))
    b.give(zero(b, (), "T3"))
    if b.chance():
        b.give(b.array((group * out,), -50, 50))
    b.set(group=group)
    b.maybe(kernel_shape=kernel)
    b.wide = False

"""Operators that gather, scatter and select by index."""

from __future__ import annotations

import math

import numpy as np

from builder import Builder
from recipes import recipe


def indices(b: Builder, shape: tuple[int, ...], size: int) -> np.ndarray:
    """Indices into an axis, from opset 11 on also from its end."""
    low = -size if b.version >= 11 else 0
    return b.rng.integers(low, size, shape)


@recipe("Gather")
def gather(b: Builder) -> None:
    shape = b.shape(1, 3, empty=0)
    axis = b.axis(len(shape))
    b.give(b.array(shape))
    b.give(indices(b, b.shape(0, 2), shape[axis]))
    b.set(axis=axis)


@recipe("GatherElements")
def gather_elements(b: Builder) -> None:
    shape = b.shape(1, 3, empty=0)
    axis = b.axis(len(shape)) % len(shape)
    b.give(b.array(shape))
    places = tuple(b.integer(1, 5) if i == axis else b.integer(1, d) for i, d in enumerate(shape))
    b.give(indices(b, places, shape[axis]))
    b.set(axis=axis)


@recipe("GatherND")
def gather_nd(b: Builder) -> None:
    shape = b.shape(1, 4, empty=0)
    batch = b.integer(0, len(shape) - 1) if b.has("batch_dims") and b.chance(0.4) else 0
    depth = b.integer(1, len(shape) - batch)
    outer = shape[:batch] + b.shape(0 if batch else 1, 2, 3, empty=0)
    b.give(b.array(shape))
    b.give(np.stack([indices(b, outer, shape[batch + i]) for i in range(depth)], axis=-1))
    b.set(batch_dims=batch or None)


def reduction(b: Builder) -> str | None:
    if not b.has("reduction"):
        return None
    kind = b.dtype("T").kind
    plain = kind in "Ob" or b.types["T"].startswith("tensor(complex")
    return "none" if plain else b.pick("none", "add", "mul", *(("min", "max") if b.version >= 18 else ()))


@recipe("ScatterElements", "Scatter")
def scatter_elements(b: Builder) -> None:
    shape = b.shape(1, 3, empty=0)
    axis = b.axis(len(shape)) % len(shape)
    combine = reduction(b)
    places = [b.integer(1, d) for d in shape]
    if combine in (None, "none"):  # each place is written once
        index = np.apply_along_axis(lambda _: b.rng.permutation(shape[axis])[: places[axis]], axis, np.zeros(places))
    else:
        places[axis] = b.integer(1, 5)
        index = indices(b, tuple(places), shape[axis])
    value, updates = b.array(shape), b.array(places, param="T")
    b.give(value)
    b.give(index.astype(np.int64))
    b.give(updates)
    b.set(axis=axis, reduction=combine)
    if b.schema.name == "Scatter":
        b.refer_to(13, [value, index.astype(np.int64), updates], "ScatterElements", axis=axis)


@recipe("ScatterND")
def scatter_nd(b: Builder) -> None:
    shape = b.shape(1, 3, empty=0)
    depth = b.integer(1, len(shape))
    combine = reduction(b)
    total = math.prod(shape[:depth])
    count = b.integer(1, total if combine in (None, "none") else total + 2)
    flat = b.rng.permutation(total)[:count] if combine in (None, "none") else b.rng.integers(0, total, count)
    b.give(b.array(shape))
    b.give(np.stack(np.unravel_index(flat, shape[:depth]), axis=-1))
    b.give(b.array((count,) + shape[depth:]))
    b.set(reduction=combine)


@recipe("Compress")
def compress(b: Builder) -> None:
    shape = b.shape(1, 3, empty=0)
    axis = b.axis(len(shape)) if b.chance(0.7) else None
    size = math.prod(shape) if axis is None else shape[axis]
    b.give(b.array(shape))
    b.give(b.array((b.integer(1, size),)))
    b.set(axis=axis)


@recipe("NonZero")
def non_zero(b: Builder) -> None:
    b.give(b.array(b.shape(1, 3), -1, 1))


@recipe("Unique")
def unique(b: Builder) -> None:
    shape = b.shape(1, 3, 3, empty=0)
    b.give(b.array(shape, -1, 1))
    b.set(axis=b.axis(len(shape)) if b.chance() else None, sorted=b.integer(0, 1))
    if b.dtype("T").kind in "iu":
        b.refer_to(11, [b.values["x0"].astype(np.int64)], result="tensor(int64)", **b.attributes)


@recipe("NonMaxSuppression")
def non_max_suppression(b: Builder) -> None:
    batch, classes, boxes = b.integer(1, 2), b.integer(1, 2), b.integer(1, 8)
    corner = b.array((batch, boxes, 2), 0, 1)
    b.give(np.concatenate([corner, corner + b.array((batch, boxes, 2), 0.1, 1)], axis=-1))
    b.give(b.array((batch, classes, boxes), 0, 1))
    b.give(np.array([b.integer(1, 5)]))
    b.give(np.array([b.real(0.2, 0.7)])) if b.chance() else b.skip()
    b.give(np.array([b.real(0.2, 0.7)])) if b.chance() else b.skip()
    b.maybe(center_point_box=b.integer(0, 1))

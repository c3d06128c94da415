"""Operators that move elements or count them: every type is allowed."""

from __future__ import annotations

import math

import numpy as np

import kinds
from builder import Builder
from recipes import recipe


@recipe("Identity")
def identity(b: Builder) -> None:
    value = kinds.random_value(b.rng, b.kind(b.schema.inputs[0].type_str), b.shape())
    b.give(value, constant=False)
    b.expected = [value]


@recipe("Shape")
def shape_of(b: Builder) -> None:
    shape = b.shape()
    b.give(b.array(shape))
    b.maybe(start=b.integer(-5, 5), end=b.integer(-5, 5))


@recipe("Size")
def size(b: Builder) -> None:
    b.give(b.array(b.shape()))


@recipe("Transpose")
def transpose(b: Builder) -> None:
    shape = b.shape()
    b.give(b.array(shape))
    b.maybe(perm=[int(a) for a in b.rng.permutation(len(shape))])
    if not shape:
        b.attributes.pop("perm", None)


@recipe("Flatten")
def flatten(b: Builder) -> None:
    shape = b.shape(1, 4)
    b.give(b.array(shape))
    b.maybe(axis=b.integer(-len(shape) if b.version >= 11 else 0, len(shape)))


@recipe("Reshape")
def reshape(b: Builder) -> None:
    shape = b.shape(0, 4)
    value = b.array(shape)
    b.give(value)
    target = [d for d in b.rng.permutation(shape).tolist() for d in ([d] if b.chance(0.7) else [1, d])]
    if len(target) > 1 and b.chance(0.3) and 0 not in target:
        target[:2] = [math.prod(target[:2])]
    if target and 0 not in target and b.chance(0.4):
        target[b.integer(0, len(target) - 1)] = -1
    if 0 in target:
        if b.has("allowzero"):
            b.set(allowzero=1)
        else:
            target = list(shape)
    target = [int(d) for d in target]
    b.listing("shape", target)
    if b.version < 5:
        b.refer_to(13, [value, np.array(target, np.int64)])


@recipe("Squeeze")
def squeeze(b: Builder) -> None:
    shape = list(b.shape(0, 3))
    for _ in range(b.integer(1, 2)):
        shape.insert(b.integer(0, len(shape)), 1)
    b.give(b.array(shape))
    ones = [i for i, d in enumerate(shape) if d == 1]
    axes = [int(a) for a in b.rng.permutation(ones)[: b.integer(1, len(ones))]]
    axes = [a - len(shape) if b.version >= 11 and b.chance(0.3) else a for a in axes]
    b.listing("axes", axes) if b.chance(0.7) else None


@recipe("Unsqueeze")
def unsqueeze(b: Builder) -> None:
    shape = b.shape(0, 3)
    b.give(b.array(shape))
    count = b.integer(1, 2)
    b.listing("axes", b.axes(len(shape) + count, count, count))


@recipe("Concat")
def concat(b: Builder) -> None:
    shape = b.shape(1, 4)
    axis = b.axis(len(shape))
    parts = [b.array([b.integer(0, 3) if i == axis % len(shape) else d for i, d in enumerate(shape)])
             for _ in range(b.integer(1, 4))]
    for part in parts:
        b.give(part)
    b.set(axis=axis)
    if b.version < 4:
        b.refer_to(13, parts, axis=axis)


@recipe("Split")
def split(b: Builder) -> None:
    shape = list(b.shape(1, 4, empty=0))
    axis = b.axis(len(shape))
    equal = b.chance(0.4)
    count = b.integer(1, 3)
    sizes = [2] * count if equal else [b.integer(0 if b.version >= 11 else 1, 3) for _ in range(count)]
    shape[axis] = sum(sizes)
    if equal and b.has("num_outputs") and b.chance():
        shape[axis] = max(sum(sizes) - b.integer(0, 1), 1)
        count = min(count, -(-shape[axis] // 2))
    value = b.array(shape)
    b.give(value)
    b.set(axis=axis)
    if not equal:
        b.listing("split", sizes)
    else:
        b.set(num_outputs=count)
    for _ in range(count):
        b.out()
    if b.version == 1:
        b.refer_to(13, [value, np.array(sizes)], axis=axis)


@recipe("Slice")
def slice_(b: Builder) -> None:
    shape = b.shape(1, 4)
    axes = b.axes(len(shape), 1)
    plain = [a % len(shape) for a in axes]
    starts = [b.integer(-shape[a] - 1, shape[a] + 1) for a in plain]
    ends = [b.integer(-shape[a] - 1, shape[a] + 1) for a in plain]
    b.give(b.array(shape))
    if b.has("starts"):
        b.set(starts=starts, ends=ends, axes=plain)
        return
    kind = b.kind("Tind")
    for values in (starts, ends, axes):
        b.give(np.array(values), kind=kind)
    if b.chance(0.6):
        steps = [b.pick(1, 2, -1, -2, 3) for _ in axes]
        b.give(np.array(steps), kind=kind)


@recipe("Tile")
def tile(b: Builder) -> None:
    shape = b.shape(1, 4, 3)
    value = b.array(shape)
    b.give(value)
    if b.version < 6:
        times, axis = b.integer(1, 3), b.integer(0, len(shape) - 1)
        b.give(times)
        b.give(axis)
        b.refer_to(13, [value, np.array([times if i == axis else 1 for i in range(len(shape))])])
        return
    b.give(np.array([b.integer(0 if b.chance(0.1) else 1, 3) for _ in shape]))


@recipe("Expand")
def expand(b: Builder) -> None:
    full = b.shape()
    shape = tuple(1 if d != 0 and b.chance(0.4) else d for d in full)[b.integer(0, len(full)):]
    wanted = [1 if len(full) - i <= len(shape) and shape[i - len(full)] == d and b.chance(0.3) else d for i, d in enumerate(full)]
    b.give(b.array(shape))
    b.give(np.array(wanted, np.int64))


@recipe("Pad")
def pad(b: Builder) -> None:
    shape = b.shape(1, 4, empty=0)
    mode = b.pick("constant", "reflect", "edge", *(["wrap"] if b.version >= 19 else []))
    axes = b.axes(len(shape), 1) if b.version >= 18 and b.chance(0.4) else None
    pads = [b.integer(0, min(shape[a] - 1, 2) if mode in ("reflect", "wrap") else 2) for a in (axes or range(len(shape)))] * 2
    if mode == "constant" and b.chance(0.3) and b.types["T"] in ("tensor(float)", "tensor(int64)"):
        pads[0] = -min(1, shape[(axes or [0])[0]] - 1)
    value = b.array(shape)
    b.give(value)
    b.moves = True
    b.set(mode=mode)
    if b.has("paddings"):
        fill = b.real(-2, 2)
        b.set(paddings=pads, value=fill)
        b.refer_to(13, [value, np.array(pads), np.array(fill, value.dtype)], mode=mode)
        return
    b.listing("pads", pads)
    if b.has("value"):
        b.maybe(value=b.real(-2, 2))
        return
    b.give(b.array(())) if mode == "constant" and b.chance(0.6) else b.skip()
    if axes is not None:
        b.give(np.array(axes))


@recipe("DepthToSpace")
def depth_to_space(b: Builder) -> None:
    n, c, h, w = b.integer(1, 2), b.integer(1, 3), b.integer(1, 3), b.integer(1, 3)
    block = b.integer(1, 3)
    b.give(b.array((n, c * block * block, h, w)))
    b.set(blocksize=block)
    b.maybe(mode=b.pick("DCR", "CRD"))


@recipe("SpaceToDepth")
def space_to_depth(b: Builder) -> None:
    n, c, h, w = b.integer(1, 2), b.integer(1, 3), b.integer(1, 3), b.integer(1, 3)
    block = b.integer(1, 3)
    b.give(b.array((n, c, h * block, w * block)))
    b.set(blocksize=block)
    b.maybe(mode=b.pick("DCR", "CRD"))


@recipe("CenterCropPad")
def center_crop_pad(b: Builder) -> None:
    shape = b.shape(1, 4, empty=0)
    axes = b.axes(len(shape), 1) if b.chance() else None
    b.give(b.array(shape))
    b.give(np.array([b.integer(1, 6) for _ in (axes or shape)]))
    b.set(axes=axes)


@recipe("Trilu")
def trilu(b: Builder) -> None:
    b.moves = True
    b.give(b.array(b.shape(2, 4)))
    if b.chance():
        b.give(b.integer(-3, 3))
    b.maybe(upper=b.integer(0, 1))


@recipe("ReverseSequence")
def reverse_sequence(b: Builder) -> None:
    shape = b.shape(2, 4, empty=0)
    batch = b.integer(0, 1)
    b.give(b.array(shape))
    b.give(np.array([b.integer(1, shape[1 - batch]) for _ in range(shape[batch])]))
    b.set(batch_axis=batch, time_axis=1 - batch)


@recipe("BitCast")
def bit_cast(b: Builder) -> None:
    shape = b.shape()
    source = b.array(shape, 0, 3)
    wanted = b.element("T2")
    bits = kinds.bit_width
    if bits(b.element("T1")) != bits(wanted):  # only equal widths are allowed: the nearest type that has it
        same = [kind for kind in next(c for c in b.schema.type_constraints if c.type_param_str == "T2").allowed_type_strs
                if bits(kinds.element(kind)) == bits(b.element("T1"))]
        b.types["T2"] = same[b.integer(0, len(same) - 1)]
        wanted = b.element("T2")
    b.give(source)
    b.set(to=wanted)
    b.wide = False


@recipe("TensorScatter")
def tensor_scatter(b: Builder) -> None:
    batch, heads, length, width, new = b.integer(1, 3), b.integer(1, 2), b.integer(3, 6), b.integer(1, 3), b.integer(1, 3)
    b.give(b.array((batch, heads, length, width)))
    b.give(b.array((batch, heads, new, width)))
    circular = b.chance()
    if b.chance(0.7):
        b.give(np.array([b.integer(0, length - 1 if circular else length - new) for _ in range(batch)]))
    b.maybe(axis=-2)
    b.set(mode="circular" if circular else "linear")

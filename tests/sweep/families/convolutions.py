"""Convolutions, transposed convolutions and pooling of one to three spatial dimensions."""
from __future__ import annotations

from math import prod

import numpy as np

from ..builder import Builder, TooLarge, Value
from .post import activation, post_operations


def spatial_rank(b: Builder) -> int:
    return b.choice((1, 2, 2, 2, 2, 2, 3))


def image(b: Builder, channels: int, rank: int, least: list[int]) -> Value:
    """[batch, channels, spatial...] with at least `least` elements per spatial dimension."""
    most = {1: 2048, 2: 224, 3: 24}[rank]
    if channels > 64:
        most = min(most, 56)
    sizes = [b.sizes(lambda low=low: max(low, b.spatial(most))) for low in least]
    if rank == 1 and b.chance(0.3):
        sizes = [b.sizes(lambda: max(least[0], b.choice((500, 1000, 1023, 2048))))]
    return b.input([b.batch() if b.dynamic else b.batch()[0], channels, *[s if b.dynamic else s[0] for s in sizes]])


def groups_of(b: Builder) -> tuple[int, int, int]:
    """Input channels, output channels, groups."""
    kind = b.choice(("plain", "plain", "plain", "plain", "depthwise", "depthwise", "grouped"))
    if kind == "plain":
        return b.channels(), b.channels(), 1
    if kind == "depthwise":
        c = b.channels()
        return c, c * b.choice((1, 1, 1, 2, 3)), c
    g = b.choice((2, 3, 4, 8, 32))
    return g * b.choice((1, 2, 3, 4, 8, 16)), g * b.choice((1, 2, 3, 4, 8, 16)), g


def attributes(b: Builder, rank: int) -> tuple[list[int], list[int], list[int], list[int]]:
    """Kernel, strides, dilations, pads."""
    each = lambda items: [b.choice(items)] * rank if b.chance(0.7) else [b.choice(items) for _ in range(rank)]  # noqa: E731
    kernel = each((1, 1, 2, 3, 3, 3, 3, 4, 5, 7, 3, 3, 11) if rank < 3 else (1, 2, 3, 3))
    strides, dilations = each((1, 1, 1, 2, 2, 3, 4, 5)), each((1, 1, 1, 1, 2, 3))
    span = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    style = b.choice(("same", "none", "random"))
    if style == "none":
        pads = [0] * 2 * rank
    elif style == "same":
        pads = [(s - 1) // 2 for s in span] + [s // 2 for s in span]
    else:
        pads = [b.integer(0, s) for s in span] + [b.integer(0, s) for s in span]
    return kernel, strides, dilations, pads


def convolved(b: Builder, x: Value, m: int, group: int, kernel, strides, dilations, pads, bias: bool) -> Value:
    rank, c = len(kernel), x.shape[1]
    terms = c // group * prod(kernel)
    shapes = []
    for s in x.shapes:
        out = [(s[2 + d] + pads[d] + pads[rank + d] - (kernel[d] - 1) * dilations[d] - 1) // strides[d] + 1 for d in range(rank)]
        if min(out) < 1:
            raise TooLarge
        shapes.append((s[0], m, *out))
    b.sums(max(prod(s) for s in shapes), terms)
    shape = [m, c // group, *kernel]
    if b.chance(0.06):  # weights that another model computes
        w = b.input(shape, fill=lambda rng, s: rng.standard_normal(s, np.float32) / terms ** 0.5)
    else:
        w = b.weights(shape, terms)
    inputs = [x, w] + ([b.weights([m], 4)] if bias else [])
    return b.node("Conv", inputs, shapes, group=group, kernel_shape=kernel, strides=strides, dilations=dilations, pads=pads)


def conv(b: Builder) -> None:
    rank = spatial_rank(b)
    c, m, group = groups_of(b)
    kernel, strides, dilations, pads = attributes(b, rank)
    least = [max(1, (k - 1) * d + 1 - pads[i] - pads[rank + i]) for i, (k, d) in enumerate(zip(kernel, dilations))]
    y = convolved(b, image(b, c, rank, least), m, group, kernel, strides, dilations, pads, b.chance(0.7))
    y = post_operations(b, y, 1)
    if b.chance(0.15):
        y = convolved(b, y, b.channels(128), 1, [1] * rank, [1] * rank, [1] * rank, [0] * 2 * rank, b.chance(0.5))
        y = post_operations(b, y, 1, 2)
    b.output(y)


def pieces(b: Builder) -> None:
    """Lines and images that are cut into pieces: strides about as wide as the kernel, few windows, padding at one side, and what is
    left over behind the last window."""
    rank = b.choice((1, 1, 2))
    c, m, group = groups_of(b)
    kernel = [b.choice((2, 3, 4, 5, 7, 8, 12, 16)[:8 if rank == 1 else 6]) for _ in range(rank)]
    strides = [b.choice((k, k, k, k - 1, max(1, k // 2))) for k in kernel]
    before = [b.choice((0, 0, b.integer(0, k - 1))) for k in kernel]
    behind = [b.choice((0, 0, 0, b.integer(0, k - 1))) for k in kernel]

    def size(d: int) -> int:
        read = (b.integer(1, 12) - 1) * strides[d] + kernel[d]  # as many as stand before are left over, or some
        return max(read - before[d] - behind[d], 1) + b.choice((before[d] + behind[d], b.integer(0, strides[d] - 1)))

    sizes = [b.sizes(lambda d=d: size(d)) for d in range(rank)]
    x = b.input([b.batch() if b.dynamic else b.batch()[0], c, *[s if b.dynamic else s[0] for s in sizes]])
    y = convolved(b, x, m, group, kernel, strides, [1] * rank, before + behind, b.chance(0.6))
    b.output(post_operations(b, y, 1, 3))


def tiles(b: Builder) -> None:
    """Convolutions of 3 x 3 elements with strides of 1 and many channels, some behind each other: what Winograd's transforms
    are for, and what is next to it."""
    c = b.choice((26, 27, 28, 31, 33, 40, 48, 63, 64, 64, 65, 96, 100, 128, 129, 256, 257, 511, 512))
    x, y = None, None
    b.most_products /= 2
    for _ in range(b.choice((1, 1, 1, 2, 3))):
        m = b.choice((c, c, 1, 3, 16, 17, 31, 32, 33, 47, 48, 64, 65, 128, 130, 255, 512))
        kernel, dilations = [3, 3], [b.choice((1, 1, 1, 1, 1, 2, 3, 5)) for _ in range(2)]
        pads = b.choice(([d for d in dilations] * 2, [d for d in dilations] * 2, [0] * 4, [b.integer(0, 2 * d + 1) for d in dilations * 2]))
        least = [max(1, 2 * d + 1 - pads[i] - pads[2 + i]) for i, d in enumerate(dilations)]
        if y is None:
            most = 224 if c < 64 else 56 if c < 256 else 28
            sizes = [b.sizes(lambda low=low: max(low, b.spatial(most))) for low in least]
            x = y = b.input([s if b.dynamic else s[0] for s in (b.batch(), [c] * b.runs, *sizes)])
        y = convolved(b, y, m, 1 if b.chance(0.95) or m % 2 or y.shape[1] % 2 else 2, kernel, [1, 1], dilations, pads, b.chance(0.6))
        if y.shapes == x.shapes and b.chance(0.5):
            y = b.node("Add", [y, x] if b.chance(0.5) else [x, y])
        y = post_operations(b, y, 1, 3)
    b.output(y)


def transposed_shapes(x: Value, m: int, kernel, strides, dilations, pads, extra) -> list[tuple[int, ...]]:
    """Of the results of a transposed convolution; `extra` is its output_padding."""
    rank, shapes = len(kernel), []
    for s in x.shapes:
        out = [(s[2 + d] - 1) * strides[d] + extra[d] + (kernel[d] - 1) * dilations[d] + 1 - pads[d] - pads[rank + d]
               for d in range(rank)]
        if min(out) < 1:
            raise TooLarge
        shapes.append((s[0], m, *out))
    return shapes


def conv_transpose(b: Builder) -> None:
    rank = spatial_rank(b)
    c, m, group = groups_of(b)
    if m % group or c % group:
        raise TooLarge
    kernel, strides, dilations, _ = attributes(b, rank)
    most = 2048
    if b.chance(0.6):  # strides that divide the kernel, as generator networks have them
        strides = [b.choice((1, 2, 2, 4))] * rank
        kernel = [s * b.choice((1, 2)) for s in strides]
        dilations = [1] * rank
        if rank == 2 and b.chance(0.6):  # many taps and channels
            k = b.choice((4, 4, 8, 8, 16))
            kernel, strides = [k, k], [b.choice([s for s in (1, 2, 4, 8) if k % s == 0])] * 2
            c, group = b.choice((64, 128, 255, 256, 512, 1024)) * b.choice((1, 1, 2)), b.choice((1, 1, 1, 1, 2))
            m, most = group * b.choice((1, 3, 8, 16, 17, 32, 64)), 8
            if c % group:
                raise TooLarge
    pads = [b.integer(0, (k - 1) * d // 2) for k, d in zip(kernel, dilations)] * 2
    extra = [b.integer(0, max(s, d) - 1) if b.chance(0.3) else 0 for s, d in zip(strides, dilations)]
    if most == 8:
        x = b.input([1, c, *[b.sizes(lambda: b.integer(1, most)) if b.dynamic else b.integer(1, most) for _ in range(rank)]])
    else:
        x = image(b, c, rank, [1] * rank)
    shapes = transposed_shapes(x, m, kernel, strides, dilations, pads, extra)
    terms = c // group * prod(kernel)
    b.sums(max(prod(s) for s in x.shapes) * (m // group) * prod(kernel) / terms, terms)
    inputs = [x, b.weights([c, m // group, *kernel], max(1, terms // prod(strides)))]
    if b.chance(0.6):
        inputs.append(b.weights([m], 4))
    y = b.node("ConvTranspose", inputs, shapes, group=group, kernel_shape=kernel, strides=strides, dilations=dilations,
               pads=pads, output_padding=extra)
    b.output(post_operations(b, y, 1))


def _small(b: Builder) -> tuple[Value, int, int, list[int], list[int], list[int], list[int]]:
    """A small image, and attributes by which windows reach beyond it on both sides: image, results, groups and the rest."""
    rank, group = b.choice((1, 2, 2, 2, 3)), b.choice((1, 1, 1, 2))
    c, m = (group * b.choice((1, 3, 16, 24, 33, 64, 129)) for _ in range(2))
    if b.chance(0.2):
        group = c
        m = c * b.choice((1, 1, 2))
    kernel, strides, dilations = ([b.integer(1, most) for _ in range(rank)] for most in (4, 4, 3))
    span = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    sizes = [b.sizes(lambda: b.choice((1, 1, 2, 3, 5, 9, 17))) for _ in range(rank)]
    pads = [b.integer(0, s) for s in span] + [b.integer(0, s) for s in span]
    x = b.input([b.choice((1, 4)), c, *[s if b.dynamic else s[0] for s in sizes]])
    return x, m, group, kernel, strides, dilations, pads


def padded(b: Builder) -> None:
    """Windows that have padding alone, and strides that pass whole lines."""
    x, m, group, kernel, strides, dilations, pads = _small(b)
    b.output(post_operations(b, convolved(b, x, m, group, kernel, strides, dilations, pads, b.chance(0.5)), 1))


def transpose_padded(b: Builder) -> None:
    """Padding that leaves less than the image."""
    x, m, group, kernel, strides, dilations, pads = _small(b)
    c = x.shape[1]
    extra = [b.integer(0, s - 1) for s in strides]
    shapes = transposed_shapes(x, m, kernel, strides, dilations, pads, extra)
    b.sums(max(prod(s) for s in x.shapes) * (m // group), c // group * prod(kernel))
    inputs = [x, b.weights([c, m // group, *kernel], c // group * prod(kernel))] + ([b.weights([m], 4)] if b.chance(0.5) else [])
    y = b.node("ConvTranspose", inputs, shapes, group=group, kernel_shape=kernel, strides=strides, dilations=dilations,
               pads=pads, output_padding=extra)
    b.output(post_operations(b, y, 1))


def pool(b: Builder) -> None:
    rank, c = spatial_rank(b), b.channels(512)
    kernel, strides, dilations, pads = attributes(b, rank)
    pads = [min(p, k // 2) for p, k in zip(pads, kernel * 2)]
    least = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    x = image(b, c, rank, least)
    op = b.choice(("MaxPool", "MaxPool", "AveragePool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool"))
    if op.startswith("Global"):
        b.sums(0, max(prod(s[2:]) for s in x.shapes))
        return b.output(activation(b, b.node(op, [x], [(*s[:2], *[1] * rank) for s in x.shapes])))
    shapes = []
    for s in x.shapes:
        out = [(s[2 + d] + pads[d] + pads[rank + d] - (kernel[d] - 1) * dilations[d] - 1) // strides[d] + 1 for d in range(rank)]
        shapes.append((*s[:2], *out))
    b.sums(max(prod(s) for s in shapes), prod(kernel))
    if any(d != 1 for d in dilations) and op == "LpPool":
        raise TooLarge  # ONNX Runtime has no dilation there
    ceil = b.chance(0.15) and op == "MaxPool" and not any(pads)
    if ceil:
        shapes = [(*s[:2], *[-(-(s[2 + d] - (kernel[d] - 1) * dilations[d] - 1) // strides[d]) + 1 for d in range(rank)])
                  for s in x.shapes]
        if any((out[2 + d] - 1) * strides[d] >= s[2 + d] for s, out in zip(x.shapes, shapes) for d in range(rank)):
            raise TooLarge  # the last window would begin behind the image
    more = {"count_include_pad": b.integer(0, 1)} if op == "AveragePool" else {"p": b.integer(1, 2)} if op == "LpPool" else {}
    y = b.node(op, [x], shapes, kernel_shape=kernel, strides=strides, dilations=dilations, pads=pads,
               ceil_mode=int(ceil) if ceil else None, **more)
    b.output(activation(b, y) if b.chance(0.5) else y)

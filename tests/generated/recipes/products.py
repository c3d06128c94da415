"""Matrix products and convolutions."""

from __future__ import annotations

import math

import numpy as np

from builder import Builder, Skip
from recipes import recipe


@recipe("MatMul")
def matmul(b: Builder) -> None:
    shapes = product_shapes(b)
    for shape in shapes:
        b.give(b.array(shape))
    b.terms = 8 + 2 * shapes[0][-1]


def product_shapes(b: Builder) -> tuple[tuple[int, ...], tuple[int, ...]]:
    m, k, n = (b.integer(1, 6) for _ in range(3))
    batch = b.shape(0, 2, 3)
    left = batch[b.integer(0, len(batch)):] + (m, k)
    right = tuple(1 if d and b.chance(0.3) else d for d in batch) + (k, n)
    if b.chance(0.15):
        return (k,), right
    return (left, (k,)) if b.chance(0.15) else (left, right)


@recipe("Gemm")
def gemm(b: Builder) -> None:
    m, k, n = (b.integer(1, 6) for _ in range(3))
    across, down = b.integer(0, 1), b.integer(0, 1)
    left = b.array((k, m) if across else (m, k))
    right = b.array((n, k) if down else (k, n))
    added = b.pick((m, n), (n,), (1, n), (m, 1), (1,)) if b.version >= 7 or b.chance() else (m, n)
    if b.version < 7 and added not in ((m, n), (n,)):
        added = (n,)
    b.give(left), b.give(right)
    value = b.array(added)
    b.give(value) if b.version < 11 or b.chance(0.7) else b.skip()
    whole = b.dtype("T").kind in "iu"
    b.set(transA=across, transB=down, broadcast=1 if added != (m, n) else None)
    b.maybe(alpha=float(b.integer(1, 2)) if whole else b.real(0.3, 2), beta=float(b.integer(1, 2)) if whole else b.real(0.3, 2))
    b.terms = 8 + 2 * k
    if b.version < 7:
        attributes = {key: v for key, v in b.attributes.items() if key != "broadcast"}
        b.refer_to(13, [left, right, value], **attributes)


def windows(b: Builder, spatial: tuple[int, ...], dilated: bool = True, pads: bool = True) -> list[int]:
    """Attributes of a window that fits; the kernel's shape."""
    rank = len(spatial)
    kernel = [b.integer(1, min(3, d)) for d in spatial]
    b.maybe(strides=[b.integer(1, 3) for _ in kernel])
    if dilated and b.has("dilations") and b.chance(0.4):
        b.set(dilations=[2 if (k - 1) * 2 + 1 <= d else 1 for k, d in zip(kernel, spatial)])
    how = b.pick("explicit", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    if how == "explicit" and pads:
        b.set(pads=[b.integer(0, kernel[i % rank] - 1) for i in range(2 * rank)])
    elif how.startswith("SAME") and any(s > k for s, k in zip(b.attributes.get("strides", []), kernel)):
        pass  # the formula of the padding gives negative numbers
    elif "dilations" not in b.attributes or how == "VALID":
        b.set(auto_pad=how if how != "explicit" else None)
    return kernel


@recipe("Conv", "ConvInteger")
def conv(b: Builder) -> None:
    group, each, out = b.integer(1, 2), b.integer(1, 3), b.integer(1, 3)
    spatial = tuple(b.integer(3, 7) for _ in range(b.integer(1, 3)))
    kernel = windows(b, spatial)
    integers = b.schema.name == "ConvInteger"
    b.give(b.array((b.integer(1, 2), group * each, *spatial), -100, 100))
    b.give(b.array((group * out, each, *kernel), -100, 100))
    if integers:
        b.give(b.array((), 0, 5)) if b.chance() else b.skip()
        b.give(b.array((), 0, 5)) if b.chance() else b.skip()
    elif b.chance():
        b.give(b.array((group * out,)))
    b.set(group=group)
    b.maybe(kernel_shape=kernel)
    b.terms = 8 + 2 * each * math.prod(kernel)


@recipe("ConvTranspose")
def conv_transpose(b: Builder) -> None:
    group, each, out = b.integer(1, 2), b.integer(1, 3), b.integer(1, 3)
    spatial = tuple(b.integer(2, 5) for _ in range(b.integer(1, 2)))
    rank = len(spatial)
    kernel = [b.integer(1, 3) for _ in spatial]
    strides = [b.integer(1, 3) for _ in kernel]
    b.give(b.array((b.integer(1, 2), group * each, *spatial)))
    b.give(b.array((group * each, out, *kernel)))
    if b.chance():
        b.give(b.array((group * out,)))
    b.set(group=group, strides=strides)
    b.maybe(kernel_shape=kernel)
    if b.chance(0.4):
        b.set(pads=[b.integer(0, (kernel[i % rank] - 1) // 2) for i in range(2 * rank)])
    if b.chance(0.3):
        b.set(output_padding=[b.integer(0, s - 1) for s in strides])
    b.terms = 8 + 2 * each * math.prod(kernel) * group


@recipe("DeformConv")
def deform_conv(b: Builder) -> None:
    group, each, out = b.integer(1, 2), b.integer(1, 2), b.integer(1, 2)
    spatial = (b.integer(3, 5), b.integer(3, 5))
    kernel = (b.integer(1, 3), b.integer(1, 3))
    sizes = tuple(d - k + 1 for d, k in zip(spatial, kernel))
    batch, taps = b.integer(1, 2), math.prod(kernel)
    b.give(b.array((batch, group * each, *spatial)))
    b.give(b.array((group * out, each, *kernel)))
    b.give(b.array((batch, 2 * taps, *sizes), -0.9, 0.9))
    b.give(b.array((group * out,))) if b.chance() else b.skip()
    b.give(b.array((batch, taps, *sizes), 0, 1)) if b.chance() else b.skip()
    b.set(group=group, kernel_shape=list(kernel), pads=[0, 0, 0, 0])
    b.terms = 8 + 4 * each * taps


@recipe("CausalConvWithState")
def causal_conv(b: Builder) -> None:
    batch, channels, length, taps = b.integer(1, 2), b.integer(1, 3), b.integer(1, 5), b.integer(1, 4)
    b.give(b.array((batch, channels, length)))
    b.give(b.array((channels, 1, taps)))
    b.give(b.array((channels,))) if b.chance() else b.skip()
    b.give(b.array((batch, channels, taps - 1))) if b.chance() else b.skip()
    b.maybe(activation=b.pick("none", "silu", "swish"))
    b.terms = 8 + 2 * taps


@recipe("Col2Im")
def col2im(b: Builder) -> None:
    if b.types["T"] == "tensor(string)":
        raise Skip("it adds elements, which strings cannot")
    image = [b.integer(3, 5), b.integer(3, 5)]
    block = [b.integer(1, 3), b.integer(1, 3)]
    strides = [b.integer(1, 2), b.integer(1, 2)]
    count = math.prod((d - k) // s + 1 for d, k, s in zip(image, block, strides))
    b.give(b.array((b.integer(1, 2), b.integer(1, 2) * math.prod(block), count)))
    b.give(np.array(image))
    b.give(np.array(block))
    b.set(strides=strides)
    b.terms = 8 + math.prod(block)

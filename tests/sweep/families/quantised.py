"""Products of 8-bit integers: QLinear operators, integer products, and floats between Quantize and Dequantize."""
from __future__ import annotations

from math import prod

import numpy as np

from ..builder import TYPES, Builder, Shape, TooLarge, Value
from .convolutions import attributes, groups_of, image
from .post import post_operations
from .products import INNER, ROWS


def _sizes(b: Builder, s: list[int]):
    return s if b.dynamic else s[0]


def _zero(b: Builder, dtype: str, shape=()) -> Value:
    low = 0 if dtype == "u8" else -128
    if b.chance(0.3):
        return b.constant(np.zeros(shape, TYPES[dtype]))
    return b.constant(b.rng.integers(low + 64, low + 192, shape).astype(TYPES[dtype]))


def _integers(b: Builder, shape, dtype: str) -> Value:
    low = 0 if dtype == "u8" else -127  # -128 saturates in 16 bits on machines without VNNI, in ONNX Runtime as well
    if prod(shape) > b.most_elements:
        raise TooLarge
    return b.constant(b.rng.integers(low, low + 255, shape).astype(TYPES[dtype]))


def _scale(b: Builder, value: float, shape=()) -> Value:
    return b.constant((value * (0.5 + b.rng.random(shape, np.float32))).astype(np.float32))


def _conv(b: Builder, dtype: str) -> tuple[Value, list[int], int, list[Shape], dict]:
    rank = b.choice((1, 2, 2, 2))
    c, m, group = groups_of(b)
    kernel, strides, dilations, pads = attributes(b, rank)
    least = [max(1, (k - 1) * d + 1 - pads[i] - pads[rank + i]) for i, (k, d) in enumerate(zip(kernel, dilations))]
    b.dtype = dtype
    x = image(b, c, rank, least)
    shapes = [(s[0], m, *[(s[2 + d] + pads[d] + pads[rank + d] - (kernel[d] - 1) * dilations[d] - 1) // strides[d] + 1
                          for d in range(rank)]) for s in x.shapes]
    if min(min(s) for s in shapes) < 1:
        raise TooLarge
    terms = c // group * prod(kernel)
    b.sums(max(prod(s) for s in shapes), terms)
    return x, [m, c // group, *kernel], terms, shapes, dict(group=group, kernel_shape=kernel, strides=strides,
                                                            dilations=dilations, pads=pads)


def _matmul(b: Builder, dtype: str) -> tuple[Value, int, int, list[Shape]]:
    k, n = b.choice(INNER), b.choice(INNER)
    m, batch = b.sizes(lambda: b.choice(ROWS)), [b.sizes(lambda: b.choice((1, 2, 4)))] * b.integer(0, 1)
    b.sums(max(prod(x[r] for x in batch) * m[r] for r in range(b.runs)) * n, k)
    a = b.input([*[_sizes(b, x) for x in batch], _sizes(b, m), k], dtype)
    return a, k, n, [(*s[:-1], n) for s in a.shapes]


def qlinear(b: Builder) -> None:
    dtype, weights = b.dtype, b.choice(("i8", "i8", "u8"))
    b.off_by_one = True
    if b.chance(0.5):
        x, shape, terms, shapes, more = _conv(b, dtype)
        columns = (shape[0],) if b.chance(0.4) and weights == "i8" else ()
        zero = b.constant(np.zeros(columns, TYPES[weights])) if columns else _zero(b, weights)
        inputs = [x, _scale(b, 0.02), _zero(b, dtype), _integers(b, shape, weights), _scale(b, 0.01, columns), zero,
                  _scale(b, 0.01 * terms ** 0.5), _zero(b, dtype)]
        if b.chance(0.5):
            inputs.append(b.constant(b.rng.integers(-5000, 5000, shape[0]).astype(np.int32)))
        return b.output(b.node("QLinearConv", inputs, shapes, **more))
    a, k, n, shapes = _matmul(b, dtype)
    columns = (n,) if b.chance(0.4) and weights == "i8" else ()
    zero = b.constant(np.zeros(columns, TYPES[weights])) if columns else _zero(b, weights)
    b.output(b.node("QLinearMatMul", [a, _scale(b, 0.02), _zero(b, dtype), _integers(b, [k, n], weights),
                                      _scale(b, 0.01, columns), zero, _scale(b, 0.01 * k ** 0.5), _zero(b, dtype)], shapes))


def integer(b: Builder) -> None:
    dtype, weights = b.dtype, b.choice(("i8", "u8"))
    if b.chance(0.4):
        x, shape, _, shapes, more = _conv(b, dtype)
        inputs = [x, _integers(b, shape, weights)]
        if b.chance(0.6):
            inputs += [_zero(b, dtype)] + ([_zero(b, weights)] if b.chance(0.5) else [])
        y = b.node("ConvInteger", inputs, shapes, "i32", **more)
    else:
        a, k, n, shapes = _matmul(b, dtype)
        inputs = [a, _integers(b, [k, n], weights) if b.chance(0.8) else b.input([k, n], weights)]
        if b.chance(0.6):
            inputs += [_zero(b, dtype)] + ([_zero(b, weights, (n,) if b.chance(0.3) else ())] if b.chance(0.5) else [])
        y = b.node("MatMulInteger", inputs, shapes, "i32")
    if b.chance(0.5):
        b.output(y)
    else:
        y = b.node("Mul", [b.node("Cast", [y], None, "f32", to=1), _scale(b, 1e-4)])
        b.output(b.node("Add", [y, _scale(b, 1)]) if b.chance(0.5) else y)


def _off_ties(scale: float, zero: int, low: int):
    """Floats that no rounding of a division takes to another integer."""
    def fill(rng: np.random.Generator, shape: Shape) -> np.ndarray:
        steps = rng.integers(low, low + 256, shape) - zero + rng.uniform(-0.4, 0.4, shape)
        return (steps * scale).astype(np.float32)
    return fill


def qdq(b: Builder) -> None:
    """Dequantize(Quantize(x)) times Dequantize(w), then perhaps Relu and Quantize: what quantisation tools write."""
    dtype = b.choice(("u8", "u8", "i8"))
    b.off_by_one = True
    scale, zero = 0.02 * (0.5 + b.rng.random()), int(b.rng.integers(100, 150)) - (0 if dtype == "u8" else 128)
    fill = _off_ties(scale, zero, 0 if dtype == "u8" else -128)
    s, z = b.constant(np.float32(scale)), b.constant(np.asarray(zero).astype(TYPES[dtype]))

    def both(v: Value, scale: Value, zero: Value) -> Value:
        q = b.node("QuantizeLinear", [v, scale, zero], None, zero.dtype)
        return b.node("DequantizeLinear", [q, scale, zero], None, "f32")

    def weights(shape, axis: int) -> Value:
        per = (shape[axis],) if b.chance(0.5) else ()
        more = {"axis": axis} if per else {}
        zeros = b.constant(np.zeros(per, np.int8))
        return b.node("DequantizeLinear", [_integers(b, shape, "i8"), _scale(b, 0.01, per), zeros], None, "f32", **more)

    if b.chance(0.5):
        x, shape, terms, shapes, more = _conv(b, "f32")
        b.inputs[-1].fill = fill
        y = b.node("Conv", [both(x, s, z), weights(shape, 0)] + ([b.weights([shape[0]], 1, "f32")] if b.chance(0.5) else []),
                   shapes, "f32", **more)
    else:
        a, terms, n, shapes = _matmul(b, "f32")
        b.inputs[-1].fill = fill
        y = b.node("MatMul", [both(a, s, z), weights([terms, n], 1)], shapes, "f32")
    if b.chance(0.5):
        y = b.node("Relu", [y])
    if b.chance(0.3):
        y = b.node("Add", [y, b.input([list(c) if b.dynamic and len(set(c)) > 1 else c[0] for c in zip(*y.shapes)], "f32")])
    if b.chance(0.6):
        step = _scale(b, 0.01 * terms ** 0.5)
        y = b.node("QuantizeLinear", [y, step, z], None, dtype)
    b.output(y)


def packed(b: Builder) -> None:
    """MatMulNBits: a matrix of 2-, 4- or 8-bit integers with a scale per block."""
    k, n, block, bits = b.choice((16, 32, 64, 96, 128, 256, 768, 1000)), b.choice(INNER), b.choice((16, 32, 64, 128)), b.choice((4, 4, 8))
    m, batch = b.sizes(lambda: b.choice(ROWS)), [b.batch()] * b.integer(0, 1)
    b.sums(max(prod(x[r] for x in batch) * m[r] for r in range(b.runs)) * n, k)
    b.gain *= 2
    blocks = -(-k // block)
    a = b.input([*[_sizes(b, x) for x in batch], _sizes(b, m), k])
    bytes_ = b.constant(b.rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8))
    scales = b.constant((b.rng.standard_normal(n * blocks, np.float32) / (k ** 0.5 * 2 ** (bits - 2))).astype(TYPES[b.dtype]))
    inputs: list[Value] = [a, bytes_, scales]
    if b.chance(0.4):
        inputs.append(b.constant(b.rng.integers(0, 256, n * ((blocks * bits + 7) // 8)).astype(np.uint8)))
    y = b.node("MatMulNBits", inputs, [(*s[:-1], n) for s in a.shapes], domain="com.microsoft", K=k, N=n, bits=bits,
               block_size=block)
    b.output(post_operations(b, y, -1, 2))


def weights_alone(b: Builder) -> None:
    """MatMul or Gemm by integers of 8 or 4 bits that DequantizeLinear makes floats of: one scale, one per column, one per block."""
    b.domains[""] = 21
    k, n = b.choice((*INNER, 64, 128, 768)), b.choice((*INNER, 64, 128, 768))
    m = b.sizes(lambda: b.choice((1, 1, 2, 3, 8, 15, 16, 17, 23, 24, 25, 32, 33, 64, 128, 197)))
    gemm = b.chance(0.3)
    batch = [] if gemm else [b.sizes(lambda: b.choice((1, 2, 3)))] * b.integer(0, 1)
    b.sums(max(prod(x[r] for x in batch) * m[r] for r in range(b.runs)) * n, k)
    b.gain *= 2
    turned = gemm and b.chance(0.5)
    dtype, float_type = b.choice(("i8", "u8", "i4", "u4")), b.dtype
    low, count = {"i8": (-128, 256), "u8": (0, 256), "i4": (-8, 16), "u4": (0, 16)}[dtype]
    shape = [n, k] if turned else [k, n]
    deep, wide = (1, 0) if turned else (0, 1)
    blocks = [s for s in (16, 32, 64, 128) if k % s == 0]
    form = b.choice(("whole", "column", "column", "block", "block", "row")) if blocks else b.choice(("whole", "column", "row"))
    more: dict[str, int] = {}
    scales: list[int] = []
    if form in ("column", "row"):
        axis = wide if form == "column" else deep
        scales, more = [shape[axis]], {"axis": axis}
    elif form == "block":
        size = b.choice(blocks)
        scales, more = [k // size if d == deep else n for d in range(2)], {"axis": deep, "block_size": size}
    integers = lambda s: b.constant(b.rng.integers(low, low + count, s).astype(TYPES[dtype]))  # noqa: E731
    scale = b.constant(((0.5 + b.rng.random(scales, np.float32)) / (k ** 0.5 * count / 4)).astype(TYPES[float_type]))
    inputs = [integers(shape), scale] + ([integers(scales)] if b.chance(0.5) else [])
    w = b.node("DequantizeLinear", inputs, [tuple(shape)] * b.runs, float_type, **more)
    a = b.input([*[_sizes(b, x) for x in batch], _sizes(b, m), k])
    shapes = [(*s[:-1], n) for s in a.shapes]
    if gemm:
        y = b.node("Gemm", [a, w] + ([b.weights([n], 4)] if b.chance(0.6) else []), shapes, transB=int(turned))
    else:
        y = b.node("MatMul", [a, w], shapes)
    b.output(post_operations(b, y, -1, 3))


def dynamic(b: Builder) -> None:
    """What dynamic quantisation writes: activations are rounded to 8 bits while the model runs."""
    a, k, n, shapes = _matmul(b, "f32")
    q = b.node("DynamicQuantizeLinear", [a], None, "u8", outputs=3)
    scale, zero = (Value(name, [()] * b.runs, t) for name, t in zip(b.others()[1:], ("f32", "u8")))
    b.gain *= 2
    per = (n,) if b.chance(0.5) else ()
    kind = b.choice(("i8", "u8"))
    inputs: list[Value] = [q, _integers(b, [k, n], kind), zero, *([_zero(b, kind)] if b.chance(0.5) else [])]
    y = b.node("MatMulInteger", inputs, shapes, "i32")
    y = b.node("Cast", [y], None, "f32", to=1)
    y = b.node("Mul", [y, b.node("Mul", [scale, _scale(b, 0.01 / k ** 0.5, per)], [per] * b.runs)], shapes)
    b.dtype = "f32"
    b.output(post_operations(b, y, -1, 2))

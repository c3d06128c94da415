"""Blocks as networks have them, and chains of elementwise operators with broadcasting."""
from __future__ import annotations

from math import prod


from ..builder import Builder, TooLarge, Value, positive
from .convolutions import convolved
from .post import activation, per_channel, post_operations, scalar


def _sizes(b: Builder, s: list[int]):
    return s if b.dynamic else s[0]


def _norm(b: Builder, v: Value) -> Value:
    c = v.shape[1]
    ones = Value("", [(c,)], v.dtype)
    return b.node("BatchNormalization", [v, per_channel(b, ones, 0, True), b.weights([c], 1), b.weights([c], 4),
                                         per_channel(b, ones, 0, True)])


def _conv(b: Builder, v: Value, m: int, k: int, group: int = 1, stride: int = 1) -> Value:
    return convolved(b, v, m, group, [k, k], [stride] * 2, [1, 1], [k // 2] * 4, b.chance(0.3))


def network(b: Builder) -> None:
    kind = b.choice(("residual", "inverted", "classifier", "feed_forward", "dense", "generator", "gated"))
    b.gain *= 16
    if kind in ("residual", "inverted", "classifier", "dense"):
        side = b.sizes(lambda: b.choice((4, 7, 14, 17, 28, 32)))
        c = b.choice((3, 8, 16, 24, 32, 33, 64, 96))
        x = b.input([_sizes(b, b.batch()), c, _sizes(b, side), _sizes(b, b.sizes(lambda: b.choice((4, 7, 14, 28))))])
        if kind == "residual":
            y = activation(b, _norm(b, _conv(b, x, c, 3)), "Relu")
            y = b.node("Add", [_norm(b, _conv(b, y, c, 3)), x])
            return b.output(activation(b, y, "Relu"))
        if kind == "inverted":
            wide = c * b.choice((2, 4, 6))
            y = activation(b, _norm(b, _conv(b, x, wide, 1)), b.choice(("HardSwish", "swish", "Clip")))
            y = _norm(b, _conv(b, y, wide, b.choice((3, 5)), wide))
            if b.chance(0.5):  # squeeze and excite
                s = b.node("GlobalAveragePool", [y], [(n[0], wide, 1, 1) for n in y.shapes])
                s = activation(b, _conv(b, activation(b, _conv(b, s, max(1, wide // 4), 1), "Relu"), wide, 1), "HardSigmoid")
                y = b.node("Mul", [y, s])
            y = _conv(b, y, c, 1)
            return b.output(b.node("Add", [x, y]))
        if kind == "dense":
            y = _conv(b, activation(b, x, "Relu"), b.choice((8, 32)), 3)
            both = b.node("Concat", [x, y], [(s[0], s[1] + y.shape[1], *s[2:]) for s in x.shapes], axis=1)
            return b.output(_conv(b, both, b.choice((16, 33)), 1))
        y = activation(b, _conv(b, x, b.choice((16, 64)), 3, stride=2), "Relu")
        y = b.node("GlobalAveragePool", [y], [(*s[:2], 1, 1) for s in y.shapes])
        y = b.node("Flatten", [y], [s[:2] for s in y.shapes], axis=1)
        n = b.choice((10, 1000))
        b.sums(y.shapes[0][0] * n, y.shape[1])
        y = b.node("Gemm", [y, b.weights([n, y.shape[1]], y.shape[1]), b.weights([n], 1)], [(s[0], n) for s in y.shapes], transB=1)
        return b.output(b.node("Softmax", [y], axis=-1) if b.chance(0.5) else y)
    if kind == "generator":
        c, m = b.choice((16, 32, 64, 100, 128, 256)), b.choice((3, 8, 32, 64))
        s = b.choice((1, 2, 4, 8, 16))
        x = b.input([_sizes(b, b.batch()), c, s, s])
        shapes = [(n[0], m, 2 * n[2], 2 * n[3]) for n in x.shapes]
        b.sums(max(prod(t) for t in shapes), c * 16)
        y = b.node("ConvTranspose", [x, b.weights([c, m, 4, 4], c * 4)], shapes, strides=[2, 2], pads=[1] * 4, kernel_shape=[4, 4])
        return b.output(activation(b, _norm(b, y), b.choice(("Relu", "Tanh", "LeakyRelu"))))
    tokens, width = b.sizes(lambda: b.choice((1, 5, 16, 33, 77, 128))), b.choice((16, 64, 100, 192, 256, 384))
    x = b.input([_sizes(b, b.batch()), _sizes(b, tokens), width])
    rows = max(prod(s[:-1]) for s in x.shapes)

    def linear(v: Value, n: int, bias: bool = True) -> Value:
        k = v.shape[-1]
        b.sums(rows * n, k)
        y = b.node("MatMul", [v, b.weights([k, n], k)], [(*s[:-1], n) for s in v.shapes])
        return b.node("Add", [b.weights([n], 4), y], list(y.shapes)) if bias else y

    y = b.node("LayerNormalization", [x, b.weights([width], 1), b.weights([width], 1)], axis=-1) if b.chance(0.7) else x
    b.terms += width
    wide = width * b.choice((1, 2, 4))
    if kind == "feed_forward":
        y = linear(activation(b, linear(y, wide), b.choice(("Gelu", "gelu_erf", "gelu_tanh", "Relu"))), width)
    else:
        y = linear(b.node("Mul", [activation(b, linear(y, wide, False), "swish"), linear(y, wide, False)]), width, False)
    b.output(b.node("Add", [x, y]))


def pointwise(b: Builder) -> None:
    """Elementwise operators on tensors of ranks 1 to 5 that broadcast against each other."""
    rank = b.integer(1, 5)
    sizes = [b.sizes(lambda: b.choice((1, 2, 3, 7, 8, 16, 17, 33, 64))) for _ in range(rank)]
    v = b.input([_sizes(b, s) for s in sizes])
    for _ in range(b.integer(1, 6)):
        if b.chance(0.5):
            v = activation(b, v)
            continue
        take = b.integer(0, rank)
        dims = [1 if b.chance(0.4) else _sizes(b, s) for s in sizes[rank - take:]]
        op = b.choice(("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "PRelu", "Where"))
        if op == "Where":
            mask = b.input(dims, "bool")
            v = b.node("Where", [mask, v, scalar(b, 0.5, v.dtype)], list(v.shapes), v.dtype)
        elif op == "Pow":
            v = b.node("Pow", [activation(b, v, "Sigmoid"), scalar(b, 2, v.dtype)])
        else:
            other = b.input(dims, fill=positive if op == "Div" else None)
            v = b.node(op, [v, other], list(v.shapes))
            b.gain *= 3
    if len(b.nodes) == 0:
        raise TooLarge
    b.output(post_operations(b, v, -1, 1))

"""What networks do with the result of a product: activations, residuals, scales, per channel and whole."""
from __future__ import annotations

import numpy as np

from ..builder import TYPES, Builder, Value, positive


def scalar(b: Builder, value: float, dtype: str) -> Value:
    return b.constant(np.asarray(value).astype(TYPES[dtype]))


def per_channel(b: Builder, v: Value, axis: int, above_zero: bool = False) -> Value:
    """A constant with one value per element of `axis`; an input where runs differ in that size."""
    size = v.shape[axis]
    if len({s[axis] for s in v.shapes}) > 1:
        return b.input([[s[axis] for s in v.shapes], *[1] * (v.rank - 1 - axis % v.rank)], v.dtype,
                       positive if above_zero else None)
    values = b.rng.random(size, np.float32) + 0.5 if above_zero else b.rng.standard_normal(size, np.float32)
    axis = axis % v.rank
    return b.constant(values.reshape([size if d == axis else 1 for d in range(axis, v.rank)]).astype(TYPES[v.dtype]))


def residual(b: Builder, v: Value, fill=None) -> Value:
    """A graph input of the same sizes."""
    columns = [[s[d] for s in v.shapes] for d in range(v.rank)]
    return b.input([c if b.dynamic and len(set(c)) > 1 else c[0] for c in columns], v.dtype, fill)


UNARY = ("Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Elu", "Softplus", "Mish", "Clip", "Abs",
         "Gelu", "gelu_tanh", "swish", "gelu_erf", "Neg", "Square", "Softsign", "Selu", "Exp")


def activation(b: Builder, v: Value, kind: str | None = None) -> Value:
    kind = kind or b.choice(UNARY)
    if kind == "LeakyRelu":
        return b.node(kind, [v], alpha=b.choice((0.01, 0.1, 0.2)))
    if kind == "Elu":
        return b.node(kind, [v], alpha=b.choice((1.0, 0.5)))
    if kind == "HardSigmoid":
        return b.node(kind, [v], alpha=b.choice((0.2, 1 / 6)), beta=0.5)
    if kind == "Clip":
        low, high = b.choice(((0.0, 6.0), (-1.0, 1.0), (0.0, None), (None, 0.5)))
        bounds = [scalar(b, x, v.dtype) if x is not None else None for x in (low, high)]
        return b.node(kind, [v, *bounds] if bounds[1] else [v, bounds[0]])
    if kind == "gelu_tanh":
        return b.node("Gelu", [v], approximate="tanh")
    if kind == "swish":
        return b.node("Mul", [v, b.node("Sigmoid", [v])])
    if kind == "gelu_erf":
        inner = b.node("Erf", [b.node("Div", [v, scalar(b, 2 ** 0.5, v.dtype)])])
        return b.node("Mul", [b.node("Mul", [v, b.node("Add", [inner, scalar(b, 1, v.dtype)])]), scalar(b, 0.5, v.dtype)])
    if kind == "Square":
        b.gain *= 4
        return b.node("Mul", [v, v])
    if kind == "Exp":
        b.gain *= 2
        return b.node("Exp", [b.node("Clip", [v, None, scalar(b, 2, v.dtype)])])
    return b.node(kind, [v])


def post_operations(b: Builder, v: Value, axis: int, most: int = 4) -> Value:
    """Up to `most` operations behind a product whose channels lie along `axis`."""
    first = v
    for _ in range(b.choice((0, 1, 1, 2, 2, 3, most))):
        kind = b.choice(("unary", "unary", "unary", "add", "add", "channel_mul", "channel_add", "scalar", "mul", "sub", "div",
                         "max", "twice", "self", "swapped"))
        if kind == "unary":
            v = activation(b, v)
        elif kind == "add":
            v = b.node("Add", [v, residual(b, v)])
        elif kind == "swapped":
            v = b.node(b.choice(("Add", "Sub", "Mul")), [residual(b, v), v], list(v.shapes))
            b.gain *= 2
        elif kind == "channel_mul":
            v = b.node("Mul", [v, per_channel(b, v, axis)])
            b.gain *= 2
        elif kind == "channel_add":
            v = b.node(b.choice(("Add", "Sub")), [v, per_channel(b, v, axis)])
        elif kind == "scalar":
            v = b.node(b.choice(("Add", "Mul", "Sub", "Div", "Max", "Min")), [v, scalar(b, 1.5, v.dtype)])
            b.gain *= 1.5
        elif kind == "mul":
            v = b.node("Mul", [v, residual(b, v)])
            b.gain *= 4
        elif kind == "sub":
            v = b.node("Sub", [v, residual(b, v)])
        elif kind == "div":
            v = b.node("Div", [v, residual(b, v, positive)])
            b.gain *= 2
        elif kind == "max":
            v = b.node(b.choice(("Max", "Min")), [v, residual(b, v)])
        elif kind == "twice":  # one residual, read by two operations
            r = residual(b, v)
            v = b.node("Add", [activation(b, b.node("Add", [v, r]), "Relu"), r])
        else:  # the product's result, read again
            if v.name != first.name:
                v = b.node("Add", [v, first])
            else:
                v = activation(b, v, "swish")
    return v

"""Operators that work element by element."""

from __future__ import annotations

import numpy as np

from builder import Builder, Optional, Variadic
from recipes import recipe

RANGES = {"Acos": (-1, 1), "Acosh": (1, 5), "Asin": (-1, 1), "Atanh": (-0.95, 0.95), "Log": (0.1, 8), "Sqrt": (0, 9),
          "Tan": (-1.4, 1.4), "Exp": (-4, 4)}
FLOATS = {"alpha": (0.2, 2.0), "beta": (0.1, 1.0), "gamma": (0.5, 2.0), "bias": (-1.0, 1.0), "lambd": (0.1, 1.5)}
LEGACY = 7  # the first opset whose operators broadcast as numpy does


def operands(b: Builder, count: int) -> list[tuple[int, ...]]:
    """Shapes that broadcast together, of ranks that may differ."""
    full = b.shape(0, 4)
    shapes = [tuple(1 if d != 0 and b.chance(0.25) else d for d in full)[b.integer(0, len(full)) if i else 0:]
              for i in range(count)]
    order = b.rng.permutation(count)
    return [shapes[i] for i in order]


def floats(b: Builder) -> None:
    """Attributes of float type, near their usual values."""
    b.maybe(**{name: b.real(*FLOATS[name]) for name in b.schema.attributes if name in FLOATS})


@recipe("*")
def plain_recipe(b: Builder) -> None:
    formals = b.schema.inputs
    count = len(formals)
    if formals and formals[-1].option == Variadic:
        count += b.integer(0, 3)
    elif formals and formals[-1].option == Optional and b.chance():
        count -= 1
    low, high = RANGES.get(b.schema.name, (-3, 3))
    for shape in operands(b, count):
        b.give(b.array(shape, low, high))
    floats(b)


def legacy_binary(b: Builder, low: float = -3, high: float = 3, positive: bool = False) -> None:
    """Before opset 7: equal shapes, or with broadcast=1 the second shape at `axis` of the first."""
    shape = b.shape(1, 4, empty=0)
    left = b.array(shape, low, high)
    right = aligned = b.array(shape, 1 if positive else low, high)
    if b.chance(0.4):
        begin = b.integer(0, len(shape) - 1)
        end = b.integer(begin + 1, len(shape))
        right = b.array(shape[begin:end], 1 if positive else low, high)
        b.set(broadcast=1, axis=begin if end < len(shape) or b.chance() else None)
        aligned = right.reshape(right.shape + (1,) * (len(shape) - end))
    b.give(left), b.give(right)
    b.refer_to(13, [left, aligned])


@recipe("Add", "Sub", "Mul", "And", "Or", "Xor", "Equal", "Greater", "Less")
def binary(b: Builder) -> None:
    if b.version < LEGACY:
        return legacy_binary(b)
    for shape in operands(b, 2):
        b.give(b.array(shape))
    return None


@recipe("SwiGLU")
def swiglu(b: Builder) -> None:
    shape = b.shape(1, 4)
    for _ in b.schema.inputs:
        b.give(b.array(shape))
    floats(b)


@recipe("Max", "Min", "Sum", "Mean")
def variadic(b: Builder) -> None:
    count = b.integer(1, 4)
    shapes = operands(b, count) if b.version >= 8 else [b.shape()] * count
    values = [b.array(shape) for shape in shapes]
    for value in values:
        b.give(value)
    if b.version < 8:
        b.refer_to(13, values)


@recipe("Div")
def div(b: Builder) -> None:
    if b.version < LEGACY:
        return legacy_binary(b, 1, 9, positive=True)
    left, right = operands(b, 2)
    b.give(b.array(left, -100, 100))
    divisor = b.array(right, 1, 9)
    b.give(divisor if b.dtype("T").kind == "u" or b.chance() else -divisor)
    return None


@recipe("Mod")
def mod(b: Builder) -> None:
    left, right = operands(b, 2)
    b.give(b.array(left, -100, 100))
    divisor = b.array(right, 1, 9)
    b.give(divisor if b.dtype("T").kind == "u" or b.chance() else -divisor)
    b.set(fmod=1 if b.dtype("T").kind not in "iu" or b.chance(0.3) else None)


@recipe("Pow")
def power(b: Builder) -> None:
    if b.version < LEGACY:
        return legacy_binary(b, 0.2, 3, positive=True)
    left, right = operands(b, 2)
    whole = b.dtype("T").kind in "iu"
    b.give(b.array(left, 1 if whole else 0.2, 3))
    b.give(b.array(right, 0 if whole else -2, 3))
    return None


@recipe("Relu", "Abs", "Neg", "Sign", "Ceil", "Floor", "Round", "IsNaN", "IsInf", "Erf", "Sigmoid", "Tanh", "Softplus",
        "Softsign", "HardSwish", "Reciprocal", "Sin", "Cos", "Atan", "Asinh", "Sinh", "Cosh", "Not", "BitwiseNot")
def unary(b: Builder) -> None:
    """Everywhere defined, so special numbers are among the inputs."""
    value = b.array(b.shape(), -6, 6)
    if b.schema.name == "Round":
        value = (np.round(value.astype(np.float32) * 2) / 2).astype(value.dtype)  # halves go to the even number
    if (value.dtype.kind == "f" or value.dtype.name in ("bfloat16", "float8_e5m2")) and value.size and b.chance(0.5):
        specials = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32).astype(value.dtype)
        if b.schema.name == "Sign":
            specials = specials[:4]
        flat = value.reshape(-1)
        flat[b.rng.integers(0, flat.size, 2)] = b.rng.choice(specials, 2)
    b.give(value)
    b.maybe(detect_negative=b.integer(0, 1), detect_positive=b.integer(0, 1))


@recipe("Clip")
def clip(b: Builder) -> None:
    value = b.array(b.shape(), -6, 6)
    b.give(value)
    low, high = sorted(b.array((2,), -4, 4, "T").astype(np.float64))
    if b.has("min"):
        bounds = [np.array(bound, value.dtype) if b.chance(0.7) else None for bound in (low, high)]
        bounds = [None if bound is None else bound.astype(np.float32).astype(value.dtype) for bound in bounds]
        b.set(**{key: float(bound) for key, bound in zip(("min", "max"), bounds) if bound is not None})
        b.refer_to(13, [value, *bounds])
        return
    b.give(low) if b.chance(0.7) else b.skip()
    b.give(high) if b.chance(0.7) else b.skip()


@recipe("PRelu")
def prelu(b: Builder) -> None:
    shape = b.shape(2, 4, empty=0)
    value = b.array(shape)
    b.give(value)
    if b.version < 7:
        slope = b.array((b.pick(1, shape[1]),), 0, 2)
        b.give(slope)
        b.refer_to(16, [value, slope.reshape((-1,) + (1,) * (len(shape) - 2))])
    else:
        b.give(b.array(b.pick((1,), shape, shape[-1:], (shape[1],) + (1,) * (len(shape) - 2)), 0, 2))


@recipe("Gelu")
def gelu(b: Builder) -> None:
    b.give(b.array(b.shape()))
    b.maybe(approximate=b.pick("none", "tanh"))


@recipe("Shrink")
def shrink(b: Builder) -> None:
    b.give(b.array(b.shape()))
    b.set(lambd=float(b.integer(1, 2)), bias=float(b.integer(0, 1)))  # whole, so that integers can follow


@recipe("Where")
def where(b: Builder) -> None:
    for shape in operands(b, 3):
        b.give(b.array(shape))


@recipe("BitShift")
def bit_shift(b: Builder) -> None:
    left, right = operands(b, 2)
    bits = 8 * b.dtype("T").itemsize
    b.give(b.array(left, -100, 100))
    b.give(b.array(right, 0, min(7, bits - 1)))
    b.set(direction=b.pick("LEFT", "RIGHT"))


@recipe("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bitwise(b: Builder) -> None:
    for shape in operands(b, 2):
        b.give(b.array(shape, -100, 100))


@recipe("Dropout")
def dropout(b: Builder) -> None:
    value = b.array(b.shape())
    b.give(value)
    b.set(is_test=1)
    if b.has("ratio"):
        b.maybe(ratio=b.real(0.1, 0.9))
        b.drop = ("y1",) if b.version < 10 else ()  # the mask of a Dropout that is not training has no meaning
        b.refer_to(13, [value])
        return
    b.give(b.array((), 0.1, 0.9)) if b.chance() else b.skip()
    if b.chance():
        b.give(np.array(False))

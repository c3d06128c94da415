"""Operators that make tensors, convert their type or draw them at random."""

from __future__ import annotations

import numpy as np
import onnx

import kinds
from builder import Builder, Skip, make_tensor
from recipes import recipe


def convertible(b: Builder, source: str, target: str) -> np.ndarray:
    """Values that the target type can take: numbers as text for strings, nothing negative for unsigned types."""
    dtype = b.dtype(source)
    wanted = kinds.dtype_of(b.kind(target)) if target else dtype
    low = 0 if wanted.kind == "u" or wanted.name.startswith("uint") else -3
    high = 1 if "2" == wanted.name[-1:] and "int2" in wanted.name else 3
    if wanted.name.startswith("int2"):
        low = -2
    shape = b.shape()
    if dtype.kind == "O":
        numbers = b.array(shape, low, high, "tensor(float)")
        if wanted.kind not in "fc":
            numbers = np.trunc(numbers)
        return np.array([f"{x:.3f}" if wanted.kind in "fc" else str(int(x)) for x in numbers.ravel()], object).reshape(shape)
    value = kinds.random_array(b.rng, dtype, shape, low, high)
    if wanted.kind == "O" and kinds.is_float(dtype):  # how many digits are written is open
        value = np.round(value.astype(np.float32)).astype(dtype)
    return value


def reads_numbers(b: Builder) -> list[np.ndarray]:
    """References do not read small floats from strings: they get the numbers."""
    value = b.values["x0"]
    small = b.dtype("T2").name.startswith(("float8", "float4", "bfloat16"))
    return [value.astype(np.float32)] if value.dtype.kind == "O" and small else []


@recipe("Cast")
def cast(b: Builder) -> None:
    b.give(convertible(b, "T1", "T2"))
    number = b.element("T2")
    b.set(to=onnx.TensorProto.DataType.Name(number) if b.version < 6 else number)
    b.maybe(saturate=b.integer(0, 1))
    b.wide = False
    if b.version < 6:
        b.refer_to(13, [b.values["x0"]], to=number)
    elif reads_numbers(b):
        b.refer_to(b.version, [reads_numbers(b)[0]], **b.attributes)


@recipe("CastLike")
def cast_like(b: Builder) -> None:
    b.give(convertible(b, "T1", "T2"))
    like = b.array(b.shape(0, 2))
    b.give(like, constant=False)
    b.maybe(saturate=b.integer(0, 1))
    b.wide = False
    if numbers := reads_numbers(b):
        b.refer_to(b.version, [numbers[0], like], **b.attributes)


@recipe("Constant")
def constant(b: Builder) -> None:
    kind = b.types["T"]
    choices = [("value", make_tensor(b.array(b.shape(), param=kind), "c", b.element("T")))]
    if b.has("value_ints") and kind == "tensor(int64)":
        choices += [("value_int", b.integer(-9, 9)), ("value_ints", [1, 2, 3])]
    if b.has("value_floats") and kind == "tensor(float)":
        choices += [("value_float", b.real(-9, 9)), ("value_floats", [1.5, 2.0])]
    if b.has("value_strings") and kind == "tensor(string)":
        choices += [("value_string", "text"), ("value_strings", ["a", "b"])]
    name, value = choices[b.integer(0, len(choices) - 1)]
    b.set(**{name: value})
    if b.version < 9:
        b.refer_to(13, [], value=choices[0][1])


@recipe("ConstantOfShape")
def constant_of_shape(b: Builder) -> None:
    b.give(np.array(b.shape(), np.int64))
    value = b.array((1,), param=b.types["T2"])
    if b.types["T2"] != "tensor(float)" or b.chance():
        b.set(value=make_tensor(value, "c", b.element("T2")))


@recipe("EyeLike")
def eye_like(b: Builder) -> None:
    b.give(b.array(b.shape(2, 2)))
    b.set(dtype=b.element("T2"))
    b.maybe(k=b.integer(-3, 3))


@recipe("Range")
def range_(b: Builder) -> None:
    start, step = b.integer(-5, 5), b.pick(-2, -1, 1, 2, 3)
    kind = b.dtype("T")
    for value in (start, start + step * b.integer(-1, 6), step):
        b.give(np.array(value * (0.5 if kinds.is_float(kind) else 1), np.float64).astype(kind))


@recipe("RandomNormal", "RandomUniform")
def draw(b: Builder) -> None:
    b.set(shape=list(b.shape()), dtype=b.element("T"), seed=b.real(0, 9))
    b.random = True


@recipe("RandomNormalLike", "RandomUniformLike")
def draw_like(b: Builder) -> None:
    b.give(b.array(b.shape()))
    b.set(dtype=b.element("T2"))
    b.random = True


@recipe("Bernoulli")
def bernoulli(b: Builder) -> None:
    b.give(b.array(b.shape(), 0, 1))
    b.set(dtype=b.element("T2"))
    b.random = True


@recipe("Multinomial")
def multinomial(b: Builder) -> None:
    b.give(b.array((b.integer(1, 3), b.integer(1, 5)), -2, 0))
    b.set(dtype=b.element("T2"))
    b.maybe(sample_size=b.integer(1, 5))
    b.random = True


@recipe("OneHot")
def one_hot(b: Builder) -> None:
    shape = b.shape(1, 3)
    depth = b.integer(1, 6)
    places = b.rng.integers(-depth if b.version >= 11 and b.dtype("T1").kind != "u" else 0, depth, shape)
    b.give(places)
    b.give(np.array([depth]) if b.chance(0.3) else depth)
    values = b.array((2,))
    b.give(values)
    b.moves = True
    b.maybe(axis=b.axis(len(shape), 1))
    depths = np.array(b.values["x1"], np.int64)
    plain = values.dtype.kind not in "Ocf"
    b.refer_to(min(b.version, 11), [places.astype(np.int64), depths, values.astype(np.float32) if plain else values],
               result="tensor(float)" if plain else None, **b.attributes)


@recipe("ai.onnx.preview.training.Gradient")
def gradient(b: Builder) -> None:
    raise Skip("no reference computes it: its own tests compare with differences")

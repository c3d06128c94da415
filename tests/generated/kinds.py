"""ONNX types as the schemas spell them, numpy's types for them, and random values of them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

# Unit roundoff by element type: half the distance from 1 to the next number. Other types are compared exactly.
ROUNDOFF = {TensorProto.DOUBLE: 2.0**-53, TensorProto.FLOAT: 2.0**-24, TensorProto.FLOAT16: 2.0**-11,
            TensorProto.BFLOAT16: 2.0**-8, TensorProto.COMPLEX64: 2.0**-24, TensorProto.COMPLEX128: 2.0**-53}
WORDS = ("", "a", "bc", "Tensor", "box", "ßü", "12", "a b", "été", "zebra")


def element(kind: str) -> int:
    """The TensorProto.DataType of "tensor(float)" or of what is inside "seq(tensor(float))"."""
    return TensorProto.DataType.Value(re.search(r"tensor\((\w+)\)", kind)[1].upper())


def dtype_of(kind: str) -> np.dtype:
    """numpy's type of the elements; strings are objects."""
    return np.dtype(helper.tensor_dtype_to_np_dtype(element(kind)))


def type_proto(kind: str) -> onnx.TypeProto:
    """The TypeProto of a type without a shape."""
    wrapper, _, inner = kind.partition("(")
    inner = inner[:-1]
    if wrapper == "tensor":
        return helper.make_tensor_type_proto(element(kind), None)
    if wrapper == "seq":
        return helper.make_sequence_type_proto(type_proto(inner))
    if wrapper == "optional":
        return helper.make_optional_type_proto(type_proto(inner))
    if wrapper != "map":
        return helper.make_tensor_type_proto(TensorProto.DataType.Value(kind.upper()), None)  # the values of a map
    key, value = (part.strip() for part in inner.split(",", 1))
    proto = onnx.TypeProto()
    proto.map_type.key_type = TensorProto.DataType.Value(key.upper())
    proto.map_type.value_type.CopyFrom(type_proto(value))
    return proto


def is_float(dtype: np.dtype) -> bool:
    """float64, 32, 16 and bfloat16."""
    return dtype.kind == "f" or dtype.name == "bfloat16"


def is_tiny(dtype: np.dtype) -> bool:
    """The types of ml_dtypes except bfloat16."""
    return dtype.kind == "V" and dtype.name != "bfloat16" or dtype.name.startswith(("float8", "float4", "int4", "uint4", "int2", "uint2"))


def random_array(rng: np.random.Generator, dtype: np.dtype, shape: Sequence[int], low: float = -3, high: float = 3) -> np.ndarray:
    """Values in [low, high] as far as the type has them; whole numbers stay within the type's own bounds."""
    shape = tuple(shape)
    if dtype.kind == "O":
        return np.array([str(rng.choice(WORDS)) for _ in range(math.prod(shape))], dtype=object).reshape(shape)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind == "c":
        return (rng.uniform(low, high, shape) + 1j * rng.uniform(low, high, shape)).astype(dtype)
    if is_float(dtype) or dtype.name.startswith("float"):
        if dtype.name.startswith("float8_e8m0"):  # powers of two
            return np.exp2(rng.integers(-3, 4, shape).astype(np.float32)).astype(dtype)
        return rng.uniform(low, high, shape).astype(np.float32 if dtype.kind != "f" else dtype).astype(dtype)
    lowest, highest = bounds(dtype)
    least, most = max(math.ceil(low), lowest), min(math.floor(high), highest)
    most = max(most, least)
    return rng.integers(least, most, shape, dtype=np.uint64 if least >= 0 else np.int64, endpoint=True).astype(dtype)


def bounds(dtype: np.dtype) -> tuple[int, int]:
    """The smallest and the largest number of an integer type, those of 2 and 4 bits included."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return int(info.min), int(info.max)
    bits = int(re.search(r"\d+", dtype.name)[0])
    return (0, 2**bits - 1) if dtype.name.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def random_value(rng: np.random.Generator, kind: str, shape: Sequence[int]) -> Any:
    """A value of any type: an array, a list for a sequence, sometimes None for an optional."""
    if kind.startswith("optional("):
        return random_value(rng, kind[len("optional("):-1], shape) if rng.random() < 0.75 else None
    if kind.startswith("seq("):
        return [random_value(rng, kind[len("seq("):-1], shape) for _ in range(int(rng.integers(1, 4)))]
    return random_array(rng, dtype_of(kind), shape)


def bit_width(number: int) -> int:
    """Bits of an element of a TensorProto.DataType; 0 for strings."""
    name = TensorProto.DataType.Name(number)
    named = {"FLOAT": 32, "DOUBLE": 64, "BOOL": 8, "STRING": 0, "COMPLEX64": 64, "COMPLEX128": 128, "FLOAT16": 16, "BFLOAT16": 16}
    return named[name] if name in named else int(re.search(r"\d+", name)[0])

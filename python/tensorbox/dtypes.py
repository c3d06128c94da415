"""ONNX element types and the numpy (or ml_dtypes) types that hold them."""

from __future__ import annotations

import functools

import numpy as np

_NUMPY = {1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32, 7: np.int64, 9: np.bool_,
          10: np.float16, 11: np.float64, 12: np.uint32, 13: np.uint64, 14: np.complex64, 15: np.complex128}
PLAIN_TYPES = {np.dtype(t): number for number, t in _NUMPY.items()}  # in the machine's byte order
_ML_DTYPES = {16: "bfloat16", 17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz",
              21: "uint4", 22: "int4", 23: "float4_e2m1fn", 24: "float8_e8m0fnu", 25: "uint2", 26: "int2",
              27: "float6_e2m3fn", 28: "float6_e3m2fn"}


@functools.cache
def numpy_dtype(onnx_type: int) -> np.dtype:
    """The numpy dtype that holds an ONNX element type; strings are object arrays."""
    if onnx_type == 8:
        return np.dtype(object)
    if onnx_type in _NUMPY:
        return np.dtype(_NUMPY[onnx_type])
    name = _ML_DTYPES[onnx_type]
    try:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError):
        raise ImportError(f"arrays of {name} are those of the package ml_dtypes, which is not here or too old: "
                          "pip install -U ml_dtypes") from None


@functools.cache
def onnx_type(dtype: np.dtype) -> int:
    """The ONNX element type of a numpy dtype; TypeError when there is none."""
    if dtype.kind in "OSUT":
        return 8
    for number, numpy_type in _NUMPY.items():
        if dtype == np.dtype(numpy_type):
            return number
    for number, name in _ML_DTYPES.items():
        if dtype.name == name:
            return number
    raise TypeError(f"no ONNX element type for numpy dtype {dtype}")


@functools.cache
def dtype_named(name: str) -> np.dtype:
    """The numpy dtype of a type as tensorbox spells it: "float32", "bfloat16", "float8e4m3fn", "int4", ..."""
    for number, other in _ML_DTYPES.items():
        if other.replace("_", "").removesuffix("fnu").removesuffix("fn") == name.removesuffix("fn"):
            return numpy_dtype(number)
    return np.dtype(name)

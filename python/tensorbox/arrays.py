"""Python values as tensorbox takes them, and what it gives as Python values."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _core
from .dtypes import PLAIN_TYPES, dtype_named, numpy_dtype, onnx_type

_STRING = 8
_INTEGERS = frozenset({2, 3, 4, 5, 6, 7, 12, 13, 21, 22, 25, 26})
_BOOL, _COMPLEX = 9, frozenset({14, 15})
_NARROW = {21: (0, 15), 22: (-8, 7), 25: (0, 3), 26: (-2, 1)}  # ranges of uint4, int4, uint2, int2


@dataclass(frozen=True)
class TensorInfo:
    """One input or output: `shape` holds ints and symbol names, or is None where the model leaves the number of
    dimensions open; `dtype` is a numpy dtype. What is no tensor has the onnx_type 0, the dtype object, and a
    `type_name` such as "sequence(tensor(float32))"."""

    name: str
    shape: list[int | str] | None
    dtype: np.dtype
    onnx_type: int
    type_name: str = ""
    node: str = ""  # outputs: "name (OpType)" of the node that computes it
    has_default: bool = False  # inputs: may be left out of a run (see Session's `overridable`)

    @staticmethod
    def of(info: _core.TensorInfo) -> TensorInfo:
        """Of what the compiled module says."""
        shape = None if info.any_rank else [int(d) if d.lstrip("-").isdigit() else d for d in info.dims]
        dtype = numpy_dtype(info.type) if info.type else np.dtype(object)
        return TensorInfo(info.name, shape, dtype, info.type, info.type_name, info.node, info.has_default)

    @property
    def is_value(self) -> bool:
        """Strings, or no tensor at all."""
        return self.onnx_type in (0, _STRING)

    def __str__(self) -> str:
        dims = "..." if self.shape is None else ", ".join(map(str, self.shape))
        return f"{self.name}: {self.type_name}[{dims}]"


def given_tensor(name: str, value: Any, info: TensorInfo | None) -> tuple[str, int, list[int], Any]:
    """(name, ONNX element type, shape, memory) of an input. Raises TypeError for what is no array of an ONNX type, and
    ModelError for Python numbers that the input's type does not hold."""
    _check_name(name)
    return name, *_tensor(value, info, name)


def given_value(name: str, value: Any, info: TensorInfo | None) -> tuple[str, tuple[Any, ...] | None]:
    """An input of any ONNX type; `info` says what numbers without a dtype become."""
    _check_name(name)
    return name, _value(value, info, name)


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"inputs are given by name: the key {name!r} is no string")


def _tensor(value: Any, info: TensorInfo | None, name: str) -> tuple[int, list[int], Any]:
    # Nearly every input is this; what follows says the same of it in more time than a small model takes to run.
    if type(value) is np.ndarray and (known := PLAIN_TYPES.get(value.dtype)) and value.flags.c_contiguous and value.size:
        return known, list(value.shape), value
    array = _array(value, info, name)
    try:
        number = onnx_type(array.dtype)
    except TypeError as error:
        raise TypeError(f"input '{name}': {error}{f'; expected {info.type_name}' if info else ''}") from None
    if number == _STRING:
        if array.dtype.kind == "O" and info is not None and info.onnx_type not in (0, _STRING):
            raise TypeError(f"input '{name}' is an array of Python objects; expected {info.type_name}")
        return number, list(array.shape), array.ravel().tolist()
    return number, list(array.shape), as_bytes(np.ascontiguousarray(_to_memory(array, number)).reshape(array.shape))


def _value(value: Any, info: TensorInfo | None, name: str) -> tuple[Any, ...] | None:
    if value is None:
        return None
    if isinstance(value, Mapping):
        keys = list(value)
        strings = isinstance(keys[0], (str, bytes)) if keys else info is not None and "map(string" in info.type_name
        key_type = object if strings else np.int64
        return ("map", _value(np.array(keys, key_type), None, name),
                _value(_array(list(value.values()), _tensor_in(info), name), None, name))
    if isinstance(value, (list, tuple)) and info is not None and "sequence(" in info.type_name:
        return "sequence", [_value(v, _element(info), name) for v in value]
    return "tensor", *_tensor(value, _tensor_in(info), name)


def _element(info: TensorInfo) -> TensorInfo:
    """What the elements of a sequence are."""
    inner = info.type_name[info.type_name.index("sequence(") + len("sequence("):-1]
    return TensorInfo(info.name, [], np.dtype(object), 0, inner)


def _tensor_in(info: TensorInfo | None) -> TensorInfo | None:
    """The tensor that a value is made of: of optional(tensor(float32)) a float32."""
    if info is None or info.onnx_type:
        return info
    name = re.search(r"tensor\((\w+)\)", info.type_name)
    dtype = np.dtype(object) if name is None or name[1] == "string" else dtype_named(name[1])
    return TensorInfo(info.name, [], dtype, onnx_type(dtype), info.type_name)


def _array(value: Any, info: TensorInfo | None, name: str) -> np.ndarray:
    """An array in the machine's byte order. Arrays keep their type, Python numbers take that of the input."""
    if value is None:
        raise _core.ModelError(f"input '{name}' is None")
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    if hasattr(value, "__dlpack__"):
        return _from_dlpack(value, name)
    try:
        plain = np.asarray(value)
    except ValueError as error:
        raise _core.ModelError(f"input '{name}' is no array: {error}") from None
    return plain if info is None or info.dtype == plain.dtype else _converted(plain, value, info)


def _from_dlpack(value: Any, name: str) -> np.ndarray:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach()
        if value.dtype == torch.bfloat16:  # which numpy does not know
            return np.asarray(value.contiguous().view(torch.int16).numpy()).view(dtype_named("bfloat16"))
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise TypeError(f"input '{name}': numpy cannot take this {type(value).__name__}: {error}") from None


def _converted(plain: np.ndarray, value: Any, info: TensorInfo) -> np.ndarray:
    """Numbers without a dtype of their own (numpy made int64 or float64 of them) in the type of the input, if that
    holds such numbers: integers become floats, but not the other way round."""
    number, kind = info.onnx_type, plain.dtype.kind
    if number == _STRING:
        return np.asarray(value, dtype=object) if kind in "OSUT" or not plain.size else plain
    fits = (kind == "b" or kind in "iu" and number != _BOOL or kind == "c" and number in _COMPLEX
            or kind == "f" and number != _BOOL and number not in _INTEGERS or not plain.size)
    if not fits or kind not in "biufc":
        return plain  # the session says which type it expects
    low, high = _NARROW.get(number, (None, None))
    try:
        if low is not None and plain.size and not low <= plain.min() <= plain.max() <= high:
            raise OverflowError(f"a number is outside of {low} to {high}")
        checked = number not in _NARROW and info.dtype.kind != "V"
        return np.asarray(value, info.dtype) if checked else plain.astype(info.dtype)
    except OverflowError as error:
        raise _core.ModelError(f"input '{info.name}' is {info.type_name}: {error}") from None


def _to_memory(array: np.ndarray, number: int) -> np.ndarray:
    """4- and 2-bit integers as the bytes tensorbox holds them in, sign-extended; numpy's keep the low bits only."""
    return array if number not in _NARROW else array.astype(np.uint8 if _NARROW[number][0] == 0 else np.int8)


def as_bytes(array: np.ndarray) -> np.ndarray:
    """The same memory as bytes: the buffer protocol has no codes for bfloat16 and its kin."""
    return array.reshape(-1).view(np.uint8) if array.size else np.empty(1, np.uint8)


def output_memory(name: str, array: Any) -> tuple[int, list[int], np.ndarray]:
    """(ONNX element type, shape, bytes) of an array that is to be written."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"out['{name}'] is a {type(array).__name__}; an output is written into a numpy array")
    if not (array.flags.c_contiguous and array.flags.writeable and array.dtype.isnative):
        raise ValueError(f"out['{name}'] cannot be written directly: it must be C-contiguous, writable and of the "
                         "machine's byte order")
    number = onnx_type(array.dtype)
    if number == _STRING:
        raise TypeError(f"out['{name}'] is an array of strings; only numbers are written directly")
    return number, list(array.shape), as_bytes(array)


def bound_memory(name: str, value: Any) -> tuple[str, int, list[int], np.ndarray]:
    """As `given_tensor`, of an array that every run reads where it is."""
    _check_name(name)
    array = value
    if not isinstance(value, np.ndarray):
        if not hasattr(value, "__dlpack__"):
            raise TypeError(f"input '{name}' is a {type(value).__name__}; memory of an array can be bound, or of a tensor "
                            "with DLPack")
        whole = not hasattr(value, "is_contiguous") or value.is_contiguous()  # torch may copy others
        array = _from_dlpack(value, name) if whole else value
    if not (isinstance(array, np.ndarray) and array.flags.c_contiguous and array.dtype.isnative):
        raise ValueError(f"input '{name}' cannot be bound, as its memory is not read as it is: it must be C-contiguous and "
                         "of the machine's byte order")
    number = onnx_type(array.dtype)
    if number == _STRING or number in _NARROW:
        raise TypeError(f"input '{name}' has elements of type {array.dtype}, which are not read where they are; use run")
    return name, number, list(array.shape), as_bytes(array)


def to_numpy(number: int, dims: list[int], payload: Any) -> np.ndarray:
    """An output, which shares its memory."""
    if number == _STRING:
        return np.fromiter(payload, dtype=object, count=len(payload)).reshape(dims)
    return np.ndarray(dims, numpy_dtype(number), payload)


def to_value(value: tuple[Any, ...] | dict[Any, Any] | None) -> Any:
    """An output of any ONNX type: array, list, dict or None."""
    if value is None or isinstance(value, dict):
        return value
    kind, *rest = value
    if kind == "sequence":
        return [v if isinstance(v, dict) else to_value(v) for v in rest[0]]
    if kind == "map":
        keys, values = (to_value(v).tolist() for v in rest)
        return dict(zip(keys, values))
    return to_numpy(*rest)

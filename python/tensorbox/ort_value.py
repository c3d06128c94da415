"""OrtValue and IOBinding with ONNX Runtime's signatures, for the CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from .arrays import TensorInfo, as_bytes
from .dtypes import numpy_dtype, onnx_type

_TYPE_NAMES = {1: "float", 8: "string", 11: "double", 17: "float8e4m3fn", 18: "float8e4m3fnuz", 19: "float8e5m2",
               20: "float8e5m2fnuz", 23: "float4e2m1", 24: "float8e8m0", 27: "float6e2m3", 28: "float6e3m2"}


def type_text(number: int) -> str:
    """"tensor(float)", as ONNX Runtime spells the type of a tensor."""
    return f"tensor({_TYPE_NAMES.get(number) or numpy_dtype(number).name})"


def _check_device(device: str, device_id: int = 0) -> None:
    if device.lower() != "cpu" or device_id != 0:
        raise ValueError(f"device '{device}:{device_id}' is not available; available: 'cpu'")


def _dtype(element_type: Any) -> np.dtype:
    """Of a numpy type, or the number of an ONNX type."""
    return numpy_dtype(element_type) if isinstance(element_type, int) else np.dtype(element_type)


class OrtValue:
    """A value in memory: an array, or a list of arrays (a sequence)."""

    def __init__(self, value: Any):
        self._value = value

    @staticmethod
    def ortvalue_from_numpy(numpy_obj: np.ndarray, device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        """Shares the memory of a C-contiguous array; others are copied."""
        _check_device(device_type, device_id)
        array = np.asarray(numpy_obj)
        onnx_type(array.dtype)  # TypeError where there is none
        return OrtValue(np.ascontiguousarray(array).reshape(array.shape))

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(data: np.ndarray, onnx_element_type: int) -> OrtValue:
        """The bits of an array as elements of an ONNX type of the same width: bfloat16 from uint16."""
        dtype, array = numpy_dtype(onnx_element_type), np.ascontiguousarray(data)
        if array.dtype.itemsize != dtype.itemsize:
            raise ValueError(f"elements of {array.dtype} are not as wide as those of {type_text(onnx_element_type)}")
        return OrtValue(array.view(dtype))

    @staticmethod
    def ortvalue_from_shape_and_type(shape: Sequence[int], element_type: Any = np.float32, device_type: str = "cpu",
                                     device_id: int = 0) -> OrtValue:
        """Memory to be written, for bind_ortvalue_output. element_type: a numpy type or the number of an ONNX type."""
        _check_device(device_type, device_id)
        return OrtValue(np.zeros(tuple(shape), _dtype(element_type)))

    @staticmethod
    def from_dlpack(data: Any, is_bool_tensor: bool = False) -> OrtValue:
        array = np.from_dlpack(data)
        return OrtValue(array.view(np.bool_) if is_bool_tensor else array)

    def numpy(self) -> np.ndarray:
        """The array itself, not a copy of it."""
        if not self.is_tensor():
            raise RuntimeError("only tensors have an array; this OrtValue is a sequence or map")
        return np.asarray(self._value)

    def update_inplace(self, np_arr: np.ndarray) -> None:
        """Copies an array of the same shape and type into the memory."""
        if np.shape(np_arr) != self._value.shape:
            raise ValueError(f"an array of shape {np.shape(np_arr)} does not fit an OrtValue of {self._value.shape}")
        np.copyto(self._value, np_arr, casting="equiv")

    def shape(self) -> list[int]:
        """The sizes of a tensor."""
        return list(self._value.shape)

    def data_type(self) -> str:
        """"tensor(float)", "seq(tensor(int64))", as ONNX Runtime spells types."""
        if self.is_tensor():
            return type_text(self.element_type())
        return f"seq({type_text(onnx_type(self._value[0].dtype))})" if self.is_tensor_sequence() and self._value else ""

    def element_type(self) -> int:
        """The number of an ONNX type."""
        return onnx_type(self._value.dtype)

    def data_ptr(self) -> int:
        return int(self._value.ctypes.data)

    def tensor_size_in_bytes(self) -> int:
        """Bytes of all elements."""
        return int(self._value.nbytes)

    def device_name(self) -> str:
        return "cpu"

    def has_value(self) -> bool:
        """False for an optional value that is absent."""
        return self._value is not None

    def is_tensor(self) -> bool:
        return isinstance(self._value, np.ndarray)

    def is_tensor_sequence(self) -> bool:
        """Whether this is a sequence of tensors."""
        return isinstance(self._value, (list, tuple))

    def is_sparse_tensor(self) -> bool:
        """Never: there are no sparse tensors here."""
        return False

    def __dlpack__(self, **options: Any) -> Any:
        return self._value.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.numpy().__dlpack_device__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._value, dtype=dtype, copy=copy)


def unwrapped(value: Any) -> Any:
    """What an OrtValue holds; anything else as it is."""
    return value._value if isinstance(value, OrtValue) else value


class IOBinding:
    """Inputs and outputs of InferenceSession.run_with_iobinding. Bound outputs with memory are written there; what is
    bound by its name alone gets memory in each run."""

    def __init__(self, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo]):
        self._infos = {"input": {i.name: i for i in inputs}, "output": {o.name: o for o in outputs}}
        self.inputs: dict[str, Any] = {}
        self.outputs: dict[str, OrtValue | None] = {}  # None: the session allocates
        self._results: list[OrtValue] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: np.ndarray) -> None:
        """Binds an array to an input."""
        self._check("input", name)
        self.inputs[name] = arr_on_cpu

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Binds a value to an input."""
        self._check("input", name)
        self.inputs[name] = unwrapped(ortvalue)

    def bind_input(self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int],
                   buffer_ptr: int) -> None:
        """The memory at an address, as long as the binding is used; it is the caller's word that it has that shape."""
        _check_device(device_type, device_id)
        self._check("input", name)
        self.inputs[name] = _memory_at(buffer_ptr, shape, _dtype(element_type))

    def bind_output(self, name: str, device_type: str = "cpu", device_id: int = 0, element_type: Any = None,
                    shape: Sequence[int] | None = None, buffer_ptr: int | None = None) -> None:
        _check_device(device_type, device_id)
        self._check("output", name)
        if buffer_ptr is None:
            self.outputs[name] = None
            return
        if element_type is None or shape is None:
            raise ValueError(f"bind_output('{name}'): memory needs its element_type and shape")
        self.outputs[name] = OrtValue(_memory_at(buffer_ptr, shape, _dtype(element_type)))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Binds an output to memory that the run writes."""
        self._check("output", name)
        self.outputs[name] = ortvalue

    def synchronize_inputs(self) -> None:
        """Nothing to wait for on a CPU."""

    def synchronize_outputs(self) -> None:
        """Nothing to wait for on a CPU."""

    def get_outputs(self) -> list[OrtValue]:
        """Of the last run, in the order they were bound in."""
        return list(self._results)

    def copy_outputs_to_cpu(self) -> list[Any]:
        return [unwrapped(value) for value in self._results]

    def clear_binding_inputs(self) -> None:
        """Forgets the inputs."""
        self.inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forgets the outputs and what the last run gave."""
        self.outputs.clear()
        self._results = []

    def _check(self, kind: str, name: str) -> None:
        if name not in self._infos[kind]:
            raise ValueError(f"the model has no {kind} '{name}'; its {kind}s are {list(self._infos[kind])}")


def _memory_at(address: int, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    empty = np.empty(tuple(shape), dtype)
    if not empty.size:
        return empty
    count = as_bytes(empty).size
    memory: np.ndarray = np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(address))
    return memory.view(dtype).reshape(tuple(shape))

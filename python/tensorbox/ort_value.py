"""OrtValue and IOBinding with ONNX Runtime's signatures, in memory of the host and of GPUs."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from .arrays import TensorInfo, as_bytes
from .bound_run import BoundRun
from .device import DeviceTensor, device_tensor, is_on_device, to_device
from .dtypes import numpy_dtype, onnx_type

if TYPE_CHECKING:
    from .session import Session

_TYPE_NAMES = {1: "float", 8: "string", 11: "double", 17: "float8e4m3fn", 18: "float8e4m3fnuz", 19: "float8e5m2",
               20: "float8e5m2fnuz", 23: "float4e2m1", 24: "float8e8m0", 27: "float6e2m3", 28: "float6e3m2"}


def type_text(number: int) -> str:
    """"tensor(float)", as ONNX Runtime spells the type of a tensor."""
    return f"tensor({_TYPE_NAMES.get(number) or numpy_dtype(number).name})"


def _device_name(device: str, device_id: int = 0) -> str | None:
    """"cuda:0"; None: the host."""
    if device.lower() == "cuda" and device_id >= 0:
        return f"cuda:{device_id}"
    if device.lower() != "cpu" or device_id != 0:
        raise ValueError(f"device '{device}:{device_id}' is not available; available: 'cpu', 'cuda'")
    return None


def _dtype(element_type: Any) -> np.dtype:
    """Of a numpy type, or the number of an ONNX type."""
    return numpy_dtype(element_type) if isinstance(element_type, int) else np.dtype(element_type)


class OrtValue:
    """A value in memory: an array, a list of arrays (a sequence), or a map. `type` is what data_type() says of what is no
    tensor; without it that is what its elements tell."""

    def __init__(self, value: Any, type: str = ""):
        self._value, self._type = value, type

    @staticmethod
    def ortvalue_from_numpy(numpy_obj: np.ndarray, device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        """Shares the memory of a C-contiguous array; others are copied. On "cuda" it is a copy."""
        device = _device_name(device_type, device_id)
        array = np.asarray(numpy_obj)
        if device is not None:
            return OrtValue(to_device(array, device))
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
        device = _device_name(device_type, device_id)
        zeros = np.zeros(tuple(shape), _dtype(element_type))
        return OrtValue(zeros if device is None else to_device(zeros, device))

    @staticmethod
    def from_dlpack(data: Any, is_bool_tensor: bool = False) -> OrtValue:
        """Shares the memory of an object with `__dlpack__`, of the host or of a GPU. is_bool_tensor: its bytes are bools."""
        if is_on_device(data):
            return OrtValue(DeviceTensor(device_tensor("data", data, 0, data.__dlpack_device__()[1])))
        array = np.from_dlpack(data)
        return OrtValue(array.view(np.bool_) if is_bool_tensor else array)

    def numpy(self) -> np.ndarray:
        """The array itself, not a copy of it; of a tensor on a GPU a copy."""
        if not self.is_tensor():
            raise RuntimeError("only tensors have an array; this OrtValue is a sequence or map")
        if isinstance(self._value, DeviceTensor):
            return self._value.numpy()
        return np.asarray(self._value)

    def update_inplace(self, np_arr: np.ndarray) -> None:
        """Copies an array of the same shape and type into the memory."""
        if np.shape(np_arr) != self._value.shape:
            raise ValueError(f"an array of shape {np.shape(np_arr)} does not fit an OrtValue of {self._value.shape}")
        if isinstance(self._value, DeviceTensor):
            array = np.empty(self._value.shape, self._value.dtype)
            np.copyto(array, np_arr, casting="equiv")
            _core.assign(self._value._core, self.element_type(), list(array.shape), as_bytes(array))
            return
        np.copyto(self._value, np_arr, casting="equiv")

    def shape(self) -> list[int]:
        """The sizes of a tensor."""
        return list(self._value.shape)

    def data_type(self) -> str:
        """"tensor(float)", "seq(tensor(int64))", as ONNX Runtime spells types."""
        if self.is_tensor():
            return type_text(self.element_type())
        if self._type or not (self.is_tensor_sequence() and self._value):
            return self._type
        return f"seq({type_text(onnx_type(self._value[0].dtype))})"

    def element_type(self) -> int:
        """The number of an ONNX type."""
        return onnx_type(self._value.dtype)

    def data_ptr(self) -> int:
        """The address of the first element, on the device where it is."""
        return self._value.data_ptr if isinstance(self._value, DeviceTensor) else int(self._value.ctypes.data)

    def tensor_size_in_bytes(self) -> int:
        """Bytes of all elements."""
        return int(self._value.nbytes)

    def device_name(self) -> str:
        """"cuda" or "cpu"."""
        return "cuda" if isinstance(self._value, DeviceTensor) else "cpu"

    def has_value(self) -> bool:
        """False for an optional value that is absent."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Whether this is one tensor, and no sequence."""
        return isinstance(self._value, (np.ndarray, DeviceTensor))

    def is_tensor_sequence(self) -> bool:
        """Whether this is a sequence of tensors."""
        return isinstance(self._value, (list, tuple))

    def is_sparse_tensor(self) -> bool:
        """Never: there are no sparse tensors here."""
        return False

    def __dlpack__(self, **options: Any) -> Any:
        return self._value.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._value.__dlpack_device__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        value = self.numpy() if isinstance(self._value, DeviceTensor) else self._value
        return np.array(value, dtype=dtype, copy=copy)


def unwrapped(value: Any) -> Any:
    """What an OrtValue holds; anything else as it is."""
    return value._value if isinstance(value, OrtValue) else value


class IOBinding:
    """Inputs and outputs of InferenceSession.run_with_iobinding, in memory of the host ("cpu") or of the session's GPU
    ("cuda"). Bound outputs with memory are written there; what is bound by its name alone gets memory in each run, on
    the device it is bound to."""

    def __init__(self, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo], session: Any = None):
        self._infos = {"input": {i.name: i for i in inputs}, "output": {o.name: o for o in outputs}}
        self._session = session
        self.inputs: dict[str, Any] = {}
        self.outputs: dict[str, OrtValue | None] = {}  # None: the session allocates
        self.on_device: set[str] = set()  # outputs that it allocates on its GPU
        self._results: list[OrtValue] = []
        self._bound: BoundRun | None = None  # runs with what is bound now, where all of it is memory of the GPU

    def bind_cpu_input(self, name: str, arr_on_cpu: np.ndarray) -> None:
        """Binds an array to an input."""
        self._change("input", name)
        self.inputs[name] = arr_on_cpu

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Binds a value to an input."""
        self._change("input", name)
        self.inputs[name] = unwrapped(ortvalue)

    def bind_input(self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int],
                   buffer_ptr: int) -> None:
        """The memory at an address, as long as the binding is used; it is the caller's word that it has that shape, and
        on a GPU that it is filled (synchronize_inputs waits for nothing)."""
        device = _device_name(device_type, device_id)
        self._change("input", name)
        self.inputs[name] = _memory_at(buffer_ptr, shape, _dtype(element_type), device)

    def bind_output(self, name: str, device_type: str = "cpu", device_id: int = 0, element_type: Any = None,
                    shape: Sequence[int] | None = None, buffer_ptr: int | None = None) -> None:
        """Where an output goes: into the memory at an address, which needs element_type and shape, or, without one, into
        memory that each run takes on that device."""
        device = _device_name(device_type, device_id)
        self._change("output", name)
        self.on_device.discard(name)
        if buffer_ptr is None:
            self.outputs[name] = None
            if device is not None:
                if self._session is None or self._session._core.device != device_id:
                    raise ValueError(f"output '{name}' cannot be on {device}: the session does not run there")
                self.on_device.add(name)
            return
        if element_type is None or shape is None:
            raise ValueError(f"bind_output('{name}'): memory needs its element_type and shape")
        self.outputs[name] = OrtValue(_memory_at(buffer_ptr, shape, _dtype(element_type), device))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Binds an output to memory that the run writes."""
        self._change("output", name)
        self.on_device.discard(name)
        self.outputs[name] = ortvalue

    def synchronize_inputs(self) -> None:
        """Nothing to wait for: what is bound is there, by the caller's word."""

    def synchronize_outputs(self) -> None:
        """Waits for runs that nobody waited for (RunOptions' disable_synchronize_execution_providers)."""
        if self._session is not None:
            self._session.synchronize()

    def get_outputs(self) -> list[OrtValue]:
        """Of the last run, in the order they were bound in."""
        return list(self._results)

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Of the last run: arrays, and lists of arrays."""
        return [value.numpy() if value.is_tensor() else unwrapped(value) for value in self._results]

    def clear_binding_inputs(self) -> None:
        """Forgets the inputs."""
        self._bound = None
        self.inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forgets the outputs and what the last run gave."""
        self._bound = None
        self.outputs.clear()
        self.on_device.clear()
        self._results = []

    def _bind_for_good(self, session: Session) -> None:
        """Where a run has used this memory of a GPU once, later ones need not look at it again."""
        memory = {name: unwrapped(value) for name, value in self.outputs.items()}
        values = [*self.inputs.values(), *memory.values()]
        if len(memory) == len(session.outputs) and all(isinstance(value, DeviceTensor) for value in values):
            self._bound = session.bind(self.inputs, memory)

    def _change(self, kind: str, name: str) -> None:
        """What is bound to a name will be something else."""
        self._bound = None
        if name not in self._infos[kind]:
            raise ValueError(f"the model has no {kind} '{name}'; its {kind}s are {list(self._infos[kind])}")


def _memory_at(address: int, shape: Sequence[int], dtype: np.dtype, device: str | None) -> Any:
    if device is not None:
        number = int(device.removeprefix("cuda:"))
        return DeviceTensor(_core.DeviceTensor.at_address(address, onnx_type(dtype), list(shape), number, None))
    empty = np.empty(tuple(shape), dtype)
    if not empty.size:
        return empty
    count = as_bytes(empty).size
    memory: np.ndarray = np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(address))
    return memory.view(dtype).reshape(tuple(shape))

"""Tensors in memory of a GPU, and streams: how tensorbox takes those of other libraries and gives its own."""

from __future__ import annotations

import functools
import sys
import threading
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

from . import _core
from .arrays import as_bytes, to_numpy
from .dtypes import numpy_dtype, onnx_type

_CUDA, _CUDA_MANAGED = 2, 13  # of DLPack's DLDeviceType
_TYPESTR_FIELD = "__cuda_array_interface__"


class DeviceTensor:
    """A tensor in memory of an NVIDIA GPU: an output of `Session.run(..., outputs="device")` and `run_async`, or a copy
    made by `tensorbox.to_device`. Other libraries take it without a copy, by DLPack (torch.from_dlpack,
    cupy.from_dlpack) or `__cuda_array_interface__`; `numpy()` copies it to the host. Its memory lives as long as one of
    them has it."""

    def __init__(self, core: _core.DeviceTensor, stream: int | None = None):
        self._core = core
        self._stream = stream  # whose work fills it; None: it is there

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""
        return tuple(self._core.dims)

    @property
    def dtype(self) -> np.dtype:
        """The numpy type of the elements."""
        return numpy_dtype(self._core.type)

    @property
    def device(self) -> str:
        """"cuda:0"."""
        return f"cuda:{self._core.device}"

    @property
    def data_ptr(self) -> int:
        """The address on the GPU."""
        return self._core.address

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def numpy(self) -> np.ndarray:
        """A copy in memory of the host. Waits for what fills the tensor."""
        return to_numpy(self._core.type, self._core.dims, _core.to_host(self._core))

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """A capsule for a library that will use the tensor on `stream`, which waits for what fills it (None: the
        default stream; -1: it does not wait)."""
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the tensor is on {self.device}; numpy() copies it to the host")
        if copy:
            raise BufferError("the tensor is given without a copy")
        if stream != -1:
            self._core.use_on_stream(1 if stream is None else stream)
        return self._core.dlpack(max_version is not None and max_version[0] >= 1)

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA, self._core.device

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype.kind not in "biufc":
            raise AttributeError(f"__cuda_array_interface__ has no name for the type {self.dtype}; use DLPack")
        empty = 0 in self.shape
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (0 if empty else self.data_ptr, False),
                "version": 3, "strides": None, "stream": 1 if self._stream == 0 else self._stream}

    def __repr__(self) -> str:
        return f"<tensorbox.DeviceTensor {self.dtype.name}{list(self.shape)} on {self.device}>"


def to_device(array: Any, device: str = "cuda") -> DeviceTensor:
    """A copy of an array of the host in memory of a GPU."""
    array = np.asarray(array)
    return DeviceTensor(_core.to_device(onnx_type(array.dtype), list(array.shape),
                                        as_bytes(np.ascontiguousarray(array).reshape(array.shape)), device))


def is_on_device(value: Any) -> bool:
    """In memory of a GPU, as far as it says so."""
    if isinstance(value, (np.ndarray, np.generic, list, tuple, int, float)):
        return False
    if isinstance(value, (DeviceTensor, _core.DeviceTensor)):
        return True
    if _is_torch(value):
        return bool(value.is_cuda)
    if hasattr(value, "__dlpack_device__"):
        return value.__dlpack_device__()[0] in (_CUDA, _CUDA_MANAGED)
    return hasattr(value, _TYPESTR_FIELD)


class Taken:
    """Tensors of any library for work of one stream of a GPU."""

    def __init__(self, stream: int, device: int):
        self._stream, self._device = stream, device
        self._behind_torch = False

    def tensor(self, what: str, value: Any, writable: bool = False) -> _core.DeviceTensor:
        """The memory of a tensor, which the stream may use from now on. `what`: "input 'x'", for errors."""
        if _is_torch(value):
            if not self._behind_torch:  # torch is asked once for all tensors of a run
                self._wait_for_torch()
            if (tensor := _from_torch(value, self._device)) is not None:
                return tensor
        return device_tensor(what, value, self._stream, self._device, writable)

    def _wait_for_torch(self) -> None:
        current = torch_stream(self._device)
        if current != self._stream:
            _core.order_streams(f"cuda:{self._device}", current, self._stream)
        self._behind_torch = True


def device_tensor(what: str, value: Any, stream: int, device: int, writable: bool = False) -> _core.DeviceTensor:
    """The memory of one tensor, as `Taken` gives it."""
    if isinstance(value, _core.DeviceTensor):
        return value
    if isinstance(value, DeviceTensor):
        if value._core.device == device:  # a stream is one of its device; the session refuses others
            value._core.use_on_stream(stream)
        return value._core
    try:
        if hasattr(value, "__dlpack__"):
            return _from_dlpack(value, stream, device, writable)
        return _from_cuda_array_interface(value, stream, device, writable)
    except _core.ModelError as error:
        raise _core.ModelError(f"{what}: {error}") from None


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def torch_stream(device: int) -> int:
    """What torch calls the current stream."""
    torch = sys.modules["torch"]
    if raw := getattr(torch._C, "_cuda_getCurrentRawStream", None):  # makes no object of a stream, as Triton asks for it
        return int(raw(device))
    return int(torch.cuda.current_stream(device).cuda_stream)


def has_torch(values: Iterable[Any]) -> bool:
    """Whether a tensor of torch's on a GPU is among them."""
    return any(_is_torch(value) and value.is_cuda for value in values)


def _from_torch(value: Any, device: int) -> _core.DeviceTensor | None:
    """What DLPack gives, in a fraction of the time, which counts where a run takes tens of microseconds."""
    number = _torch_types().get(value.dtype)
    if number is None or value.device.index != device or not value.is_contiguous() or value.is_conj() or value.is_neg():
        return None
    return _core.DeviceTensor.at_address(value.data_ptr(), number, list(value.shape), device, value)


@functools.cache
def _torch_types() -> dict[Any, int]:
    torch = sys.modules["torch"]
    return {torch.float32: 1, torch.uint8: 2, torch.int8: 3, torch.int16: 5, torch.int32: 6, torch.int64: 7,
            torch.bool: 9, torch.float16: 10, torch.float64: 11, torch.complex64: 14, torch.complex128: 15,
            torch.bfloat16: 16}


def _from_dlpack(value: Any, stream: int, device: int, writable: bool) -> _core.DeviceTensor:
    if getattr(value, "requires_grad", False):
        value = value.detach()
    number = value.__dlpack_device__()[1]
    wait = {"stream": stream or 1} if number == device else {}
    try:
        capsule = value.__dlpack__(max_version=(1, 0), **wait)
    except TypeError:  # of a library that knows no versions
        capsule = value.__dlpack__(**wait)
    return _core.DeviceTensor.from_dlpack(capsule, writable)


def _from_cuda_array_interface(value: Any, stream: int, device: int, writable: bool) -> _core.DeviceTensor:
    given = value.__cuda_array_interface__
    dtype, shape = np.dtype(given["typestr"]), [int(d) for d in given["shape"]]
    address, read_only = given["data"]
    if writable and read_only:
        raise _core.ModelError("the tensor is read-only")
    strides = given.get("strides")
    if strides is not None and 0 not in shape:
        step = dtype.itemsize
        for size, stride in zip(reversed(shape), reversed(strides), strict=True):
            if size != 1 and stride != step:
                raise _core.ModelError("the tensor is not contiguous; make it so first")
            step *= size
    if not dtype.isnative:
        raise _core.ModelError(f"elements of type {dtype.str} are not in the machine's byte order")
    if given.get("mask") is not None:
        raise _core.ModelError("masked arrays have no ONNX type")
    producer = given.get("stream")
    if producer is not None:
        _core.order_streams(f"cuda:{device}", producer, stream)
    return _core.DeviceTensor.at_address(address, onnx_type(dtype), shape, device, value)


def stream_handle(stream: Any) -> int:
    """Of a stream of torch, CuPy, Numba or cuda.core, or the number itself."""
    if hasattr(stream, "__cuda_stream__"):
        protocol = stream.__cuda_stream__
        return int((protocol() if callable(protocol) else protocol)[1])
    for name in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, name):
            value = getattr(stream, name)
            return int(getattr(value, "value", value) or 0)
    if isinstance(stream, bool) or not isinstance(stream, int):
        raise TypeError(f"a stream is one of torch or CuPy, or the number of its handle, not {stream!r}")
    return stream


class Streams:
    """Streams of a session's own, one for each thread that runs it, and what is used by work that nobody waited for."""

    def __init__(self, device: int):
        self._name = f"cuda:{device}"
        self._of_thread = threading.local()
        self._pending: deque[tuple[Any, Any]] = deque()

    def own(self) -> int:
        if not hasattr(self._of_thread, "stream"):
            self._of_thread.stream = _core.make_stream(self._name)
        return self._of_thread.stream.handle

    def keep(self, stream: int, what: Any) -> None:
        """Holds `what` until the stream has done what it was asked for."""
        while self._pending and self._pending[0][0]():
            self._pending.popleft()
        self._pending.append((_core.mark_stream(self._name, stream), what))

    def clear(self) -> None:
        self._pending.clear()

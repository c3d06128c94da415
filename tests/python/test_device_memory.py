"""Inputs and outputs in memory of a GPU, on the fake device: its memory is closed to the host, so that a copy through the
host that should not be ends the process, and its work is done when somebody waits, so that a missing wait shows. The
tensors of "other libraries" are ours in other clothes."""

from __future__ import annotations

import gc
import os
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tensorbox
from tensorbox import _core

from test_device import mlp, model_of

RNG = np.random.default_rng(7)
ON_GPU = bool(os.environ.get("TBX_TEST_GPU"))


def two_devices() -> None:
    if problem := _core.device_problem("cuda:1"):
        pytest.skip(problem)


@pytest.fixture(autouse=True)
def _fake_device(monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.environ.get("TBX_TEST_GPU"):  # set: these tests are for the GPU of the machine
        monkeypatch.setenv("TBX_FAKE_CUDA", "1")


class Foreign:
    """A tensor of a library with DLPack as it was before versions, which notes what it is asked."""

    def __init__(self, array: np.ndarray | tensorbox.DeviceTensor):
        self.tensor = array if isinstance(array, tensorbox.DeviceTensor) else tensorbox.to_device(array)
        self.streams: list[int | None] = []

    def __dlpack__(self, stream: int | None = None) -> Any:
        self.streams.append(stream)
        return self.tensor.__dlpack__(stream=stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()


class Versioned(Foreign):
    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None) -> Any:
        assert max_version is not None
        self.streams.append(stream)
        return self.tensor.__dlpack__(stream=stream, max_version=max_version)


class Interface:
    """One that has only __cuda_array_interface__; `changes` says what is otherwise."""

    def __init__(self, array: np.ndarray | tensorbox.DeviceTensor, **changes: Any):
        self.tensor = array if isinstance(array, tensorbox.DeviceTensor) else tensorbox.to_device(array)
        self.__cuda_array_interface__ = self.tensor.__cuda_array_interface__ | changes


def both(model: onnx.ModelProto, **options: Any) -> tuple[tensorbox.Session, tensorbox.Session]:
    return tensorbox.Session(model), tensorbox.Session(model, device="cuda", **options)


@pytest.mark.parametrize("kind", [tensorbox.to_device, Foreign, Versioned, Interface])
def test_inputs_are_read_where_they_are(kind: Any) -> None:
    cpu, gpu = both(mlp())
    for n in (1, 3, 3, 3, 0, 33, 3, 1):  # recorded, replayed, and copied from other addresses
        x = RNG.standard_normal((n, 8)).astype("f")
        np.testing.assert_allclose(gpu.run({"x": kind(x)})["y"], cpu.run({"x": x})["y"], rtol=1e-5, atol=1e-6)


def test_the_same_memory_again_is_read_in_place() -> None:
    cpu, gpu = both(mlp())
    x, other = tensorbox.to_device(np.zeros((4, 8), "f")), tensorbox.to_device(np.ones((4, 8), "f"))
    for turn in range(8):
        now = RNG.standard_normal((4, 8)).astype("f")
        given = other if turn in (4, 6) else x
        _core.assign(given._core, 1, [4, 8], now.view(np.uint8))
        np.testing.assert_allclose(gpu.run({"x": given})["y"], cpu.run({"x": now})["y"], rtol=1e-5, atol=1e-6)


def test_outputs_stay_on_the_device_as_long_as_somebody_has_them() -> None:
    cpu, gpu = both(mlp())
    kept = []
    for n in (1, 3, 3, 3, 0, 33, 3):
        x = RNG.standard_normal((n, 8)).astype("f")
        out = gpu.run({"x": Foreign(x)}, outputs="device")["y"]
        assert isinstance(out, tensorbox.DeviceTensor) and out.device == "cuda:0"
        assert out.shape == (n, 5) and out.dtype == np.float32 and out.nbytes == n * 20
        kept.append((out, cpu.run({"x": x})["y"]))
    for out, expected in kept:
        np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5, atol=1e-6)
    capsule = kept[1][0].__dlpack__(stream=-1)
    del gpu, out
    for expected in [e for _, e in kept][1:2]:
        kept.clear()
        gc.collect()
        back = _core.DeviceTensor.from_dlpack(capsule, False)  # the last holder, behind the end of the session
        stream = _core.make_stream("cuda")
        again = tensorbox.Session(model_of([helper.make_node("Neg", ["x"], ["y"])], {"x": (TensorProto.FLOAT, [3, 5])},
                                           {"y": (TensorProto.FLOAT, [3, 5])}), device="cuda")
        np.testing.assert_allclose(again.run({"x": tensorbox.DeviceTensor(back)}, stream=stream.handle)["y"], -expected,
                                   rtol=1e-5, atol=1e-6)


def test_memory_of_outputs_is_used_again() -> None:
    gpu = tensorbox.Session(mlp(), device="cuda")
    x = tensorbox.to_device(np.ones((4, 8), "f"))
    addresses = {gpu.run({"x": x}, outputs="device")["y"].data_ptr for _ in range(10)}
    assert len(addresses) == 1
    held = [gpu.run({"x": x}, outputs="device")["y"] for _ in range(3)]
    assert len({t.data_ptr for t in held}) == 3


@pytest.mark.parametrize("kind", [tensorbox.to_device, Foreign, Versioned, Interface])
def test_outputs_into_memory_of_the_device(kind: Any) -> None:
    cpu, gpu = both(mlp())
    y = kind(np.full((3, 5), np.nan, "f"))
    for _ in range(4):
        x = RNG.standard_normal((3, 8)).astype("f")
        assert gpu.run({"x": x}, out={"y": y})["y"] is y
        tensor = y if isinstance(y, tensorbox.DeviceTensor) else y.tensor
        np.testing.assert_allclose(tensor.numpy(), cpu.run({"x": x})["y"], rtol=1e-5, atol=1e-6)


def test_an_output_may_lie_where_an_input_does() -> None:
    nodes = [helper.make_node("Softmax", ["x"], ["s"], axis=0), helper.make_node("Sub", ["x", "s"], ["y"]),
             helper.make_node("Add", ["x", "y"], ["z"])]
    model = model_of(nodes, {"x": (TensorProto.FLOAT, ["n", 7])},
                     {"y": (TensorProto.FLOAT, ["n", 7]), "z": (TensorProto.FLOAT, ["n", 7])})
    cpu, gpu = both(model)
    for _ in range(4):
        x = RNG.standard_normal((9, 7)).astype("f")
        there, expected = tensorbox.to_device(x), cpu.run({"x": x})
        z = gpu.run({"x": there}, out={"y": there, "z": tensorbox.to_device(np.zeros((9, 7), "f"))})["z"]
        np.testing.assert_allclose(there.numpy(), expected["y"], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(z.numpy(), expected["z"], rtol=1e-5, atol=1e-6)


def test_memory_that_is_not_aligned_is_copied() -> None:
    cpu, gpu = both(mlp())
    whole = tensorbox.to_device(RNG.standard_normal((5, 8)).astype("f"))
    for first in (1, 1, 2, 3, 1):
        part = Interface(whole, shape=(2, 8), data=(whole.data_ptr + first * 32, False))
        expected = cpu.run({"x": whole.numpy()[first:first + 2]})["y"]
        np.testing.assert_allclose(gpu.run({"x": part})["y"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("type_", [TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE, TensorProto.INT64,
                                   TensorProto.INT8, TensorProto.BOOL, TensorProto.UINT32])
def test_types(type_: int) -> None:
    from tensorbox.dtypes import numpy_dtype

    dtype = numpy_dtype(type_)
    model = model_of([helper.make_node("Identity", ["x"], ["y"])], {"x": (type_, ["n"])}, {"y": (type_, ["n"])})
    gpu = tensorbox.Session(model, device="cuda")
    for n in (0, 1, 9, 9, 9):
        x = RNG.integers(0, 2, n).astype(dtype)
        y = gpu.run({"x": Versioned(x)}, outputs="device")["y"]
        assert y.dtype == dtype
        np.testing.assert_array_equal(y.numpy().astype("f"), x.astype("f"))
        if n and dtype.name != "bfloat16":
            np.testing.assert_array_equal(gpu.run({"x": Interface(y)})["y"], x)
    if dtype.name == "bfloat16":
        with pytest.raises(AttributeError, match="has no name for the type bfloat16"):
            _ = y.__cuda_array_interface__


def test_host_and_device_mix() -> None:
    model = model_of([helper.make_node("Add", ["a", "b"], ["y"]), helper.make_node("Mul", ["a", "b"], ["z"])],
                     {"a": (TensorProto.FLOAT, ["n"]), "b": (TensorProto.FLOAT, ["n"])},
                     {"y": (TensorProto.FLOAT, ["n"]), "z": (TensorProto.FLOAT, ["n"])})
    gpu = tensorbox.Session(model, device="cuda")
    a, b = RNG.standard_normal((2, 40)).astype("f")
    for turn in range(6):
        z = tensorbox.to_device(np.zeros(40, "f"))
        out = gpu.run({"a": tensorbox.to_device(a), "b": b}, out={"y": np.empty(40, "f"), "z": z if turn % 2 else np.empty(40, "f")})
        np.testing.assert_array_equal(out["y"], a + b)
        np.testing.assert_array_equal(z.numpy() if turn % 2 else out["z"], a * b)


def test_large_tensors_go_in_pieces() -> None:
    model = model_of([helper.make_node("Neg", ["x"], ["y"])], {"x": (TensorProto.FLOAT, ["n"])},
                     {"y": (TensorProto.FLOAT, ["n"])})
    gpu = tensorbox.Session(model, device="cuda", threads=3)
    for n in (1 << 18, (1 << 18) + 1, 1_300_001, 1_300_001, 1_300_001):
        x = RNG.standard_normal(n).astype("f")
        np.testing.assert_array_equal(gpu.run({"x": x})["y"], -x)


def test_steps_of_the_host_read_and_write_device_tensors() -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["i"]), helper.make_node("Neg", ["x"], ["y"]),
             helper.make_node("TopK", ["x", "k"], ["v", "w"])]
    model = model_of(nodes, {"x": (TensorProto.FLOAT, [9])},
                     {"i": (TensorProto.INT64, [1, None]), "y": (TensorProto.FLOAT, [9]), "v": (TensorProto.FLOAT, [3]),
                      "w": (TensorProto.INT64, [3])}, k=np.array([3]))
    cpu, gpu = both(model)
    for turn in range(4):
        x = (RNG.standard_normal(9) * (RNG.random(9) < 0.5)).astype("f")
        expected, out = cpu.run({"x": x}), gpu.run({"x": Foreign(x)}, outputs="device")
        for name, value in expected.items():
            np.testing.assert_array_equal(out[name].numpy(), value)
        y = tensorbox.to_device(np.zeros(9, "f"))
        v = tensorbox.to_device(np.zeros(3, "f"))
        gpu._run_partly_into({"x": Foreign(x)}, {"y": y, "v": v})
        np.testing.assert_array_equal(y.numpy(), expected["y"])
        np.testing.assert_array_equal(v.numpy(), expected["v"])


def test_models_that_run_on_the_host_alone_take_device_tensors() -> None:
    top = model_of([helper.make_node("TopK", ["x", "k"], ["v", "i"])], {"x": (TensorProto.FLOAT, [9])},
                   {"v": (TensorProto.FLOAT, [3]), "i": (TensorProto.INT64, [3])}, k=np.array([3]))
    body = helper.make_graph([helper.make_node("Exp", ["v"], ["e"]), helper.make_node("Identity", ["c"], ["go"])], "body",
                             [helper.make_tensor_value_info("t", TensorProto.INT64, []),
                              helper.make_tensor_value_info("c", TensorProto.BOOL, []),
                              helper.make_tensor_value_info("v", TensorProto.FLOAT, [9])],
                             [helper.make_tensor_value_info("go", TensorProto.BOOL, []),
                              helper.make_tensor_value_info("e", TensorProto.FLOAT, [9])])
    loop = model_of([helper.make_node("Loop", ["m", "", "x"], ["v"], body=body)],
                    {"m": (TensorProto.INT64, []), "x": (TensorProto.FLOAT, [9])}, {"v": (TensorProto.FLOAT, [9])})
    x, stream = RNG.standard_normal(9).astype("f"), _core.make_stream("cuda")
    for model, more in ((top, {}), (loop, {"m": np.array(2)})):
        cpu, gpu = both(model)
        expected = cpu.run({"x": x, **more})["v"]
        out = gpu.run({"x": Foreign(x), **more}, outputs="device")["v"]
        np.testing.assert_allclose(out.numpy(), expected, rtol=1e-6)
        np.testing.assert_allclose(gpu.run({"x": Foreign(x), **more})["v"], expected, rtol=1e-6)
        with pytest.raises(tensorbox.UnsupportedError, match="cannot be asynchronous"):
            gpu.run_async({"x": Foreign(x), **more}, stream.handle)


def test_elements_that_the_code_depends_on_come_to_the_host() -> None:
    model = model_of([helper.make_node("Reshape", ["x", "s"], ["r"]), helper.make_node("Neg", ["r"], ["y"])],
                     {"x": (TensorProto.FLOAT, ["n"]), "s": (TensorProto.INT64, [2])}, {"y": (TensorProto.FLOAT, None)})
    gpu = tensorbox.Session(model, device="cuda")
    x = np.arange(12, dtype="f")
    for shape in ((3, 4), (2, 6), (3, 4), (12, 1)):
        out = gpu.run({"x": Foreign(x), "s": Foreign(np.array(shape))}, outputs="device")["y"]
        np.testing.assert_array_equal(out.numpy(), -x.reshape(shape))


def test_work_of_a_stream_that_nobody_waits_for() -> None:
    cpu, gpu = both(mlp())
    stream = _core.make_stream("cuda")
    results = []
    for _ in range(6):
        x = RNG.standard_normal((3, 8)).astype("f")
        results.append((gpu.run_async({"x": tensorbox.to_device(x)}, stream.handle)["y"], cpu.run({"x": x})["y"]))
    host = RNG.standard_normal((3, 8)).astype("f")
    given = host.copy()
    results.append((gpu.run_async({"x": given}, stream.handle)["y"], cpu.run({"x": host})["y"]))
    given[:] = 0  # it was read
    assert results[-1][0].__cuda_array_interface__["stream"] == stream.handle
    for out, expected in results:
        np.testing.assert_allclose(out.numpy(), expected, rtol=1e-5, atol=1e-6)  # which waits


def test_runs_follow_each_other_on_streams() -> None:
    """The second run reads what the first, of which nobody waited, makes: on the same stream, and on another."""
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])],
                     {"x": (TensorProto.FLOAT, ["n", 8])}, {"y": (TensorProto.FLOAT, ["n", 8])},
                     w=RNG.standard_normal((8, 8)).astype("f"))
    cpu, gpu = both(model)
    first, second = _core.make_stream("cuda"), _core.make_stream("cuda")
    for other in (first, second, 0, second):
        x = RNG.standard_normal((4, 8)).astype("f")
        y = gpu.run_async({"x": x}, first.handle)["y"]
        z = gpu.run_async({"x": y}, other if other == 0 else other.handle)["y"]
        expected = cpu.run({"x": cpu.run({"x": x})["y"]})["y"]
        np.testing.assert_allclose(gpu.run({"x": z})["y"], cpu.run({"x": expected})["y"], rtol=1e-4, atol=1e-5)
    gpu.synchronize()


def test_dropped_outputs_are_not_written_before_their_readers_are_done() -> None:
    cpu, gpu = both(mlp())
    reader, stream = _core.make_stream("cuda"), _core.make_stream("cuda")
    copies, x = [], [RNG.standard_normal((3, 8)).astype("f") for _ in range(5)]
    neg = tensorbox.Session(model_of([helper.make_node("Neg", ["x"], ["y"])], {"x": (TensorProto.FLOAT, [3, 5])},
                                     {"y": (TensorProto.FLOAT, [3, 5])}), device="cuda")
    for given in x:
        y = gpu.run_async({"x": given}, stream.handle)["y"]
        copies.append(neg.run_async({"x": y}, reader.handle)["y"])
        del y
        neg._streams.clear()
    for given, copy in zip(x, copies, strict=True):
        np.testing.assert_allclose(copy.numpy(), -cpu.run({"x": given})["y"], rtol=1e-5, atol=1e-6)


def test_producers_are_told_the_stream() -> None:
    gpu = tensorbox.Session(mlp(), device="cuda")
    stream = _core.make_stream("cuda")
    x = Foreign(np.ones((3, 8), "f"))
    gpu.run({"x": x}, stream=stream.handle)
    gpu.run({"x": x}, stream=0)
    gpu.run({"x": x})
    gpu.run_async({"x": x}, stream.handle)["y"].numpy()
    assert x.streams[:2] == [stream.handle, 1]  # 0 is the default stream, which DLPack calls 1
    assert x.streams[2] not in (None, 0, 1, stream.handle) and x.streams[3] == stream.handle

    class TorchStream:
        cuda_stream = stream.handle

    class CoreStream:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, stream.handle

    for given in (TorchStream(), CoreStream()):
        gpu.run({"x": x}, stream=given)
        assert x.streams[-1] == stream.handle
    with pytest.raises(TypeError, match="a stream is one of torch or CuPy"):
        gpu.run({"x": x}, stream="0")


def test_an_index_outside_of_its_axis_is_told_later() -> None:
    model = model_of([helper.make_node("Gather", ["x", "i"], ["y"], name="pick")],
                     {"x": (TensorProto.FLOAT, [5]), "i": (TensorProto.INT64, ["n"])}, {"y": (TensorProto.FLOAT, ["n"])})
    gpu = tensorbox.Session(model, device="cuda")
    x, stream = np.arange(5, dtype="f"), _core.make_stream("cuda")
    for _ in range(3):
        gpu.run_async({"x": x, "i": np.array([0, 7])}, stream.handle)
        with pytest.raises(tensorbox.ModelError, match="index 7 is outside an axis of size 5.*'pick'|'pick'.*index 7"):
            gpu.synchronize()
        np.testing.assert_array_equal(gpu.run({"x": x, "i": np.array([4, -1])})["y"], [4, 4])  # and goes on
        with pytest.raises(tensorbox.ModelError, match="index 9 is outside"):
            gpu.run({"x": x, "i": tensorbox.to_device(np.array([9]))})
    gpu.synchronize()


class OtherDevice(Foreign):
    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 1


@pytest.mark.parametrize(("given", "message"), [
    (lambda x: Interface(x, strides=(4, 32)), "input 'x': the tensor is not contiguous"),
    (lambda x: Interface(x, typestr=">f4"), "input 'x': elements of type >f4 are not in the machine's byte order"),
    (lambda x: Interface(x, typestr="<f8", shape=(3, 4)), "input 'x' has type float64, expected float32"),
    (lambda x: Interface(x, shape=(24,)), "input 'x' has rank 1, expected 2"),
    (lambda x: Interface(x, shape=(300, 8)), "input 'x' is not memory of cuda:0, .*: .* bytes are left in its memory"),
    (lambda x: Interface(x, data=(4096, False)), "input 'x' is not memory of cuda:0.*none of a GPU's memory"),
    (lambda x: Interface(x, mask=1), "input 'x': masked arrays"),
    (lambda x: two_devices() or tensorbox.to_device(x, "cuda:1"), "input 'x' is in memory of cuda:1, the session runs on cuda:0"),
    (lambda x: tensorbox.to_device(x.astype("i8")), "input 'x' has type int64, expected float32"),
])
def test_what_no_input_can_be(given: Any, message: str) -> None:
    gpu = tensorbox.Session(mlp(), device="cuda")
    x = RNG.standard_normal((3, 8)).astype("f")
    with pytest.raises(tensorbox.ModelError, match=message):
        gpu.run({"x": given(x)})
    gpu.run({"x": tensorbox.to_device(x)})


@pytest.mark.parametrize(("given", "message"), [
    (lambda: tensorbox.to_device(np.zeros((3, 4), "f")), r"output 'y' has shape \[3, 4\], expected \[3, 5\]"),
    (lambda: tensorbox.to_device(np.zeros((3, 5), "i4")), "output 'y' has type int32, expected float32"),
    (lambda: two_devices() or tensorbox.to_device(np.zeros((3, 5), "f"), "cuda:1"), "output 'y' is in memory of cuda:1"),
    (lambda: Interface(np.zeros((3, 5), "f"), data=(4096, True)), "out\\['y'\\]: the tensor is read-only"),
    (lambda: Interface(np.zeros((3, 5), "f"), data=(4096, False)), "output 'y' is not memory of cuda:0"),
])
def test_what_no_output_can_be(given: Any, message: str) -> None:
    gpu = tensorbox.Session(mlp(), device="cuda")
    with pytest.raises(tensorbox.ModelError, match=message):
        gpu.run({"x": np.zeros((3, 8), "f")}, out={"y": given()})


def test_what_a_session_on_the_cpu_is_told() -> None:
    cpu = tensorbox.Session(mlp())
    x = tensorbox.to_device(np.zeros((3, 8), "f"))
    with pytest.raises(tensorbox.ModelError, match="input 'x' is in memory of a GPU, and the session runs on the CPU"):
        cpu.run({"x": x})
    with pytest.raises(tensorbox.ModelError, match="outputs on a GPU are asked for, and the session runs on the CPU"):
        cpu.run({"x": np.zeros((3, 8), "f")}, outputs="device")
    with pytest.raises(ValueError, match='outputs is "host" or "device"'):
        cpu.run({"x": np.zeros((3, 8), "f")}, outputs="gpu")


def test_exports() -> None:
    x = np.arange(6, dtype="f").reshape(2, 3)
    there = tensorbox.to_device(x)
    assert there.__dlpack_device__() == (2, 0)
    for version in (None, (0, 8), (1, 0), (2, 1)):
        back = _core.DeviceTensor.from_dlpack(there.__dlpack__(stream=None, max_version=version), True)
        assert (back.type, back.dims, back.device, back.address) == (1, [2, 3], 0, there.data_ptr)
    capsule = there.__dlpack__()
    _core.DeviceTensor.from_dlpack(capsule, False)
    with pytest.raises(tensorbox.ModelError, match="was used before"):
        _core.DeviceTensor.from_dlpack(capsule, False)
    with pytest.raises(BufferError, match=r"numpy\(\) copies it to the host"):
        there.__dlpack__(dl_device=(1, 0))
    with pytest.raises(BufferError, match="without a copy"):
        there.__dlpack__(copy=True)
    interface = there.__cuda_array_interface__
    assert interface == {"shape": (2, 3), "typestr": "<f4", "data": (there.data_ptr, False), "version": 3,
                         "strides": None, "stream": None}
    assert repr(there) == "<tensorbox.DeviceTensor float32[2, 3] on cuda:0>"
    with pytest.raises(tensorbox.Error):
        tensorbox.to_device(np.array(["a"]))

"""Session.bind: runs with the same memory every time, on the CPU and on the fake device, against runs that are given their
arrays anew."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tensorbox
from tensorbox import _core

from test_device import mlp, model_of

RNG = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def _fake_device(monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.environ.get("TBX_TEST_GPU"):  # set: these tests are for the GPU of the machine
        monkeypatch.setenv("TBX_FAKE_CUDA", "1")


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("f")


def assign(tensor: tensorbox.DeviceTensor, array: np.ndarray) -> None:
    _core.assign(tensor._core, 1, list(array.shape), array.reshape(-1).view(np.uint8))


@pytest.mark.parametrize("rows", [0, 1, 3, 33])
@pytest.mark.parametrize("device", [None, "cuda"])
def test_arrays_of_the_host(device: str | None, rows: int) -> None:
    model = mlp()
    session, expected = tensorbox.Session(model, device=device), tensorbox.Session(model)
    x, y = normal(rows, 8), np.full((rows, 5), np.nan, "f")
    bound = session.bind({"x": x}, {"y": y})
    for _ in range(5):
        x[:] = normal(rows, 8)
        assert bound.run()["y"] is y
        np.testing.assert_allclose(y, expected.run({"x": x})["y"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rows", [0, 1, 3, 33])
def test_tensors_of_the_device(rows: int) -> None:
    model = mlp()
    session, expected = tensorbox.Session(model, device="cuda"), tensorbox.Session(model)
    x, y = tensorbox.to_device(normal(rows, 8)), tensorbox.to_device(normal(rows, 5))
    bound = session.bind({"x": x}, out={"y": y})
    stream = _core.make_stream("cuda")
    for turn in range(9):
        now = normal(rows, 8)
        assign(x, now)
        if turn % 3 == 0:
            bound.run()
        elif turn % 3 == 1:
            bound.run(stream.handle)
        else:
            assert bound.run_async(stream.handle)["y"] is y
            session.synchronize()
        np.testing.assert_allclose(y.numpy(), expected.run({"x": now})["y"], rtol=1e-5, atol=1e-6)


def test_memory_is_kept_until_the_work_is_done() -> None:
    model = mlp()
    session, expected = tensorbox.Session(model, device="cuda"), tensorbox.Session(model)
    now = normal(3, 8)
    y = tensorbox.to_device(normal(3, 5))
    x = tensorbox.to_device(now)
    gone = weakref.ref(x._core) if hasattr(type(x._core), "__weakref__") else None
    bound = session.bind({"x": x}, out={"y": y})
    stream = _core.make_stream("cuda")
    del x
    for _ in range(4):
        bound.run_async(stream.handle)
    del session
    gc.collect()
    assert gone is None or gone() is not None
    del bound  # waits: nobody else does
    gc.collect()
    np.testing.assert_allclose(y.numpy(), expected.run({"x": now})["y"], rtol=1e-5, atol=1e-6)


def test_several_threads() -> None:
    model = mlp()
    session, expected = tensorbox.Session(model, device="cuda"), tensorbox.Session(model)
    failed: list[str] = []

    def work() -> None:
        now = normal(3, 8)
        y = tensorbox.to_device(normal(3, 5))
        bound = session.bind({"x": tensorbox.to_device(now)}, out={"y": y})
        for _ in range(10):
            bound.run()
            if not np.allclose(y.numpy(), expected.run({"x": now})["y"], rtol=1e-5, atol=1e-6):
                failed.append("differs")

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed


def test_what_cannot_be_bound() -> None:
    model = mlp()
    session = tensorbox.Session(model)
    x, y = normal(3, 8), normal(3, 5)

    def refused(error: type[Exception], match: str, inputs: Any, out: Any, of: tensorbox.Session = session) -> None:
        with pytest.raises(error, match=match):
            of.bind(inputs, out)

    refused(tensorbox.ModelError, "out lacks the outputs y", {"x": x}, {})
    refused(tensorbox.ModelError, "out has .'z'.", {"x": x}, {"y": y, "z": y})
    refused(tensorbox.ModelError, "no input 'w'", {"w": x}, {"y": y})
    refused(tensorbox.ModelError, "input 'x' is missing", {}, {"y": y})
    refused(tensorbox.ModelError, r"output 'y' has shape \[4, 5\], expected \[3, 5\]", {"x": x}, {"y": normal(4, 5)})
    refused(tensorbox.ModelError, "dimension 1 of input 'x' is 9, expected 8", {"x": normal(3, 9)}, {"y": y})
    refused(tensorbox.ModelError, "has type float64, expected float32", {"x": x.astype("d")}, {"y": y})
    refused(ValueError, "input 'x' cannot be bound.*C-contiguous", {"x": normal(8, 3).T}, {"y": y})
    refused(ValueError, "out.'y'. cannot be written directly", {"x": x}, {"y": normal(5, 3).T})
    refused(TypeError, "input 'x' is a list", {"x": x.tolist()}, {"y": y})
    refused(TypeError, "inputs are a mapping", [x], {"y": y})
    there = tensorbox.to_device(x)
    refused(tensorbox.ModelError, "the session runs on the CPU", {"x": there}, {"y": y})
    gpu = tensorbox.Session(model, device="cuda")
    bound = gpu.bind({"x": there}, {"y": y})
    with pytest.raises(tensorbox.ModelError, match="output 'y' of an asynchronous run is memory of the host"):
        bound.run_async(0)
    bound.run()
    np.testing.assert_allclose(y, session.run({"x": x})["y"], rtol=1e-5, atol=1e-6)
    strings = model_of([helper.make_node("Identity", ["x"], ["y"])], {"x": (TensorProto.STRING, [2])},
                       {"y": (TensorProto.STRING, [2])})
    refused(tensorbox.UnsupportedError, "strings or no tensors", {"x": np.array(["a", "b"])}, {"y": y},
            tensorbox.Session(strings))


@pytest.mark.parametrize("device", [None, "cuda"])
def test_shapes_that_depend_on_data(device: str | None) -> None:
    model: onnx.ModelProto = model_of([helper.make_node("NonZero", ["x"], ["y"])], {"x": (TensorProto.FLOAT, ["n"])},
                                      {"y": (TensorProto.INT64, [1, "m"])})
    session = tensorbox.Session(model, device=device)
    x, y = np.array([1, 0, 2, 0], "f"), np.zeros((1, 2), np.int64)
    bound = session.bind({"x": x}, {"y": y})
    for _ in range(3):
        x[:] = 1, 0, 2, 0
        bound.run()
        np.testing.assert_array_equal(y, [[0, 2]])
        x[:] = 0, 3, 0, 4
        bound.run()
        np.testing.assert_array_equal(y, [[1, 3]])
        x[:] = 1
        with pytest.raises(tensorbox.ModelError, match=r"NonZero.*output 'y' has shape \[1, 4\] in this run, and memory of "
                           r"shape \[1, 2\].*no memory for it"):
            bound.run()


def test_what_is_known_where_shapes_depend_on_data() -> None:
    model = model_of([helper.make_node("Exp", ["x"], ["e"]), helper.make_node("NonZero", ["e"], ["y"])],
                     {"x": (TensorProto.FLOAT, ["n"])}, {"y": (TensorProto.INT64, [1, "m"])})
    x, y = np.ones(4, "f"), np.zeros((1, 4), np.int64)
    for device in (None, "cuda"):
        session = tensorbox.Session(model, device=device)
        with pytest.raises(tensorbox.ModelError, match="output 'y' has type int32, expected int64"):
            session.bind({"x": x}, {"y": np.zeros((1, 4), np.int32)})
        with pytest.raises(tensorbox.ModelError, match="input 'x' has rank 2, expected 1"):
            session.bind({"x": x.reshape(2, 2)}, {"y": y})
        bound = session.bind({"x": x}, {"y": y})
        np.testing.assert_array_equal(bound.run()["y"], [[0, 1, 2, 3]])
        with pytest.raises(tensorbox.Error, match="NonZero.*the host waits for the sizes.*use run" if device else "no streams"):
            bound.run_async(_core.make_stream("cuda").handle)

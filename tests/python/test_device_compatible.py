"""InferenceSession with CUDAExecutionProvider, IOBinding and OrtValue on a GPU, which is the fake device here."""

from __future__ import annotations

import os

import numpy as np
import pytest

import tensorbox
from tensorbox import _core

from test_device import mlp

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
ON_GPU = bool(os.environ.get("TBX_TEST_GPU"))
X = np.random.default_rng(3).standard_normal((3, 8)).astype("f")


@pytest.fixture(autouse=True)
def _fake_device(monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.environ.get("TBX_TEST_GPU"):  # set: these tests are for the GPU of the machine
        monkeypatch.setenv("TBX_FAKE_CUDA", "1")


@pytest.fixture(scope="module", name="model")
def _model() -> bytes:
    return mlp().SerializeToString()


def expected_of(model: bytes, x: np.ndarray = X) -> np.ndarray:
    return tensorbox.Session(model).run({"x": x})["y"]


@pytest.mark.skipif(ON_GPU, reason="needs a second GPU")
def test_the_first_provider_that_is_there_runs_the_model(model: bytes) -> None:
    assert tensorbox.get_available_providers() == [CUDA, CPU] and tensorbox.get_device() == "GPU"
    for providers, options in (([CUDA], None), ([(CUDA, {"device_id": "1"}), CPU], None), ([CUDA, CPU], [{"device_id": 1}, {}])):
        session = tensorbox.InferenceSession(model, providers=providers, provider_options=options)
        assert session.get_providers() == [CUDA, CPU]
        number = "0" if providers == [CUDA] else "1"
        assert session.get_provider_options() == {CUDA: {"device_id": number}, CPU: {}}
        assert session._session._core.device == int(number)
        np.testing.assert_allclose(session.run(None, {"x": X})[0], expected_of(model), rtol=1e-5, atol=1e-6)
    assert tensorbox.InferenceSession(model, providers=[CPU, CUDA]).get_providers() == [CPU]
    options = tensorbox.SessionOptions()
    options.add_provider(CUDA, {"device_id": 1})
    assert options.has_providers()
    assert tensorbox.InferenceSession(model, options).get_providers() == [CUDA, CPU]


def test_a_machine_without_a_gpu(model: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TBX_FAKE_CUDA", raising=False)
    with pytest.warns(UserWarning, match=f"provider '{CUDA}' is not available; available: .*; {CUDA}: "):
        session = tensorbox.InferenceSession(model, providers=[(CUDA, {"device_id": 63}), CPU])
    assert session.get_providers() == [CPU]
    with pytest.raises(ValueError, match=f"provider '{CUDA}' is not available"):
        tensorbox.InferenceSession(model, providers=[(CUDA, {"device_id": 63})])


def test_options_are_done_named_or_refused(model: bytes) -> None:
    with pytest.warns(UserWarning, match="these options have no effect: cudnn_conv_algo_search, gpu_mem_limit"):
        tensorbox.InferenceSession(model, providers=[(CUDA, {"cudnn_conv_algo_search": "HEURISTIC", "gpu_mem_limit": 1 << 30})])
    with pytest.raises(ValueError, match="has no option 'gpu_memory'"):
        tensorbox.InferenceSession(model, providers=[(CUDA, {"gpu_memory": 1})])
    with pytest.raises(tensorbox.UnsupportedError, match="option gpu_external_alloc"):
        tensorbox.InferenceSession(model, providers=[(CUDA, {"gpu_external_alloc": 1})])
    with pytest.raises(ValueError, match="2 providers and 1 provider_options"):
        tensorbox.InferenceSession(model, providers=[CUDA, CPU], provider_options=[{}])
    session = tensorbox.InferenceSession(model, providers=[CUDA])
    session.set_providers([CUDA])
    with pytest.raises(tensorbox.UnsupportedError, match="cannot be changed"):
        session.set_providers([CPU])


def test_values_on_the_gpu(model: bytes) -> None:
    value = tensorbox.OrtValue.ortvalue_from_numpy(X, "cuda", 0)
    assert value.device_name() == "cuda" and value.is_tensor() and value.has_value() and value.shape() == [3, 8]
    assert value.data_type() == "tensor(float)" and value.element_type() == 1 and value.tensor_size_in_bytes() == 96
    assert value.__dlpack_device__() == (2, 0) and value.data_ptr() % 256 == 0
    np.testing.assert_array_equal(value.numpy(), X)
    np.testing.assert_array_equal(np.asarray(value), X)
    value.update_inplace(2 * X)
    np.testing.assert_array_equal(value.numpy(), 2 * X)
    with pytest.raises(ValueError, match="does not fit"):
        value.update_inplace(X[:2])
    other = tensorbox.OrtValue.from_dlpack(value)
    assert other.data_ptr() == value.data_ptr() and other.device_name() == "cuda"
    assert tensorbox.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float16, "cuda", 0).numpy().sum() == 0
    session = tensorbox.InferenceSession(model, providers=[CUDA])
    np.testing.assert_allclose(session.run_with_ort_values(None, {"x": value})[0].numpy(), expected_of(model, 2 * X),
                               rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(session.run(None, {"x": value})[0], expected_of(model, 2 * X), rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="available: 'cpu', 'cuda'"):
        tensorbox.OrtValue.ortvalue_from_numpy(X, "dml", 0)


def test_binding(model: bytes) -> None:
    session = tensorbox.InferenceSession(model, providers=[CUDA])
    expected = expected_of(model)
    x, y = (tensorbox.OrtValue.ortvalue_from_numpy(a, "cuda", 0) for a in (X, np.zeros((3, 5), "f")))
    binding = session.io_binding()
    binding.bind_input("x", "cuda", 0, np.float32, [3, 8], x.data_ptr())
    binding.bind_output("y", "cuda", 0, np.float32, [3, 5], y.data_ptr())
    for _ in range(3):
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        np.testing.assert_allclose(y.numpy(), expected, rtol=1e-5, atol=1e-6)
    assert binding.get_outputs()[0].data_ptr() == y.data_ptr()
    binding.clear_binding_outputs()
    binding.bind_output("y", "cuda")
    session.run_with_iobinding(binding)
    result = binding.get_outputs()[0]
    assert result.device_name() == "cuda"
    np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], expected, rtol=1e-5, atol=1e-6)
    binding.clear_binding_inputs()
    binding.bind_cpu_input("x", 2 * X)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    assert binding.get_outputs()[0].device_name() == "cpu"
    np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], expected_of(model, 2 * X), rtol=1e-5, atol=1e-6)
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", y)
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="output 'y' cannot be on cuda:1"):
        binding.bind_output("y", "cuda", 1)
    with pytest.raises(ValueError, match="output 'y' cannot be on cuda:0"):
        tensorbox.InferenceSession(model).io_binding().bind_output("y", "cuda", 0)


def test_a_binding_that_is_used_again(model: bytes) -> None:
    """What is bound is looked at once (Session.bind), until something else is."""
    session = tensorbox.InferenceSession(model, providers=[CUDA])
    x, y, z = (tensorbox.OrtValue.ortvalue_from_numpy(a, "cuda", 0) for a in (X, np.zeros((3, 5), "f"), np.zeros((3, 5), "f")))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", y)
    used = []
    for turn in range(4):
        x.update_inplace(turn * X)
        session.run_with_iobinding(binding)
        used.append(binding._bound)
        assert binding.get_outputs()[0].data_ptr() == y.data_ptr()
        np.testing.assert_allclose(y.numpy(), expected_of(model, turn * X), rtol=1e-5, atol=1e-6)
    assert used[0] is not None and len({id(bound) for bound in used}) == 1
    binding.bind_ortvalue_output("y", z)
    for factor in (5, 6):
        other = tensorbox.OrtValue.ortvalue_from_numpy(factor * X, "cuda", 0)
        binding.bind_ortvalue_input("x", other)
        for _ in range(2):
            session.run_with_iobinding(binding)
            np.testing.assert_allclose(z.numpy(), expected_of(model, factor * X), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(y.numpy(), expected_of(model, 3 * X), rtol=1e-5, atol=1e-6)
    binding.clear_binding_outputs()
    binding.bind_output("y", "cuda")
    session.run_with_iobinding(binding)
    assert binding._bound is None and binding.get_outputs()[0].data_ptr() != z.data_ptr()


def test_streams_of_the_caller(model: bytes) -> None:
    stream = _core.make_stream("cuda")
    session = tensorbox.InferenceSession(model, providers=[(CUDA, {"user_compute_stream": str(stream.handle), "has_user_compute_stream": "1"})])
    np.testing.assert_allclose(session.run(None, {"x": X})[0], expected_of(model), rtol=1e-5, atol=1e-6)
    options = tensorbox.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "cuda")
    session.run_with_iobinding(binding, options)
    binding.synchronize_outputs()
    np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], expected_of(model), rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="option user_compute_stream"):
        own = tensorbox.InferenceSession(model, providers=[CUDA])
        binding = own.io_binding()
        binding.bind_cpu_input("x", X)
        binding.bind_output("y", "cuda")
        own.run_with_iobinding(binding, options)

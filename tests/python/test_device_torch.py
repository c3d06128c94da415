"""Tensors and streams of torch and CuPy, where they and a GPU are."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import tensorbox

from test_device import mlp, model_of

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU", allow_module_level=True)


def cpu_result(model: object, x: torch.Tensor) -> np.ndarray:
    return tensorbox.Session(model).run({"x": x.cpu().numpy()})["y"]


def test_tensors_in_and_out() -> None:
    model = mlp()
    gpu = tensorbox.Session(model, device="cuda")
    for n in (1, 3, 3, 3, 0, 33, 3):
        x = torch.randn(n, 8, device="cuda")
        y = torch.from_dlpack(gpu.run({"x": x}, outputs="device")["y"])
        assert y.is_cuda and y.shape == (n, 5)
        np.testing.assert_allclose(y.cpu().numpy(), cpu_result(model, x), rtol=1e-4, atol=1e-5)
        out = torch.full((n, 5), torch.nan, device="cuda")
        gpu.run({"x": x}, out={"y": out})
        assert torch.equal(out, y)


def test_views_and_gradients() -> None:
    model = mlp()
    gpu = tensorbox.Session(model, device="cuda")
    x = torch.randn(9, 8, device="cuda", requires_grad=True)
    np.testing.assert_allclose(gpu.run({"x": x[1:4]})["y"], cpu_result(model, x[1:4].detach()), rtol=1e-4, atol=1e-5)
    with pytest.raises(tensorbox.ModelError, match="input 'x': the tensor is not contiguous"):
        gpu.run({"x": torch.randn(8, 3, device="cuda").T})


@pytest.mark.parametrize("type_", ["float16", "bfloat16", "float64", "int64", "uint8", "bool"])
def test_types(type_: str) -> None:
    number = getattr(TensorProto, {"float64": "DOUBLE"}.get(type_, type_.upper()))
    gpu = tensorbox.Session(model_of([helper.make_node("Identity", ["x"], ["y"])], {"x": (number, ["n"])},
                                     {"y": (number, ["n"])}), device="cuda")
    x = torch.randint(0, 2, (17,), device="cuda").to(getattr(torch, type_))
    assert torch.equal(torch.from_dlpack(gpu.run({"x": x}, outputs="device")["y"]), x)


@pytest.mark.parametrize("own", [False, True])
def test_work_of_a_stream(own: bool) -> None:
    """Ten runs, each of which reads what the last one gave and torch worked on, and nobody waits in between."""
    model = model_of([helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Tanh", ["a"], ["y"])],
                     {"x": (TensorProto.FLOAT, [512, 512])}, {"y": (TensorProto.FLOAT, [512, 512])},
                     w=(np.random.default_rng(0).standard_normal((512, 512)) / 20).astype("f"))
    cpu, gpu = tensorbox.Session(model), tensorbox.Session(model, device="cuda")
    stream = torch.cuda.Stream() if own else torch.cuda.current_stream()
    start = torch.randn(512, 512, device="cuda")
    expected = start.cpu().numpy()
    for _ in range(10):
        expected = cpu.run({"x": expected})["y"] * np.float32(1.5)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        x = start
        for _ in range(10):
            torch.cuda._sleep(2_000_000)
            x = torch.from_dlpack(gpu.run_async({"x": x}, stream)["y"]) * 1.5
    np.testing.assert_allclose(x.cpu().numpy() if not own else (stream.synchronize(), x.cpu().numpy())[1], expected,
                               rtol=1e-3, atol=1e-4)
    gpu.synchronize()


def test_a_run_waits_for_what_fills_its_inputs() -> None:
    gpu = tensorbox.Session(model_of([helper.make_node("Neg", ["x"], ["y"])], {"x": (TensorProto.FLOAT, ["n"])},
                                     {"y": (TensorProto.FLOAT, ["n"])}), device="cuda")
    for turn in range(5):
        x = torch.zeros(1 << 20, device="cuda")
        torch.cuda._sleep(20_000_000)
        x += turn + 1
        y = gpu.run({"x": x}, outputs="device")["y"]
        assert torch.equal(torch.from_dlpack(y), torch.full_like(x, -(turn + 1)))


def test_arrays_of_cupy() -> None:
    cupy = pytest.importorskip("cupy")
    model = mlp()
    gpu = tensorbox.Session(model, device="cuda")
    x = cupy.random.default_rng(0).standard_normal((3, 8), dtype="f")
    stream = cupy.cuda.Stream(non_blocking=True)
    for given in ({}, {"stream": stream}):
        y = cupy.from_dlpack(gpu.run({"x": x}, outputs="device", **given)["y"])
        np.testing.assert_allclose(cupy.asnumpy(y), tensorbox.Session(model).run({"x": cupy.asnumpy(x)})["y"], rtol=1e-4, atol=1e-5)
        assert cupy.array_equal(cupy.asarray(gpu.run({"x": x}, outputs="device", **given)["y"]), y)


def test_memory_stays_flat() -> None:
    model = mlp()
    gpu = tensorbox.Session(model, device="cuda")
    x = torch.randn(4096, 8, device="cuda")

    def runs(count: int) -> int:
        for _ in range(count):
            gpu.run_async({"x": x.clone()}, torch.cuda.current_stream())
        gpu.synchronize()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info()[0]

    runs(50)
    assert abs(runs(50) - runs(2000)) < 4 << 20

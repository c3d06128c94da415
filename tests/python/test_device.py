"""Sessions on device="cuda", which is the fake device here: its memory is closed to the host, its work is done when
somebody waits, and its kernels run in the emulator. What they compute is held against the CPU and numpy."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tensorbox

RNG = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def _fake_device(monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.environ.get("TBX_TEST_GPU"):  # set: these tests are for the GPU of the machine
        monkeypatch.setenv("TBX_FAKE_CUDA", "1")


def model_of(nodes: Sequence[onnx.NodeProto], inputs: dict[str, tuple[int, list[Any]]],
             outputs: dict[str, tuple[int, list[Any] | None]], opset: int = 20, **weights: np.ndarray) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(n, *t) for n, t in inputs.items()],
        [helper.make_tensor_value_info(n, *t) for n, t in outputs.items()],
        [onnx.numpy_helper.from_array(w, n) for n, w in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def mlp(batch: Any = "n") -> onnx.ModelProto:
    w1, w2 = RNG.standard_normal((8, 16)).astype("f"), RNG.standard_normal((16, 5)).astype("f")
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
             helper.make_node("MatMul", ["b", "w2"], ["c"]), helper.make_node("Softmax", ["c"], ["y"])]
    return model_of(nodes, {"x": (TensorProto.FLOAT, [batch, 8])}, {"y": (TensorProto.FLOAT, [batch, 5])}, w1=w1, w2=w2)


def kinds(session: tensorbox.Session) -> list[tuple[str, str]]:
    return [(kernel["kind"], kernel["device"]) for kernel in session.explain()]


def test_shapes_change_from_run_to_run() -> None:
    model = mlp()
    cpu, gpu = tensorbox.Session(model), tensorbox.Session(model, device="cuda")
    for n in (1, 3, 3, 3, 0, 33, 3, 1, 1):  # recorded at the second run of a size, replayed from then on
        x = RNG.standard_normal((n, 8)).astype("f")
        np.testing.assert_allclose(gpu.run({"x": x})["y"], cpu.run({"x": x})["y"], rtol=1e-5, atol=1e-6)


def test_all_but_copies_runs_on_the_device() -> None:
    session = tensorbox.Session(mlp(), device="cuda")
    assert {device for _, device in kinds(session)} == {"cuda"}
    assert [kind for kind, _ in kinds(session)][:1] == ["copy"] and kinds(session)[-1][0] == "copy"
    assert session.stats.copies == 2 and session.stats.device_steps == len(kinds(session)) - 2
    assert {kernel["device"] for kernel in tensorbox.Session(mlp()).explain()} == {"cpu"}


def test_convolution_and_attention() -> None:
    w, b = RNG.standard_normal((6, 3, 3, 3)).astype("f"), RNG.standard_normal(6).astype("f")
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["r"]),
             helper.make_node("GlobalAveragePool", ["r"], ["y"])]
    model = model_of(nodes, {"x": (TensorProto.FLOAT, ["n", 3, "h", 9])}, {"y": (TensorProto.FLOAT, ["n", 6, 1, 1])}, w=w, b=b)
    cpu, gpu = tensorbox.Session(model), tensorbox.Session(model, device="cuda")
    for n, h in ((1, 7), (2, 9), (2, 9), (2, 9)):
        x = RNG.standard_normal((n, 3, h, 9)).astype("f")
        np.testing.assert_allclose(gpu.run({"x": x})["y"], cpu.run({"x": x})["y"], rtol=1e-4, atol=1e-5)


def test_steps_of_the_host_in_between() -> None:
    """NonZero finds its sizes in the data: before and behind it the device works."""
    nodes = [helper.make_node("Mul", ["x", "x"], ["s"]), helper.make_node("NonZero", ["s"], ["i"]),
             helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT), helper.make_node("Exp", ["f"], ["y"]),
             helper.make_node("Neg", ["s"], ["z"])]
    model = model_of(nodes, {"x": (TensorProto.FLOAT, ["n"])},
                     {"y": (TensorProto.FLOAT, [1, None]), "z": (TensorProto.FLOAT, ["n"])})
    session = tensorbox.Session(model, device="cuda")
    report = session.explain()
    host = [kernel for kernel in report if kernel["device"] == "cpu"]
    assert len(host) == 1 and any("on the host: the sizes of its results depend on data" in d for d in host[0]["decisions"])
    assert session.stats.copies == sum(kernel["kind"] == "copy" for kernel in report) >= 4
    for n in (0, 1, 7, 40, 7):
        x = (RNG.standard_normal(n) * (RNG.random(n) < 0.5)).astype("f")
        out = session.run({"x": x})
        np.testing.assert_allclose(out["y"], np.exp(np.stack(np.nonzero(x * x)).astype("f")), rtol=1e-6)
        np.testing.assert_array_equal(out["z"], -(x * x))


def test_host_kernels_say_why() -> None:
    nodes = [helper.make_node("TopK", ["x", "k"], ["v", "i"]), helper.make_node("Neg", ["v"], ["y"])]
    model = model_of(nodes, {"x": (TensorProto.FLOAT, [4, 9])}, {"y": (TensorProto.FLOAT, [4, 3])}, k=np.array([3]))
    session = tensorbox.Session(model, device="cuda")
    assert any("on the host: TopK has no kernel for the device" in d for k in session.explain() for d in k["decisions"])
    x = RNG.standard_normal((4, 9)).astype("f")
    np.testing.assert_array_equal(session.run({"x": x})["y"], -np.sort(x, axis=1)[:, ::-1][:, :3])


def test_heads_that_no_block_has_room_for_stay_on_the_host() -> None:
    """The memory of a block decides before a run: the kernel would refuse in the run."""
    shape = [1, 2, 3, 1024]
    model = model_of([helper.make_node("Attention", ["q", "k", "v"], ["y"])],
                     {name: (TensorProto.FLOAT, shape) for name in "qkv"}, {"y": (TensorProto.FLOAT, shape)}, opset=23)
    session = tensorbox.Session(model, device="cuda")
    assert any("on the host" in d and "bytes of shared memory" in d for k in session.explain() for d in k["decisions"])
    inputs = {name: RNG.standard_normal(shape).astype("f") for name in "qkv"}
    np.testing.assert_allclose(session.run(inputs)["y"], tensorbox.Session(model).run(inputs)["y"], rtol=1e-5, atol=1e-6)


def test_an_index_outside_of_its_axis_names_the_node() -> None:
    model = model_of([helper.make_node("Gather", ["x", "i"], ["y"], name="pick")],
                     {"x": (TensorProto.FLOAT, [5]), "i": (TensorProto.INT64, ["n"])}, {"y": (TensorProto.FLOAT, ["n"])})
    cpu, gpu = tensorbox.Session(model), tensorbox.Session(model, device="cuda")
    x = np.arange(5, dtype="f")
    for index in ([7], [0, 1, -6, 2]):
        given = {"x": x, "i": np.array(index)}
        with pytest.raises(tensorbox.ModelError) as on_cpu:
            cpu.run(given)
        with pytest.raises(tensorbox.ModelError) as on_gpu:
            gpu.run(given)
        assert str(on_gpu.value) == str(on_cpu.value) and "'pick' (Gather" in str(on_gpu.value)
        np.testing.assert_array_equal(gpu.run({"x": x, "i": np.array([4, -1])})["y"], [4, 4])  # and goes on


def test_runs_at_the_same_time() -> None:
    session = tensorbox.Session(mlp(), device="cuda")
    given = [RNG.standard_normal((n, 8)).astype("f") for n in (1, 4, 9, 4)]
    expected = [session.run({"x": x})["y"] for x in given]
    wrong: list[int] = []

    def work(k: int) -> None:
        for i in range(6):
            at = (i + k) % len(given)
            if not np.array_equal(session.run({"x": given[at]})["y"], expected[at]):
                wrong.append(at)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_memory_does_not_grow_with_the_number_of_shapes() -> None:
    model = model_of([helper.make_node("Exp", ["x"], ["a"]), helper.make_node("CumSum", ["a", "k"], ["y"])],
                     {"x": (TensorProto.FLOAT, ["n", 8])}, {"y": (TensorProto.FLOAT, ["n", 8])}, k=np.array(1))
    session = tensorbox.Session(model, device="cuda")
    for n in (300, 1, 2, 3):
        session.run({"x": np.zeros((n, 8), "f")})
    before = resident_bytes()
    for n in range(1, 260):
        for _ in range(3):
            session.run({"x": np.zeros((n, 8), "f")})
    assert resident_bytes() - before < 8 << 20


def test_profile_and_observe() -> None:
    session = tensorbox.Session(mlp(), device="cuda")
    x = RNG.standard_normal((3, 8)).astype("f")
    times = session.profile({"x": x})
    assert all(kernel["time_ns"] >= 0 for kernel in times) and sum(kernel["time_ns"] for kernel in times) > 0
    seen: dict[str, np.ndarray] = {}
    outputs = session.observe({"x": x}, lambda name, array: seen.__setitem__(name, array))
    np.testing.assert_array_equal(seen["y"], outputs["y"])
    assert "b" in seen and (seen["b"] >= 0).all()


def test_outputs_into_given_memory() -> None:
    session = tensorbox.Session(mlp(), device="cuda")
    x, y = RNG.standard_normal((3, 8)).astype("f"), np.empty((3, 5), "f")
    session.run({"x": x}, out={"y": y})
    np.testing.assert_array_equal(y, session.run({"x": x})["y"])


def test_bodies_and_text_stay_on_the_host() -> None:
    body = helper.make_graph([helper.make_node("Exp", ["v"], ["e"]), helper.make_node("Identity", ["c"], ["go"])], "body",
                             [helper.make_tensor_value_info("t", TensorProto.INT64, []),
                              helper.make_tensor_value_info("c", TensorProto.BOOL, []),
                              helper.make_tensor_value_info("v", TensorProto.FLOAT, [3])],
                             [helper.make_tensor_value_info("go", TensorProto.BOOL, []),
                              helper.make_tensor_value_info("e", TensorProto.FLOAT, [3])])
    model = model_of([helper.make_node("Loop", ["m", "", "x"], ["y"], body=body)],
                     {"m": (TensorProto.INT64, []), "x": (TensorProto.FLOAT, [3])}, {"y": (TensorProto.FLOAT, [3])})
    session = tensorbox.Session(model, device="cuda")
    x = np.array([-1, 0, 0.5], "f")
    np.testing.assert_allclose(session.run({"m": np.array(2), "x": x})["y"], np.exp(np.exp(x)), rtol=1e-6)


@pytest.mark.parametrize(("options", "message"), [
    ({"device": "gpu"}, "'gpu' is no device"),
    ({"device": "cuda:x"}, "'cuda:x' is no device"),
    ({"device": "cuda", "compile": False}, "device 'cuda' runs compiled kernels"),
    ({"device": "cuda", "reference": True}, "device 'cuda' runs compiled kernels"),
])
def test_what_no_device_does(options: dict[str, Any], message: str) -> None:
    with pytest.raises(tensorbox.ModelError, match=message):
        tensorbox.Session(mlp(), **options)


def test_a_machine_without_a_gpu_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TBX_FAKE_CUDA", raising=False)
    problem = tensorbox.device_problem("cuda:63")
    assert problem  # no driver, or no such GPU
    with pytest.raises(tensorbox.BackendError) as error:
        tensorbox.Session(mlp(), device="cuda:63")
    assert f"BackendError: {error.value}" == problem


def test_max_memory_counts_memory_of_the_device() -> None:
    model = model_of([helper.make_node("Exp", ["x"], ["a"]), helper.make_node("CumSum", ["a", "k"], ["y"])],
                     {"x": (TensorProto.FLOAT, ["n"])}, {"y": (TensorProto.FLOAT, ["n"])}, k=np.array(0))
    session = tensorbox.Session(model, device="cuda", max_memory=100_000)
    session.run({"x": np.zeros(1000, "f")})
    with pytest.raises(tensorbox.ModelError, match="the limit is 100000"):
        session.run({"x": np.zeros(12_000, "f")})


def test_queries_keys_and_values_are_one_product() -> None:
    """Of any number of rows; on the CPU only of few."""
    w = {n: RNG.standard_normal((16, 16)).astype("f") for n in "qkv"}
    nodes = [helper.make_node("MatMul", ["x", n], [n + "p"]) for n in w]
    nodes += [helper.make_node("Reshape", [n + "p", "split"], [n + "h"]) for n in w]
    model = model_of(nodes, {"x": (TensorProto.FLOAT, [1, 40, 16])},
                     {n + "h": (TensorProto.FLOAT, [1, 40, 2, 8]) for n in w}, split=np.array([1, -1, 2, 8]), **w)
    x = RNG.standard_normal((1, 40, 16)).astype("f")
    for device, products in (("cuda", 1), (None, 3)):
        session = tensorbox.Session(model, device=device) if device else tensorbox.Session(model)
        assert [kind for kind, _ in kinds(session)].count("extern") == products
        for n, y in session.run({"x": x}).items():
            np.testing.assert_allclose(y, (x @ w[n[0]]).reshape(1, 40, 2, 8), rtol=1e-4, atol=1e-5)


def test_kernels_of_models_in_parts_are_counted_where_they_run() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("SequenceConstruct", ["a", "x"], ["s"]),
             helper.make_node("SequenceAt", ["s", "first"], ["b"]), helper.make_node("Neg", ["b"], ["y"])]
    model = model_of(nodes, {"x": (TensorProto.FLOAT, [4])}, {"y": (TensorProto.FLOAT, [4])}, first=np.asarray(0, "q"))
    session = tensorbox.Session(model, device="cuda")
    assert session.stats.device_steps == sum(kind != "copy" and device == "cuda" for kind, device in kinds(session)) > 0
    assert session.stats.copies == sum(kind == "copy" for kind, _ in kinds(session))

"""Halves stay halves on GPUs (the fake one here): what products multiply and memory holds, and that results are those of
numpy in double, rounded where the model says."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tensorbox

RNG = np.random.default_rng(11)
F16 = TensorProto.FLOAT16


@pytest.fixture(autouse=True)
def _fake_device(monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.environ.get("TBX_TEST_GPU"):  # set: these tests are for the GPU of the machine
        monkeypatch.setenv("TBX_FAKE_CUDA", "1")


def session_of(nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, list[Any]]],
               outputs: dict[str, tuple[int, list[Any]]], weights: dict[str, np.ndarray], **options: Any) -> tensorbox.Session:
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(n, *t) for n, t in inputs.items()],
        [helper.make_tensor_value_info(n, *t) for n, t in outputs.items()],
        [onnx.numpy_helper.from_array(w, n) for n, w in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return tensorbox.Session(model, device="cuda", **options)


def draw(*sizes: int, dtype: Any = np.float16) -> np.ndarray:
    return (RNG.standard_normal(sizes) / 2).astype(dtype)


def chosen(session: tensorbox.Session) -> list[str]:
    """The kernels of libraries, in order."""
    lines = [line for kernel in session.explain() for line in kernel["decisions"]]
    return [line.removeprefix("kernel: ") for line in lines if line.startswith("kernel: ")]


def close(got: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(np.asarray(got, np.float64), expected, rtol=4e-3, atol=4e-3 * np.abs(expected).max())


@pytest.mark.parametrize("rows", [0, 1, 7, 64])
@pytest.mark.parametrize("wide_input", [False, True])
def test_products_with_bias_and_residual(rows: int, wide_input: bool) -> None:
    w1, b1, w2, b2 = draw(24, 48), draw(48), draw(48, 24), draw(24)
    nodes = [helper.make_node("Gemm", ["h", "w1", "b1"], ["a"]), helper.make_node("Relu", ["a"], ["r"]),
             helper.make_node("MatMul", ["r", "w2"], ["p"]), helper.make_node("Add", ["p", "b2"], ["q"]),
             helper.make_node("Add", ["q", "h"], ["y"])]
    if wide_input:
        nodes.insert(0, helper.make_node("Cast", ["x"], ["h"], to=F16))
    else:
        for node in nodes:
            node.input[:] = ["x" if name == "h" else name for name in node.input]
    kind = TensorProto.FLOAT if wide_input else F16
    session = session_of(nodes, {"x": (kind, ["n", 24])}, {"y": (F16, ["n", 24])},
                         {"w1": w1, "b1": b1, "w2": w2, "b2": b2})
    assert set(chosen(session)) == {"cublas_matmul"}
    x = draw(rows, 24, dtype=np.float32 if wide_input else np.float16)
    h = x.astype(np.float16).astype(np.float64)
    expected = np.maximum(h @ w1 + b1, 0) @ w2.astype(np.float64) + b2 + h
    for _ in range(3):  # the third is a replay
        got = session.run({"x": x})["y"]
        assert got.dtype == np.float16
        if rows:
            close(got, expected)


@pytest.mark.parametrize("group", [1, 2])
def test_convolutions(group: int) -> None:
    w1, b1, w2 = draw(8, 4, 3, 3), draw(8), draw(8, 8 // group, 1, 1)
    nodes = [helper.make_node("Conv", ["x", "w1", "b1"], ["a"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["a"], ["r"]),
             helper.make_node("Conv", ["r", "w2"], ["c"], group=group), helper.make_node("Add", ["c", "r"], ["s"]),
             helper.make_node("Relu", ["s"], ["y"])]
    session = session_of(nodes, {"x": (F16, ["n", 4, 9, 7])}, {"y": (F16, ["n", 8, 9, 7])}, {"w1": w1, "b1": b1, "w2": w2})
    assert set(chosen(session)) == {"cudnn_conv"}
    x = draw(2, 4, 9, 7)
    padded = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    r = np.maximum(np.einsum("nchwij,ocij->nohw", windows, w1.astype(np.float64)) + b1[:, None, None], 0)
    per = 8 // group
    c = np.concatenate([np.einsum("nchw,oc->nohw", r[:, g * per:(g + 1) * per], w2[g * per:(g + 1) * per, :, 0, 0].astype(np.float64))
                        for g in range(group)], 1)
    for _ in range(3):
        close(session.run({"x": x})["y"], np.maximum(c + r, 0))


@pytest.mark.parametrize("lowest", [-1e4, float(np.finfo(np.float16).min), -np.inf])
@pytest.mark.parametrize("tokens", [1, 5, 33])
def test_attention_with_a_mask(tokens: int, lowest: float) -> None:
    """The mask is a computed float32, or holds what float16 does not."""
    nodes = [helper.make_node("Transpose", ["k"], ["t"], perm=[0, 1, 3, 2]), helper.make_node("MatMul", ["q", "t"], ["s"]),
             helper.make_node("Mul", ["s", "scale"], ["scaled"]), helper.make_node("Add", ["scaled", "mask"], ["m"]),
             helper.make_node("Softmax", ["m"], ["p"]), helper.make_node("MatMul", ["p", "v"], ["a"]),
             helper.make_node("MatMul", ["a", "w"], ["y"])]
    w = draw(8, 8)
    shape = ["b", 2, "s", 8]
    session = session_of(nodes, {n: (F16, shape) for n in "qkv"} | {"mask": (F16, ["b", 1, 1, "s"])}, {"y": (F16, shape)},
                         {"scale": np.float16(0.35), "w": w})
    assert chosen(session) == ["cudnn_attention", "cublas_matmul"]
    q, k, v = (draw(2, 2, tokens, 8) for _ in range(3))
    mask = np.zeros((2, 1, 1, tokens), np.float16)
    mask[1, ..., 1:] = lowest
    s = np.float64(np.float16(0.35)) * (q.astype(np.float64) @ k.astype(np.float64).swapaxes(2, 3)) + mask
    e = np.exp(s - s.max(-1, keepdims=True))
    expected = e / e.sum(-1, keepdims=True) @ v.astype(np.float64) @ w.astype(np.float64)
    for _ in range(3):
        close(session.run({"q": q, "k": k, "v": v, "mask": mask})["y"], expected)


@pytest.mark.parametrize("batch", [0, 1, 3])
def test_queries_keys_and_values_are_one_product(batch: int) -> None:
    """Of weights of halves, which are too large to be widened while the model is compiled."""
    weights, nodes = {}, []
    for name in "qkv":
        weights |= {f"w{name}": draw(272, 272) / np.float16(16), f"b{name}": draw(272)}
        nodes += [helper.make_node("MatMul", ["x", f"w{name}"], [f"p{name}"]),
                  helper.make_node("Add", [f"p{name}", f"b{name}"], [f"s{name}"]),
                  helper.make_node("Reshape", [f"s{name}", "heads"], [name])]
    session = session_of(nodes, {"x": (F16, ["n", 5, 272])}, {name: (F16, ["n", 5, 4, 68]) for name in "qkv"},
                         weights | {"heads": np.array([0, 5, 4, 68])})
    assert chosen(session) == ["cublas_matmul"]
    x = draw(batch, 5, 272)
    for _ in range(3):
        got = session.run({"x": x})
        for name in "qkv":
            expected = (x.astype(np.float64) @ weights[f"w{name}"] + weights[f"b{name}"]).reshape(batch, 5, 4, 68)
            assert got[name].dtype == np.float16 and got[name].shape == expected.shape
            if batch:
                close(got[name], expected)


def test_what_the_model_multiplies_in_float32_is_not_rounded() -> None:
    """Casts say so: operands that memory holds as float16 are no leave to round the others or the result."""
    w, b = draw(24, 16), draw(16, dtype=np.float32)
    nodes = [helper.make_node("Cast", ["w"], ["wide"], to=TensorProto.FLOAT), helper.make_node("Cast", ["h"], ["g"], to=TensorProto.FLOAT),
             helper.make_node("Gemm", ["x", "wide", "b"], ["y"]), helper.make_node("Gemm", ["g", "wide", "b"], ["z"])]
    session = session_of(nodes, {"x": (TensorProto.FLOAT, ["n", 24]), "h": (F16, ["n", 24])},
                         {"y": (TensorProto.FLOAT, ["n", 16]), "z": (TensorProto.FLOAT, ["n", 16])}, {"w": w, "b": b})
    x, h = draw(5, 24, dtype=np.float32), draw(5, 24)
    got = session.run({"x": x, "h": h})
    for name, left in (("y", x), ("z", h)):
        np.testing.assert_allclose(got[name], left.astype(np.float64) @ w.astype(np.float64) + b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("precision", ["f16", "bf16"])
def test_precision_of_a_network_of_float32(precision: str) -> None:
    w1, b1, w2 = draw(32, 64, dtype=np.float32), draw(64, dtype=np.float32), draw(64, 16, dtype=np.float32)
    nodes = [helper.make_node("Gemm", ["x", "w1", "b1"], ["a"]), helper.make_node("Gelu", ["a"], ["g"]),
             helper.make_node("MatMul", ["g", "w2"], ["y"])]
    session = session_of(nodes, {"x": (TensorProto.FLOAT, ["n", 32])}, {"y": (TensorProto.FLOAT, ["n", 16])},
                         {"w1": w1, "b1": b1, "w2": w2}, precision=precision)
    names = " ".join(kernel["name"] for kernel in session.explain())
    assert ("float16" if precision == "f16" else "bfloat16") in names
    x = draw(9, 32, dtype=np.float32)
    a = x.astype(np.float64) @ w1 + b1
    from math import erf
    expected = (a * 0.5 * (1 + np.vectorize(erf)(a / np.sqrt(2)))) @ w2
    got = session.run({"x": x})["y"]
    error = np.abs(got - expected).max() / np.abs(expected).max()
    assert 1e-5 < error < (2e-3 if precision == "f16" else 1.6e-2)  # narrow indeed, and within what that rounds

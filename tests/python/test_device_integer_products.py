"""Dynamically quantised products of one input as one product on a GPU: against ONNX Runtime's own sums, at many sizes."""

from __future__ import annotations

import os

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tensorbox

DEPTH, HEADS, WIDTH = 48, 3, 8


@pytest.fixture(autouse=True)
def _fake_device(monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.environ.get("TBX_TEST_GPU"):  # set: these tests are for the GPU of the machine
        monkeypatch.setenv("TBX_FAKE_CUDA", "1")


def model(weights: type, by_column: bool, biased: bool, zero: int = 0, other_zero: int | None = None) -> bytes:
    """Queries, keys and values of [batch, tokens, DEPTH], split into heads, and their attention."""
    g = np.random.default_rng(5)
    columns = HEADS * WIDTH
    constants: dict[str, np.ndarray] = {"heads": np.array([0, 0, HEADS, WIDTH]), "flat": np.array([0, 0, columns])}
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"])]

    def node(op: str, inputs: list[str], output: str, **attributes: object) -> str:
        nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    for n, name in enumerate("qkv"):
        # ONNX Runtime's products of u8 and s8 saturate in 16 bits without VNNI, but not with weights of 7 bits.
        low, high = (0, 256) if weights == np.uint8 else (-64, 64)
        constants[f"w{name}"] = g.integers(low, high, (DEPTH, columns)).astype(weights)
        constants[f"z{name}"] = np.full(columns if by_column and n < 2 else (), zero if n < 2 or other_zero is None else other_zero, weights)
        constants[f"s{name}"] = g.uniform(0.0002, 0.002, columns if by_column else ()).astype(np.float32)
        constants[f"b{name}"] = g.standard_normal(columns).astype(np.float32)
        y = node("Cast", [node("MatMulInteger", ["xq", f"w{name}", "xz", f"z{name}"], f"{name}0")], f"{name}1", to=1)
        scale = node("Mul", ["xs", f"s{name}"] if n else [f"s{name}", "xs"], f"{name}s")
        y = node("Mul", [y, scale] if n else [scale, y], f"{name}2")
        if biased:
            y = node("Add", [f"b{name}", y], f"{name}3")
        y = node("Reshape", [y, "heads"], f"{name}4")
        node("Transpose", [y], f"{name}h", perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3])
    y = node("MatMul", [node("Softmax", [node("MatMul", ["qh", "kh"], "scores")], "shares"), "vh"], "attended")
    node("Reshape", [node("Transpose", [y], "tokens_first", perm=[0, 2, 1, 3]), "flat"], "y")
    kept = [numpy_helper.from_array(v, n) for n, v in constants.items() if biased or n[0] != "b"]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "tokens", DEPTH])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "tokens", columns])], kept)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made)
    return made.SerializeToString()


def products(session: tensorbox.Session) -> int:
    return sum(any("MatMulInteger" in n for n in k["nodes"]) and k["kind"] == "extern" for k in session.explain())


def check(bytes_: bytes, expected_products: int) -> None:
    session = tensorbox.Session(bytes_, device="cuda")
    assert products(session) == expected_products
    apart = tensorbox.Session(bytes_, device="cuda", disable_passes=["join_integer_products"])
    assert products(apart) == 3
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    reference = onnxruntime.InferenceSession(bytes_, options, providers=["CPUExecutionProvider"])
    g = np.random.default_rng(8)
    for batch, tokens in ((1, 1), (1, 5), (2, 67), (1, 128), (3, 1), (0, 4), (2, 64)):
        x = g.standard_normal((batch, tokens, DEPTH)).astype(np.float32)
        y = session.run({"x": x})["y"]
        assert np.array_equal(y, apart.run({"x": x})["y"])  # the same operations on each element
        if batch > 0:
            np.testing.assert_allclose(y, reference.run(None, {"x": x})[0], rtol=2e-5, atol=2e-5)
        assert y.shape == (batch, tokens, HEADS * WIDTH)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("by_column", [True, False])
@pytest.mark.parametrize(("weights", "zero"), [(np.int8, 0), (np.uint8, 128), (np.int8, -3)])
def test_products_of_one_input_are_one(weights: type, zero: int, by_column: bool, biased: bool) -> None:
    check(model(weights, by_column, biased, zero), 1)


def test_another_zero_point_stays_apart() -> None:
    check(model(np.uint8, False, True, 128, 120), 2)

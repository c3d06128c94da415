"""Session(reference=True): plain loops for every operator that goes to a library or a tuned kernel elsewhere."""
from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

tensorbox = pytest.importorskip("tensorbox")
F = TensorProto.FLOAT


def model(op: str, inputs: list[np.ndarray], outputs: int = 1, domain: str = "", **attributes) -> onnx.ModelProto:
    names = [f"x{i}" for i in range(len(inputs))]
    made = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, made, domain=domain, **attributes)
    graph = helper.make_graph(
        [node], "one",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in zip(names, inputs)],
        [helper.make_empty_tensor_value_info(y) for y in made])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)],
                             ir_version=10)


rng = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


CASES = {
    "conv": ("Conv", [normal(2, 6, 9, 5), normal(4, 3, 3, 2), normal(4)],
             dict(group=2, strides=[2, 1], dilations=[1, 2], pads=[1, 0, 2, 1])),
    "conv_stride_above_kernel": ("Conv", [normal(1, 3, 17), normal(5, 3, 2)], dict(strides=[5])),
    "conv_transpose": ("ConvTranspose", [normal(2, 4, 5, 3), normal(4, 3, 3, 3), normal(3)],
                       dict(strides=[2, 3], pads=[1, 0, 1, 2], output_padding=[1, 2])),
    "matmul": ("MatMul", [normal(3, 1, 5, 7), normal(4, 7, 2)], {}),
    "attention": ("Attention", [normal(2, 4, 5, 8), normal(2, 2, 5, 8), normal(2, 2, 5, 6)], dict(is_causal=1)),
    "top_k": ("TopK", [normal(3, 50), np.array([7])], dict(axis=1)),
    "dft": ("DFT", [normal(2, 21, 1), np.array(21), np.array(1)], dict(onesided=1)),
}
OUTPUTS = {"top_k": 2}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    op, inputs, attributes = CASES[name]
    proto = model(op, inputs, OUTPUTS.get(name, 1), **attributes)
    feeds = {f"x{i}": x for i, x in enumerate(inputs)}
    session = tensorbox.Session(proto, reference=True)
    want = ReferenceEvaluator(proto).run(None, feeds)
    for got, w in zip(session.run(feeds).values(), want):
        np.testing.assert_allclose(got, w, rtol=1e-5, atol=1e-5)
    kernels = [k["name"] for k in session.explain() if k["kind"] == "extern"]
    assert kernels and all(k.startswith("reference") for k in kernels), kernels
    assert not any(k["kind"] == "generated" for k in session.explain())


def recurrent(op: str, gates: int, **attributes) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    h = 5
    inputs = [normal(7, 3, 4), normal(1, gates * h, 4), normal(1, gates * h, h), normal(1, 2 * gates * h)]
    return model(op, inputs, 2, hidden_size=h, **attributes), {f"x{i}": x for i, x in enumerate(inputs)}


@pytest.mark.parametrize("op, gates, attributes", [("LSTM", 4, {}), ("GRU", 3, {}), ("GRU", 3, {"linear_before_reset": 1}),
                                                   ("RNN", 1, {})])
def test_recurrent(op: str, gates: int, attributes: dict) -> None:
    proto, feeds = recurrent(op, gates, **attributes)
    session = tensorbox.Session(proto, reference=True)
    assert any(k["name"].startswith(f"reference {op}") for k in session.explain())
    got = list(session.run(feeds).values())
    for g, w in zip(got, ReferenceEvaluator(proto).run(None, feeds)):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
@pytest.mark.parametrize("op, gates", [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent_directions_and_lengths(op: str, gates: int, direction: str) -> None:
    """Against the tuned kernel, which tests of its own hold against ONNX Runtime."""
    d, h = (2 if direction == "bidirectional" else 1), 33
    inputs = [normal(6, 4, 3), normal(d, gates * h, 3), normal(d, gates * h, h), normal(d, 2 * gates * h),
              np.array([6, 1, 3, 5], np.int32), normal(d, 4, h)]
    proto = model(op, inputs, 2, hidden_size=h, direction=direction)
    feeds = {f"x{i}": x for i, x in enumerate(inputs)}
    fast, plain = (tensorbox.Session(proto, **o).run(feeds) for o in ({"compile": False}, {"reference": True}))
    for name in fast:
        np.testing.assert_allclose(plain[name], fast[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_matmul_nbits(bits: int, zeros: bool) -> None:
    k, n, block = 70, 9, 16
    blocks = -(-k // block)
    integers = rng.integers(0, 1 << bits, (n, blocks * block))
    scales, points = normal(n, blocks), rng.integers(0, 1 << bits, (n, blocks))

    def packed(values: np.ndarray) -> np.ndarray:
        per = 8 // bits
        padded = np.pad(values, ((0, 0), (0, -values.shape[1] % per))).reshape(len(values), -1, per)
        return (padded << (np.arange(per) * bits)).sum(-1).astype(np.uint8)

    inputs = [normal(3, k), packed(integers).reshape(n, blocks, block * bits // 8), scales.reshape(-1)]
    if zeros:
        inputs.append(packed(points).reshape(-1))
    proto = model("MatMulNBits", inputs, domain="com.microsoft", K=k, N=n, bits=bits, block_size=block)
    got = tensorbox.Session(proto, reference=True).run({f"x{i}": x for i, x in enumerate(inputs)})["y0"]
    zero = np.repeat(points if zeros else np.full_like(points, 1 << bits - 1), block, 1)
    weights = ((integers - zero) * np.repeat(scales, block, 1).astype(np.float64))[:, :k]
    np.testing.assert_allclose(got, inputs[0] @ weights.T, rtol=1e-5, atol=1e-4)


def test_no_library_has_a_part_in_folding() -> None:
    """A transform of constants is computed by its definition as well: it is not folded."""
    x = normal(1, 15, 1)
    graph = helper.make_graph(
        [helper.make_node("DFT", ["x"], ["f"], axis=1), helper.make_node("Add", ["f", "b"], ["y"])], "fold",
        [helper.make_tensor_value_info("b", F, [1, 15, 2])], [helper.make_tensor_value_info("y", F, [1, 15, 2])],
        [onnx.numpy_helper.from_array(x, "x")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    got = tensorbox.Session(proto, reference=True).run({"b": np.zeros((1, 15, 2), np.float32)})["y"]
    want = np.fft.fft(x[0, :, 0])
    np.testing.assert_allclose(got[0], np.stack([want.real, want.imag], -1), rtol=1e-5, atol=1e-5)

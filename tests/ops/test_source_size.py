"""The text of generated kernels, and how many there are, does not grow with a model's pieces where they differ only in
numbers that follow from sizes: what compilers take for it is bounded."""

from __future__ import annotations

import re

import numpy as np
import pytest
from onnx import TensorProto, helper
from peers import tensorbox


def pieces(count: int) -> bytes:
    """y = concatenation of min(n_i, 300) rows of count inputs of n_i rows, each twice its input."""
    nodes, inputs = [], []
    for i in range(count):
        inputs.append(helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, [f"n{i}", 3]))
        nodes.append(helper.make_node("Slice", [f"x{i}", "begin", "end"], [f"c{i}"]))
        nodes.append(helper.make_node("Sigmoid", [f"c{i}"], [f"s{i}"]))
    nodes.append(helper.make_node("Concat", [f"s{i}" for i in range(count)], ["y"], axis=0))
    constants = [helper.make_tensor("begin", TensorProto.INT64, [1], [0]), helper.make_tensor("end", TensorProto.INT64, [1], [300])]
    graph = helper.make_graph(nodes, "pieces", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 3])], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def kernels(session: tensorbox.Session) -> list[str]:
    """The distinct kernels, as text."""
    return re.split(r'(?=^extern "C" i64 k_)', session.dump("source"), flags=re.MULTILINE)[1:]


def test_pieces_of_dynamic_sizes_share_kernels() -> None:
    few, many = (kernels(tensorbox.Session(pieces(n), compile=False)) for n in (8, 40))
    assert len(many) == len(few)
    assert max(map(len, many)) == max(map(len, few))


@pytest.mark.parametrize("compiled", [False, True])
def test_pieces_of_dynamic_sizes(compiled: bool) -> None:
    session = tensorbox.Session(pieces(9), compile=compiled, threads=1)
    rng = np.random.default_rng(3)
    for rows in ([0] * 9, [1] * 9, [0, 1, 17, 300, 301, 5, 0, 2, 400]):
        x = {f"x{i}": rng.normal(size=(n, 3)).astype(np.float32) for i, n in enumerate(rows)}
        want = np.concatenate([1 / (1 + np.exp(-v[:300].astype(np.float64))) for v in x.values()])
        np.testing.assert_allclose(session.run(x)["y"], want, rtol=1e-6)


def test_many_results_of_one_input() -> None:
    """Statements beside each other are not written four times over."""
    count = 28
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4096, 91]),
              helper.make_tensor_value_info("z", TensorProto.FLOAT, [4096, 1])]
    nodes, outputs = [], []
    constants = [helper.make_tensor("axes", TensorProto.INT64, [1], [1]), helper.make_tensor("least", TensorProto.FLOAT, [], [0.1])]
    for i in range(count):
        constants += [helper.make_tensor(f"b{i}", TensorProto.INT64, [1], [i]), helper.make_tensor(f"e{i}", TensorProto.INT64, [1], [i + 1])]
        nodes += [helper.make_node("Slice", ["x", f"b{i}", f"e{i}", "axes"], [f"c{i}"]), helper.make_node("Mul", [f"c{i}", "z"], [f"m{i}"]),
                  helper.make_node("Abs", [f"m{i}"], [f"a{i}"]), helper.make_node("Greater", [f"a{i}", "least"], [f"y{i}"])]
        outputs.append(helper.make_tensor_value_info(f"y{i}", TensorProto.BOOL, [4096, 1]))
    model = helper.make_model(helper.make_graph(nodes, "many", inputs, outputs, constants),
                              opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    texts = kernels(tensorbox.Session(model.SerializeToString(), compile=False))
    assert max(text.count("stv(") for text in texts) == count

"""Products of no terms, where a run brings an inner dimension of 0: bias and what follows are all there is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from peers import tensorbox


def model(nodes: Sequence[onnx.NodeProto]) -> onnx.ModelProto:
    dims = {"a": ["n", "k"], "b": ["k", "m"], "c": ["m"], "r": ["n", "m"]}
    used = {name for node in nodes for name in node.input}
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in dims.items() if n in used]
    graph = helper.make_graph(list(nodes), "empty", infos, [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "m"])])
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def node(op: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), [output], **attributes)


def relu(v: np.ndarray) -> np.ndarray:
    return np.maximum(v, 0)


CASES = {
    "product": ([node("MatMul", "ab", "y")], lambda p, c, r: p),
    "gemm": ([node("Gemm", "abc", "y", alpha=0.5, beta=2.0)], lambda p, c, r: 0.5 * p + 2 * c),
    "bias": ([node("MatMul", "ab", "p"), node("Add", "pc", "q"), node("Relu", "q", "y")], lambda p, c, r: relu(p + c)),
    "residual": ([node("MatMul", "ab", "p"), node("Add", "pr", "q"), node("Mul", "qr", "y")], lambda p, c, r: (p + r) * r),
    "activation": ([node("GemmFastGelu", "abc", "s", domain="com.microsoft"), node("Relu", "s", "y")],
                   lambda p, c, r: relu((v := p + c) / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (v + 0.044715 * v**3))))),
}


@pytest.mark.parametrize("mode", [{"compile": True}, {"compile": False}, {"reference": True}], ids=["compiled", "evaluated", "reference"])
@pytest.mark.parametrize("name", CASES)
def test_products_of_no_terms(name: str, mode: dict[str, bool]) -> None:
    nodes, wanted = CASES[name]
    session = tensorbox.Session(model(nodes), **mode)
    rng = np.random.default_rng(1)
    for n, k, m in ((3, 4, 5), (3, 0, 5), (1, 0, 1), (0, 0, 5), (3, 0, 0), (40, 0, 70)):
        feeds = {"a": rng.standard_normal((n, k)), "b": rng.standard_normal((k, m)), "c": rng.standard_normal(m), "r": rng.standard_normal((n, m))}
        given = {i.name: feeds[i.name].astype(np.float32) for i in session.inputs}
        want = wanted(feeds["a"] @ feeds["b"], feeds["c"], feeds["r"])
        np.testing.assert_allclose(session.run(given)["y"], want, 1e-4, 1e-5)


@pytest.mark.parametrize("options", [{"compile": False}, {"reference": True}, {"compile": False, "disable_passes": ["fuse_attention"]}], ids=str)
@pytest.mark.parametrize("batch", [0, 2])
@pytest.mark.parametrize("activation", ["Softmax", "Relu"])
def test_heads_of_an_empty_batch(batch: int, activation: str, options: dict[str, Any]) -> None:
    """The model says that there is none: parts of one product, as queries, keys and values are."""
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
g (float[{batch}, 5, 24] x) => (float[{batch}, 2, 5, 4] y) <int64[5] split = {{{batch}, 5, 3, 2, 4}}, int64 i = {{0}}, int64 j = {{1}}, int64 k = {{2}}>
{{ r = Reshape<allowzero = 1>(x, split)
  t = Transpose<perm = [2, 0, 3, 1, 4]>(r)
  a = Gather<axis = 0>(t, i)
  b = Gather<axis = 0>(t, j)
  v = Gather<axis = 0>(t, k)
  u = Transpose<perm = [0, 1, 3, 2]>(b)
  s = MatMul(a, u)
  p = {activation}(s)
  y = MatMul(p, v) }}""")
    x = np.random.default_rng(2).standard_normal((batch, 5, 24)).astype(np.float32)
    a, b, v = x.astype(np.float64).reshape(batch, 5, 3, 2, 4).transpose(2, 0, 3, 1, 4)
    scores = a @ b.swapaxes(2, 3)
    shares = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True) if activation == "Softmax" else relu(scores)
    np.testing.assert_allclose(tensorbox.Session(model, **options).run({"x": x})["y"], shares @ v, 1e-4, 1e-5)

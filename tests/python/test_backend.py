"""tensorbox.backend: onnx.backend.base.Backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, parser
from onnx.backend.base import Backend
from onnx.reference import ReferenceEvaluator

backend = pytest.importorskip("tensorbox.backend")
X = np.linspace(-1, 2, 6, dtype=np.float32).reshape(2, 3)


def reference(node: onnx.NodeProto, inputs: list[Any], opset: int, domain: str = "") -> list[Any]:
    """Of onnx.reference, which runs a node by itself."""
    names = [name for name in node.input if name]
    graph = helper.make_graph([node], "g", [helper.make_empty_tensor_value_info(name) for name in names],
                              [helper.make_empty_tensor_value_info(name) for name in node.output if name])
    imports = [helper.make_opsetid("", 21)] + ([helper.make_opsetid(domain, opset)] if domain else [])
    imports[0].version = imports[0].version if domain else opset
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))


@pytest.mark.parametrize("node, inputs", [
    (helper.make_node("Add", ["a", "b"], ["c"]), [X, X]),
    (helper.make_node("Add", ["a", "b"], ["c"], domain="ai.onnx"), [X, X]),
    (helper.make_node("Clip", ["a", "", "most"], ["c"]), [X, np.float32(0.5)]),
    (helper.make_node("Binarizer", ["a"], ["c"], domain="ai.onnx.ml", threshold=0.5), [X]),
    (helper.make_node("SequenceLength", ["s"], ["n"]), [[X, X[:1]]]),
    (helper.make_node("SequenceLength", ["s"], ["n"]), [[]]),
    (helper.make_node("SequenceAt", ["s", "i"], ["x"]), [[X, X[:1]], np.array(-1)]),
    (helper.make_node("Split", ["a"], ["b", "c"], axis=1, num_outputs=2), [X[:, :2]]),
    (helper.make_node("Neg", ["a"], ["c"]), [X[:0]]),
], ids=lambda value: value.op_type if isinstance(value, onnx.NodeProto) else "")
def test_nodes(node: onnx.NodeProto, inputs: list[Any]) -> None:
    ml = node.domain == "ai.onnx.ml"
    plain = onnx.NodeProto()
    plain.CopyFrom(node)
    plain.domain = node.domain if ml else ""
    wanted = reference(plain, inputs, 5 if ml else 21, node.domain if ml else "")
    named = dict(zip((name for name in node.input if name), inputs, strict=True))
    for given in (inputs, tuple(inputs), named):
        got = backend.run_node(node, given)
        assert len(got) == len(wanted)
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(a, b)


def test_bodies_and_versions() -> None:
    one, two = (parser.parse_graph(f"t () => (float y) {{ y = Constant<value_float = {n}.0>() }}") for n in (1, 2))
    node = helper.make_node("If", ["c"], ["y"], then_branch=one, else_branch=two)
    assert [backend.run_node(node, [np.array(c)])[0] for c in (True, False)] == [1, 2]
    squeeze = helper.make_node("Squeeze", ["a"], ["c"], axes=[0])  # an attribute up to 12
    assert backend.run_node(squeeze, [X[:1]], opset_version=11)[0].shape == (3,)
    with pytest.raises(Exception, match="Squeeze"):
        backend.run_node(squeeze, [X[:1]])
    np.testing.assert_allclose(backend.run_node(helper.make_node("Gelu", ["a"], ["c"], domain="com.microsoft"), [X * 0])[0], X * 0)


def test_models_and_what_is_asked() -> None:
    model = parser.parse_model('<ir_version: 9, opset_import: ["" : 17]> g (float[n] a, float[n] b) => (float[n] c) { c = Sub(a, b) }')
    a, b = np.array([3, 1], np.float32), np.array([1, 5], np.float32)
    for given in ([a, b], (a, b), {"b": b, "a": a}):
        np.testing.assert_array_equal(backend.prepare(model).run(given)[0], a - b)
        np.testing.assert_array_equal(backend.run_model(model, given)[0], a - b)
    assert issubclass(backend.TensorboxBackend, Backend) and backend.is_compatible(model)
    assert [backend.supports_device(d) for d in ("CPU", "cpu", "CPU:0", "", "GPU", "none")] == [True, True, True, False, False, False]
    for wrong in ([a], [a, b, b]):
        with pytest.raises(ValueError, match=f"{len(wrong)} inputs given"):
            backend.run_model(model, wrong)
        with pytest.raises(ValueError, match=rf"{len(wrong)} inputs given, the node has \['a', 'b'\]"):
            backend.run_node(helper.make_node("Sub", ["a", "b"], ["c"]), wrong)
    with pytest.raises(ValueError, match="device 'CUDA' is not available"):
        backend.prepare(model, "CUDA")

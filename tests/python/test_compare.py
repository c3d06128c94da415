"""tensorbox.compare: node by node against the evaluator, onnx.reference, recorded values and other models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

tensorbox = pytest.importorskip("tensorbox")


def network(factor: float = 1.0) -> onnx.ModelProto:
    """softmax(gelu(x w0) w1) with a GELU in its exported spelling, which a graph pass recognises. `factor` changes one
    element of w1."""
    rng = np.random.default_rng(0)
    weights = {"w0": rng.standard_normal((8, 16)), "w1": rng.standard_normal((16, 4)), "root": np.sqrt(2.0),
               "one": np.array(1.0), "half": np.array(0.5)}
    weights["w1"][3, 2] *= factor
    steps = [("MatMul", "x", "w0", "p"), ("Div", "p", "root", "d"), ("Erf", "d", None, "e"), ("Add", "e", "one", "f"),
             ("Mul", "p", "f", "g"), ("Mul", "g", "half", "h"), ("MatMul", "h", "w1", "q"), ("Softmax", "q", None, "y")]
    nodes = [helper.make_node(op, [i for i in (a, b) if i], [out], f"to_{out}") for op, a, b, out in steps]
    graph = helper.make_graph(
        nodes, "network", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])],
        [numpy_helper.from_array(np.asarray(w, np.float32), name) for name, w in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def feeds() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)}


def test_every_value_is_an_output(feeds: dict[str, np.ndarray]) -> None:
    session = tensorbox.Session(network(), compile=False, every_value=True, disable_passes=tensorbox.pass_names())
    assert [(o.name, o.node) for o in session.outputs][:2] == [("p", "to_p (MatMul)"), ("d", "to_d (Div)")]
    values = session.run(feeds)
    assert list(values) == ["p", "d", "e", "f", "g", "h", "q", "y"]
    np.testing.assert_allclose(values["d"], values["p"] / np.sqrt(np.float32(2)), rtol=1e-6)
    fused = tensorbox.Session(network(), compile=False, every_value=True).run(feeds)
    assert list(fused) == ["p", "h", "q", "y"]  # what the recognised GELU swallowed is no value any more


@pytest.mark.parametrize("reference", ["evaluator", "onnx", "session", "recorded", "model"])
def test_agrees(feeds: dict[str, np.ndarray], reference: str) -> None:
    session = tensorbox.Session(network(), compile=False, every_value=True)
    other = {"session": session, "recorded": session.run(feeds), "model": network().SerializeToString()}
    rows = tensorbox.compare(network(), feeds, other.get(reference, reference))
    assert [d.value for d in rows] == ["p", "h", "q", "y"]
    assert all(d.ok and d.max_ulp is not None and d.max_abs < 1e-5 for d in rows)


def test_names_the_first_difference(feeds: dict[str, np.ndarray], tmp_path: Path) -> None:
    onnx.save(network(30.0), tmp_path / "other.onnx")
    for reference in (network(30.0), tmp_path / "other.onnx"):
        rows = tensorbox.compare(network(), feeds, reference, compile=False)
        assert [d.ok for d in rows] == [True, True, False, False]
        first = next(d for d in rows if not d.ok)
        assert (first.value, first.node, first.reason, first.index[1]) == ("q", "to_q (MatMul)", "values", 2)
        assert first.max_abs == pytest.approx(abs(float(first.got) - float(first.want))) and first.max_ulp > 1000
    assert all(d.ok for d in tensorbox.compare(network(), feeds, network(30.0), compile=False, atol=100.0))


def test_shapes_types_and_nothing_in_common(feeds: dict[str, np.ndarray]) -> None:
    rows = tensorbox.compare(network(), feeds, {"p": np.zeros((2, 2)), "h": np.zeros((3, 16))}, compile=False)
    assert [(d.value, d.ok, d.reason) for d in rows] == [("p", False, "shape"), ("h", False, "type")]
    with pytest.raises(KeyError, match="no value in common"):
        tensorbox.compare(network(), feeds, {"z": np.zeros(3)}, compile=False)


def test_sequences_and_strings() -> None:
    nodes = [helper.make_node("SplitToSequence", ["x"], ["parts"], "split", axis=0),
             helper.make_node("SequenceLength", ["parts"], ["n"], "length"),
             helper.make_node("StringConcat", ["s", "s"], ["t"], "concat"),
             helper.make_node("StringConcat", ["t", "s"], ["u"], "again")]
    graph = helper.make_graph(
        nodes, "values", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
                          helper.make_tensor_value_info("s", TensorProto.STRING, [2])],
        [helper.make_tensor_value_info("n", TensorProto.INT64, []), helper.make_tensor_value_info("u", TensorProto.STRING, [2])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "s": np.array(["a", "b"], object)}
    rows = tensorbox.compare(model, feeds, compile=False)
    assert {d.value: d.ok for d in rows} == {"parts[0]": True, "parts[1]": True, "n": True, "t": True, "u": True}
    assert rows[0].node == "split (SplitToSequence)"
    unlike = tensorbox.compare(model, feeds, {"t": np.array(["aa", "cc"], object)}, compile=False)
    assert not unlike[0].ok and unlike[0].index == (1,)


def test_what_is_observed_under_a_name_is_that_value() -> None:
    """Parts, and other orders, of a value that is in no memory itself are copied for library calls: under no name, since
    they have the elements of none."""
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]>
        f (float[6, 1, 8] x, float[8, 8] w) => (float[6, 1, 1, 4] y, float[6, 1, 1, 4] z, float[8, 6] t, float[12, 8] u) {
            a = Relu (x)
            n = Neg (a)
            c = Concat <axis = 2> (a, n)
            left, right = Split <axis = 2, num_outputs = 2> (c)
            y = GRU <hidden_size = 4> (left, gates, state)
            z = GRU <hidden_size = 4> (right, gates, state)
            e = Exp (w)
            et = Transpose (e)
            flat = Reshape (x, rows)
            xt = Transpose (flat)
            t = MatMul (et, xt)
            s = Sigmoid (c)
            long = Reshape (s, rows)
            u = MatMul (long, w)
        }""")
    rng = np.random.default_rng(5)
    weights = {"gates": rng.standard_normal((1, 12, 8)), "state": rng.standard_normal((1, 12, 4))}
    model.graph.initializer.extend(numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items())
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1, 8]), "rows"))
    feed = {"x": rng.standard_normal((6, 1, 8)).astype(np.float32), "w": rng.standard_normal((8, 8)).astype(np.float32)}
    every = [name for node in model.graph.node for name in node.output]
    want = dict(zip(every, ReferenceEvaluator(model).run(every, feed)))
    for options in ({}, {"fuse": False, "fuse_extern": False}, {"reference": True}):
        seen: list[tuple[str, np.ndarray]] = []
        tensorbox.Session(model, **options).observe(feed, lambda name, value: seen.append((name, value.copy())))
        assert {"y", "z", "t", "u"} <= {name for name, _ in seen}
        for name, value in seen:
            assert name in want
            np.testing.assert_allclose(value.ravel(), want[name].ravel(), rtol=1e-4, atol=1e-5, err_msg=f"{name} {options}")

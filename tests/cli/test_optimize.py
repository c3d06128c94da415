"""tbx optimize and tensorbox.optimize: valid ONNX of one opset that computes the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
import tensorbox
from conftest import save
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator


def float_info(name: str, shape: list[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


def check_equal(before: Path, after: Path, inputs: dict[str, np.ndarray]) -> None:
    """By onnx's reference; `after` has to pass onnx's checker and to keep the signature."""
    onnx.checker.check_model(str(after), full_check=True)
    one, two = onnx.load(before).graph, onnx.load(after).graph
    assert [v.name for v in one.input] == [v.name for v in two.input]
    assert [v.name for v in one.output] == [v.name for v in two.output]
    for expected, actual in zip(ReferenceEvaluator(str(before)).run(None, inputs), ReferenceEvaluator(str(after)).run(None, inputs)):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def conv_batch_norm(path: Path) -> Path:
    """Conv, BatchNormalization, Identity, x*1 over [n, 3, 8, 8]."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((4, 3, 3, 3)).astype("f"), "one": np.ones(1, "f")}
    weights |= {name: rng.uniform(0.5, 2, 4).astype("f") for name in ("scale", "bias", "mean", "variance")}
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
             helper.make_node("BatchNormalization", ["c", "scale", "bias", "mean", "variance"], ["b"]),
             helper.make_node("Identity", ["b"], ["i"]),
             helper.make_node("Mul", ["i", "one"], ["m"]),
             helper.make_node("Relu", ["m"], ["y"])]
    return save(path, nodes, [float_info("x", ["n", 3, 8, 8])], [float_info("y", ["n", 4, 8, 8])], weights)


def test_batch_norm_goes_into_the_convolution(tbx, tmp_path):
    model, small = conv_batch_norm(tmp_path / "m.onnx"), tmp_path / "small.onnx"
    result = tbx("optimize", model, small, "--json")
    assert result.code == 0, result.err
    assert operators(small) == ["Conv", "Relu"]
    assert result.json["nodes_before"] == 5 and result.json["nodes_after"] == 2
    assert result.json["operators_before"]["BatchNormalization"] == 1
    assert ["fold_batch_norm", 1] in result.json["rewrites"]
    check_equal(model, small, {"x": np.random.default_rng(1).standard_normal((2, 3, 8, 8)).astype("f")})


def test_pass_can_be_left_out(tbx, tmp_path):
    model, small = conv_batch_norm(tmp_path / "m.onnx"), tmp_path / "small.onnx"
    assert tbx("optimize", model, small, "--disable-pass", "fold_batch_norm").code == 0
    assert "BatchNormalization" in operators(small)
    wrong = tbx("optimize", model, small, "--disable-pass", "nonsense")
    assert wrong.code == 3 and "unknown pass 'nonsense'" in wrong.err


def flatten_by_shape(path: Path) -> Path:
    """Reshape(x, [Shape(x)[0], Shape(x)[1] * Shape(x)[2]]), as exporters spell a flattening."""
    weights = {"i0": np.array([0]), "i1": np.array([1]), "i2": np.array([2])}
    nodes = [helper.make_node("Shape", ["x"], ["s"])]
    nodes += [helper.make_node("Gather", ["s", f"i{k}"], [f"d{k}"]) for k in range(3)]
    nodes += [helper.make_node("Mul", ["d1", "d2"], ["inner"]), helper.make_node("Concat", ["d0", "inner"], ["t"], axis=0),
              helper.make_node("Reshape", ["x", "t"], ["y"])]
    return save(path, nodes, [float_info("x", ["batch", 4, 5])], [float_info("y", ["batch", 20])], weights)


def test_shape_computations_become_constants(tbx, tmp_path):
    model, small = flatten_by_shape(tmp_path / "m.onnx"), tmp_path / "small.onnx"
    x = np.random.default_rng(0).standard_normal((3, 4, 5)).astype("f")
    assert tbx("optimize", model, small).code == 0
    assert "Mul" not in operators(small)  # 4 * 5 is known, the batch is not
    check_equal(model, small, {"x": x})
    assert tbx("optimize", model, small, "--dim", "batch=3").code == 0
    assert operators(small) == ["Reshape"]
    check_equal(model, small, {"x": x})


def layer_norm(path: Path) -> Path:
    weights = {"two": np.array(2, "f"), "epsilon": np.array(1e-5, "f"), "scale": np.linspace(1, 2, 16, dtype="f"),
               "bias": np.linspace(-1, 1, 16, dtype="f")}
    nodes = [helper.make_node("ReduceMean", ["x"], ["mean"], axes=[-1]),
             helper.make_node("Sub", ["x", "mean"], ["d"]),
             helper.make_node("Pow", ["d", "two"], ["dd"]),
             helper.make_node("ReduceMean", ["dd"], ["variance"], axes=[-1]),
             helper.make_node("Add", ["variance", "epsilon"], ["v"]),
             helper.make_node("Sqrt", ["v"], ["s"]),
             helper.make_node("Div", ["d", "s"], ["n"]),
             helper.make_node("Mul", ["n", "scale"], ["m"]),
             helper.make_node("Add", ["m", "bias"], ["y"])]
    return save(path, nodes, [float_info("x", ["n", 16])], [float_info("y", ["n", 16])], weights)


def with_opset(path: Path, version: int) -> Path:
    model = onnx.load(path)
    model.opset_import[0].version = version
    onnx.save(model, path)
    return path


def test_operators_of_newer_opsets_wait_for_opset(tbx, tmp_path):
    model, small = with_opset(layer_norm(tmp_path / "m.onnx"), 13), tmp_path / "small.onnx"
    x = np.random.default_rng(0).standard_normal((3, 16)).astype("f")
    result = tbx("optimize", model, small)
    assert result.code == 0 and "fuse_layer_norm makes operators of opset 17, the model has 13" in result.out
    assert onnx.load(small).opset_import[0].version == 13 and "LayerNormalization" not in operators(small)
    check_equal(model, small, {"x": x})
    assert tbx("optimize", model, small, "--opset", 17).code == 0
    assert onnx.load(small).opset_import[0].version == 17 and operators(small) == ["LayerNormalization"]
    check_equal(model, small, {"x": x})


def test_opset_that_does_not_exist(tbx, tmp_path):
    result = tbx("optimize", layer_norm(tmp_path / "m.onnx"), tmp_path / "small.onnx", "--opset", 999)
    assert result.code == 3 and "there is no opset 999 of ai.onnx" in result.err
    assert not (tmp_path / "small.onnx").exists()


def test_in_place_and_unwritable(tbx, tmp_path):
    model = conv_batch_norm(tmp_path / "m.onnx")
    assert tbx("optimize", model, tmp_path / "no" / "folder.onnx").code == 2
    assert tbx("optimize", model, model).code == 0
    assert operators(model) == ["Conv", "Relu"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx"]


def test_bodies_keep_what_they_capture(tbx, tmp_path):
    """If with bodies that read values of the graph around them."""
    def body(op: str) -> onnx.GraphProto:
        return helper.make_graph([helper.make_node(op, ["h", "one"], ["r"])], op, [], [float_info("r", ["n"])])

    nodes = [helper.make_node("Identity", ["x"], ["h"]),
             helper.make_node("If", ["c"], ["y"], then_branch=body("Add"), else_branch=body("Sub"))]
    inputs = [float_info("x", ["n"]), helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    model = save(tmp_path / "m.onnx", nodes, inputs, [float_info("y", ["n"])], {"one": np.ones(1, "f")})
    assert tbx("optimize", model, tmp_path / "small.onnx").code == 0
    for condition in (True, False):
        check_equal(model, tmp_path / "small.onnx", {"x": np.arange(3, dtype="f"), "c": np.array(condition)})


def test_results_of_functions_keep_what_the_model_says_of_them(tbx, tmp_path):
    """Nothing is known inside of the function: the shape of the output is that which the model declares."""
    function = helper.make_function("my", "F", ["a", "axes"], ["r"], [helper.make_node("ReduceMean", ["a", "axes"], ["r"], keepdims=0)],
                                    [helper.make_opsetid("", 18)])
    nodes = [helper.make_node("Gelu", ["x"], ["h"], domain="com.microsoft"), helper.make_node("F", ["h", "axes"], ["y"], domain="my")]
    graph = helper.make_graph(nodes, "g", [float_info("x", [3, 4])], [float_info("y", [None])],
                              [onnx.numpy_helper.from_array(np.array([1]), "axes")])
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("my", 1), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, functions=[function], opset_imports=imports, ir_version=8), tmp_path / "m.onnx")
    assert tbx("optimize", tmp_path / "m.onnx", tmp_path / "small.onnx").code == 0
    onnx.checker.check_model(str(tmp_path / "small.onnx"), full_check=True)
    assert len(onnx.load(tmp_path / "small.onnx").graph.output[0].type.tensor_type.shape.dim) == 1
    x = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    before, after = (tensorbox.Session(tmp_path / file, compile=False).run({"x": x})["y"] for file in ("m.onnx", "small.onnx"))
    np.testing.assert_allclose(after, before, rtol=1e-6)


def test_sequences_of_unknown_elements_are_not_declared(tmp_path):
    """Nothing is known of what an operator outside of ONNX gives: ONNX Runtime refuses a sequence of nothing known."""
    ort = pytest.importorskip("onnxruntime")
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
      g (float[3, 4] x) => (float[a, b] y) {
        v = com.microsoft.Gelu (x) j = Concat <axis = 1> (v, v)
        s = SplitToSequence <axis = 0, keepdims = 1> (j) y = ConcatFromSequence <axis = 1> (s) }""")
    onnx.save(model, tmp_path / "m.onnx")
    tensorbox.optimize(tmp_path / "m.onnx", tmp_path / "small.onnx")
    onnx.checker.check_model(str(tmp_path / "small.onnx"), full_check=True)
    x = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    before, after = (ort.InferenceSession(tmp_path / file).run(None, {"x": x})[0] for file in ("m.onnx", "small.onnx"))
    np.testing.assert_array_equal(after, before)


def test_python(tmp_path):
    model, small = conv_batch_norm(tmp_path / "m.onnx"), tmp_path / "small.onnx"
    report = tensorbox.optimize(model, small, dims={"n": 2})
    assert report["nodes_after"] == 2 and report["operators_after"] == {"Conv": 1, "Relu": 1}
    assert onnx.load(small).graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2
    with pytest.raises(tensorbox.ModelError, match="unknown pass"):
        tensorbox.optimize(model, small, disable_passes=["nonsense"])
    with pytest.raises(tensorbox.BackendError, match="cannot write"):
        tensorbox.optimize(model, tmp_path / "no" / "folder.onnx")


def axis_model(path: Path, op: str, version: int, rank: int, attributes: dict[str, int]) -> Path:
    shape = [2, 3, 4][:rank]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"], **attributes)], "g", [float_info("x", shape)], [float_info("y", shape)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=7), path)
    return path


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize(("version", "to"), [(13, 12), (12, 13), (18, 11)])
@pytest.mark.parametrize(("rank", "attributes"), [(3, {}), (3, {"axis": 0}), (3, {"axis": 1}), (3, {"axis": 2}), (3, {"axis": -1}), (2, {})], ids=str)
def test_axes_that_mean_something_else(tmp_path: Path, op: str, version: int, to: int, rank: int, attributes: dict[str, int]) -> None:
    """Before version 13 these went over all dimensions from `axis` on: what ONNX's converter gives computes the same, or is refused."""
    model, small = axis_model(tmp_path / "m.onnx", op, version, rank, attributes), tmp_path / "small.onnx"
    x = np.random.default_rng(1).standard_normal([2, 3, 4][:rank]).astype(np.float32)
    is_last = attributes.get("axis", -1 if version >= 13 else 1) in (-1, rank - 1)
    try:
        tensorbox.optimize(model, small, opset=to)
    except tensorbox.UnsupportedError as e:
        assert "node 'y'" in str(e) and "computes something else" in str(e) and not is_last or "No Adapter" in str(e)
    else:
        session, converted = (tensorbox.Session(str(path), compile=False) for path in (model, small))
        np.testing.assert_allclose(converted.run({"x": x})["y"], session.run({"x": x})["y"], rtol=1e-6)
        assert is_last or (op != "Hardmax" and to > version)


def test_scans_with_a_batch_are_not_converted(tmp_path: Path) -> None:
    """Version 8 of Scan has a batch and lengths of its sequences, which no later one has."""
    body = helper.make_graph([helper.make_node("Add", ["s", "e"], ["t"]), helper.make_node("Identity", ["t"], ["u"])], "body",
                             [float_info("s", [2]), float_info("e", [2])], [float_info("t", [2]), float_info("u", [2])])
    graph = helper.make_graph([helper.make_node("Scan", ["", "x", "z"], ["last", "all"], num_scan_inputs=1, body=body)], "g",
                              [float_info("x", [1, 2]), float_info("z", [1, 3, 2])], [float_info("last", [1, 2]), float_info("all", [1, 3, 2])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=7), tmp_path / "m.onnx")
    with pytest.raises(tensorbox.UnsupportedError, match=r"'last' \(Scan.*cannot be converted to opset 11: since version 9"):
        tensorbox.optimize(tmp_path / "m.onnx", tmp_path / "small.onnx", opset=11)

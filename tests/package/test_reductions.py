"""Every reduction in a package that the evaluator runs."""
import numpy as np
import pytest
from onnx import TensorProto, helper

tensorbox = pytest.importorskip("tensorbox")


@pytest.mark.parametrize("op, last, want", [
    ("ArgMax", 0, lambda x: x.argmax(1)), ("ArgMin", 0, lambda x: x.argmin(1)),
    ("ArgMax", 1, lambda x: 6 - x[:, ::-1].argmax(1)), ("ArgMin", 1, lambda x: 6 - x[:, ::-1].argmin(1)),
    ("ReduceSum", None, lambda x: x.sum(1)), ("ReduceProd", None, lambda x: x.prod(1)),
    ("ReduceMax", None, lambda x: x.max(1)), ("ReduceMin", None, lambda x: x.min(1))])
def test_reduction(tmp_path, op, last, want):
    arg = last is not None
    attributes = {"axis": 1, "select_last_index": last} if arg else {}
    nodes = [helper.make_node(op, ["x"] if arg else ["x", "axes"], ["y"], keepdims=0, **attributes)]
    constants = [] if arg else [helper.make_tensor("axes", TensorProto.INT64, [1], [1])]
    graph = helper.make_graph(nodes, "reduction", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 7])],
                              [helper.make_tensor_value_info("y", TensorProto.INT64 if arg else TensorProto.FLOAT, ["n"])], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    path = str(tmp_path / "reduction.tbx")
    tensorbox.Session(model, compile=False).save(path)
    loaded = tensorbox.Session(path, compile=False)
    for n in (0, 1, 5, 300):
        x = np.random.default_rng(n).integers(-2, 3, (n, 7)).astype(np.float32)  # with equal ones
        np.testing.assert_array_equal(loaded.run({"x": x})["y"], want(x))

"""What segmentation networks end with: an image of scores for each class is enlarged, then classes are compared."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from peers import compare


def enlarged(operator: str, sizes: tuple[int, ...], factor: int, **attributes: object) -> tuple[object, object]:
    """The model, and one of its first node alone."""
    scales = numpy_helper.from_array(np.array([1, 1, factor, factor], np.float32), "scales")
    resize = helper.make_node("Resize", ["x", "", "scales"], ["large"], mode="linear")
    x = helper.make_tensor_value_info("x", 1, sizes)
    kind = 7 if operator == "ArgMax" else 1

    def model(nodes: list, result: str, kind: int) -> object:
        graph = helper.make_graph(nodes, "g", [x], [helper.make_tensor_value_info(result, kind, None)], [scales])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9)

    inputs = ["large", "axes"] if operator == "ReduceSum" else ["large"]
    last = helper.make_node(operator, inputs, ["y"], keepdims=0, **attributes)
    whole = model([resize, last], "y", kind)
    if operator == "ReduceSum":
        whole.graph.initializer.append(numpy_helper.from_array(np.array([1]), "axes"))
    return whole, model([resize], "large", 1)


@pytest.mark.parametrize("operator", ["ArgMax", "ReduceMax", "ReduceSum"])
@pytest.mark.parametrize("size", [(1, 1), (5, 7), (13, 13), (32, 32), (64, 64)])
def test_classes_of_an_enlarged_image(operator: str, size: tuple[int, int]) -> None:
    """Of multiples of 1/1024 enlarged four and eight times, of which float32 loses nothing."""
    rng = np.random.default_rng(size[0])
    attributes = {"axis": 1} if operator == "ArgMax" else {"axes": [1]} if operator == "ReduceMax" else {}
    for batch, classes, factor in ((1, 21, 8), (2, 3, 4), (1, 1, 4), (1, 40, 4)):
        x = (rng.integers(-4096, 4096, (batch, classes, *size)) / 1024).astype(np.float32)
        model, first = enlarged(operator, x.shape, factor, **attributes)
        session = onnxruntime.InferenceSession(first.SerializeToString(), providers=["CPUExecutionProvider"])
        large = session.run(None, {"x": x})[0].astype(np.float64)
        want = {"ArgMax": np.argmax, "ReduceMax": np.max, "ReduceSum": np.sum}[operator](large, 1)
        compare(model, {"x": x}, want=[want.astype(np.int64 if operator == "ArgMax" else np.float32)])

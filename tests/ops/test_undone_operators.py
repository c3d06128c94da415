"""An operator that undoes the one before it gives what that one was given, beside other inputs, whose memory is another one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from peers import tensorbox

FLOAT, INT32, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL
Y = np.arange(-500.0, 500.0)
CASES = {
    "negative": (FLOAT, [("Neg", ["y"], {}), ("Neg", ["a"], {})]),
    "not": (BOOL, [("Not", ["y"], {}), ("Not", ["a"], {})]),
    "wider and back": (INT32, [("Cast", ["y"], {"to": INT64}), ("Cast", ["a"], {"to": INT32})]),
    "of itself": (FLOAT, [("Max", ["y", "y"], {}), ("Min", ["a", "y"], {})]),
    "and": (BOOL, [("Or", ["y", "y"], {}), ("And", ["a", "y"], {})]),
    "either": (FLOAT, [("Max", ["y", "y"], {}), ("Where", ["c", "a", "y"], {})]),
}


def model_of(dtype: int, steps: Sequence[tuple[str, list[str], dict[str, int]]]) -> onnx.ModelProto:
    """y becomes a and then b, which both are outputs; other inputs come first, and are much smaller."""
    nodes = [helper.make_node(op, inputs, [name], **attributes) for (op, inputs, attributes), name in zip(steps, "ab", strict=True)]
    middle = steps[0][2].get("to", dtype)
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["z"]), *nodes], "g",
        [helper.make_tensor_value_info("x", dtype, [1]), helper.make_tensor_value_info("c", BOOL, [1]),
         helper.make_tensor_value_info("y", dtype, ["n"])],
        [helper.make_tensor_value_info("z", dtype, [1]), helper.make_tensor_value_info("a", middle, ["n"]),
         helper.make_tensor_value_info("b", dtype, ["n"])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("mode", [{}, {"compile": False}, {"reference": True}], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_what_is_undone(name: str, mode: dict[str, bool]) -> None:
    dtype, steps = CASES[name]
    y = (Y % 3 > 1 if dtype == BOOL else Y).astype(helper.tensor_dtype_to_np_dtype(dtype))
    session = tensorbox.Session(model_of(dtype, steps), **mode)
    got = session.run({"x": np.ones(1, y.dtype), "c": np.array([True]), "y": y})
    np.testing.assert_array_equal(got["b"], y)

"""Values of another type than the model declares: a model that says so is refused, also where ONNX knows no types of the
operator."""

from __future__ import annotations

import onnx
import pytest
from base_models import BaseModel, microsoft_models
from onnx import TensorProto, helper

tensorbox = pytest.importorskip("tensorbox")

OTHER = {TensorProto.FLOAT: TensorProto.FLOAT16, TensorProto.FLOAT16: TensorProto.FLOAT, TensorProto.UINT8: TensorProto.INT8,
         TensorProto.INT8: TensorProto.UINT8, TensorProto.INT32: TensorProto.INT64, TensorProto.INT64: TensorProto.INT32,
         TensorProto.UINT32: TensorProto.INT32, TensorProto.BOOL: TensorProto.UINT8}
MODELS = {m.name: m for m in (BaseModel(*parts) for parts in microsoft_models.models())}


def types_of(model: onnx.ModelProto) -> list[int]:
    return [output.onnx_type for output in tensorbox.Session(model, compile=False).outputs]


def declared(model: onnx.ModelProto, output: int, type: int, inside: bool) -> onnx.ModelProto:
    """The model with the type of an output, or with that of a value that an Identity hands on to it."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    name = graph.output[output].name
    if not inside:
        graph.output[output].CopyFrom(helper.make_tensor_value_info(name, type, None))
        return made
    for node in graph.node:
        node.output[:] = [n + "_inside" if n == name else n for n in node.output]
    graph.node.append(helper.make_node("Identity", [name + "_inside"], [name]))
    graph.value_info.append(helper.make_tensor_value_info(name + "_inside", type, None))
    if not any(o.domain == "" for o in made.opset_import):
        made.opset_import.append(helper.make_opsetid("", 20))
    return made


@pytest.mark.parametrize("name", MODELS)
def test_types_of_microsoft_operators(name: str) -> None:
    model = MODELS[name].model
    for output, type in enumerate(types_of(model)):
        if type not in OTHER:
            continue
        for inside in (False, True):
            tensorbox.Session(declared(model, output, type, inside), compile=False)
            with pytest.raises(tensorbox.ModelError, match="is declared as .*, but it is "):
                tensorbox.Session(declared(model, output, OTHER[type], inside), compile=False)


@pytest.mark.parametrize("op, inside", [("Relu", False), ("Relu", True), ("Gelu", True)])
def test_types_of_onnx_operators(op: str, inside: bool) -> None:
    info = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], op, info, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    with pytest.raises(tensorbox.ModelError, match=r"is declared as tensor\(float16\), but it is tensor\(float\)"):
        tensorbox.Session(declared(model, 0, TensorProto.FLOAT16, inside), compile=False)

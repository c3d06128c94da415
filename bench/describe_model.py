#!/usr/bin/env python3
"""Print as JSON what workloads.py has to know of an ONNX file: describe_model.py MODEL (in a Python that has onnx).

`inputs`: per input its name, dtype of NumPy, shape (1 where a dimension is dynamic), the names of dynamic dimensions by
place, and the rule that makes its values (models/zoo/materialize.py). `precision`: f32, fp16 or int8, as the file computes.
`data`: the files beside it that hold weights.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import onnx
from onnx import TensorProto, helper

BYTES = ("DequantizeLinear", "QLinearMatMul", "QLinearConv", "MatMulInteger", "ConvInteger", "DynamicQuantizeLinear", "MatMulNBits")


def rule_of(dtype: str) -> dict[str, Any]:
    """Normal floats; integers 0 and 1, which every table of an embedding has and every mask means something by."""
    return {"rule": "normal"} if dtype.startswith("float") else {"rule": "randint", "lo": 0, "hi": 2}


def describe_input(value: onnx.ValueInfoProto) -> dict[str, Any]:
    """ValueError where no array can be made for the input."""
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not tensor.HasField("shape"):
        raise ValueError(f"input {value.name!r} is no tensor whose rank the file tells")
    if tensor.elem_type in (TensorProto.STRING, TensorProto.BFLOAT16):
        raise ValueError(f"input {value.name!r} has type {TensorProto.DataType.Name(tensor.elem_type)}, which not every engine takes from NumPy")
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
    dims = list(tensor.shape.dim)
    dynamic = {str(i): d.dim_param or f"{value.name}_{i}" for i, d in enumerate(dims) if not d.HasField("dim_value")}
    shape = [d.dim_value if d.HasField("dim_value") else 1 for d in dims]
    return {"name": value.name, "dtype": dtype, "shape": shape, "dynamic": dynamic, "rule": rule_of(dtype)}


def precision_of(model: onnx.ModelProto) -> str:
    """By its operators, and by the types of its weights."""
    if any(node.op_type in BYTES for node in model.graph.node):
        return "int8"
    halves = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
    return "fp16" if any(tensor.data_type in halves for tensor in model.graph.initializer) else "f32"


def main() -> None:
    model = onnx.load(sys.argv[1], load_external_data=False)
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [describe_input(value) for value in model.graph.input if value.name not in constants]
    places = {entry.value for tensor in model.graph.initializer for entry in tensor.external_data if entry.key == "location"}
    print(json.dumps({"inputs": inputs, "precision": precision_of(model), "data": sorted(places)}))


if __name__ == "__main__":
    main()

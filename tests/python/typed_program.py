"""A program as a user with a type checker writes it; checked by test_types.py, never run."""

import numpy as np

import tensorbox

session = tensorbox.Session("model.onnx", threads=2, dims={"batch": 1})
outputs = session.run({"x": np.zeros((1, 4), np.float32)})
total: float = float(outputs["y"].sum())
shape: list[int | str] | None = session.inputs[0].shape
milliseconds: float = session.stats.total_ms
version: int | None = session.metadata.version

options = tensorbox.SessionOptions()
options.intra_op_num_threads = 2
options.graph_optimization_level = tensorbox.GraphOptimizationLevel.ORT_ENABLE_ALL
other = tensorbox.InferenceSession("model.onnx", options, providers=["CPUExecutionProvider"])
names: list[str] = [argument.name for argument in other.get_inputs()]
labels: dict[str, str] = other.get_modelmeta().custom_metadata_map
try:
    other.run(None, {"x": [1.0]})
except tensorbox.ModelError as error:
    print(error)

#!/usr/bin/env python3
"""Write a quantised form of a float32 model: make_form.py FORM MODEL TARGET (workloads.py lists the forms).

Runs in the peers' Python, which has onnx and onnxruntime.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "zoo"))

import cases  # noqa: E402

MIN_WEIGHTS = 1 << 14  # elements; smaller matrices stay float32


def qdq(source: Path, target: Path) -> None:
    """Static quantisation as ONNX Runtime's tools make it by default for CPUs: QDQ, weights per channel."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class OneInput(CalibrationDataReader):
        def __init__(self) -> None:
            self._left = [cases.cases(source.parent.name)[0].inputs()]

        def get_next(self) -> dict[str, np.ndarray] | None:
            return self._left.pop() if self._left else None

    with tempfile.TemporaryDirectory() as folder:
        whole, prepared = str(Path(folder) / "whole.onnx"), str(Path(folder) / "prepared.onnx")
        onnx.save(onnx.load(str(source)), whole)  # the tools look for weights beside files of their own
        quant_pre_process(whole, prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared,
            str(target),
            OneInput(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )


def w8(source: Path, target: Path) -> None:
    """MatMul and Gemm read int8 weights through a DequantizeLinear with one scale per column; all else as it was."""
    model = onnx.load(str(source))
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    readers: dict[str, int] = {}
    for node in graph.node:
        for name in node.input:
            readers[name] = readers.get(name, 0) + 1
    added, done = [], set()
    for node in graph.node:
        if node.op_type not in ("MatMul", "Gemm") or node.input[1] in done:
            continue
        tensor = constants.get(node.input[1])
        transposed = any(a.name == "transB" and a.i for a in node.attribute)
        if tensor is None or len(tensor.dims) != 2 or np.prod(tensor.dims) < MIN_WEIGHTS or readers[tensor.name] > 1:
            continue
        weights = numpy_helper.to_array(tensor)
        axis = 0 if transposed else 1
        scales = (np.abs(weights).max(axis=1 - axis) / 127).astype(np.float32)
        rounded = np.rint(weights / np.expand_dims(scales, 1 - axis)).clip(-127, 127).astype(np.int8)
        name = tensor.name
        graph.initializer.remove(tensor)
        graph.initializer.append(numpy_helper.from_array(rounded, name + ".int8"))
        graph.initializer.append(numpy_helper.from_array(scales, name + ".scale"))
        added.append(helper.make_node("DequantizeLinear", [name + ".int8", name + ".scale"], [name], axis=axis))
        done.add(name)
    for node in reversed(added):
        graph.node.insert(0, node)
    assert all(tensor.data_type != TensorProto.UNDEFINED for tensor in graph.initializer)
    data = "weights.bin"
    (target.parent / data).unlink(missing_ok=True)
    onnx.save(model, str(target), save_as_external_data=True, location=data, size_threshold=1024)


if __name__ == "__main__":
    form, source, target = sys.argv[1:]
    unfinished = Path(target).with_name("unfinished.onnx")
    {"qdq": qdq, "w8": w8}[form](Path(source), unfinished)
    unfinished.rename(target)

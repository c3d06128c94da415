"""Compares one operator in tensorbox with ONNX Runtime, or with onnx.reference where that is not installed."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

tensorbox = pytest.importorskip("tensorbox")
CPU_FLAGS = frozenset(re.findall(r"^flags\s*:(.*)", Path("/proc/cpuinfo").read_text(), re.M)[0].split())
# Without such products the reference's kernels for u8 times s8 saturate in 16 bits, but not with weights of 7 bits.
REFERENCE_SATURATES = CPU_FLAGS.isdisjoint({"avx512_vnni", "avx_vnni"})
COMPILED_SHARE = 5  # of the models that are compared one in so many runs with generated kernels, too


def model_of(op: str, inputs: Mapping[str, np.ndarray | None], outputs: Sequence[str], opset: int,
             constants: Sequence[str] = (), **attributes: Any) -> onnx.ModelProto:
    """A model of one node. `None` among `inputs` is an input left out, "" among `outputs` an output;
    those named in `constants` become initializers; `domain` among the attributes is the operator's own."""
    names = [name if value is not None else "" for name, value in inputs.items()]
    while names and not names[-1]:
        names.pop()
    node = helper.make_node(op, names, list(outputs), **attributes)
    infos = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
             for name, value in inputs.items() if value is not None and name not in constants]
    initializers = [onnx.numpy_helper.from_array(inputs[name], name) for name in constants if inputs[name] is not None]
    results = [helper.make_empty_tensor_value_info(name) for name in outputs if name]
    graph = helper.make_graph([node], op, infos, results, initializers)
    imports = [helper.make_opsetid("", opset)]
    if domain := attributes.get("domain"):
        imports.append(helper.make_opsetid(domain, 1))
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    inferred = onnx.shape_inference.infer_shapes(model)
    for info in inferred.graph.output:  # shape inference gives what it can; the type is needed
        if not info.type.tensor_type.elem_type:
            first = next(value for value in inputs.values() if value is not None)
            info.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(first.dtype)
    return inferred


def expected(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], engine: str = "any") -> list[np.ndarray]:
    """The outputs by ONNX Runtime ("ort"), onnx.reference ("reference"), or whichever is there ("any")."""
    if engine != "reference":
        try:
            import onnxruntime
        except ImportError:
            if engine == "ort":
                pytest.skip("onnxruntime is not installed")
        else:
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 4
            session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            return session.run(None, dict(feeds))
    return ReferenceEvaluator(model).run(None, dict(feeds))


def compare(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray | None], rtol: float = 1e-4, atol: float = 1e-5,
            engine: str = "any", want: Sequence[np.ndarray] | None = None, plain: bool = True, **options: Any) -> None:
    """Runs the model with fixed and with dynamic dimensions in the evaluator, (`plain`) by plain loops, and a share of the models
    with generated kernels; AssertionError on the first difference in shape, type or values from `want`, or where that is not
    given from what `engine` computes. Numbers in `want` may be wider than the results are: those have the declared type."""
    wanted = {info.name for info in model.graph.input}
    feeds = {name: value for name, value in inputs.items() if name in wanted}
    if want is None:
        want = expected(model, feeds, engine)
        types = [value.dtype for value in want]
    else:
        types = [helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type) for info in model.graph.output]
    modes: list[tuple[str, dict[str, Any]]] = [("", {"compile": False}),
                                               (" with dynamic dimensions", {"compile": False, "all_dims_dynamic": True})]
    if plain:
        modes.append((" by plain loops", {"reference": True}))
    if zlib.crc32(model.SerializeToString(deterministic=True)) % COMPILED_SHARE == 0:
        modes.append((" compiled", {"compile": True}))
    for how, mode in modes:
        got = tensorbox.Session(model, **mode, **options).run(feeds)
        for info, wanted_value, dtype in zip(model.graph.output, want, types, strict=True):
            message = f"{model.graph.name} {info.name}{how}"
            assert got[info.name].shape == wanted_value.shape, message
            assert got[info.name].dtype == dtype, message
            np.testing.assert_allclose(got[info.name].astype(np.float64), wanted_value.astype(np.float64), rtol, atol,
                                       equal_nan=True, err_msg=message)

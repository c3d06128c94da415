"""What ONNX Runtime and onnx.reference compute for a case, as it is or in types that they know better."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

import kinds
from builder import Case

try:
    import onnxruntime
except ImportError:  # the references are then onnx.reference alone
    onnxruntime = None
FLOATS = {TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE}
SMALL = {value for name, value in TensorProto.DataType.items() if name.startswith(("FLOAT8", "FLOAT4"))}
STAYING = {TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL, TensorProto.UNDEFINED}  # indices, too
NEWEST_OF_ORT, IR_OF_ORT = 26, 10
Run = tuple[onnx.ModelProto, dict[str, Any]]


class NoReference(Exception):
    """The reference does not run this case; the text is its own."""


def by_onnxruntime(case: Case) -> list[Any]:
    """The outputs of its unfused CPU kernels."""
    return _onnxruntime(*_original(case))


def by_onnx(case: Case) -> list[Any]:
    """The outputs of onnx.reference."""
    return _evaluate(*_original(case))


def by_onnx_in_double(case: Case) -> list[Any]:
    """The outputs of onnx.reference for the same inputs in double."""
    _needs_no_types(case)
    return _evaluate(*_retyped(_original(case), FLOATS, TensorProto.DOUBLE, lambda value: value.astype(np.float64)))


def by_onnxruntime_in_float(case: Case) -> list[Any]:
    """The outputs of ONNX Runtime for the same inputs in float, which more of its kernels know."""
    _needs_no_types(case)
    return _onnxruntime(*_retyped(_original(case), FLOATS | SMALL, TensorProto.FLOAT, lambda value: value.astype(np.float32)))


def by_onnxruntime_in_numbers(case: Case) -> list[Any]:
    """The outputs of ONNX Runtime where elements are only moved: it moves their numbers in a table instead."""
    if not case.moves:
        raise NoReference("does more than move elements")
    table: list[Any] = [None]  # 0 is what padding gives

    def numbered(value: np.ndarray) -> np.ndarray:
        table.extend(value.ravel())
        return np.arange(len(table) - value.size, len(table), dtype=np.float32).reshape(value.shape)

    def looked_up(value: Any, kind: onnx.TypeProto) -> Any:
        if isinstance(value, list):
            return [looked_up(item, getattr(kind, kind.WhichOneof("value")).elem_type) for item in value]
        if value is None or kind.WhichOneof("value") != "tensor_type":
            return value if value is None else looked_up(value, kind.optional_type.elem_type)
        if kind.tensor_type.elem_type in STAYING:
            return value
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type)
        padding = "" if dtype.kind == "O" else np.zeros((), dtype)[()]
        chosen = np.empty(value.size, dtype)
        chosen[:] = [table[int(i)] if i else padding for i in value.ravel()]
        return chosen.reshape(value.shape)

    original = _original(case)
    every = set(TensorProto.DataType.values()) - STAYING
    results = _onnxruntime(*_retyped(original, every, TensorProto.FLOAT, numbered))
    return [looked_up(value, info.type) for value, info in zip(results, original[0].graph.output)]


def _original(case: Case) -> Run:
    return case.stand_in or (case.model, case.feeds)


def _needs_no_types(case: Case) -> None:
    if not case.wide:
        raise NoReference("means something else in other types")


def _retyped(run: Run, types: set[int], to: int, convert: Callable[[np.ndarray], np.ndarray]) -> Run:
    """The same with other types of tensors, in bodies, sequences and optionals as well."""
    model = onnx.ModelProto()
    model.CopyFrom(run[0])
    dtypes = {np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number)) for number in types - {TensorProto.UNDEFINED}}

    def retype(kind: onnx.TypeProto) -> None:
        which = kind.WhichOneof("value")
        if which == "tensor_type":
            kind.tensor_type.elem_type = to if kind.tensor_type.elem_type in types else kind.tensor_type.elem_type
        elif which in ("sequence_type", "optional_type"):
            retype(getattr(kind, which).elem_type)

    def retype_tensor(tensor: TensorProto) -> None:
        if tensor.data_type in types:
            tensor.CopyFrom(numpy_helper.from_array(convert(numpy_helper.to_array(tensor)), tensor.name))

    def retype_graph(graph: onnx.GraphProto) -> None:
        for info in [*graph.input, *graph.output, *graph.value_info]:
            retype(info.type)
        for tensor in graph.initializer:
            retype_tensor(tensor)
        for attribute in [a for node in graph.node for a in node.attribute]:
            if attribute.type == AttributeProto.TENSOR:
                retype_tensor(attribute.t)
            elif attribute.type == AttributeProto.GRAPH:
                retype_graph(attribute.g)

    def value_of(value: Any) -> Any:
        if isinstance(value, list):
            return [value_of(item) for item in value]
        return convert(value) if isinstance(value, np.ndarray) and value.dtype in dtypes else value

    retype_graph(model.graph)
    return model, {name: value_of(value) for name, value in run[1].items()}


def _of_known_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same under the newest operator set that ONNX Runtime accepts: later ones only added types."""
    if all(entry.domain or entry.version <= NEWEST_OF_ORT for entry in model.opset_import):
        return model
    older = onnx.ModelProto()
    older.CopyFrom(model)
    older.opset_import[0].version = NEWEST_OF_ORT
    older.ir_version = min(model.ir_version, IR_OF_ORT)
    return older


def _onnxruntime(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    if onnxruntime is None:
        raise NoReference("not installed")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = _of_known_opset(model)
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return session.run(None, feeds)
    except Exception as error:  # whatever it raises: it does not run this case
        raise NoReference(f"{type(error).__name__}: {error}") from None


def _evaluate(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            return ReferenceEvaluator(model).run(None, dict(feeds))
    except Exception as error:  # whatever it raises: it does not run this case
        raise NoReference(f"{type(error).__name__}: {error}") from None

"""Good models that bad ones are made of: single nodes of the ONNX backend suite and of com.microsoft."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


@dataclass(frozen=True)
class BaseModel:
    """A model of one node that is right, with inputs in the order of the graph's."""

    name: str
    model: onnx.ModelProto
    inputs: tuple[Any, ...]

    @property
    def node(self) -> onnx.NodeProto:
        return self.model.graph.node[0]

    @property
    def operator(self) -> tuple[str, str]:
        return self.node.domain, self.node.op_type


def _value(value: Any) -> Any:
    """Types that numpy does not have are given as protos."""
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def suite_models() -> Iterator[BaseModel]:
    """Of each operator in the suite the first case and the one with the most inputs and attributes."""
    from onnx.backend.test.case.node import collect_testcases

    cases: dict[tuple[str, str], list[BaseModel]] = {}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for case in collect_testcases(None):
            if len(case.model.graph.node) == 1 and case.data_sets:
                base = BaseModel(case.name, case.model, tuple(map(_value, case.data_sets[0][0])))
                cases.setdefault(base.operator, []).append(base)
    for _, models in sorted(cases.items()):
        richest = max(models, key=lambda m: len(m.node.input) + len(m.node.attribute))
        yield from {m.name: m for m in (models[0], richest)}.values()


def _microsoft(op: str, inputs: dict[str, np.ndarray], outputs: int = 1, **attributes: Any) -> BaseModel:
    node = helper.make_node(op, list(inputs), [f"out{i}" for i in range(outputs)], domain="com.microsoft", **attributes)
    infos = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
             for name, a in inputs.items()]
    first = next(iter(inputs.values()))
    results = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(first.dtype), None)
               for name in node.output]
    graph = helper.make_graph([node], op, infos, results)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return BaseModel(f"microsoft_{op}", helper.make_model(graph, opset_imports=opsets, ir_version=9),
                     tuple(inputs.values()))


def microsoft_models() -> Iterator[BaseModel]:
    """Operators of com.microsoft."""
    rng = np.random.default_rng(3)

    def f(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    x, bias = f(2, 3, 8), f(8)
    yield _microsoft("Gelu", {"x": x})
    yield _microsoft("BiasGelu", {"x": x, "bias": bias})
    yield _microsoft("FastGelu", {"x": x, "bias": bias})
    yield _microsoft("QuickGelu", {"x": x}, alpha=1.5)
    yield _microsoft("FusedMatMul", {"a": f(2, 3, 4), "b": f(4, 5)}, alpha=0.5, transA=0, transB=0)
    yield _microsoft("SkipLayerNormalization", {"x": x, "skip": x, "gamma": bias, "beta": bias}, epsilon=1e-5)
    yield _microsoft("SkipSimplifiedLayerNormalization", {"x": x, "skip": x, "gamma": bias}, epsilon=1e-5)
    yield _microsoft("SimplifiedLayerNormalization", {"x": x, "gamma": bias}, epsilon=1e-5, axis=-1)
    yield _microsoft("MultiHeadAttention", {"q": x, "k": x, "v": x}, num_heads=2)
    yield _microsoft("RotaryEmbedding", {"x": f(1, 3, 8), "positions": np.zeros((1,), np.int64), "cos": f(4, 2),
                                         "sin": f(4, 2)}, num_heads=2)
    yield _microsoft("Inverse", {"x": f(3, 3)})
    yield _microsoft("Trilu", {"x": f(3, 4), "k": np.array(1, np.int64)}, upper=1)
    yield _microsoft("CropAndResize", {"x": f(1, 1, 4, 4), "rois": f(2, 4), "batch": np.zeros(2, np.int32),
                                       "size": np.array([2, 2], np.int32)})


def all_models() -> list[BaseModel]:
    """Every base model whose operator this build knows."""
    import tensorbox

    known = {tuple(op[:2]) for op in tensorbox.operators()}
    return list(suite_models()) + [m for m in microsoft_models() if m.operator in known]

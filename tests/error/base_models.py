"""Good models that bad ones are made of: single nodes, of every operator at least one."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import microsoft_models
import numpy as np
import onnx
import optional_models
import other_models
from onnx import numpy_helper


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


def all_models() -> list[BaseModel]:
    """Every base model whose operator this build knows; those of one name are numbered."""
    import tensorbox

    known = {tuple(op[:2]) for op in tensorbox.operators()}
    seen: Counter[str] = Counter()
    others = []
    for name, model, inputs in (parts for listed in (microsoft_models, other_models, optional_models) for parts in listed.models()):
        seen[name] += 1
        others.append(BaseModel(name if seen[name] == 1 else f"{name}_{seen[name]}", model, inputs))
    return list(suite_models()) + [m for m in others if m.operator in known]

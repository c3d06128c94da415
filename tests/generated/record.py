"""Results of ONNX Runtime for the cases that onnx.reference alone cannot judge, for machines without ONNX Runtime."""

from __future__ import annotations

import functools
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

import agreement
import references
from builder import Case
from references import NoReference

PATH = Path(__file__).with_name("onnxruntime_results.npz")
ENGINES = {"onnxruntime": references.by_onnxruntime, "onnxruntime in float": references.by_onnxruntime_in_float,
           "onnxruntime in numbers of elements": references.by_onnxruntime_in_numbers}


def digest(case: Case) -> int:
    """Of the model and its inputs: results of other inputs must not be taken for those of this case."""
    values = "".join(repr(np.asarray(v).tolist() if isinstance(v, np.ndarray) else v) for v in case.feeds.values())
    return zlib.crc32(values.encode(), zlib.crc32(case.model.SerializeToString(deterministic=True)))


def record(cases: dict[str, tuple[Case, str]]) -> int:
    """Write what is needed of cases (with the engine that agreed with them); how many there are."""
    arrays: dict[str, np.ndarray] = {}
    count = 0
    for name, (case, engine) in cases.items():
        results = ENGINES[engine](case)
        if not all(_is_plain(info) for info in case.model.graph.output) or _onnx_agrees(case, results):
            continue
        arrays[f"{name}|"] = np.array([digest(case), list(ENGINES).index(engine)])
        for info, value in zip(case.model.graph.output, results):
            if isinstance(value, list):
                arrays[f"{name}|{info.name}"] = np.array(len(value))
                arrays |= {f"{name}|{info.name}|{i}": _plain(item) for i, item in enumerate(value)}
            else:
                arrays[f"{name}|{info.name}"] = _plain(value)
        count += 1
    np.savez_compressed(PATH, **arrays)
    return count


def by_record(case: Case) -> list[Any]:
    """The recorded results."""
    key = f"{case.name}|"
    if key not in _load():
        raise NoReference("not recorded")
    if _load()[key][0] != digest(case):
        raise NoReference("recorded for other inputs: run_generated.py --record, where ONNX Runtime is installed")
    return [_recorded(key + info.name, info) for info in case.model.graph.output]


def roundoff(case: Case) -> float:
    """Of the engine that gave them."""
    key = f"{case.name}|"
    return 2.0**-24 if key in _load() and list(ENGINES)[_load()[key][1]] == "onnxruntime in float" else 0.0


@functools.cache
def _load() -> dict[str, np.ndarray]:
    with np.load(PATH) as file:
        return dict(file)


def _recorded(key: str, info: onnx.ValueInfoProto) -> Any:
    value = _load()[key]
    if info.type.HasField("sequence_type"):
        return [_typed(_load()[f"{key}|{i}"], info) for i in range(int(value))]
    return _typed(value, info)


def _element(info: onnx.ValueInfoProto) -> int:
    """The element type of a tensor or of the tensors of a sequence; 0 for what is neither."""
    kind = info.type.sequence_type.elem_type if info.type.HasField("sequence_type") else info.type
    return int(kind.tensor_type.elem_type)


def _is_plain(info: onnx.ValueInfoProto) -> bool:
    return _element(info) != 0


def _onnx_agrees(case: Case, results: list[Any]) -> bool:
    for evaluate in (references.by_onnx, references.by_onnx_in_double):
        try:
            wanted = evaluate(case)
        except NoReference:
            continue
        outputs = list(zip(case.model.graph.output, results, wanted, strict=True))
        try:
            if not any(agreement.difference(_as_declared(got, info), want, _element(info), case.terms, case.roundoff)
                       for info, got, want in outputs):
                return True
        except (TypeError, ValueError):
            continue
    return False


def _as_declared(value: Any, info: onnx.ValueInfoProto) -> Any:
    if isinstance(value, list):
        return [_as_declared(item, info) for item in value]
    return value.astype(helper.tensor_dtype_to_np_dtype(_element(info)))


def _plain(value: np.ndarray) -> np.ndarray:
    """What a file of numpy holds without pickles: texts of fixed width, bytes of small types."""
    if value.dtype.kind == "O":
        return value.astype(str)
    return value if value.dtype.kind in "fiubcU" else value.view(np.dtype(f"u{value.dtype.itemsize}"))


def _typed(value: np.ndarray, info: onnx.ValueInfoProto) -> np.ndarray:
    declared = np.dtype(helper.tensor_dtype_to_np_dtype(_element(info)))
    if value.dtype.kind == "U":
        return value.astype(object)
    narrow = declared.kind not in "fiubcO"
    return value.view(declared) if narrow and value.dtype.kind == "u" and value.itemsize == declared.itemsize else value

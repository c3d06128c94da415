"""Runs a case in tensorbox and says what the references think of the result."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

import agreement
import kinds
import record
import references
from builder import Case, Skip
from recipes import make_case
from targets import Target

SINGLE = 2.0**-24
REFERENCES = (  # name, function, its unit roundoff if coarser than that of the types, whether it decides about rounding
    ("onnxruntime", references.by_onnxruntime, 0.0, False),
    ("onnx.reference", references.by_onnx, 0.0, False),
    ("onnx.reference in double", references.by_onnx_in_double, 0.0, True),
    ("onnxruntime in float", references.by_onnxruntime_in_float, SINGLE, True),
    ("onnxruntime in numbers of elements", references.by_onnxruntime_in_numbers, 0.0, False),
)
RECORD = ("onnxruntime, recorded", record.by_record, 0.0, False)


@dataclass(frozen=True)
class Verdict:
    """`status`: pass; disputed (a reference differs, another agrees); differs (from all references); refused
    (tensorbox does not run it); unjudged (no reference runs it); crash; timeout."""

    test: str
    status: str
    error: str = ""  # who differs or who agrees
    message: str = ""
    seconds: float = 0.0
    unstable: str = ""


def elements_of(model: onnx.ModelProto) -> list[int]:
    """The element type of each output, inside of sequences and optionals as well."""
    found = []
    for info in model.graph.output:
        kind = info.type
        while not kind.HasField("tensor_type"):
            which = kind.WhichOneof("value")
            inner = getattr(kind, which)
            kind = inner.value_type if which == "map_type" else inner.elem_type
        found.append(kind.tensor_type.elem_type)
    return found


def differences(case: Case, got: list[Any], want: list[Any], roundoff: float = 0.0) -> str:
    """The first output that differs, and how."""
    for info, element, g, w in zip(case.model.graph.output, elements_of(case.model), got, want, strict=True):
        if info.name not in case.drop and (text := agreement.difference(g, w, element, case.terms, max(roundoff, case.roundoff))):
            return f"{info.name}: {text}"
    return ""


def judge(target: Target, sample: int, options: dict[str, Any]) -> Verdict:
    """The verdict on one sample of one target. `options` are those of tensorbox.Session."""
    import tensorbox  # in the worker: threads do not survive a fork

    name = target.name + (f"#{sample}" if sample else "")
    begin = time.perf_counter()

    def verdict(status: str, error: str = "", message: str = "") -> Verdict:
        return Verdict(name, status, error, re.sub(r"\s+", " ", message)[:300], time.perf_counter() - begin)

    try:
        case = make_case(target, sample)
    except Skip as skip:
        return verdict("unjudged", "no case", str(skip))
    print(f"{name} in tensorbox", file=sys.stderr, flush=True)  # the last line shows where a crash was
    try:
        results = tensorbox.Session(case.model, **options).run(case.feeds)
        got = [results[info.name] for info in case.model.graph.output]
    except (tensorbox.Error, TypeError, ValueError, AttributeError, KeyError) as error:
        return verdict("refused", type(error).__name__, str(error))
    print(f"{name} in a reference", file=sys.stderr, flush=True)
    if case.random:
        return _judge_random(case, got, verdict)
    if case.expected is not None:
        text = differences(case, got, case.expected)
        return verdict("differs" if text else "pass", "specification", text)
    objections, notes = [], []
    for engine, evaluate, roundoff, exact in REFERENCES if references.onnxruntime else (RECORD, *REFERENCES):
        try:
            want = evaluate(case)
        except references.NoReference as error:
            notes.append(f"{engine}: {error}")
            continue
        if engine == RECORD[0]:
            roundoff = record.roundoff(case)
        text = differences(case, got, want, roundoff)
        exact &= roundoff == 0 or TensorProto.DOUBLE not in elements_of(case.model)
        if not text:
            return verdict("disputed" if objections and not _rounding(case, objections, exact) else "pass", engine, "; ".join(objections))
        objections.append(f"{engine}: {text}")
    return verdict("differs", "", "; ".join(objections)) if objections else verdict("unjudged", "no reference", "; ".join(notes))


def _rounding(case: Case, objections: list[str], exact: bool) -> bool:
    """Whether what was objected to is only the references' own rounding, as the result in double shows."""
    floats = {info.name for info, element in zip(case.model.graph.output, elements_of(case.model)) if element in kinds.ROUNDOFF}
    return exact and all("differ, at" in text and " nan" not in text and "inf" not in text and text.split(": ")[1] in floats
                         for text in objections)


def _judge_random(case: Case, got: list[Any], verdict: Any) -> Verdict:
    """Draws: type, and as far as inference knows it the shape."""
    inferred = onnx.shape_inference.infer_shapes(case.model).graph.output
    for info, value in zip(inferred, got):
        kind = info.type.tensor_type
        if value.dtype != onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type):
            return verdict("differs", "", f"{info.name}: type {value.dtype}")
        wanted = [d.dim_value if d.HasField("dim_value") else -1 for d in kind.shape.dim] if kind.HasField("shape") else None
        if wanted is not None and (len(wanted) != value.ndim or any(w not in (-1, d) for w, d in zip(wanted, value.shape))):
            return verdict("differs", "", f"{info.name}: shape {value.shape} instead of {wanted}")
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            return verdict("differs", "", f"{info.name}: not finite")
    return verdict("pass", "type and shape")

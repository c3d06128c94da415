"""compare: where a model first computes something else than a reference, node by node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _core
from .session import Session


@dataclass(frozen=True)
class Difference:
    """How one value differs from the reference's. `node` is "name (OpType)" of the node that computes it.

    max_ulp counts the floats that lie between the two, at most; None for what is not float16, bfloat16, float32 or
    float64, and where one of the two is NaN. `index`, `got` and `want` are of the element that differs most."""

    value: str
    node: str
    ok: bool
    reason: str = ""  # "type", "shape" or "values" where not ok
    max_abs: float = 0.0
    max_rel: float = 0.0
    max_ulp: int | None = 0
    index: tuple[int, ...] = ()
    got: Any = None
    want: Any = None


def compare(model: Any, inputs: Mapping[str, Any], reference: Any = "reference", *, rtol: float = 1e-3,
            atol: float | None = None, **options: Any) -> list[Difference]:
    """Compares what every node of `model` computes with a reference, in the order of the graph.

    model: path, bytes or onnx.ModelProto; inputs: {name: array}; options: those of Session for the side that is
    examined, whose kernels end at every node. reference:
      "reference"   tensorbox by plain loops alone: no compiler, library, fusion and graph passes
      "evaluator"   tensorbox without compiler, fusion and graph passes, but with libraries: faster
      "onnx"        onnx.reference.ReferenceEvaluator
      {name: array} recorded values
      a Session     made with every_value=True, or whose outputs are all that is to be compared
      a model       another file, bytes or ModelProto with the same values, run by plain loops
    A value is ok where |got - want| <= atol + rtol * |want|; atol is 1e-4 of the wanted value's standard deviation
    unless given. Values that only one side has are left out; KeyError when they have none in common. The first
    difference: next((d for d in compare(...) if not d.ok), None). Raises what Session does."""
    options.setdefault("seed", 0)  # both sides draw the same random numbers
    session = Session(model, every_value=True, **options)
    want = dict(_flat(_reference_values(model, inputs, reference, options["seed"])))
    nodes = {info.name: info.node for info in session.outputs}
    rows = [_difference(name, nodes.get(name.split("[")[0], nodes.get(name, "")), got, want[name], rtol, atol)
            for name, got in _flat(session.run(inputs)) if name in want]
    if not rows:
        raise KeyError("the model and the reference have no value in common")
    return rows


def _reference_values(model: Any, inputs: Mapping[str, Any], reference: Any, seed: int | None) -> Mapping[str, Any]:
    if isinstance(reference, Mapping):
        return reference
    if isinstance(reference, Session):
        return reference.run(inputs)
    if isinstance(reference, str) and reference == "onnx":
        from onnx.reference import ReferenceEvaluator  # only here: onnx is no requirement of tensorbox

        model = bytes(model) if isinstance(model, (bytearray, memoryview)) else model
        return ReferenceEvaluator(model).run(None, dict(inputs), intermediate=True)
    named = isinstance(reference, str) and reference in ("reference", "evaluator")
    return Session(model if named else reference, reference=not named or reference == "reference", compile=False,
                   fuse=False, fuse_extern=False, every_value=True, disable_passes=_core.pass_names(),
                   seed=seed).run(inputs)


def _flat(values: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    """Arrays by name; the elements of a sequence are name[0], name[1], ..."""
    for name, value in values.items():
        if isinstance(value, (list, tuple)):
            yield from _flat({f"{name}[{i}]": element for i, element in enumerate(value)})
        elif value is not None and not isinstance(value, dict):
            yield name, np.asarray(value)


def _difference(name: str, node: str, got: np.ndarray, want: np.ndarray, rtol: float,
                atol: float | None) -> Difference:
    if got.shape != want.shape:
        return Difference(name, node, False, "shape", got=got.shape, want=want.shape)
    if got.dtype != want.dtype and not (got.dtype.kind in "OUS" and want.dtype.kind in "OUS"):
        return Difference(name, node, False, "type", got=got.dtype, want=want.dtype)
    if got.dtype.kind in "OUS":
        unlike = np.argwhere(got.astype(str) != want.astype(str))
        at = tuple(int(k) for k in unlike[0]) if len(unlike) else ()
        return Difference(name, node, not len(unlike), "values" if len(unlike) else "", index=at,
                          got=got[at] if len(unlike) else None, want=want[at] if len(unlike) else None)
    if not got.size:
        return Difference(name, node, True)
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    a, b = got.astype(wide), want.astype(wide)
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        distance = np.where(same, 0, np.abs(a - b))
        distance = np.where(np.isnan(distance), np.inf, distance)
        relative = np.where(same, 0, distance / np.maximum(np.abs(b), 1e-30))
        finite = b[np.isfinite(b)]
        spread = float(np.std(finite)) if finite.size else 0.0
        bad = ~same & ~(distance <= (1e-4 * spread if atol is None else atol) + rtol * np.abs(b))
    at = tuple(int(k) for k in np.unravel_index(int(np.argmax(distance)), distance.shape))
    return Difference(name, node, not bad.any(), "values" if bad.any() else "", float(distance.max()),
                      float(relative.max()), _ulps(got, want), at, got[at], want[at])


def _ulps(got: np.ndarray, want: np.ndarray) -> int | None:
    if got.dtype.name not in ("float16", "bfloat16", "float32", "float64"):
        return None
    both = np.isnan(got) & np.isnan(want)
    if (np.isnan(got) ^ np.isnan(want)).any():
        return None

    def place(x: np.ndarray) -> np.ndarray:  # neighbours differ by one, -0 and 0 are the same
        bits = np.ascontiguousarray(x).view(f"i{x.dtype.itemsize}").astype(object if x.dtype.itemsize == 8 else np.int64)
        low = -(2 ** (8 * x.dtype.itemsize - 1))
        return np.where(bits < 0, low - bits, bits)

    return int(np.max(np.where(both, 0, np.abs(place(got) - place(want)))))

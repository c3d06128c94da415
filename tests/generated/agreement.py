"""Compares outputs. Tolerances follow from the type and from how many terms a result sums up; there are no others.

A result of `terms` rounded additions of numbers as large as the largest result differs from the exact one by at most
terms * u * that size, where u is the unit roundoff of the type; a reference that rounds, too, may differ by as much
again. Elementwise results count as eight terms: functions such as tanh are allowed four units in the last place, on
either side. More than a sixteenth of the largest result is never allowed, however many terms there are: zeros must not pass. Integers, bools, strings and the types of 8 bits and fewer are compared exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

import kinds

MOST = 1 / 16  # of the largest result


def difference(got: Any, want: Any, element: int, terms: int, roundoff: float = 0.0) -> str:
    """What is wrong with an output of an element type, "" if nothing.

    `roundoff`: of what the reference or, where the specification says so, the operator itself computes with, if that
    is coarser than the type. The type of `got` must be the declared one; values of `want` are converted to it.
    """
    if want is None or got is None:
        return "" if want is None and got is None else f"{_brief(got)} instead of {_brief(want)}"
    if isinstance(want, (list, tuple)):
        if not isinstance(got, (list, tuple)) or len(got) != len(want):
            return f"{_brief(got)} instead of a sequence of {len(want)}"
        return next((text for g, w in zip(got, want) if (text := difference(g, w, element, terms, roundoff))), "")
    if isinstance(want, dict):
        if list(got) != list(want):
            return f"keys {list(got)} instead of {list(want)}"
        declared = helper.tensor_dtype_to_np_dtype(element)  # Python's numbers have no type
        got, want = (np.array(list(value.values()), declared) for value in (got, want))
        return _array_difference(got, want, element, terms, roundoff)
    return _array_difference(np.asarray(got), np.asarray(want), element, terms, roundoff)


def _array_difference(got: np.ndarray, want: np.ndarray, element: int, terms: int, coarser: float) -> str:
    if got.shape != want.shape:
        return f"shape {got.shape} instead of {want.shape}"
    if want.dtype.kind in "OUST":
        same = [str(g) == str(w) for g, w in zip(got.ravel(), want.ravel())]
        return "" if all(same) else f"{got.ravel()[same.index(False)]!r} instead of {want.ravel()[same.index(False)]!r}"
    declared = helper.tensor_dtype_to_np_dtype(element)
    if got.dtype != declared:
        return f"type {got.dtype} instead of {declared}"
    cut = want if kinds.is_float(want.dtype) and not kinds.is_float(declared) else None
    want = _converted(want, declared)
    roundoff = kinds.ROUNDOFF.get(element)
    if cut is not None and declared.kind in "iu":  # rounding may have taken the float across a whole number
        error = terms * max(coarser, kinds.ROUNDOFF[onnx.TensorProto.FLOAT]) * np.max(np.abs(cut), initial=0)
        ends = [_converted(np.float64(cut) + side, declared) for side in (-error, error)]
        bad = (got != ends[0]) & (got != ends[1]) & (got != want)
    elif roundoff is None:
        bad = ~((got == want) | ((got != got) & (want != want)))
    else:
        roundoff = max(roundoff, coarser)
        wide = np.complex128 if want.dtype.kind == "c" else np.float64
        g, w = got.astype(wide), want.astype(wide)
        with np.errstate(all="ignore"):
            narrow = w.astype(declared).astype(wide)
            w = np.where(np.isfinite(narrow), w, narrow)  # overflows as the type does
        with np.errstate(all="ignore"):
            size = np.abs(w)
            largest = np.max(size[np.isfinite(size)], initial=0)
            close = np.isfinite(w) & (np.abs(g - w) <= min(terms * roundoff, MOST) * largest)
        bad = ~(close | (g == w) | ((g != g) & (w != w)))
    if not bad.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"{int(bad.sum())} of {bad.size} differ, at {place} {got[place]!r} instead of {want[place]!r}"


def _converted(want: np.ndarray, declared: np.dtype) -> np.ndarray:
    """Reference results in the declared type, unless they are floats, which keep what they have of precision."""
    if want.dtype == declared or want.dtype.kind in "OUST":
        return want
    if declared.name.startswith(("float8", "float4")) and want.dtype == np.uint8:  # the bits of it
        return want.view(declared)
    if kinds.is_float(want.dtype) and kinds.is_float(declared):
        return want
    with np.errstate(all="ignore"):
        return want.astype(declared)


def _brief(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"

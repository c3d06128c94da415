"""The one place that says how far a result may be from the reference. Nothing else widens it.

A sum of n products in floating point of unit roundoff u errs by about u * sqrt(n) times the size of its result, when
the terms are as random as these cases' are; each value that is stored errs by its type's roundoff. Errors of several
operators add up, and are taken relative to the size that `scale.py` finds for an output. `gain` is what operators that
are steeper than 1 may make of an error: of the largest of many, so that a bound for each value alone may grow to the
size of the output. The output as a whole must be right to its norm, too."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .scale import Size

ROUNDOFF = {"f32": 2.0 ** -24, "f64": 2.0 ** -53, "f16": 2.0 ** -11, "bf16": 2.0 ** -8}
SAFETY = 4.0  # maxima over many elements are some standard deviations out
# Of the whole output, relative to its norm: some ten times what cases need, and far from what is no result.
OF_NORM = {"f32": 1e-4, "f64": 1e-10, "f16": 1e-2, "bf16": 6e-2}
ELEMENTARY = 8.0  # ulps of exp, tanh and their like in float32 or float64, and of the roundings around them


@dataclass(frozen=True)
class Bound:
    """What the case says of its arithmetic."""
    dtype: str  # of the model's floats
    terms: int  # of all sums behind each other
    nodes: int
    gain: float
    rounded: str  # type that operands of products are rounded to (precision="bf16", "f16"); empty: to none
    off_by_one: bool  # 8-bit results are rounded from floats
    larger_tiles: bool = False  # convolutions by F(4x4), whose sums err by up to 2.2 times as much on average

    @property
    def sums(self) -> float:
        """Halves are added in float32."""
        return ROUNDOFF["f64" if self.dtype == "f64" else "f32"] * self.terms ** 0.5 * (4 if self.larger_tiles else 1)

    def absolute(self, size: Any) -> Any:
        """Of a value, or of each."""
        wide = ROUNDOFF["f64" if self.dtype == "f64" else "f32"]
        stored = (wide * ELEMENTARY + (ROUNDOFF[self.dtype] if self.dtype in ("f16", "bf16") else 0)) * self.nodes ** 0.5
        if self.rounded:  # and what lies between the operators is stored so
            stored += ROUNDOFF[self.rounded] * self.nodes ** 0.5
        return SAFETY * self.gain * (self.sums + stored) * size

    @property
    def narrowest(self) -> str:
        """What values between the operators are stored in."""
        return max(self.dtype, self.rounded or self.dtype, key=lambda dtype: ROUNDOFF[dtype])

    def norm(self, want: np.ndarray, size: float) -> float:
        """Of the difference as a whole. Outputs that are small since what they are computed from cancels have no norm to
        be held against: the roundoff of that is allowed. On average it is a quarter of the largest, of values that are less."""
        floor = (ROUNDOFF[self.narrowest] / 4 + self.sums) * size * max(want.size, 1) ** 0.5
        return OF_NORM[self.narrowest] * float(np.linalg.norm(want)) + floor


def difference(got: np.ndarray, want: np.ndarray, bound: Bound, size: Size) -> str:
    """Empty where they agree, else what is wrong."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"is {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    if got.size == 0:
        return ""
    if want.dtype.kind in "iub":
        apart = np.abs(got.astype(np.int64) - want.astype(np.int64))
        if bound.off_by_one and want.dtype.itemsize == 1:
            # Where two float32 evaluations meet a tie they may round to either side: about one in 10,000 of values
            # up to 255, each known to some 1e-5.
            allowed = max(1, want.size // 1000)
            if apart.max() <= 1 and np.count_nonzero(apart) <= allowed:
                return ""
        return "" if not apart.any() else f"{np.count_nonzero(apart)} of {apart.size} integers differ, by {apart.max()} at most"
    g, w = got.astype(np.float64), want.astype(np.float64)
    same = np.isfinite(w)
    if not np.array_equal(same, np.isfinite(g)) or not np.array_equal(g[~same], w[~same], equal_nan=True):
        return f"{np.count_nonzero(~np.isfinite(g))} values are not finite, expected {np.count_nonzero(~same)}"
    if not same.any():
        return ""
    apart, allowed = np.abs(g[same] - w[same]), np.broadcast_to(bound.absolute(size.each), w.shape)[same]
    if bound.dtype in ("f16", "bf16"):
        allowed = allowed + np.abs(w[same]) * ROUNDOFF[bound.dtype]
    bad = apart > allowed
    if not bad.any():
        norm, most = float(np.linalg.norm(apart)), bound.norm(w[same], size.mean)
        if norm <= most:
            return ""
        return (f"the output as a whole is off by {norm:.3g} of {np.linalg.norm(w[same]):.3g} (L2), allowed {most:.3g}, "
                f"size {size.mean:.3g}")
    at = int(np.argmax(np.where(bad, apart, 0)))
    return (f"{np.count_nonzero(bad)} of {bad.size} values are off, by {apart[at]:.3g} at most ({g[same].flat[at]:.6g} for "
            f"{w[same].flat[at]:.6g}), allowed {allowed[at]:.3g}, size {size.mean:.3g}")

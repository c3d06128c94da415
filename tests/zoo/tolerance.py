"""Hold an engine's output against a reference: the tolerance rule of models/zoo/README.md."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reference import Reference, relative_l2, statistics

F32_RELATIVE = 1e-3
F32_OF_STD = 1e-4
RELATIVE_L2 = {"bf16": 6e-2, "fp16": 5e-3, "int4": 5e-3, "int8": 3e-2}


@dataclass(frozen=True)
class Verdict:
    """What a comparison found. `used` is the part of the tolerance used: over 1 means too far off."""

    ok: bool
    used: float
    max_difference: float
    message: str


def _refused(message: str) -> Verdict:
    return Verdict(False, float("inf"), float("inf"), message)


def compare(got: np.ndarray, want: Reference, precision: str) -> Verdict:
    """Compare shape, type and values, and the statistics of the whole output where the norm of some stands for it."""
    if got.shape != want.shape:
        return _refused(f"shape is {list(got.shape)}, expected {list(want.shape)}")
    if got.dtype.name != want.dtype:
        return _refused(f"type is {got.dtype.name}, expected {want.dtype}")
    values = got.reshape(-1)[want.places]
    if values.shape != want.values.shape:
        raise ValueError(f"reference {want.source} does not fit an output of shape {list(want.shape)}")
    if not np.issubdtype(got.dtype, np.floating):
        return _compare_exactly(values, want)
    if not np.isfinite(got).all():
        return _refused(f"{int((~np.isfinite(got)).sum())} values are not finite")
    if precision == "f32":
        return _worse(_compare_values(values, want), _compare_statistics(got, want, F32_RELATIVE, F32_OF_STD))
    limit = max(RELATIVE_L2[precision], want.ort_opt_l2)
    norm = _compare_norm(values, want, limit)
    # The norm of all values misses nothing; the spread of two is their difference, in which roundings weigh most.
    return norm if values.size == got.size else _worse(norm, _compare_statistics(got, want, limit, limit))


def _worse(first: Verdict, second: Verdict) -> Verdict:
    return second if second.used > max(first.used, 1.0) else first


def _compare_exactly(values: np.ndarray, want: Reference) -> Verdict:
    different = np.flatnonzero(values != want.values)
    if different.size == 0:
        return Verdict(True, 0.0, 0.0, "equal")
    first = different[0]
    return _refused(f"{different.size} values differ, the first is {values[first]}, expected {want.values[first]}")


def _compare_values(values: np.ndarray, want: Reference) -> Verdict:
    if values.size == 0:
        return Verdict(True, 0.0, 0.0, "empty")
    expected = want.values.astype(np.float64)
    difference = np.abs(values.astype(np.float64) - expected)
    floor = max(F32_OF_STD * want.std, want.ort_opt_maxdiff, np.finfo(np.float32).tiny)
    used = difference / np.maximum(F32_RELATIVE * np.abs(expected), floor)
    worst = int(used.argmax())
    message = f"value {worst} of {values.size} ({want.source}) is {values[worst]}, expected {expected[worst]}"
    return Verdict(bool(used[worst] <= 1), float(used[worst]), float(difference.max()), message)


def _compare_norm(values: np.ndarray, want: Reference, limit: float) -> Verdict:
    if values.size == 0:
        return Verdict(True, 0.0, 0.0, "empty")
    relative = relative_l2(values, want.values)
    largest = float(np.abs(values.astype(np.float64) - want.values).max())
    message = f"relative L2 difference ({want.source}) is {relative:.3g}, at most {limit:.3g} is allowed"
    return Verdict(relative <= limit, relative / limit, largest, message)


def _compare_statistics(got: np.ndarray, want: Reference, relative: float, of_std: float) -> Verdict:
    """Mean, spread and maximum of the whole output: they see what lies outside the stored values."""
    found = statistics(got)
    floor = max(of_std * want.std, want.ort_opt_maxdiff, np.finfo(np.float32).tiny)
    used = {
        key: abs(found[key] - value) / max(relative * abs(value), floor)
        for key, value in want.statistics.items()
    }
    worst = max(used, key=lambda key: used[key])
    message = f"{worst} of the whole output is {found[worst]:.6g}, expected {want.statistics[worst]:.6g}"
    return Verdict(used[worst] <= 1, used[worst], float("nan"), message)

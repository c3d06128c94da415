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


DETECTIONS = ("boxes", "scores", "labels")  # a detector's results, as torchvision names them, best first
LEAST_FOUND, LEAST_OVERLAP = 0.9, 0.9


def compare_all(outputs: dict[str, np.ndarray], wanted: dict[str, list[Reference]], precision: str) -> dict[str, Verdict]:
    """The worst verdict on each output. In narrow precisions detections are a set: of two whose scores are nearly equal
    either may be first, so boxes and labels are looked for in all places."""
    as_set = precision != "f32" and set(wanted) == set(DETECTIONS) and all(r.values.size == np.prod(r.shape) for f in wanted.values() for r in f)
    verdicts = {}
    for name, references in wanted.items():
        if as_set and name != "scores":
            continue
        verdicts[name] = max((compare(outputs[name], r, precision) for r in references), key=lambda v: v.used)
    if as_set:
        pairs = zip(wanted["boxes"], wanted["labels"])
        verdicts["boxes, labels"] = max((_compare_detections(outputs, *pair) for pair in pairs), key=lambda v: v.used)
    return verdicts


def _compare_detections(got: dict[str, np.ndarray], boxes: Reference, labels: Reference) -> Verdict:
    """How many wanted boxes (left, top, right, bottom) are found again with their label and nine tenths of overlap."""
    for name, want in (("boxes", boxes), ("labels", labels)):
        if got[name].shape != want.shape or got[name].dtype.name != want.dtype:
            return _refused(f"{name} are {got[name].dtype.name} {list(got[name].shape)}, expected {want.dtype} {list(want.shape)}")
    ours, theirs = got["boxes"].reshape(-1, 4).astype(np.float64), boxes.values.reshape(-1, 4).astype(np.float64)
    same = got["labels"].reshape(-1)[None] == labels.values.reshape(-1)[:, None]
    found = ((_overlaps(theirs, ours) >= LEAST_OVERLAP) & same).any(axis=1)
    if found.size == 0:
        return Verdict(True, 0.0, 0.0, "empty")
    missing = 1 - float(found.mean())
    used = missing / (1 - LEAST_FOUND)
    return Verdict(used <= 1, used, missing, f"{int(found.sum())} of {found.size} are found again, at least {LEAST_FOUND:.0%} have to be")


def _overlaps(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Intersection over union of all pairs [len(a), len(b)]."""
    size = np.minimum(a[:, None, 2:], b[None, :, 2:]) - np.maximum(a[:, None, :2], b[None, :, :2])
    both = np.clip(size, 0, None).prod(axis=2)
    area = [np.clip(x[:, 2:] - x[:, :2], 0, None).prod(axis=1) for x in (a, b)]
    return both / np.maximum(area[0][:, None] + area[1][None] - both, np.finfo(np.float64).tiny)


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

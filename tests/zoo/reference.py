"""Outputs that ONNX Runtime gave, against which an engine's outputs are held.

Three sources, all of runs with its optimisations off: expected.npz of the light form (base case: whole outputs, or
their first 4,096 values), recorded/NAME.npz (samples from everywhere in an output; also for the further shapes), and
a live run, which compares every value but needs onnxruntime.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import cases
import engines
import zoo

RECORDED = Path(__file__).parent / "recorded"
SAMPLES, TAIL = 192, 64
STATISTICS = ("mean", "std", "maxabs")


@dataclass(frozen=True)
class Reference:
    """Some or all values of one output, with facts about the whole of it."""

    source: str
    shape: tuple[int, ...]
    dtype: str
    places: np.ndarray | slice  # of `values` in the flat output
    values: np.ndarray  # flat
    statistics: dict[str, float]
    ort_opt_maxdiff: float  # how far ONNX Runtime's other runs (record.py) are off, at most
    ort_opt_l2: float  # ... in relative L2, at the worst of the recorded shapes

    @property
    def std(self) -> float:
        return self.statistics["std"]


def sample_places(output: str, size: int) -> np.ndarray:
    """Flat places that stand for an output of `size` values: random ones and the last few."""
    if size <= SAMPLES + TAIL:
        return np.arange(size)
    rule = {"rule": "randint", "lo": 0, "hi": size}
    drawn = zoo.materialize.generate("sample:" + output, [SAMPLES], "int64", rule)
    return np.union1d(drawn, np.arange(size - TAIL, size))


def statistics(array: np.ndarray) -> dict[str, float]:
    """Mean, standard deviation and largest magnitude, in double precision; zeros for an empty array."""
    if array.size == 0:
        return dict.fromkeys(STATISTICS, 0.0)
    wide = array.astype(np.float64)
    return {"mean": float(wide.mean()), "std": float(wide.std()), "maxabs": float(np.abs(wide).max())}


def relative_l2(got: np.ndarray, want: np.ndarray) -> float:
    """The norm of the difference, relative to the norm of `want`."""
    wide = want.reshape(-1).astype(np.float64)
    distance = np.linalg.norm(got.reshape(-1).astype(np.float64) - wide)
    return float(distance / max(np.linalg.norm(wide), np.finfo(np.float32).tiny))


def _from_facts(
    source: str, facts: dict[str, Any], places: np.ndarray | slice, values: np.ndarray, ort_opt_l2: float
) -> Reference:
    """A reference out of an entry of expected.json or recorded/NAME.json."""
    return Reference(
        source,
        tuple(facts["shape"]),
        facts["dtype"],
        places,
        values.reshape(-1),
        {key: facts[key] for key in STATISTICS},
        facts.get("ort_opt_maxdiff", 0.0),
        ort_opt_l2,
    )


def whole(array: np.ndarray) -> Reference:
    """A reference out of all values of an output that was computed just now."""
    return Reference("live", array.shape, array.dtype.name, slice(None), array.reshape(-1), statistics(array), 0.0, 0.0)


def stored(case: cases.Case) -> dict[str, list[Reference]]:
    """Per output of the case: every reference that the repository holds."""
    path = RECORDED / f"{case.model}.json"
    recorded = json.loads(path.read_text())["cases"] if path.is_file() else {}

    def noise(output: str) -> float:
        return max((facts[output]["ort_opt_l2"] for facts in recorded.values()), default=0.0)

    found: dict[str, list[Reference]] = {}
    if case.label == cases.BASE:
        values = zoo.expected_values(case.model)
        for output, facts in zoo.expected_facts(case.model).items():
            prefix = slice(0, values[output].size)
            found[output] = [_from_facts("expected", facts, prefix, values[output], noise(output))]
    if case.label in recorded:
        with np.load(path.with_suffix(".npz")) as samples:
            for output, facts in recorded[case.label].items():
                places = sample_places(output, int(np.prod(facts["shape"], dtype=np.int64)))
                sample = samples[f"{case.label}/{output}"]
                reference = _from_facts("recorded", facts, places, sample, noise(output))
                found.setdefault(output, []).append(reference)
    return found


def live(model: str, threads: int) -> dict[str, dict[str, list[Reference]]]:
    """Per case and output: the whole output of ONNX Runtime, run now."""
    path = zoo.folder(model) / "model.onnx"
    plain = engines.load("ort", path, engines.LoadOptions(threads, optimize=False))
    optimised = engines.load("ort", path, engines.LoadOptions(threads))
    found: dict[str, dict[str, list[Reference]]] = {}
    for case in cases.cases(model):
        feeds = case.inputs()
        others = optimised(feeds)
        found[case.label] = {}
        for output, array in plain(feeds).items():
            facts = facts_of(array, [others[output]], slice(None))
            whole = _from_facts("live", facts, slice(None), array, facts["ort_opt_l2"])
            found[case.label][output] = [whole]
    return found


def facts_of(array: np.ndarray, others: list[np.ndarray], places: np.ndarray | slice) -> dict[str, Any]:
    """What is written down about an output of the unoptimised run, sampled at `places`, and of the other runs."""
    sample = array.reshape(-1)[places]
    wide = array.astype(np.float64)
    differences = [float(np.abs(wide - other).max()) if other.size else 0.0 for other in others]
    norms = [
        max(relative_l2(other, array), relative_l2(other.reshape(-1)[places], sample)) for other in others
    ]
    return {
        "shape": list(array.shape),
        "dtype": array.dtype.name,
        **statistics(array),
        "ort_opt_maxdiff": max(differences),
        "ort_opt_l2": max(norms),
    }

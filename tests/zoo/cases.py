"""What a zoo model is run on: the shapes of its spec.json, then five further shapes where axes are dynamic."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import zoo

BASE = "base"


@dataclass(frozen=True)
class Case:
    """One run of a model. `label` names it in reports and in the recorded outputs."""

    model: str
    label: str
    spec: dict[str, Any]

    def inputs(self) -> dict[str, np.ndarray]:
        """The case's input arrays; every case draws other random numbers."""
        stream = "" if self.label == BASE else self.label + ":"
        return zoo.materialize.make_inputs(self.spec, stream)


@cache
def _further_shapes() -> dict[str, list[dict[str, Any]]]:
    return json.loads((Path(__file__).parent / "shapes.json").read_text())


def is_dynamic(model: str) -> bool:
    """Does the model have axes whose size the caller chooses?"""
    return model in _further_shapes()


def cases(model: str) -> list[Case]:
    """The base case and, for a dynamic model, one case per entry of shapes.json."""
    found = [Case(model, BASE, zoo.spec(model))]
    for entry in _further_shapes().get(model, []):
        label = ",".join(f"{axis}={size}" for axis, size in entry["axes"].items())
        found.append(Case(model, label, _bind(zoo.spec(model), entry["axes"], entry.get("rules", {}))))
    return found


def _bind(spec: dict[str, Any], axes: dict[str, int], rules: dict[str, Any]) -> dict[str, Any]:
    """A copy of `spec` with dynamic axes set to sizes and some inputs made by another rule."""
    bound = copy.deepcopy(spec)
    for value in bound["inputs"]:
        for place, axis in value["dynamic"].items():
            value["shape"][int(place)] = axes[axis]
        value["rule"] = rules.get(value["name"], value["rule"])
    return bound

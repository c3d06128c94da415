#!/usr/bin/env python3
"""Write recorded/NAME.npz and .json: samples of ONNX Runtime's outputs where expected.npz does not reach.

    python3 tests/zoo/record.py [NAME ...]        needs onnxruntime

Recorded are the further shapes of dynamic models, and the base case of models of which expected.npz holds only the
first values of an output.
"""

from __future__ import annotations

import json
import sys

import numpy as np

import cases
import engines
import reference
import zoo


def needs_record(case: cases.Case) -> bool:
    """Is the case more than what expected.npz holds?"""
    if case.label != cases.BASE:
        return True
    values = zoo.expected_values(case.model)
    return any(
        values[output].size < np.prod(facts["shape"]) for output, facts in zoo.expected_facts(case.model).items()
    )


def record(model: str) -> None:
    """Run the model's cases through ONNX Runtime and write what is needed of the outputs."""
    wanted = [case for case in cases.cases(model) if needs_record(case)]
    if not wanted:
        return
    version = engines.import_engine("ort")
    path = zoo.folder(model) / "model.onnx"
    plain = engines.load("ort", path, engines.LoadOptions(optimize=False))
    optimised = engines.load("ort", path)
    facts: dict[str, dict] = {}
    samples: dict[str, np.ndarray] = {}
    for case in wanted:
        feeds = case.inputs()
        outputs, others = plain(feeds), optimised(feeds)
        facts[case.label] = {}
        for name, array in outputs.items():
            places = reference.sample_places(name, array.size)
            facts[case.label][name] = reference.facts_of(array, others[name], places)
            samples[f"{case.label}/{name}"] = array.reshape(-1)[places]
        print(f"{model} {case.label}: {len(outputs)} outputs", flush=True)
    reference.RECORDED.mkdir(exist_ok=True)
    target = reference.RECORDED / f"{model}.npz"
    np.savez_compressed(target, **samples)
    text = json.dumps({"made_by": f"onnxruntime {version}, ORT_DISABLE_ALL", "cases": facts}, indent=1)
    target.with_suffix(".json").write_text(text + "\n")


if __name__ == "__main__":
    for model_name in sys.argv[1:] or zoo.names():
        record(model_name)

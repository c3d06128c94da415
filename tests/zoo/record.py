#!/usr/bin/env python3
"""Write recorded/NAME.npz and .json: samples of ONNX Runtime's outputs where expected.npz does not reach.

    python3 tests/zoo/record.py [NAME ...]        needs onnxruntime

Recorded are the further shapes of dynamic models, and the base case of models of which expected.npz holds only the
first values of an output. How far off ONNX Runtime's own other runs are is written down beside: the optimised one,
and for quantised models those with weights moved by their last bit (perturb.py).
"""

from __future__ import annotations

import json
import sys

import numpy as np

import cases
import engines
import perturb
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


def other_runs(model: str, wanted: list[cases.Case]) -> list[list[engines.Arrays]]:
    """Per case: outputs of the runs that ought to give the same as the unoptimised one."""
    folder = zoo.folder(model)
    optimised = engines.load("ort", folder / "model.onnx")
    runs = [[optimised(case.inputs())] for case in wanted]
    if zoo.index()[model]["precision"] in perturb.QUANTISED:
        for seed in range(perturb.RUNS):
            with perturb.perturbed(folder, seed) as path:
                moved = engines.load("ort", path, engines.LoadOptions(optimize=False))
                for outputs, case in zip(runs, wanted, strict=True):
                    outputs.append(moved(case.inputs()))
    return runs


def record(model: str) -> None:
    """Run the model's cases through ONNX Runtime and write what is needed of the outputs."""
    wanted = [case for case in cases.cases(model) if needs_record(case)]
    if not wanted:
        return
    version = engines.import_engine("ort")
    path = zoo.folder(model) / "model.onnx"
    plain = engines.load("ort", path, engines.LoadOptions(optimize=False))
    facts: dict[str, dict] = {}
    samples: dict[str, np.ndarray] = {}
    for case, others in zip(wanted, other_runs(model, wanted), strict=True):
        outputs = plain(case.inputs())
        facts[case.label] = {}
        for name, array in outputs.items():
            places = reference.sample_places(name, array.size)
            facts[case.label][name] = reference.facts_of(array, [run[name] for run in others], places)
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

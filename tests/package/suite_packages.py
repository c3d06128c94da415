#!/usr/bin/env python3
"""The cases of the ONNX backend suite through packages: compiled, run and saved here, loaded and run in another process
whose PATH is empty; what that gives must be equal to the last bit.

    python3 tests/suite/dump_cases.py build/suite-cases
    PYTHONPATH=build/release/python python3 tests/package/suite_packages.py build/suite-cases [--part 3/10] [--filter TEXT]

A part takes each n-th case. A folder of models with their inputs (<any>/<name>/model.onnx and inputs.npz) is taken, too.
Prints what could not be packaged, by reason, and ends with 1 where results differ, a
package does not load, or something else fails.
"""

from __future__ import annotations

import argparse
import collections
import os
import pickle
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import tensorbox

READERS = {"tensor": (onnx.TensorProto, numpy_helper.to_array), "sequence": (onnx.SequenceProto, numpy_helper.to_list),
           "optional": (onnx.OptionalProto, numpy_helper.to_optional), "map": (onnx.MapProto, numpy_helper.to_dict)}


def read_value(file: Path) -> Any:
    kind = file.name.split(".")[-2]
    proto, convert = READERS[kind]
    return convert(proto.FromString(file.read_bytes()))


def inputs_of(case: Path, names: list[str]) -> list[dict[str, Any]]:
    """Of each set of the case, or of a model with inputs.npz beside it."""
    if (case / "inputs.npz").exists():
        return [dict(np.load(case / "inputs.npz"))]
    sets = []
    for folder in sorted(case.glob("set_*")):
        files = sorted(folder.glob("input_*"), key=lambda f: int(re.findall(r"input_(\d+)", f.name)[0]))
        sets.append({name: read_value(f) for name, f in zip(names, files)})
    return sets


def bits(value: Any) -> Any:
    """Equal for equal types, shapes and bits."""
    if isinstance(value, dict):
        return sorted((k, bits(v)) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return [bits(v) for v in value]
    if isinstance(value, np.ndarray) and value.dtype != object:
        return str(value.dtype), value.shape, value.tobytes()
    return value.tolist() if isinstance(value, np.ndarray) else value


def run(session: tensorbox.Session, sets: list[dict[str, Any]]) -> list[Any]:
    return [bits(session.run(inputs)) for inputs in sets]


def save(case: Path, package: Path) -> tuple[str, Any]:
    """("saved", results), ("refused", why) or ("failed", why); cases that do not run are left out."""
    try:
        session = tensorbox.Session(str(case / "model.onnx"), seed=7, threads=1)
        sets = inputs_of(case, [i.name for i in session.inputs])
        results = run(session, sets)
    except tensorbox.Error as error:
        return "left out", str(error)
    try:
        session.save(package)
    except tensorbox.UnsupportedError as error:
        return "refused", str(error)
    # Random operators go on with their streams: compared with a session that has not run.
    return "saved", results if not re.search("random|bernoulli|dropout|multinomial", case.name) else \
        run(tensorbox.Session(str(case / "model.onnx"), seed=7, threads=1), sets)


def load_all(folder: Path) -> None:
    """In the other process."""
    cases, wanted = pickle.loads((folder / "saved.pickle").read_bytes())
    for name, case in cases.items():
        try:
            session = tensorbox.Session(folder / f"{name}.tbx", seed=7, threads=1)
            same = run(session, inputs_of(case, [i.name for i in session.inputs])) == wanted[name]
            print(name, "same" if same else "differs", flush=True)
        except tensorbox.Error as error:
            print(name, "fails:", str(error).replace("\n", " "), flush=True)


def check(cases: list[Path], work: Path) -> tuple[collections.Counter[str], dict[str, list[str]], list[str]]:
    """Counts; cases by the reason of a refusal; what is wrong."""
    counts: collections.Counter[str] = collections.Counter()
    refused: dict[str, list[str]] = collections.defaultdict(list)
    wrong, saved, wanted = [], {}, {}
    for case in cases:
        how, what = save(case, work / f"{case.name}.tbx")
        counts[how] += 1
        if how == "saved":
            saved[case.name], wanted[case.name] = case, what
        elif how == "refused":
            refused[re.sub(r"'[^']*'|node \S+", "...", what)].append(case.name)
    (work / "saved.pickle").write_bytes(pickle.dumps((saved, wanted)))
    environment = {"PATH": "", "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "TBX_CACHE_DIR": str(work / "no-cache")}
    done = subprocess.run([sys.executable, __file__, "--load", work], env=environment, capture_output=True, text=True)
    answers = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    for name in saved:
        if answers.get(name) != "same":
            wrong.append(f"{name}: {answers.get(name, 'no answer: ' + done.stderr[-300:])}")
    return counts, refused, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path, nargs="?")
    parser.add_argument("--load", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--filter", default="")
    options = parser.parse_args()
    if options.load:
        load_all(options.load)
        return 0
    part, of = map(int, options.part.split("/"))
    cases = sorted(p.parent.resolve() for p in options.cases.glob("*/*/model.onnx") if options.filter in p.parent.name)
    with tempfile.TemporaryDirectory(prefix="tensorbox-packages-") as work:
        counts, refused, wrong = check(cases[part::of], Path(work))
    print(", ".join(f"{n} {how}" for how, n in sorted(counts.items())))
    for reason, names in sorted(refused.items(), key=lambda item: -len(item[1])):
        print(f"refused, {len(names)} (such as {', '.join(names[:3])}): {reason}")
    for line in wrong:
        print("WRONG", line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

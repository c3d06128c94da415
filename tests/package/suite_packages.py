#!/usr/bin/env python3
"""The cases of the ONNX backend suite, and the models of the zoo, through packages: compiled, run and saved here, loaded and
run by a program of the runtime library alone (package_runner.cpp), in a process whose environment is empty; what that
gives must be equal to the last bit.

    ./dev build release tbx_python tbx_package_runner
    python3 tests/suite/dump_cases.py build/suite-cases
    PYTHONPATH=build/release/python python3 tests/package/suite_packages.py build/suite-cases [--part 3/10] [--filter TEXT]
    PYTHONPATH=build/release/python python3 tests/package/suite_packages.py --zoo [NAME ...]

A part takes each n-th case. A folder of models with their inputs (<any>/<name>/model.onnx and inputs.npz) is taken, too.
Prints what could not be packaged, by reason, and ends with 1 where results differ, a
package does not load, or something else fails.
"""

from __future__ import annotations

import argparse
import collections
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import tensorbox

ROOT = Path(__file__).resolve().parents[2]
RUNNER = ROOT / "build/release/bin/tbx_package_runner"
sys.path.insert(0, str(ROOT / "tests/zoo"))

import zoo  # noqa: E402

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


def number(n: int) -> bytes:
    return struct.pack("<q", n)


def text(value: str | bytes) -> bytes:
    raw = value if isinstance(value, bytes) else str(value).encode()
    return number(len(raw)) + raw


NARROW = {onnx.TensorProto.INT4: np.int8, onnx.TensorProto.UINT4: np.uint8, onnx.TensorProto.INT2: np.int8,
          onnx.TensorProto.UINT2: np.uint8}  # a byte for each in memory, with its sign


def packed(value: Any, type_name: str) -> bytes:
    """As package_runner.cpp reads and writes a value of this type."""
    kinds = {"none": 0, "tensor": 1, "sequence": 2, "map": 3}
    if value is None:
        return number(kinds["none"])
    if isinstance(value, dict):
        types = re.search(r"map\((\w+), *(?:tensor\()?(\w+)", type_name)
        assert types, type_name
        keys, values = (np.array(list(v), object if kind == "string" else kind)
                        for v, kind in zip((value.keys(), value.values()), types.groups()))
        return number(kinds["map"]) + number(2) + packed(keys, "") + packed(values, "")
    if isinstance(value, (list, tuple)):
        return number(kinds["sequence"]) + number(len(value)) + b"".join(packed(v, type_name) for v in value)
    array = np.asarray(value)
    is_text = array.dtype.kind in "OUS"
    kind = onnx.TensorProto.STRING if is_text else onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    array = array.astype(NARROW.get(kind, array.dtype))
    elements = b"".join(map(text, array.ravel().tolist())) if is_text else array.tobytes()
    return b"".join(map(number, [kinds["tensor"], kind, array.ndim, *array.shape])) + elements


def packed_all(values: dict[str, Any], types: list[Any]) -> bytes:
    names = {t.name: t.type_name for t in types}
    return number(len(values)) + b"".join(text(name) + packed(value, names[name]) for name, value in values.items())


def run(session: tensorbox.Session, sets: list[dict[str, Any]]) -> list[bytes]:
    return [packed_all(session.run(inputs), session.outputs) for inputs in sets]


def save(case: Path, folder: Path) -> tuple[str, Any]:
    """("saved", results), ("for inputs seen", results) of what is saved with that option alone, or ("refused", why); cases
    that do not run are left out. The folder gets the package and the inputs."""
    try:
        session = tensorbox.Session(str(case / "model.onnx"), seed=7, threads=1)
        sets = inputs_of(case, [i.name for i in session.inputs])
        results = run(session, sets)
    except tensorbox.Error as error:
        return "left out", str(error)
    folder.mkdir()
    how = "saved"
    try:
        session.save(folder / "model.tbx")
    except tensorbox.UnsupportedError:
        how = "for inputs seen"
        try:
            session.save(folder / "model.tbx", for_inputs_seen=True)
        except tensorbox.UnsupportedError as error:
            return "refused", str(error)
    for n, inputs in enumerate(sets):
        (folder / f"in.{n}").write_bytes(packed_all(inputs, session.inputs))
    # Random operators go on with their streams: compared with a session that has not run.
    return how, results if not re.search("random|bernoulli|dropout|multinomial", case.name) else \
        run(tensorbox.Session(str(case / "model.onnx"), seed=7, threads=1), sets)


def answers_of(folders: list[Path]) -> list[str]:
    """What the program says of each. Where it ends before, of the folder that it was at, and of the rest in a new process."""
    answers: list[str] = []
    while len(answers) < len(folders):
        lines = "".join(f"{folder}\n" for folder in folders[len(answers):])
        done = subprocess.run([RUNNER], input=lines, env={"PATH": ""}, capture_output=True, text=True)
        answers += done.stdout.splitlines()
        if len(answers) < len(folders):
            answers.append(f"no answer: exit code {done.returncode} {done.stderr[-300:]}")
    return answers


def check(cases: list[Path], work: Path) -> tuple[collections.Counter[str], dict[str, list[str]], list[str]]:
    """Counts; cases by the reason of a refusal; what is wrong."""
    counts: collections.Counter[str] = collections.Counter()
    refused: dict[str, list[str]] = collections.defaultdict(list)
    wrong, saved = [], {}
    for case in cases:
        folder = work / case.name
        how, what = save(case, folder)
        counts[how] += 1
        if how in ("saved", "for inputs seen"):
            saved[folder] = what
        elif how == "refused":
            refused[re.sub(r"'[^']*'|node \S+", "...", what)].append(case.name)
    for folder, answer in zip(saved, answers_of(list(saved))):
        if answer == "ok" and any((folder / f"out.{n}").read_bytes() != want for n, want in enumerate(saved[folder])):
            answer = "differs"
        if answer != "ok":
            wrong.append(f"{folder.name}: {answer}")
        shutil.rmtree(folder)
    return counts, refused, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path, nargs="?")
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--filter", default="")
    parser.add_argument("--zoo", nargs="*", metavar="NAME", help="models of the zoo; none named: all")
    options = parser.parse_args()
    part, of = map(int, options.part.split("/"))
    cases = []
    if options.cases:
        cases = sorted(p.parent.resolve() for p in options.cases.glob("*/*/model.onnx") if options.filter in p.parent.name)
    if options.zoo is not None:
        cases += [zoo.folder(name) for name in options.zoo or zoo.names()]
    counts: collections.Counter[str] = collections.Counter()
    refused: dict[str, list[str]] = collections.defaultdict(list)
    wrong = []
    cases = cases[part::of]
    for first in range(0, len(cases), 100):  # the packages of so many at a time
        with tempfile.TemporaryDirectory(prefix="tensorbox-packages-") as work:
            some, reasons, differences = check(cases[first:first + 100], Path(work))
        counts += some
        wrong += differences
        for reason, names in reasons.items():
            refused[reason] += names
    print(", ".join(f"{n} {how}" for how, n in sorted(counts.items())))
    for reason, names in sorted(refused.items(), key=lambda item: -len(item[1])):
        print(f"refused, {len(names)} (such as {', '.join(names[:3])}): {reason}")
    for line in wrong:
        print("WRONG", line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

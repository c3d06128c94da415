#!/usr/bin/env python3
"""Write the cases of the ONNX backend suite to files, for tests that run without Python.

    python3 tests/suite/dump_cases.py FOLDER        FOLDER/<kind>/<test>/: model.onnx, case.txt, set_<n>/<in|out>put_<i>.pb

case.txt holds the relative and the absolute tolerance. A value's file holds a TensorProto, or where its name says so a
sequence, optional or map. onnx ships its node cases as Python code only, hence this script. Nothing is written when
FOLDER already has the cases of this version of onnx and of this script.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "conformance"))

import suite  # noqa: E402

_case: dict[str, Any] = {}  # what the running test showed of itself


class _Recorder:
    """The prepared model as the suite sees it: takes the inputs, gives no outputs."""

    def run(self, inputs: Any) -> list[Any]:
        _case["inputs"] = list(inputs)
        return []


def supports_device(device: str) -> bool:
    """The suite asks this first."""
    return device == "CPU"


def prepare(model: onnx.ModelProto, device: str, **_: Any) -> _Recorder:
    """Records the model."""
    _case["model"] = model
    return _Recorder()


def _record(cls: type, ref_outputs: Any, outputs: Any, rtol: float, atol: float, model_dir: Any = None) -> None:
    cls.compared += 1
    _case["tolerance"] = (rtol, atol)
    _case.setdefault("sets", []).append((_case["inputs"], list(ref_outputs)))


def _write(value: Any, path: Path) -> None:
    name = path.name
    if value is None:
        proto = onnx.OptionalProto(name=name)
        kind = "optional"
    elif isinstance(value, list):
        proto = numpy_helper.from_list([np.asarray(v) if not isinstance(v, list) else v for v in value], name)
        kind = "sequence"
    elif isinstance(value, dict):
        proto = numpy_helper.from_dict(value, name)
        kind = "map"
    else:
        proto = numpy_helper.from_array(np.asarray(value), name)
        kind = "tensor"
    path.with_name(f"{name}.{kind}.pb").write_bytes(proto.SerializeToString())


def dump(folder: Path) -> int:
    """Writes all cases; their number."""
    me = sys.modules["dump_cases"]
    tests = suite.Suite("dump_cases")
    suite._CountingRunner.assert_similar_outputs = classmethod(_record)
    for name in tests.names():
        me._case.clear()
        outcome = tests.run(name)
        if outcome.status != "pass":
            raise RuntimeError(f"{name}: {outcome.error}: {outcome.message}")
        case = folder / name
        case.mkdir(parents=True)
        (case / "model.onnx").write_bytes(me._case["model"].SerializeToString())
        rtol, atol = me._case["tolerance"]
        (case / "case.txt").write_text(f"{rtol!r} {atol!r}\n")
        for n, (inputs, outputs) in enumerate(me._case["sets"]):
            (case / f"set_{n}").mkdir()
            for what, values in (("input", inputs), ("output", outputs)):
                for i, value in enumerate(values):
                    me._write(value, case / f"set_{n}" / f"{what}_{i}")
    return len(tests.names())


def main(folder: Path) -> None:
    """Writes the cases unless they are there."""
    version = f"{onnx.__version__} {hashlib.sha256(Path(__file__).read_bytes()).hexdigest()}\n"
    stamp = folder / "version.txt"
    if stamp.exists() and stamp.read_text() == version:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="onnx-suite-") as home:
        os.environ["ONNX_HOME"] = home
        count = sys.modules["dump_cases"].dump(folder)
    stamp.write_text(version)
    print(f"{count} cases in {folder}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    import dump_cases  # this file as a module: the suite finds the backend by that name

    dump_cases.main(Path(sys.argv[1]))
